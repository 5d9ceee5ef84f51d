"""Ablate, describe and patch the heads and layers of any model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from harken.api.arguments import check_integers
from harken.attention.multihead import MultiHead
from harken.decode.stepper import extract_logits
from harken.errors import UserError
from harken.inspection.ablation import ModelPart, ablated
from harken.inspection.activations import check_module, first_tensor, layer_names
from harken.inspection.heads import HeadInput, HeadTable, analyze_heads
from harken.inspection.patching import PatchingResult, next_token_metric, patch_parts
from harken.inspection.record import has_multihead, record
from harken.inspection.refs import AttentionRef, FeedForwardRef, HeadRef, LayerRef
from harken.layers.feedforward import FeedForward
from harken.layers.transformer import Block


@contextmanager
def ablate(model: nn.Module, name: str, head: int | None = None) -> Iterator[None]:
    """Remove a head, an attention module, a feed-forward module or a layer inside a `with` block.

    Arguments:
        model: any model that `harken.record` supports.
        name: path of the module, as in `records[0].name` or `model.named_modules()`.
        head: the head to remove, counted from 1. Its output is replaced by zeros before the output
            projection.

    Without `head`, the output of the module is replaced by zeros (in a `harken.MultiHead`, the
    outputs of all heads before the output projection). A layer returns its input instead. Layers
    are the members of an `nn.ModuleList` that have submodules and are not inside another layer.

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
        if isinstance(module, MultiHead) or not has_multihead(model):
            part: ModelPart = HeadRef(name, head)
        else:
            problem = f"{name!r} is a {type(module).__name__}, which has no heads"
            raise UserError(
                problem, fix="pass the path of an attention module, such as records[0].name"
            )
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


def heads(model: nn.Module, inputs: Any) -> HeadTable:
    """Summarize what every head attends to on inputs, and which offsets its parameters prefer.

    Arguments:
        model: any model that `harken.record` supports.
        inputs: a tensor to pass to the model, such as tokens (batch, time); a mapping of keyword
            arguments, such as the output of a Hugging Face tokenizer with `attention_mask`; or a
            list of these.

    Returns a list with a `HeadSummary` per head, in the order of the model, which a notebook shows
    as a table. `offset` is the number of tokens back with the most weight; `previous_token`,
    `itself`, `next_token` and `first` are mean weights on these tokens; `entropy` is in nats.
    Values computed from the parameters (`weights_offset`, `copying`, …) exist only for Harken
    models and are None otherwise.

        for head in harken.heads(model, tokens):
            print(head.layer, head.head, head.offset, head.previous_token, head.entropy)
    """
    check_module(model)
    listed = [inputs] if isinstance(inputs, Tensor | Mapping) else inputs
    batches = list(listed) if isinstance(listed, Iterable) else []
    if not batches or not all(isinstance(batch, Tensor | Mapping) for batch in batches):
        problem = f"inputs: expected a tensor, keyword arguments or a list of these, got {inputs!r}"
        raise UserError(problem, fix="pass for example a tensor of tokens")
    return HeadTable(analyze_heads(model, [_head_input(model, batch) for batch in batches]).heads)


def patch(
    model: nn.Module,
    clean: Tensor,
    corrupted: Tensor,
    *,
    parts: Literal["heads", "layers"] | Sequence[Any] = "heads",
    metric: Callable[[Any], Tensor] | None = None,
    by_position: bool = False,
) -> PatchingResult:
    """Find the heads or layers that cause the difference between two inputs (activation patching).

    The model runs on the corrupted input once per part, with the output of this part replaced by
    its output on the clean input.

    Arguments:
        model: a language model that `harken.record` supports.
        clean, corrupted: tokens (batch, time) of equal shapes.
        parts: "heads", "layers", or a list of references such as `HeadRef`.
        metric: function from the output of the model to one number per row. By default, the logit
            difference between the most probable next tokens of the clean and the corrupted input.
            If these are equal in any row, the log-probability of the token of the clean input.
        by_position: also patch every position separately.

    Returns a `PatchingResult`: the metric of both inputs (`clean`, `corrupted`), `parts`, and
    `shares` (parts), the fraction of the difference that each part restores: 1 is the clean
    metric, 0 no effect. With `by_position`, also `positions` (parts, time).

        result = harken.patch(model, clean, corrupted)
        restored = dict(zip((part.label for part in result.parts), result.shares.tolist()))
    """
    check_module(model)
    for name, tokens in (("clean", clean), ("corrupted", corrupted)):
        if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
            problem = f"{name}: expected tokens (batch, time), got {tokens!r}"
            raise UserError(problem, fix="pass a tensor of integers")
    metric_name, output_metric = "metric", metric
    if output_metric is None:
        with torch.inference_mode():
            last_logits = [
                extract_logits(model(tokens), tokens)[:, -1] for tokens in (clean, corrupted)
            ]
        default = next_token_metric(*last_logits)
        metric_name = default.name

        def output_metric(output: Any) -> Tensor:
            return default(extract_logits(output, clean)[:, -1])

    refs: Sequence[Any] = parts
    if parts == "layers":
        refs = [LayerRef(path) for path in layer_names(model)]
    elif parts == "heads":
        refs = _head_refs(model, clean)
    elif isinstance(parts, str):
        problem = f"parts: expected 'heads', 'layers' or a list, got {parts!r}"
        raise UserError(problem, fix="choose one")

    def token_metric(tokens: Tensor) -> Tensor:
        return output_metric(model(tokens))

    return patch_parts(
        model, clean, corrupted, token_metric, refs, by_position=by_position, name=metric_name
    )


def _zeros(output: Any) -> Any:
    """Replace the first tensor of an output by zeros."""
    if isinstance(output, Tensor):
        return torch.zeros_like(output)
    first = first_tensor(output)
    if isinstance(output, tuple) and first is not None:
        return tuple(torch.zeros_like(first) if part is first else part for part in output)
    kind = type(output).__name__
    problem = f"harken.ablate: expected a module that returns a tensor or a tuple, got {kind}"
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
