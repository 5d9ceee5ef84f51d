"""Remove parts of a model while a block runs.

    with ablated(model, [HeadRef("stack.blocks.0.attention", 2)], how=Resample(seed=0)):
        model(tokens)

    HeadRef          the weighted values of one head, B T I
    AttentionRef     those of all its heads; the bias of the output projection stays
    FeedForwardRef   its output, B T J
    LayerRef         output - input of a block, B T J; without it the block returns its input
    PositionRef      a position kind, which then adds no vector, rotation or bias; a score that
                     depends on positions itself (`transformer_xl`, `synthesizer`) stays

The output of a part is replaced by zeros (`Zero`), by its mean in a sample over rows and positions,
padding included (`Mean`), or by its output in another row of the batch at the same position
(`Resample`; a single row keeps its own). `record` shows the weights of a removed head unchanged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.errors import UserError
from harken.inspection.activations import layer_names
from harken.inspection.attention_calls import AttentionCall, has_attention, on_attention_calls
from harken.inspection.refs import AttentionRef, FeedForwardRef, HeadRef, LayerRef, PositionRef
from harken.layers.feedforward import FeedForward
from harken.layers.transformer import Block

Result = TypeVar("Result")
Change = Callable[[Tensor], Tensor]
"""The output of a part (B k T I of heads, else B T J) -> its replacement."""

OutputPart = HeadRef | AttentionRef | FeedForwardRef | LayerRef
ModelPart = OutputPart | PositionRef


@dataclass(frozen=True, slots=True, eq=False)
class MeanActivations:
    """The mean output of each part that ran, by path: 1 k 1 I of heads, else 1 1 J."""

    outputs: Mapping[str, Tensor]

    def heads(self) -> list[HeadRef]:
        counts = {name: mean.shape[1] for name, mean in self.outputs.items() if mean.dim() == 4}
        return [HeadRef(name, head + 1) for name, count in counts.items() for head in range(count)]


AblationMethod = Callable[[str, Tensor], Tensor]
"""(path of a module, its output) -> the replacement, in a shape that expands to the output."""


@dataclass(frozen=True, slots=True)
class Zero:
    """Replace outputs by zeros."""

    def __call__(self, module: str, output: Tensor) -> Tensor:
        return torch.zeros_like(output)


@dataclass(frozen=True, slots=True)
class Mean:
    """Replace outputs by their means in a sample (`mean_activations`)."""

    means: MeanActivations

    def __call__(self, module: str, output: Tensor) -> Tensor:
        if module not in self.means.outputs:
            raise ValueError(f"{module}: did not run in the sample of the means")
        return self.means.outputs[module].to(output)


@dataclass(frozen=True, slots=True)
class Resample:
    """Replace outputs by those of another row, the same for all parts of a batch."""

    seed: int = 0

    def __call__(self, module: str, output: Tensor) -> Tensor:
        return output[other_rows(len(output), self.seed).to(output.device)]


ZERO = Zero()


@contextmanager
def ablated(
    model: nn.Module, parts: Sequence[ModelPart], how: AblationMethod = ZERO
) -> Iterator[None]:
    """Remove these parts while the block runs."""
    with ExitStack() as undo:
        for part in dict.fromkeys(parts):
            if isinstance(part, PositionRef):
                undo.enter_context(_without_position(model, part.module))
            else:
                change = partial(_replacement, part, how)
                undo.enter_context(with_outputs(model, {part.module: change}))
        yield


@contextmanager
def with_outputs(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Pass the output of each named attention, feed-forward layer or block through its change.

    In other models than Harken's, a name is a member of a `nn.ModuleList`, or a module that calls
    `scaled_dot_product_attention`.
    """
    heads: dict[str, Change] = {}
    ran: dict[str, None] = {}

    def handle(call: AttentionCall, output: Tensor) -> Tensor:
        ran[call.name] = None
        return heads[call.name](output) if call.name in heads else output

    with ExitStack() as undo:
        for name, change in changes.items():
            module = model.get_submodule(name)
            if isinstance(module, MultiHead):
                heads[name] = change
            elif isinstance(module, FeedForward):
                hook = module.register_forward_hook(
                    lambda module, inputs, output, change=change: change(output)
                )
                undo.callback(hook.remove)
            elif isinstance(module, Block) or name in layer_names(model):
                hook = module.register_forward_hook(partial(_change_residual, change))
                undo.callback(hook.remove)
            elif has_attention(model):
                raise ValueError(
                    f"{name}: expected an attention, a feed-forward layer or a block, got "
                    f"{type(module).__name__}"
                )
            else:
                heads[name] = change
        if heads:
            undo.enter_context(on_attention_calls(model, handle, names=heads, replaces=True))
        yield
    if not has_attention(model) and ran and (missing := heads.keys() - ran):
        raise UserError(
            f"attention {min(missing)!r} did not run (expected one of {', '.join(ran)})",
            fix="name one of these",
        )


def mean_activations(
    model: nn.Module, sample: Callable[[], Result]
) -> tuple[MeanActivations, Result]:
    """Return the mean output of every part while `sample` runs the model, and its result."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, output: Tensor) -> Tensor:
        # Time is the second to last axis, with heads and without.
        total = output.detach().sum(dim=(0, -2), keepdim=True).cpu().double()
        sums[name] = total if name not in sums else sums[name] + total
        counts[name] = counts.get(name, 0) + output.shape[0] * output.shape[-2]
        return output

    changes = {part.module: partial(add, part.module) for part in layer_parts(model)}
    with with_outputs(model, changes):
        result = sample()
    return MeanActivations({name: total / counts[name] for name, total in sums.items()}), result


def layer_parts(model: nn.Module) -> list[LayerRef | AttentionRef | FeedForwardRef]:
    """Return every block, attention and feed-forward layer, in the order of the model."""
    refs: dict[type, Any] = {
        Block: LayerRef,
        MultiHead: AttentionRef,
        FeedForward: FeedForwardRef,
    }
    return [
        ref(name)
        for name, module in model.named_modules()
        for kind, ref in refs.items()
        if isinstance(module, kind)
    ]


def position_parts(model: nn.Module) -> list[PositionRef]:
    """Return every position kind that adds information."""
    return [
        PositionRef(name)
        for name, module in model.named_modules()
        if isinstance(module, Position) and module.without() is not module
    ]


def other_rows(rows: int, seed: int) -> Int[Tensor, "rows"]:
    """Return a permutation without fixed points, of a single row the identity."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    others = torch.empty_like(order)
    others[order] = order.roll(1)  # one cycle through all rows
    return others


def _replacement(part: OutputPart, how: AblationMethod, output: Tensor) -> Tensor:
    """Return the output without the part; outputs of other heads stay the same."""
    other = how(part.module, output)
    if not isinstance(part, HeadRef):
        return other.expand_as(output)
    return torch.where(head_mask(part, output), other, output)


def head_mask(part: HeadRef, output: Float[Tensor, "B k T I"]) -> Tensor:
    """Return a mask k 1 1 that is true for the head."""
    heads = output.shape[1]
    if not 1 <= part.head <= heads:
        raise UserError(
            f"head {part.head} of {part.module!r} does not exist (expected 1 to {heads})",
            fix="heads are counted from 1",
        )
    return (torch.arange(1, heads + 1, device=output.device) == part.head)[:, None, None]


def _change_residual(change: Change, module: nn.Module, inputs: Any, output: Any) -> Any:
    """Change what a block adds to its input; a block returns a tensor, or a tuple with it first."""
    tokens, after = inputs[0], output[0] if isinstance(output, tuple) else output
    added = after - tokens
    replaced = change(added)
    if replaced is added:  # adding it again would round
        return output
    after = tokens + replaced
    return (after, *output[1:]) if isinstance(output, tuple) else after


@contextmanager
def _without_position(model: nn.Module, name: str) -> Iterator[None]:
    position = model.get_submodule(name)
    if not isinstance(position, Position):
        raise ValueError(f"{name}: expected a position kind, got {type(position).__name__}")
    parent_name, _, attribute = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    setattr(parent, attribute, position.without())
    try:
        yield
    finally:
        setattr(parent, attribute, position)
