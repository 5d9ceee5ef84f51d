import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harken.attention.masks import CAUSAL, NO_MASK, Mask, MaskKind, build_mask, dense_mask

CPU = torch.device("cpu")


def drawn(mask: Mask, queries: int = 0, keys: int = 0) -> list[str]:
    """Return the first row's table as lines of text, with x where the query may attend."""
    table = dense_mask(mask, queries, keys, CPU)[0, 0]
    return ["".join("x" if visible else "." for visible in row) for row in table.tolist()]


def test_the_causal_flag_aligns_the_last_query_with_the_last_key() -> None:
    assert drawn(CAUSAL, 3, 3) == ["x..", "xx.", "xxx"]
    assert drawn(CAUSAL, 2, 5) == ["xxxx.", "xxxxx"]
    assert drawn(CAUSAL, 4, 2) == ["..", "..", "x.", "xx"]
    assert drawn(NO_MASK, 2, 3) == ["xxx", "xxx"]


def test_a_packed_row_with_a_window() -> None:
    positions, texts = torch.tensor([[0, 1, 0, 1, 2]]), torch.tensor([[0, 0, 1, 1, 1]])
    documents = {"query_documents": texts, "key_documents": texts}
    mask = build_mask("causal", positions, positions, window=1, **documents)
    assert drawn(mask) == ["x....", "xx...", "..x..", "..xx.", "...xx"]


@given(
    st.data(),
    st.sampled_from(["bidirectional", "causal", "strictly_causal"]),
    st.sampled_from([None, 1, 2, 3]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=80)
def test_equals_a_loop_over_every_pair(
    data: st.DataObject,
    mask_kind: MaskKind,
    window: int | None,
    with_present: bool,
    with_documents: bool,
) -> None:
    batch, queries, keys = 2, 3, 5

    def rows(length: int, values: st.SearchStrategy) -> Tensor:
        row = st.lists(values, min_size=length, max_size=length)
        return torch.tensor(data.draw(st.lists(row, min_size=batch, max_size=batch)))

    small = st.integers(0, 4)
    query_at, key_at = rows(queries, small), rows(keys, small)
    present = rows(keys, st.booleans()) if with_present else None
    query_in = rows(queries, st.integers(0, 1)) if with_documents else None
    key_in = rows(keys, st.integers(0, 1)) if with_documents else None
    mask = build_mask(
        mask_kind,
        query_at,
        key_at,
        window=window,
        present=present,
        query_documents=query_in,
        key_documents=key_in,
    )
    table = dense_mask(mask, queries, keys, CPU)
    assert table.shape == (batch, 1, queries, keys)
    for b in range(batch):
        for i in range(queries):
            for t in range(keys):
                early = {
                    "bidirectional": True,
                    "causal": key_at[b, t] <= query_at[b, i],
                    "strictly_causal": key_at[b, t] < query_at[b, i],
                }[mask_kind]
                near = window is None or abs(query_at[b, i] - key_at[b, t]) <= window
                is_present = present is None or present[b, t]
                together = query_in is None or query_in[b, i] == key_in[b, t]
                assert table[b, 0, i, t] == bool(early and near and is_present and together)
