"""Remove parts of a model that knows nothing of it, and put them back.

    with ablated(model, [HeadRef("stack.blocks.0.attention", 2)], how=Resample(seed=0)):
        model(tokens)

A part is what it writes, and something else is written in its place:

    HeadRef          the values that one head mixed, B T I
    AttentionRef     those of all its heads; of an output matrix the bias is left
    FeedForwardRef   what it would add to the tokens, B T J
    LayerRef         output - input of a block, B T J; without it tokens pass through unchanged
    PositionRef      a position kind, which then tells no vector, no rotation and no bias

    Zero            nothing
    Mean            the mean of what the part wrote in a sample, over rows and places alike
    Resample        what the part writes in another row of the batch, at the same place

A mean counts padding wherever the sample has some. A row that is alone in its batch has no other,
and keeps its own. What a score knows of places by itself (`relative_product`, `synthesizer`) is not
taken by `PositionRef`. Inside `record` or around it, the weights are those of a head that still
looks, and only what it mixed is gone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.kernels import AttentionKernel, ScoreTerms
from harken.attention.masks import Mask
from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.errors import UserError
from harken.inspection.activations import layer_names
from harken.inspection.record import has_attention
from harken.inspection.refs import AttentionRef, FeedForwardRef, HeadRef, LayerRef, PositionRef
from harken.inspection.sdpa import with_head_outputs
from harken.layers.block import Block
from harken.layers.feedforward import FeedForward

Result = TypeVar("Result")
Change = Callable[[Tensor], Tensor]
"""What a part writes (B k T I of heads, else B T J) -> what is written in its place."""


WritingPart = HeadRef | AttentionRef | FeedForwardRef | LayerRef
Part = WritingPart | PositionRef


@dataclass(frozen=True, slots=True, eq=False)
class MeanActivations:
    """By path, what each part that ran wrote on average: 1 k 1 I of heads, else 1 1 J."""

    outputs: Mapping[str, Tensor]

    def heads(self) -> list[HeadRef]:
        """Every head that ran."""
        return [
            HeadRef(name, head)
            for name, mean in self.outputs.items()
            if mean.dim() == 4
            for head in range(1, mean.shape[1] + 1)
        ]


@dataclass(frozen=True, slots=True)
class Zero:
    """Nothing is written."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a sample is written (`mean_activations`)."""

    means: MeanActivations


@dataclass(frozen=True, slots=True)
class Resample:
    """Another row's writing, the same row for all parts of a batch."""

    seed: int = 0


How = Zero | Mean | Resample
ZERO = Zero()


@contextmanager
def ablated(model: nn.Module, parts: Sequence[Part], how: How = ZERO) -> Iterator[None]:
    """The model without these parts, for the length of the block."""
    with ExitStack() as undo:
        for part in dict.fromkeys(parts):
            if isinstance(part, PositionRef):
                undo.enter_context(_without_position(model, part.module))
            else:
                undo.enter_context(with_outputs(model, {part.module: partial(_instead, part, how)}))
        yield


@contextmanager
def with_outputs(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Pass what each named attention, feed-forward layer or block writes through its change.

    Of a model that Harken did not build, a name is a member of a `nn.ModuleList`, or a module that
    calls `scaled_dot_product_attention`.
    """
    foreign: dict[str, Change] = {}
    with ExitStack() as undo:
        for name, change in changes.items():
            module = model.get_submodule(name)
            if isinstance(module, MultiHead):
                undo.callback(setattr, module, "kernel", module.kernel)
                module.kernel = partial(_changed_mixed, module.kernel, change)
                continue
            if isinstance(module, FeedForward):
                hook = module.register_forward_hook(partial(_changed_output, change))
            elif isinstance(module, Block) or name in layer_names(model):
                hook = module.register_forward_hook(partial(_changed_block, change))
            elif has_attention(model):
                raise ValueError(
                    f"{name!r} is a {type(module).__name__}, "
                    "wanted an attention, a feed-forward layer or a block"
                )
            else:
                foreign[name] = change
                continue
            undo.callback(hook.remove)
        if foreign:
            undo.enter_context(with_head_outputs(model, foreign))
        yield


def mean_activations(
    model: nn.Module, sample: Callable[[], Result]
) -> tuple[MeanActivations, Result]:
    """What every part writes on average while `sample` runs the model; and what that returned."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, written: Tensor) -> Tensor:
        # The time axis is the last but one, with heads and without; sums of many in float64.
        total = written.detach().sum(dim=(0, -2), keepdim=True).cpu().double()
        sums[name] = total if name not in sums else sums[name] + total
        counts[name] = counts.get(name, 0) + written.shape[0] * written.shape[-2]
        return written

    with with_outputs(
        model, {part.module: partial(add, part.module) for part in layer_parts(model)}
    ):
        result = sample()
    return MeanActivations({name: total / counts[name] for name, total in sums.items()}), result


def layer_parts(model: nn.Module) -> list[LayerRef | AttentionRef | FeedForwardRef]:
    """Every block, attention and feed-forward layer, as they stand in the model."""
    found: list[LayerRef | AttentionRef | FeedForwardRef] = []
    for name, module in model.named_modules():
        if isinstance(module, Block):
            found.append(LayerRef(name))
        elif isinstance(module, MultiHead):
            found.append(AttentionRef(name))
        elif isinstance(module, FeedForward):
            found.append(FeedForwardRef(name))
    return found


def position_parts(model: nn.Module) -> list[PositionRef]:
    """Return every position kind that holds information."""
    return [
        PositionRef(name)
        for name, module in model.named_modules()
        if isinstance(module, Position) and module.without() is not module
    ]


def other_rows(rows: int, seed: int) -> Int[Tensor, "rows"]:
    """For each row another one, each taken once; a single row has only itself."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    others = torch.empty_like(order)
    # Around one ring through all rows: a permutation that leaves no row in its place.
    others[order] = order.roll(1)
    return others


def _instead(part: WritingPart, how: How, written: Tensor) -> Tensor:
    """What is written where the part is removed; other heads keep theirs to the last bit."""
    if isinstance(how, Zero):
        other = torch.zeros_like(written)
    elif isinstance(how, Resample):
        other = written[other_rows(len(written), how.seed).to(written.device)]
    elif part.module in how.means.outputs:
        other = how.means.outputs[part.module].to(written)
    else:
        raise ValueError(f"{part.module!r} did not run in the sample, wanted one where it does")
    if not isinstance(part, HeadRef):
        return other.expand_as(written)
    return torch.where(only_head(part, written), other, written)


def only_head(part: HeadRef, written: Float[Tensor, "B k T I"]) -> Tensor:
    """k 1 1, true for the one head."""
    heads = written.shape[1]
    if not 1 <= part.head <= heads:
        raise UserError(
            f"head {part.head} of {part.module!r} does not exist (expected 1 to {heads})",
            fix="heads are counted from 1",
        )
    return (torch.arange(1, heads + 1, device=written.device) == part.head)[:, None, None]


def _changed_mixed(
    kernel: AttentionKernel,
    change: Change,
    terms: ScoreTerms,
    values: Tensor,
    mask: Mask,
    dropout: float,
) -> Tensor:
    return change(kernel(terms, values, mask, dropout))


def _changed_output(change: Change, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return change(output)


def _changed_block(change: Change, module: nn.Module, inputs: Any, output: Any) -> Any:
    """A block's output is its tokens, or these and what it remembers."""
    tokens, after = inputs[0], output[0] if isinstance(output, tuple) else output
    written = after - tokens
    instead = change(written)
    if instead is written:  # only looked at: adding it again would round
        return output
    after = tokens + instead
    return (after, *output[1:]) if isinstance(output, tuple) else after


@contextmanager
def _without_position(model: nn.Module, name: str) -> Iterator[None]:
    position = model.get_submodule(name)
    if not isinstance(position, Position):
        raise ValueError(f"{name!r} is a {type(position).__name__}, wanted a position kind")
    parent_name, _, attribute = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    setattr(parent, attribute, position.without())
    try:
        yield
    finally:
        setattr(parent, attribute, position)
