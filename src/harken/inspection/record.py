"""Catch the attention weights of every layer and head, or of chosen ones, while a model runs.

    with record(model) as seen:
        model(tokens)
    seen[0].weights     # B k T S of the first attention that ran

    record(model, Choice(layers=(2,), heads=(1, 4), steps=(-1,), queries=True))

Layers and heads are counted from 1 (`refs.py`), steps, which index a tensor, from 0.

A chosen attention keeps its kernel: the output is that kernel's, to the last bit and with the same
dropout, and the weights are computed beside it. Other attentions run as if nobody looked, and
models contain no code for it. Weights are those before dropout, and never part of a gradient.

Beside what is recorded, a call needs room for at most eight blocks of `BLOCK` scores (or of one
query, where its scores are more than that), and for the keys of the chosen heads where these are
not all or share them. `benchmarks/recording.py` measures it.

A model without `MultiHead` raises an error, as does a selection that matches nothing: an empty list
would look like a model that attends to nothing.

What is not here: the hypotheses that a search kept (`kept.py`), recording to a disk (`store.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.kernels import AttentionKernel, ScoreTerms, attention_weights
from harken.attention.masks import Mask
from harken.attention.multihead import MultiHead
from harken.errors import UserError
from harken.inspection.refs import layer_of

BLOCK = 1 << 20  # scores at once, of all rows and heads


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What to look at; None is all there is. Layers and paths must both fit where both are given.

    A layer's number is that of its block, counted from 1 in encoder and decoder alike; an attention
    that stands in no block has number 1. Steps are queries of each call, and those that a call has
    not are left out; -1 is its last.
    """

    layers: tuple[int, ...] | None = None
    paths: tuple[str, ...] | None = None  # or patterns: "decoder.*.cross"
    heads: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    queries: bool = False  # vectors as the kernel compares them, beside the weights
    keys: bool = False
    values: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "paths", "heads", "steps"):
            given = getattr(self, name)
            if given == ():
                raise ValueError(f"{name} is empty, and nothing would be seen; leave it out")
            if given is not None and len(set(given)) < len(given):
                raise ValueError(f"{name} {given} names one twice; name it once")


ALL = Choice()


@dataclass(frozen=True, slots=True, repr=False)
class Recorded:
    """One call of one attention; `name` is its path in the model, `heads` are counted from 1.

    Keys and values are given to each head, also where heads share them. Queries and keys are None
    for scores that are no product of the two.
    """

    name: str
    weights: Float[Tensor, "B k T S"]
    heads: Sequence[int] = ()
    steps: Sequence[int] = ()
    queries: Float[Tensor, "B k T U"] | None = None
    keys: Float[Tensor, "B k S U"] | None = None
    values: Float[Tensor, "B k S I"] | None = None

    def __repr__(self) -> str:
        tensors = {name: getattr(self, name) for name in ("weights", "queries", "keys", "values")}
        shapes = (
            f"{name}={tuple(tensor.shape)}"
            for name, tensor in tensors.items()
            if tensor is not None
        )
        return f"Recorded(name={self.name!r}, {', '.join(shapes)})"

    @property
    def layer(self) -> int:
        return layer_of(self.name)


@contextmanager
def record(model: nn.Module, choice: Choice = ALL) -> Iterator[list[Recorded]]:
    """Record the chosen attentions of the model for the length of the block."""
    records: list[Recorded] = []
    with watch(attentions(model, choice), choice, records.append):
        yield records


@contextmanager
def watch(
    chosen: Mapping[str, MultiHead], choice: Choice, tell: Callable[[Recorded], None]
) -> Iterator[None]:
    """Tell of every call of these attentions as it happens; one who watches within is told too.

    Raises at the end of the block if attentions ran and no call had any of the chosen steps.
    """
    kernels = {name: module.kernel for name, module in chosen.items()}
    lengths: list[int] = []  # queries of the calls without a chosen step
    was_told = False

    def forward(recorded: Recorded | int) -> None:
        nonlocal was_told
        if isinstance(recorded, int):
            lengths.append(recorded)
            return
        was_told = True
        tell(recorded)

    try:
        for name, module in chosen.items():
            module.kernel = _watched(kernels[name], name, choice, forward)
        yield
    finally:
        for name, module in chosen.items():
            module.kernel = kernels[name]
    if lengths and not was_told:
        raise UserError(
            f"steps {choice.steps} match no query (expected steps below {max(lengths)}, the most "
            "queries of one call)",
            fix="choose smaller steps, or -1 for the last query of each call",
        )


def has_attention(model: nn.Module) -> bool:
    """Whether there is anything to record."""
    return any(isinstance(module, MultiHead) for module in model.modules())


def attentions(model: nn.Module, choice: Choice = ALL) -> dict[str, MultiHead]:
    """Return the chosen attentions by path, in the order of the model, at least one."""
    every = {name: part for name, part in model.named_modules() if isinstance(part, MultiHead)}
    if not every:
        raise _no_attention(model)
    for layer in choice.layers or ():
        if not any(layer_of(name) == layer for name in every):
            raise _not_there(f"layer {layer}", (str(layer_of(name)) for name in every))
    for path in choice.paths or ():
        if not any(fnmatchcase(name, path) for name in every):
            raise _not_there(f"attention {path!r}", every)
    chosen = {
        name: part
        for name, part in every.items()
        if (choice.layers is None or layer_of(name) in choice.layers)
        and (choice.paths is None or any(fnmatchcase(name, path) for path in choice.paths))
    }
    if not chosen:
        raise _not_there(f"attention {choice.paths} in layers {choice.layers}", every)
    return chosen


def _no_attention(model: nn.Module) -> UserError:
    """Name the attention of other libraries, so that nobody searches for a mistake of theirs."""
    foreign = [
        f"{name} ({type(module).__name__})"
        for name, module in model.named_modules()
        if "attention" in type(module).__name__.lower()
    ]
    found = f"; it has {', '.join(foreign[:3])}{', …' * (len(foreign) > 3)}" if foreign else ""
    return UserError(
        f"{type(model).__name__}: no attention that can be recorded "
        f"(expected a harken.attention.multihead.MultiHead in the model{found})",
        fix="record a model of Harken with attention, or a Hugging Face folder read by "
        "harken.foreign.read_foreign",
    )


def _watched(
    kernel: AttentionKernel, name: str, choice: Choice, tell: Callable[[Recorded | int], None]
) -> AttentionKernel:
    def attend(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
        output = kernel(terms, values, mask, dropout)
        with torch.no_grad():
            recorded = _recorded(name, choice, terms, values, mask)
        tell(recorded)
        return output

    return attend


def _recorded(
    name: str, choice: Choice, terms: ScoreTerms, values: Tensor, mask: Mask
) -> Recorded | int:
    """What was attended to, or the number of queries where none is among the chosen steps."""
    scored = terms.bias if terms.queries is None else terms.queries
    assert scored is not None, "a score gives queries and keys, a bias, or both"
    count, time = max(scored.shape[1], values.shape[1]), scored.shape[2]
    numbers = range(1, count + 1) if choice.heads is None else choice.heads
    for number in numbers:
        if not 1 <= number <= count:
            raise _not_there(f"head {number} in {name}", map(str, range(1, count + 1)))
    heads = [number - 1 for number in numbers]
    steps: Sequence[int] = range(time)
    if choice.steps is not None:
        steps = list(dict.fromkeys(step % time for step in choice.steps if -time <= step < time))
        if not steps:
            return time
    at = torch.tensor(steps, device=scored.device, dtype=torch.long)
    keys = _of_heads(terms.keys, heads, count)
    weights = scored.new_empty(values.shape[0], len(heads), len(steps), values.shape[2])
    _fill(weights, replace(terms, keys=keys), mask, heads, at)
    return Recorded(
        name,
        weights,
        numbers,
        steps,
        queries=_rows(terms.queries, heads, at) if choice.queries else None,
        keys=keys if choice.keys else None,
        values=_of_heads(values, heads, count) if choice.values else None,
    )


def _fill(
    weights: Float[Tensor, "B k steps S"],
    terms: ScoreTerms,
    mask: Mask,
    heads: Sequence[int],
    steps: Int[Tensor, "steps"],
) -> None:
    """Block by block, so that nothing but the result is quadratic in time."""
    batch, count, _, keys = weights.shape
    scored = terms.bias if terms.queries is None else terms.queries
    assert scored is not None
    rows = max(1, BLOCK // max(1, batch * count * keys))
    for first in range(0, len(steps), rows):
        at = steps[first : first + rows]
        block = replace(
            terms,
            queries=_rows(terms.queries, heads, at),
            bias=_rows(terms.bias, heads, at),
        )
        seen = _mask_of(mask, at, scored.shape[2], keys)
        weights[:, :, first : first + rows] = attention_weights(block, seen)


def _rows(
    table: Float[Tensor, "#B #k T width"] | None, heads: Sequence[int], at: Int[Tensor, "rows"]
) -> Float[Tensor, "#B chosen rows width"] | None:
    """Some queries of some heads, where a bias may be the same for all."""
    if table is None:
        return None
    rows = table.detach()[:, :, at]
    return rows if table.shape[1] == 1 else rows[:, list(heads)]


def _of_heads(
    shared: Float[Tensor, "B kv_heads S U"] | None, heads: Sequence[int], count: int
) -> Float[Tensor, "B k S U"] | None:
    """What belongs to these of `count` heads, each with its own even where they share."""
    if shared is None:
        return None
    kv_heads = shared.shape[1]
    if kv_heads == count and list(heads) == list(range(count)):
        return shared.detach()
    return shared.detach()[:, [head * kv_heads // count for head in heads]]


def _mask_of(mask: Mask, at: Int[Tensor, "rows"], time: int, keys: int) -> Mask:
    """The rows of a mask, made without the whole table."""
    if mask.visible is not None:
        return mask if mask.visible.shape[2] == 1 else Mask(visible=mask.visible[:, :, at])
    if not mask.causal:
        return mask
    slots = torch.arange(keys, device=at.device)
    return Mask(visible=(slots <= at[:, None] + (keys - time))[None, None])


def _not_there(wanted: str, there: Iterable[str]) -> UserError:
    names = ", ".join(dict.fromkeys(there))
    return UserError(
        f"{wanted} is not in the model (expected one of {names})", fix="choose another"
    )
