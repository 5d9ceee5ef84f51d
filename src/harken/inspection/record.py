"""Record the attention weights of a model while it runs.

    with record(model) as records:
        model(tokens)
    records[0].weights     # B k T S of the first attention that ran

Outputs of the model do not change, dropout included: the kernel of each attention runs as before,
and the weights before dropout are computed in addition, without gradient. Attentions that are not
selected have no overhead. If a model has a `MultiHead`, these are recorded; otherwise every call of
PyTorch's `scaled_dot_product_attention` (`attention_calls.py`). The additional memory of a call is
at most eight blocks of `BLOCK` scores, and the keys of the selected heads
(`benchmarks/recording.py`).

`search_attention.py` records hypotheses of a search, `store.py` records to disk.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from harken.attention.kernels import attention_weights
from harken.attention.masks import Mask
from harken.attention.multihead import MultiHead
from harken.errors import UserError
from harken.inspection.activations import ActivationRecord, check_module, record_activations
from harken.inspection.attention_calls import AttentionCall, on_attention_calls
from harken.inspection.attention_calls import has_attention as has_attention
from harken.inspection.refs import layer_of

BLOCK = 1 << 20  # scores at once, of all rows and heads


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which attention to record; None selects all. Layers and paths must both match.

    Arguments:
        layers: numbers of blocks, counted from 1 in encoder and decoder; an attention outside any
            block is in layer 1.
        paths: paths of attentions or patterns, such as "decoder.*.cross".
        heads: numbers of heads, counted from 1.
        steps: indices of queries in each call, counted from 0; -1 is the last query. Steps that a
            call does not have are skipped.
        queries, keys, values: also record these vectors.

        selection = harken.Selection(layers=(1, 2), heads=(3,), queries=True)
        with harken.record(model, selection) as records: ...
    """

    layers: tuple[int, ...] | None = None
    paths: tuple[str, ...] | None = None
    heads: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    queries: bool = False
    keys: bool = False
    values: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "paths", "heads", "steps"):
            given = getattr(self, name)
            if given is not None and (not given or len(set(given)) < len(given)):
                raise UserError(
                    f"Selection: expected one or more different {name}, got {given}",
                    fix=f"leave {name} out to select all",
                )

    def matches(self, name: str) -> bool:
        """Whether the attention at this path is selected."""
        return (self.layers is None or layer_of(name) in self.layers) and (
            self.paths is None or any(fnmatchcase(name, path) for path in self.paths)
        )


ALL = Selection()


@dataclass(frozen=True, slots=True, repr=False)
class AttentionRecord:
    """One call of one attention; `name` is its path in the model, `heads` are counted from 1.

    Keys and values are repeated for heads that share them. Queries and keys are None for scores
    that are not a product of the two.
    """

    name: str
    weights: Float[Tensor, "B k T S"]
    heads: Sequence[int] = ()
    steps: Sequence[int] = ()
    queries: Float[Tensor, "B k T U"] | None = None
    keys: Float[Tensor, "B k S U"] | None = None
    values: Float[Tensor, "B k S I"] | None = None

    def __repr__(self) -> str:
        shapes = "".join(
            f", {name}={tuple(tensor.shape)}"
            for name in ("weights", "queries", "keys", "values")
            if (tensor := getattr(self, name)) is not None
        )
        return f"AttentionRecord(name={self.name!r}{shapes})"

    @property
    def layer(self) -> int:
        return layer_of(self.name)


class Records(list[AttentionRecord]):
    """The attention records of a block in the order of the calls, and its activations."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[ActivationRecord] = []
        self.residual: list[ActivationRecord] = []


@contextmanager
def record(
    model: nn.Module,
    selection: Selection = ALL,
    *,
    outputs: str | Sequence[str] = (),
    residual: bool = False,
) -> Iterator[Records]:
    """Record attention weights, and optionally activations, while the block runs the model.

    Arguments:
        model: any module with `harken.MultiHead` layers or with calls of PyTorch's
            `scaled_dot_product_attention`, such as a Hugging Face model.
        selection: which layers, heads and steps; all by default.
        outputs: paths or patterns of modules, such as "*.mlp", whose outputs to record as well.
        residual: also record the residual stream before and after every layer.

    Yields a list with an `AttentionRecord` per call: `name`, `layer`, and `weights` of shape
    (batch, heads, queries, keys). Its attributes `outputs` and `residual` are lists of
    `ActivationRecord`. The outputs of the model do not change. A model that runs without attention,
    or a selection that matches nothing, raises `UserError`.

        with torch.inference_mode(), harken.record(model) as records:
            model(tokens)
        records[0].name, records[0].weights.shape
    """
    check_module(model)
    if not isinstance(selection, Selection):
        raise UserError(
            f"selection: expected a harken.Selection, got {selection!r}",
            fix="pass for example harken.Selection(layers=(1,))",
        )
    records = Records()
    patterns = [outputs] if isinstance(outputs, str) else outputs
    with (
        record_activations(model, patterns, residual, records.outputs, records.residual),
        on_attention(model, selection, records.append),
    ):
        yield records


@contextmanager
def on_attention(
    model: nn.Module, selection: Selection, on_record: Callable[[AttentionRecord], None]
) -> Iterator[None]:
    """Call `on_record` with every call of the selected attentions as it happens.

    Raises at the end of the block if attentions ran and no call matched the selection.
    """
    matched: dict[str, bool] = {}  # attentions that ran -> whether they are selected
    lengths: list[int] = []  # queries of the calls without a selected step
    has_record = False

    def handle(call: AttentionCall, output: Tensor) -> Tensor:
        nonlocal has_record
        matched[call.name] = selection.matches(call.name)
        if matched[call.name]:
            with torch.no_grad():
                recorded = _recorded(call, selection)
            if isinstance(recorded, int):
                lengths.append(recorded)
            else:
                has_record = True
                on_record(recorded)
        return output

    names = attentions(model, selection) if has_attention(model) else ()
    with on_attention_calls(model, handle, names=names):
        yield
    if matched and not any(matched.values()):
        raise _not_in_model(f"attention {selection.paths} in layers {selection.layers}", matched)
    if lengths and not has_record:
        raise UserError(
            f"steps {selection.steps} match no query (expected steps below {max(lengths)}, the "
            "most queries of one call)",
            fix="choose smaller steps, or -1 for the last query of each call",
        )


def attentions(model: nn.Module, selection: Selection = ALL) -> dict[str, MultiHead]:
    """Return the selected `MultiHead` layers by path, in the order of the model, at least one."""
    every = {path: part for path, part in model.named_modules() if isinstance(part, MultiHead)}
    if not every:
        raise UserError(
            f"{type(model).__name__}: no harken.MultiHead in the model",
            fix="choose a model of Harken with attention",
        )
    for layer in selection.layers or ():
        if not any(layer_of(name) == layer for name in every):
            raise _not_in_model(f"layer {layer}", (str(layer_of(name)) for name in every))
    for path in selection.paths or ():
        if not any(fnmatchcase(name, path) for name in every):
            raise _not_in_model(f"attention {path!r}", every)
    chosen = {name: module for name, module in every.items() if selection.matches(name)}
    if not chosen:
        raise _not_in_model(f"attention {selection.paths} in layers {selection.layers}", every)
    return chosen


def cross_attentions(model: nn.Module) -> list[str]:
    """Return the paths of the `MultiHead` layers that attend to an encoder's output."""
    return [name for name, module in attentions(model).items() if module.kind == "cross"]


def _recorded(call: AttentionCall, selection: Selection) -> AttentionRecord | int:
    """Return the record of a call, or its number of queries if it has no selected step."""
    terms, values = call.terms, call.values
    scored = terms.bias if terms.queries is None else terms.queries
    assert scored is not None, "a score has queries and keys, a bias, or both"
    count, time = max(scored.shape[1], values.shape[1]), scored.shape[2]
    numbers = range(1, count + 1) if selection.heads is None else selection.heads
    for number in numbers:
        if not 1 <= number <= count:
            raise _not_in_model(f"head {number} in {call.name}", map(str, range(1, count + 1)))
    heads = [number - 1 for number in numbers]
    steps: Sequence[int] = range(time)
    if selection.steps is not None:
        steps = list(dict.fromkeys(step % time for step in selection.steps if -time <= step < time))
        if not steps:
            return time
    queries = torch.tensor(steps, device=scored.device, dtype=torch.long)
    keys = _of_heads(terms.keys, heads, count)
    weights = scored.new_empty(values.shape[0], len(heads), len(steps), values.shape[2])
    # Block by block, so that only the result is quadratic in time.
    size = max(1, BLOCK // max(1, weights.shape[0] * len(heads) * weights.shape[3]))
    for first in range(0, len(steps), size):
        rows = queries[first : first + size]
        block = replace(
            terms,
            queries=_rows(terms.queries, heads, rows),
            keys=keys,
            bias=_rows(terms.bias, heads, rows),
        )
        mask = Mask(visible=_rows(call.mask.visible, heads, rows))
        if call.mask.causal and mask.visible is None:  # without building the whole table
            slots = torch.arange(weights.shape[3], device=rows.device)
            visible = slots <= rows[:, None] + (weights.shape[3] - time)
            mask = Mask(visible=visible[None, None])
        weights[:, :, first : first + size] = attention_weights(block, mask)
    return AttentionRecord(
        call.name,
        weights,
        numbers,
        steps,
        queries=_rows(terms.queries, heads, queries) if selection.queries else None,
        keys=keys if selection.keys else None,
        values=_of_heads(values, heads, count) if selection.values else None,
    )


def _rows(
    table: Shaped[Tensor, "#B #k #T width"] | None, heads: Sequence[int], rows: Int[Tensor, "rows"]
) -> Shaped[Tensor, "#B #chosen #rows width"] | None:
    """Select queries and heads; a bias or mask may be the same for all of either."""
    if table is None:
        return None
    table = table.detach()
    table = table if table.shape[2] == 1 else table[:, :, rows]
    return table if table.shape[1] == 1 else table[:, list(heads)]


def _of_heads(
    shared: Float[Tensor, "B kv_heads S U"] | None, heads: Sequence[int], count: int
) -> Float[Tensor, "B k S U"] | None:
    """Select the keys or values of some of `count` heads; heads may share them."""
    if shared is None:
        return None
    kv_heads = shared.shape[1]
    if kv_heads == count and list(heads) == list(range(count)):
        return shared.detach()
    return shared.detach()[:, [head * kv_heads // count for head in heads]]


def _not_in_model(part: str, existing: Iterable[str]) -> UserError:
    names = ", ".join(dict.fromkeys(existing))
    return UserError(f"{part} is not in the model (expected one of {names})", fix="choose another")
