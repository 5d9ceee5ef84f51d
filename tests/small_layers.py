"""Layers with large random weights, and their inputs and oracles."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.masks import Mask, build_mask
from harken.attention.multihead import AttentionContext
from harken.decode.stepper import Seq2SeqStepper
from harken.layers.transformer import TransformerBlock


def randomized(module: Any, std: float, mean: float = 0.0) -> Any:
    """Return the module in float64 and evaluation mode; small initial weights would hide errors."""
    module = module.double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean, std)
    return module


def context_of(mask: Mask, queries: int, keys: int | None = None) -> AttentionContext:
    """Return a context with positions from zero on."""
    queries_at, keys_at = torch.arange(queries)[None], torch.arange(keys or queries)[None]
    return AttentionContext(mask=mask, query_positions=queries_at, key_positions=keys_at)


def causal_context(first: int, last: int) -> AttentionContext:
    """Return a context with queries from `first` on and keys from zero on."""
    queries_at, keys_at = torch.arange(first, last)[None], torch.arange(last)[None]
    mask = build_mask("causal", queries_at, keys_at)
    return AttentionContext(mask=mask, query_positions=queries_at, key_positions=keys_at)


def copy_to_pytorch(ours: TransformerBlock, theirs: nn.Module) -> None:
    """Copy weights into a layer of `nn.TransformerEncoder` or `nn.TransformerDecoder`."""
    layers = {"linear1": ours.feedforward.up_proj, "linear2": ours.feedforward.down_proj}
    norms = (ours.attention_norm, ours.cross_norm, ours.feedforward_norm)
    for number, norm in enumerate((norm for norm in norms if norm is not None), start=1):
        layers[f"norm{number}"] = norm
    copied = {}
    for name, attention in (("self_attn", ours.attention), ("multihead_attn", ours.cross)):
        if attention is not None:
            parts = (attention.score.q_proj, attention.score.k_proj, attention.v_proj)
            copied[f"{name}.in_proj_weight"] = torch.cat([part.weight for part in parts])
            copied[f"{name}.in_proj_bias"] = torch.cat([part.bias for part in parts])
            layers[f"{name}.out_proj"] = attention.out_proj
    for name, layer in layers.items():
        copied |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    theirs.load_state_dict(copied, strict=True)


def check_steps(model: Any, source: Tensor, present: Tensor, target: Tensor, whole: Tensor) -> None:
    """Logits of one token at a time must equal those of whole rows."""
    stepper = Seq2SeqStepper(model, int(target[0, 0]))
    scores, state = stepper.prefill(source, present)
    assert_close(scores, whole[:, 0], rtol=0, atol=1e-10)
    for at in range(1, target.shape[1]):
        scores, state = stepper.step(target[:, at], state)
        assert_close(scores, whole[:, at], rtol=0, atol=1e-10)
