"""What does not go together is refused with the reason, and the docs say the same."""

import re
from pathlib import Path
from typing import get_args

import pytest

from choices import EVERY_POSITION, EVERY_SCORE, name
from harken.attention.compatibility import YES, compatibility_table, conflict
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    PositionConfig,
    SinusoidConfig,
)
from harken.attention.relative import RotaryConfig
from harken.attention.scores import MergedConfig, ScoreConfig
from harken.models.gpt import GPTConfig

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
HEADING = "Supported pairs:\n\n"


def as_markdown(table: list[list[str]]) -> str:
    """A table with `no (1)` where a pair is not legal, and the reasons under it."""
    header, *rows = table
    reasons: list[str] = []
    lines = [header, ["---"] * len(header)]
    for row in rows:
        cells = row[:1]
        for cell in row[1:]:
            if cell != YES and cell not in reasons:
                reasons.append(cell)
            cells.append(cell if cell == YES else f"no ({reasons.index(cell) + 1})")
        lines.append(cells)
    drawn = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    notes = "".join(f"\n({number}) {reason}.\n" for number, reason in enumerate(reasons, start=1))
    return drawn + notes


def test_the_table_has_every_member() -> None:
    header, *rows = compatibility_table()
    assert header == ["score", *(kind().kind for kind in get_args(PositionConfig))]
    assert [row[0] for row in rows] == [kind().kind for kind in get_args(ScoreConfig)]
    assert len(set(header)) == len(header)
    for kind, row in zip(get_args(ScoreConfig), rows, strict=True):
        for position, cell in zip(get_args(PositionConfig), row[1:], strict=True):
            assert cell == (conflict(kind(), position()) or YES)


def test_a_table_by_hand() -> None:
    table = [["score", "a", "b"], ["c", YES, "why"], ["d", "because", "why"]]
    assert as_markdown(table) == (
        "| score | a | b |\n| --- | --- | --- |\n| c | yes | no (1) |\n| d | no (2) | no (1) |\n"
        "\n(1) why.\n\n(2) because.\n"
    )


def test_the_docs_have_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    after = page.split(HEADING)
    assert len(after) == 2
    assert after[1].startswith(as_markdown(compatibility_table()))


def test_forms_of_a_kind_clash_alike() -> None:
    """The table speaks of kinds, so a kind's form must not matter."""
    reasons: dict[tuple[str, str], set[str | None]] = {}
    for score in EVERY_SCORE:
        for position in EVERY_POSITION:
            pair = score.kind, position.kind
            reasons.setdefault(pair, set()).add(conflict(score, position))
    assert all(len(said) == 1 for said in reasons.values())
    refused = {pair for pair, said in reasons.items() if said != {None}}
    assert refused == {
        ("synthesizer", "rotary"),
        ("additive", "rotary"),
        ("transformer_xl", "rotary"),
    }


def gpt(score: ScoreConfig, position: PositionConfig) -> GPTConfig:
    concat = getattr(position, "place", "add") == "concat"
    return GPTConfig(
        width=12,
        attention=MultiHeadConfig(heads=3, score=score),
        position=position,
        tie_embeddings=not concat,
    )


@pytest.mark.parametrize("position", EVERY_POSITION, ids=name)
@pytest.mark.parametrize("score", EVERY_SCORE, ids=name)
def test_a_model_takes_what_is_legal_and_refuses_the_rest(
    score: ScoreConfig, position: PositionConfig
) -> None:
    reason = conflict(score, position)
    if reason is None:
        assert gpt(score, position).position == position
        return
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}; choose another"):
        gpt(score, position)


@pytest.mark.parametrize("kind", [LearnedConfig, SinusoidConfig, FourierConfig])
def test_concat_cannot_be_tied(kind: type[LearnedConfig | SinusoidConfig | FourierConfig]) -> None:
    with pytest.raises(ValueError, match=r"doubles the width.*set tie_embeddings = false"):
        GPTConfig(position=kind(place="concat"))
    model = GPTConfig(
        layers=1,
        width=6,
        max_length=8,
        attention=MultiHeadConfig(heads=4),  # 12 divides, 6 does not
        position=kind(place="concat"),
        tie_embeddings=False,
    ).build(19, seed=0)
    assert model.lm_head.weight.shape == (19, 12)
    assert model.embedding.weight.shape == (19, 6)
    assert model.stack.blocks[0].attention.out_proj.weight.shape == (12, 12)


@pytest.mark.parametrize(
    ("attention", "made"),
    [
        (MultiHeadConfig(heads=4, head_width=5, out_proj=False), 20),
        (MultiHeadConfig(heads=4, out_proj=False, v_proj=False), 48),
    ],
)
def test_without_an_output_matrix_widths_must_be_equal(
    attention: MultiHeadConfig, made: int
) -> None:
    with pytest.raises(ValueError, match=f"give {made}, but the model has width 12"):
        GPTConfig(width=12, attention=attention)
    for heads, matrix in ((4, True), (1, False)):
        fits = MultiHeadConfig(heads=heads, out_proj=False, v_proj=matrix)
        assert GPTConfig(width=12, attention=fits).attention == fits


@pytest.mark.parametrize("kv_heads", [2, 3, 7, 10])
def test_heads_that_cannot_share_evenly_are_refused(kv_heads: int) -> None:
    with pytest.raises(ValueError, match=f"5 heads cannot share {kv_heads} kv_heads evenly"):
        MultiHeadConfig(heads=5, kv_heads=kv_heads)
    assert MultiHeadConfig(heads=5, kv_heads=1).kv_heads == 1


def test_merged_has_no_key_width() -> None:
    with pytest.raises(ValueError, match="compares whole tokens; leave out key_width"):
        MultiHeadConfig(score=MergedConfig(), key_width=4)
    assert MultiHeadConfig(heads=3, score=MergedConfig()).head_widths(15) == (5, 15)


def test_rotary_with_merged_wants_an_even_width_and_says_so() -> None:
    merged = MultiHeadConfig(heads=5, score=MergedConfig())
    with pytest.raises(ValueError, match=r"got 15\); make width even"):
        GPTConfig(width=15, attention=merged, position=RotaryConfig())
    plain = MultiHeadConfig(heads=5)
    with pytest.raises(ValueError, match=r"got 3\); make attention\.key_width even"):
        GPTConfig(width=15, attention=plain, position=RotaryConfig())


@pytest.mark.parametrize(
    "attention",
    [
        MultiHeadConfig(heads=4, key_width=3, v_proj=False),
        MultiHeadConfig(heads=4, score=MergedConfig(), v_proj=False),
        MultiHeadConfig(heads=4, score=MergedConfig(), head_width=3),
        MultiHeadConfig(heads=4, key_width=3, head_width=2),
    ],
)
def test_a_width_need_not_divide_where_no_share_is_taken(attention: MultiHeadConfig) -> None:
    assert GPTConfig(width=11, attention=attention).width == 11


@pytest.mark.parametrize(
    "attention",
    [
        MultiHeadConfig(heads=4, v_proj=False),
        MultiHeadConfig(heads=4, score=MergedConfig()),
        MultiHeadConfig(heads=4, key_width=3),
        MultiHeadConfig(heads=4, head_width=3),
    ],
)
def test_a_width_must_divide_where_a_share_is_taken(attention: MultiHeadConfig) -> None:
    with pytest.raises(ValueError, match="width 11 does not divide into 4 heads"):
        GPTConfig(width=11, attention=attention)


def test_a_span_shorter_than_the_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"span 127 is shorter than the model's length 128"):
        GPTConfig(max_length=128, position=FourierConfig(span=127))
    assert GPTConfig(max_length=128, position=FourierConfig(span=128)).max_length == 128
