"""Record the attention weights of a model while it runs.

    with record(model) as records:
        model(tokens)
    records[0].weights     # B k T S of the first attention call

The outputs of the model do not change, even with dropout: the kernel of each attention layer runs
as before, and the weights before dropout are computed in addition, without gradient. In a model
with `MultiHead` layers, the selected layers are recorded, and the others have no overhead. In other
models, calls of PyTorch's `scaled_dot_product_attention` are recorded (`attention_calls.py`). In
addition to the weights, a call needs memory for at most eight blocks of `BLOCK` scores and for the
keys of the selected heads (`benchmarks/recording.py`).

`search_attention.py` records the hypotheses of a search, `store.py` records to disk.
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
from harken.inspection.attention_calls import has_multihead as has_multihead
from harken.inspection.refs import layer_of

BLOCK = 1 << 20  # scores computed at once, over all rows and heads


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which attention to record; None selects all. Layers and paths must both match.

    Arguments:
        layers: numbers of layers, counted from 1, separately in encoder and decoder. Attention
            outside a stack of layers is in layer 1.
        paths: paths of attention layers, or patterns such as "decoder.*.cross".
        heads: numbers of heads, counted from 1.
        steps: indices of queries in each call, counted from 0; -1 is the last query. Steps that do
            not exist in a call are skipped.
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
            values = getattr(self, name)
            if values is not None and (not values or len(set(values)) < len(values)):
                raise UserError(
                    f"Selection: expected one or more different {name}, got {values}",
                    fix=f"omit {name} to select all",
                )

    def matches(self, name: str) -> bool:
        """Whether the attention layer at this path is selected."""
        return (self.layers is None or layer_of(name) in self.layers) and (
            self.paths is None or any(fnmatchcase(name, path) for path in self.paths)
        )


ALL = Selection()


@dataclass(frozen=True, slots=True, repr=False)
class AttentionRecord:
    """One call of an attention layer; `name` is its path.

    `heads` (counted from 1) and `steps` (counted from 0) are the recorded heads and queries.
    `queries`, `keys` and `values` are None unless selected. Queries and keys are also None for
    scores that are not a product of them. Keys and values are repeated for heads that share them.
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
    """Attention records in the order of the calls, and the recorded activations."""

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
    """Record attention weights, and optionally activations, inside the `with` block.

    Arguments:
        model: any module with `harken.MultiHead` layers or with calls of PyTorch's
            `scaled_dot_product_attention`, such as a Hugging Face model.
        selection: which layers, heads and steps; all by default.
        outputs: paths or patterns of modules, such as "*.mlp", whose outputs are recorded too.
        residual: also record the residual stream before and after every layer.

    Yields a list with an `AttentionRecord` per call: `name`, `layer`, and `weights` of shape
    (batch, heads, queries, keys). Its attributes `outputs` and `residual` are lists of
    `ActivationRecord`. The outputs of the model do not change, except by rounding where PyTorch
    would use the fused inference kernel of `nn.MultiheadAttention`. Raises `UserError` if the model
    runs without attention or if the selection matches nothing.

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
    """Call `on_record` with the record of every call of the selected attention layers.

    Raises at the end of the `with` block if attention ran and no call matched the selection.
    """
    matched: dict[str, bool] = {}  # path of each layer that ran -> whether it is selected
    lengths: list[int] = []  # numbers of queries in calls without a selected step
    has_record = False

    def handle(call: AttentionCall, output: Tensor) -> Tensor:
        nonlocal has_record
        matched[call.name] = selection.matches(call.name)
        if matched[call.name]:
            with torch.no_grad():
                recorded = _record_call(call, selection)
            if isinstance(recorded, int):
                lengths.append(recorded)
            else:
                has_record = True
                on_record(recorded)
        return output

    names = attention_layers(model, selection) if has_multihead(model) else ()
    with on_attention_calls(model, handle, names=names):
        yield
    if matched and not any(matched.values()):
        raise _unmatched(selection, matched)
    if lengths and not has_record:
        raise UserError(
            f"steps {selection.steps} match no query (expected steps below {max(lengths)}, the "
            "largest number of queries in a call)",
            fix="choose smaller steps, or -1 for the last query of each call",
        )


def attention_layers(model: nn.Module, selection: Selection = ALL) -> dict[str, MultiHead]:
    """Return the selected `MultiHead` layers by path, in the order of the model; raise if none."""
    layers = {path: part for path, part in model.named_modules() if isinstance(part, MultiHead)}
    if not layers:
        raise UserError(
            f"{type(model).__name__}: no harken.MultiHead in the model",
            fix="choose a Harken model with attention",
        )
    for number in selection.layers or ():
        if not any(layer_of(name) == number for name in layers):
            raise _not_in_model(f"layer {number}", (str(layer_of(name)) for name in layers))
    for path in selection.paths or ():
        if not any(fnmatchcase(name, path) for name in layers):
            raise _not_in_model(f"attention {path!r}", layers)
    selected = {name: module for name, module in layers.items() if selection.matches(name)}
    if not selected:
        raise _unmatched(selection, layers)
    return selected


def cross_attention_layers(model: nn.Module) -> list[str]:
    """Return the paths of the `MultiHead` layers that attend to an encoder's output."""
    return [name for name, module in attention_layers(model).items() if module.kind == "cross"]


def _record_call(call: AttentionCall, selection: Selection) -> AttentionRecord | int:
    """Return the record of a call.

    If it has none of the selected steps, return its number of queries, for the error message.
    """
    terms, values = call.terms, call.values
    query_terms = terms.bias if terms.queries is None else terms.queries
    assert query_terms is not None, "a score has queries and keys, a bias, or both"
    # A bias or the values may be shared by all heads.
    count, time = max(query_terms.shape[1], values.shape[1]), query_terms.shape[2]
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
    query_indices = torch.tensor(steps, device=query_terms.device, dtype=torch.long)
    keys = _select_kv(terms.keys, heads, count)
    weights = query_terms.new_empty(values.shape[0], len(heads), len(steps), values.shape[2])
    # Block by block, so that only the result is quadratic in the sequence length.
    size = max(1, BLOCK // max(1, weights.shape[0] * len(heads) * weights.shape[3]))
    for first in range(0, len(steps), size):
        indices = query_indices[first : first + size]
        block = replace(
            terms,
            queries=_select_queries(terms.queries, heads, indices),
            keys=keys,
            bias=_select_queries(terms.bias, heads, indices),
        )
        mask = Mask(visible=_select_queries(call.mask.visible, heads, indices))
        if call.mask.causal and mask.visible is None:  # build only these rows of the causal mask
            key_indices = torch.arange(weights.shape[3], device=indices.device)
            visible = key_indices <= indices[:, None] + (weights.shape[3] - time)
            mask = Mask(visible=visible[None, None])
        weights[:, :, first : first + size] = attention_weights(block, mask)
    return AttentionRecord(
        call.name,
        weights,
        numbers,
        steps,
        queries=_select_queries(terms.queries, heads, query_indices) if selection.queries else None,
        keys=keys if selection.keys else None,
        values=_select_kv(values, heads, count) if selection.values else None,
    )


def _select_queries(
    table: Shaped[Tensor, "#B #k #T width"] | None,
    heads: Sequence[int],
    indices: Int[Tensor, "chosen_queries"],
) -> Shaped[Tensor, "#B #chosen_heads #chosen_queries width"] | None:
    """Select heads and queries; a bias or mask may be shared by all heads or all queries."""
    if table is None:
        return None
    table = table.detach()
    table = table if table.shape[2] == 1 else table[:, :, indices]
    return table if table.shape[1] == 1 else table[:, list(heads)]


def _select_kv(
    shared: Float[Tensor, "B kv_heads S U"] | None, heads: Sequence[int], count: int
) -> Float[Tensor, "B k S U"] | None:
    """Select the keys or values of some of `count` heads; several heads may share them."""
    if shared is None:
        return None
    kv_heads = shared.shape[1]
    if kv_heads == count and list(heads) == list(range(count)):
        return shared.detach()
    return shared.detach()[:, [head * kv_heads // count for head in heads]]


def _unmatched(selection: Selection, existing: Iterable[str]) -> UserError:
    limits = {"layers": selection.layers, "paths": selection.paths}
    given = (f"{name} {values}" for name, values in limits.items() if values is not None)
    return _not_in_model(f"attention with {' and '.join(given)}", existing)


def _not_in_model(part: str, existing: Iterable[str]) -> UserError:
    names = ", ".join(dict.fromkeys(existing))
    return UserError(f"{part} is not in the model (expected one of {names})", fix="choose another")
