"""Ablate, describe and patch the heads and layers of any model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from harken.api.arguments import check_integers
from harken.attention.multihead import MultiHead
from harken.decode.stepper import logits_of
from harken.errors import UserError
from harken.inspection.ablation import ModelPart, ablated
from harken.inspection.activations import check_module, first_tensor, layer_names
from harken.inspection.heads import HeadInput, HeadSummary, analyze_heads
from harken.inspection.patching import PatchingResult, next_token_metric, patch_parts
from harken.inspection.record import has_attention, record
from harken.inspection.refs import AttentionRef, FeedForwardRef, HeadRef, LayerRef
from harken.layers.feedforward import FeedForward
from harken.layers.transformer import Block


@contextmanager
def ablate(model: nn.Module, name: str, head: int | None = None) -> Iterator[None]:
    """Remove a head, an attention, a feed-forward layer or a whole layer while the block runs.

    Arguments:
        model: as for `harken.record`.
        name: path of the module, as in `records[0].name` or `model.named_modules()`.
        head: the head to remove, counted from 1. Its output is replaced by zeros before the output
            projection.

    Without `head`, the output of the module is replaced by zeros (for a `harken.MultiHead`, that of
    all heads before the output projection). A layer, which is a member of a `nn.ModuleList`,
    returns its input instead.

        with harken.ablate(model, "transformer.h.0.attn", head=1):
            without = model(tokens)
    """
    check_module(model)
    try:
        module = model.get_submodule(name)
    except AttributeError:
        problem = f"{name!r}: no such module in {type(model).__name__}"
        raise UserError(problem, fix="print the paths with model.named_modules()") from None
    if head is not None:
        check_integers("harken.ablate", head=(head, 1))
        if isinstance(module, MultiHead) or not has_attention(model):
            part: ModelPart = HeadRef(name, head)
        else:
            problem = f"{name!r} is a {type(module).__name__}, which has no heads"
            raise UserError(problem, fix="pass the path of an attention, as in records[0].name")
    elif isinstance(module, MultiHead):
        part = AttentionRef(name)
    elif isinstance(module, Block) or name in layer_names(model):
        part = LayerRef(name)
    elif isinstance(module, FeedForward):
        part = FeedForwardRef(name)
    else:
        hook = module.register_forward_hook(lambda _, inputs, output: _zeros(output))
        try:
            yield
        finally:
            hook.remove()
        return
    with ablated(model, [part]):
        yield


def heads(model: nn.Module, inputs: Any) -> list[HeadSummary]:
    """Describe every head by its attention on the given inputs and by its weights.

    Arguments:
        model: as for `harken.record`.
        inputs: a tensor to pass to the model, such as tokens (batch, time); a mapping of keyword
            arguments, such as the output of a Hugging Face tokenizer, whose `attention_mask` is
            respected; or a list of these.

    Returns a `HeadSummary` per head, in the order of the model. `offset` is the distance back with
    the most weight; `previous_token`, `itself`, `next_token` and `first` are mean weights on these
    tokens; `entropy` is in nats. Values computed from the weights (`weights_offset`, `copying`, …)
    exist for models of Harken only; a value that does not exist is None.

        for head in harken.heads(model, tokens):
            print(head.layer, head.head, head.offset, head.previous_token, head.entropy)
    """
    check_module(model)
    listed = [inputs] if isinstance(inputs, Tensor | Mapping) else inputs
    batches = list(listed) if isinstance(listed, Iterable) else []
    if not batches or not all(isinstance(batch, Tensor | Mapping) for batch in batches):
        problem = f"inputs: expected a tensor, keyword arguments or a list of these, got {inputs!r}"
        raise UserError(problem, fix="pass for example a tensor of tokens")
    return list(analyze_heads(model, [_head_input(model, batch) for batch in batches]).heads)


def patch(
    model: nn.Module,
    clean: Tensor,
    corrupted: Tensor,
    *,
    parts: Literal["heads", "layers"] | Sequence[Any] = "heads",
    metric: Callable[[Any], Tensor] | None = None,
    by_position: bool = False,
) -> PatchingResult:
    """Find the heads or layers that carry the difference between two inputs (activation patching).

    The model runs on the corrupted input once per part, with the output of this part replaced by
    its output on the clean input.

    Arguments:
        model: a language model, as for `harken.record`.
        clean, corrupted: tokens (batch, time) of equal shapes.
        parts: "heads", "layers", or a list of references such as `HeadRef`.
        metric: function from the output of the model to one number per row. By default the logit
            difference after the last token between the most probable tokens of both inputs, or, if
            these are equal, the log-probability of this token.
        by_position: also patch every position separately.

    Returns a `PatchingResult`: the metric of both inputs (`clean`, `corrupted`), `parts`, and
    `shares` (parts), the share of the difference that each part restores: 1 restores the clean
    output, 0 changes nothing. With `by_position`, also `positions` (parts, time).

        result = harken.patch(model, clean, corrupted)
        restored = dict(zip((part.label for part in result.parts), result.shares.tolist()))
    """
    check_module(model)
    for name, tokens in (("clean", clean), ("corrupted", corrupted)):
        if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
            problem = f"{name}: expected tokens (batch, time), got {tokens!r}"
            raise UserError(problem, fix="pass a tensor of integers")
    name, measure = "metric", metric
    if measure is None:
        with torch.inference_mode():
            ends = [logits_of(model(tokens), tokens)[:, -1] for tokens in (clean, corrupted)]
        chosen = next_token_metric(*ends)
        name, measure = chosen.name, lambda output: chosen(logits_of(output, clean)[:, -1])
    refs: Sequence[Any] = parts
    if parts == "layers":
        refs = [LayerRef(path) for path in layer_names(model)]
    elif parts == "heads":
        refs = _head_refs(model, clean)
    elif isinstance(parts, str):
        problem = f"parts: expected 'heads', 'layers' or a list, got {parts!r}"
        raise UserError(problem, fix="choose one")

    def run(tokens: Tensor) -> Tensor:
        return measure(model(tokens))

    return patch_parts(model, clean, corrupted, run, refs, by_position=by_position, name=name)


def _zeros(output: Any) -> Any:
    """Replace the first tensor of an output by zeros."""
    if isinstance(output, Tensor):
        return torch.zeros_like(output)
    first = first_tensor(output)
    if isinstance(output, tuple) and first is not None:
        return tuple(torch.zeros_like(first) if part is first else part for part in output)
    problem = f"expected a module that returns a tensor or a tuple, got {type(output).__name__}"
    raise UserError(problem, fix="pass the path of a module inside it")


def _head_input(model: nn.Module, batch: Tensor | Mapping[str, Any]) -> HeadInput:
    if isinstance(batch, Tensor):
        return HeadInput(lambda: model(batch))
    mask = batch.get("attention_mask")
    present = mask.bool().cpu() if isinstance(mask, Tensor) and mask.dim() == 2 else None
    return HeadInput(lambda: model(**batch), present)


def _head_refs(model: nn.Module, tokens: Tensor) -> list[HeadRef]:
    with torch.inference_mode(), record(model) as records:
        model(tokens)
    counts = {call.name: len(call.heads) for call in records}
    return [HeadRef(name, head) for name, count in counts.items() for head in range(1, count + 1)]
