"""Remove parts of a model inside a `with` block.

    with ablated(model, [HeadRef("stack.blocks.0.attention", 2)], method=Resample(seed=0)):
        model(tokens)

    HeadRef          the output of one head before the output projection, B T I
    AttentionRef     the outputs of all heads of a layer; the bias of the output projection stays
    FeedForwardRef   the output of a feed-forward layer, B T J
    LayerRef         output - input of a block, B T J
    PositionRef      the vectors, rotations or biases of a positional encoding; a score that depends
                     on positions itself (`transformer_xl`, `synthesizer`) does not change

A positional encoding is replaced by none. Any other output is replaced by zeros (`Zero`), by its
mean over all positions of a sample of inputs, padding included (`Mean`), or by its output for
another row of the batch at the same position (`Resample`). `record` still records the attention
weights of a removed head.
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
from harken.inspection.attention_calls import AttentionCall, has_multihead, on_attention_calls
from harken.inspection.refs import AttentionRef, FeedForwardRef, HeadRef, LayerRef, PositionRef
from harken.layers.feedforward import FeedForward
from harken.layers.transformer import Block

Result = TypeVar("Result")
Change = Callable[[Tensor], Tensor]
"""Function from the output of a part (B k T I for attention, else B T J) to its replacement."""

OutputPart = HeadRef | AttentionRef | FeedForwardRef | LayerRef
ModelPart = OutputPart | PositionRef


@dataclass(frozen=True, slots=True, eq=False)
class MeanActivations:
    """The mean output of each layer that ran, by path: 1 k 1 I for attention, else 1 1 J.

    For a block, it is the mean of output - input.
    """

    outputs: Mapping[str, Tensor]

    def heads(self) -> list[HeadRef]:
        counts = {name: mean.shape[1] for name, mean in self.outputs.items() if mean.dim() == 4}
        return [HeadRef(name, head + 1) for name, count in counts.items() for head in range(count)]


AblationMethod = Callable[[str, Tensor], Tensor]
"""Function of a module's path and its output (for a block, output - input).

Its result broadcasts to the shape of the output.
"""


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
            raise ValueError(
                f"{module}: no mean (expected a Harken block, attention or feed-forward layer that "
                "ran in the sample)"
            )
        return self.means.outputs[module].to(output)


@dataclass(frozen=True, slots=True)
class Resample:
    """Replace the output of each row by that of another row, with one permutation for all parts."""

    seed: int = 0

    def __call__(self, module: str, output: Tensor) -> Tensor:
        return output[other_rows(len(output), self.seed).to(output.device)]


ZERO = Zero()


@contextmanager
def ablated(
    model: nn.Module, parts: Sequence[ModelPart], method: AblationMethod = ZERO
) -> Iterator[None]:
    """Remove these parts inside the `with` block."""
    with ExitStack() as cleanup:
        for part in dict.fromkeys(parts):
            if isinstance(part, PositionRef):
                cleanup.enter_context(_without_position(model, part.module))
            else:
                change = partial(_replace, part, method)
                cleanup.enter_context(with_outputs(model, {part.module: change}))
        yield


@contextmanager
def with_outputs(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Change the outputs of the named attention layers, feed-forward layers and blocks.

    For a block, the change is applied to output - input. In a model without `MultiHead`, a name is
    the path of a member of an outermost `nn.ModuleList`, or of a module that calls
    `scaled_dot_product_attention`.
    """
    attention_changes: dict[str, Change] = {}
    called: dict[str, None] = {}  # paths of the modules that called attention, in order

    def handle(call: AttentionCall, output: Tensor) -> Tensor:
        called[call.name] = None
        change = attention_changes.get(call.name)
        return output if change is None else change(output)

    with ExitStack() as cleanup:
        for name, change in changes.items():
            module = model.get_submodule(name)
            if isinstance(module, MultiHead):
                attention_changes[name] = change
            elif isinstance(module, FeedForward):
                hook = module.register_forward_hook(
                    lambda module, inputs, output, change=change: change(output)
                )
                cleanup.callback(hook.remove)
            elif isinstance(module, Block) or name in layer_names(model):
                hook = module.register_forward_hook(partial(_change_residual, change))
                cleanup.callback(hook.remove)
            elif has_multihead(model):
                raise ValueError(
                    f"{name}: expected an attention layer, a feed-forward layer or a block, got "
                    f"{type(module).__name__}"
                )
            else:
                attention_changes[name] = change
        if attention_changes:
            calls = on_attention_calls(model, handle, names=attention_changes, replaces=True)
            cleanup.enter_context(calls)
        yield
    if not has_multihead(model) and called and (missing := attention_changes.keys() - called):
        expected = ", ".join(called)
        raise UserError(
            f"{min(missing)!r}: no attention ran in this module (expected one of {expected})",
            fix="pass the path of one of these",
        )


def mean_activations(model: nn.Module, run: Callable[[], Result]) -> tuple[MeanActivations, Result]:
    """Call `run`, which runs the model on a sample; return the mean outputs and its result."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, output: Tensor) -> Tensor:
        # Time is the second to last axis, with and without heads.
        total = output.detach().sum(dim=(0, -2), keepdim=True).cpu().double()
        sums[name] = total if name not in sums else sums[name] + total
        counts[name] = counts.get(name, 0) + output.shape[0] * output.shape[-2]
        return output

    changes = {part.module: partial(add, part.module) for part in layer_parts(model)}
    with with_outputs(model, changes):
        result = run()
    return MeanActivations({name: total / counts[name] for name, total in sums.items()}), result


def layer_parts(model: nn.Module) -> list[LayerRef | AttentionRef | FeedForwardRef]:
    """Return every block, attention and feed-forward layer in the order of the model."""
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
    """Return every positional encoding that can be removed."""
    return [
        PositionRef(name)
        for name, module in model.named_modules()
        if isinstance(module, Position)
        and module.to_no_position() is not module  # `NoPosition` returns itself
    ]


def other_rows(rows: int, seed: int) -> Int[Tensor, "rows"]:
    """Return a random permutation without fixed points (the identity for a single row)."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    others = torch.empty_like(order)
    others[order] = order.roll(1)  # one cycle through all rows
    return others


def _replace(part: OutputPart, method: AblationMethod, output: Tensor) -> Tensor:
    """Replace the output of a part; the outputs of other heads stay the same."""
    replacement = method(part.module, output)
    if not isinstance(part, HeadRef):
        return replacement.expand_as(output)
    return torch.where(head_mask(part, output), replacement, output)


def head_mask(part: HeadRef, output: Float[Tensor, "B k T I"]) -> Tensor:
    """Return a mask (k 1 1) that is true for the head."""
    heads = output.shape[1]
    if not 1 <= part.head <= heads:
        raise UserError(
            f"head {part.head} of {part.module!r} does not exist (expected 1 to {heads})",
            fix="choose one of these",
        )
    return (torch.arange(1, heads + 1, device=output.device) == part.head)[:, None, None]


def _change_residual(change: Change, module: nn.Module, inputs: Any, output: Any) -> Any:
    """Change output - input of a block; in a tuple of outputs, the first element is the output."""
    before, after = inputs[0], output[0] if isinstance(output, tuple) else output
    residual = after - before
    changed = change(residual)
    if changed is residual:  # before + residual would differ from after by rounding
        return output
    after = before + changed
    return (after, *output[1:]) if isinstance(output, tuple) else after


@contextmanager
def _without_position(model: nn.Module, name: str) -> Iterator[None]:
    position = model.get_submodule(name)
    if not isinstance(position, Position):
        raise ValueError(f"{name}: expected a positional encoding, got {type(position).__name__}")
    parent_name, _, attribute = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    setattr(parent, attribute, position.to_no_position())
    try:
        yield
    finally:
        setattr(parent, attribute, position)
