"""Record the attention weights of a model while it runs.

    with record(model) as records:
        model(tokens)
    records[0].weights     # B k T S of the first attention that ran

Outputs of the model do not change, dropout included: the kernel of each attention runs as before,
and the weights before dropout are computed in addition, without gradient. Attentions that are not
selected have no overhead. If a model has a `MultiHead`, these are recorded; otherwise every call of
PyTorch's `scaled_dot_product_attention` (`sdpa.py`). The additional memory of a call is at most
eight blocks of `BLOCK` scores, and the keys of the selected heads (`benchmarks/recording.py`).

`search_attention.py` records hypotheses of a search, `store.py` records to disk.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.kernels import AttentionKernel, ScoreTerms, attention_weights
from harken.attention.masks import Mask
from harken.attention.multihead import MultiHead
from harken.errors import UserError
from harken.inspection.activations import ActivationRecord, check_module, on_activations
from harken.inspection.refs import layer_of
from harken.inspection.sdpa import SDPACall, on_sdpa

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
    with (
        on_activations(model, outputs, residual, records.outputs.append, records.residual.append),
        on_attention(model, selection, records.append),
    ):
        yield records


@contextmanager
def on_attention(
    model: nn.Module, selection: Selection, tell: Callable[[AttentionRecord], None]
) -> Iterator[None]:
    """Call `tell` with every call of the selected attentions as it happens.

    Raises at the end of the block if attentions ran and no call matched the selection.
    """
    lengths: list[int] = []  # queries of the calls without a selected step
    has_matched = False

    def report(name: str, *call: Any) -> None:
        nonlocal has_matched
        with torch.no_grad():
            recorded = _recorded(name, selection, *call)
        if isinstance(recorded, int):
            lengths.append(recorded)
        else:
            has_matched = True
            tell(recorded)

    intercept = _on_kernels if has_attention(model) else _on_foreign
    with intercept(model, selection, report):
        yield
    if lengths and not has_matched:
        raise UserError(
            f"steps {selection.steps} match no query (expected steps below {max(lengths)}, the "
            "most queries of one call)",
            fix="choose smaller steps, or -1 for the last query of each call",
        )


@contextmanager
def _on_kernels(
    model: nn.Module, selection: Selection, report: Callable[..., None]
) -> Iterator[None]:
    def recording(name: str, kernel: AttentionKernel) -> AttentionKernel:
        def attend(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
            output = kernel(terms, values, mask, dropout)
            report(name, terms, values, mask)
            return output

        return attend

    with ExitStack() as undo:
        for name, module in attentions(model, selection).items():
            undo.callback(setattr, module, "kernel", module.kernel)
            module.kernel = recording(name, module.kernel)
        yield


@contextmanager
def _on_foreign(
    model: nn.Module, selection: Selection, report: Callable[..., None]
) -> Iterator[None]:
    ran: dict[str, bool] = {}

    def handle(call: SDPACall, output: Tensor) -> Tensor:
        ran[call.name] = _matches(call.name, selection)
        if ran[call.name]:
            report(call.name, call.terms, call.values, call.mask, call.sighted)
        return output

    with on_sdpa(model, handle):
        yield
    if ran and not any(ran.values()):
        raise _not_in_model(f"attention {selection.paths} in layers {selection.layers}", ran)


def has_attention(model: nn.Module) -> bool:
    """Whether the model has a `MultiHead`."""
    return any(isinstance(module, MultiHead) for module in model.modules())


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
    chosen = {name: module for name, module in every.items() if _matches(name, selection)}
    if not chosen:
        raise _not_in_model(f"attention {selection.paths} in layers {selection.layers}", every)
    return chosen


def cross_attentions(model: nn.Module) -> list[str]:
    """Return the paths of the `MultiHead` layers that attend to an encoder's output."""
    return [name for name, module in attentions(model).items() if module.kind == "cross"]


def _matches(name: str, selection: Selection) -> bool:
    return (selection.layers is None or layer_of(name) in selection.layers) and (
        selection.paths is None or any(fnmatchcase(name, path) for path in selection.paths)
    )


def _recorded(
    name: str,
    selection: Selection,
    terms: ScoreTerms,
    values: Tensor,
    mask: Mask,
    sighted: Float[Tensor, "#B #k T 1"] | None = None,
) -> AttentionRecord | int:
    """Return the record of a call, or its number of queries if it has no selected step."""
    scored = terms.bias if terms.queries is None else terms.queries
    assert scored is not None, "a score has queries and keys, a bias, or both"
    count, time = max(scored.shape[1], values.shape[1]), scored.shape[2]
    numbers = range(1, count + 1) if selection.heads is None else selection.heads
    for number in numbers:
        if not 1 <= number <= count:
            raise _not_in_model(f"head {number} in {name}", map(str, range(1, count + 1)))
    heads = [number - 1 for number in numbers]
    steps: Sequence[int] = range(time)
    if selection.steps is not None:
        steps = list(dict.fromkeys(step % time for step in selection.steps if -time <= step < time))
        if not steps:
            return time
    at = torch.tensor(steps, device=scored.device, dtype=torch.long)
    keys = _of_heads(terms.keys, heads, count)
    weights = scored.new_empty(values.shape[0], len(heads), len(steps), values.shape[2])
    # Block by block, so that only the result is quadratic in time.
    rows = max(1, BLOCK // max(1, weights.shape[0] * len(heads) * weights.shape[3]))
    for first in range(0, len(steps), rows):
        part = at[first : first + rows]
        queries, bias = (_rows(table, heads, part) for table in (terms.queries, terms.bias))
        block = replace(terms, queries=queries, keys=keys, bias=bias)
        visible = _mask_rows(mask, part, time, weights.shape[3])
        weights[:, :, first : first + rows] = attention_weights(block, visible)
    if (scale := _rows(sighted, heads, at)) is not None:
        weights *= scale
    return AttentionRecord(
        name,
        weights,
        numbers,
        steps,
        queries=_rows(terms.queries, heads, at) if selection.queries else None,
        keys=keys if selection.keys else None,
        values=_of_heads(values, heads, count) if selection.values else None,
    )


def _rows(
    table: Float[Tensor, "#B #k T width"] | None, heads: Sequence[int], at: Int[Tensor, "rows"]
) -> Float[Tensor, "#B chosen rows width"] | None:
    """Select queries and heads; a bias may be the same for all heads."""
    if table is None:
        return None
    rows = table.detach()[:, :, at]
    return rows if table.shape[1] == 1 else rows[:, list(heads)]


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


def _mask_rows(mask: Mask, at: Int[Tensor, "rows"], time: int, keys: int) -> Mask:
    """Return the rows of a mask without building the whole table."""
    if mask.visible is not None:
        return mask if mask.visible.shape[2] == 1 else Mask(visible=mask.visible[:, :, at])
    if not mask.causal:
        return mask
    slots = torch.arange(keys, device=at.device)
    return Mask(visible=(slots <= at[:, None] + (keys - time))[None, None])


def _not_in_model(part: str, existing: Iterable[str]) -> UserError:
    names = ", ".join(dict.fromkeys(existing))
    return UserError(f"{part} is not in the model (expected one of {names})", fix="choose another")
