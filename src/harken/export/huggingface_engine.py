"""Generate with a model of `transformers` and the search of Harken, to compare its outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harken.models.inputs import select_rows

Methods = dict[str, Callable[..., Any]]


def causal_methods(loaded: Any) -> Methods:
    """Return the methods of `GPT`. A state is (cache, mask of its tokens, next position)."""

    def forward(tokens: Tensor, **_: Any) -> Tensor:
        logits: Tensor = loaded(tokens).logits
        return logits

    def init_state(batch: int, device: torch.device) -> Any:
        position = torch.zeros(batch, 1, dtype=torch.long, device=device)
        return (), position[:, :0].bool(), position

    def step(tokens: Tensor, present: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        layers, mask, position = state
        present = torch.ones_like(tokens, dtype=torch.bool) if present is None else present
        mask = torch.cat((mask, present), dim=1)
        positions = (position + present.cumsum(dim=1) - 1).clamp(min=0)
        output = loaded(
            tokens,
            attention_mask=mask.long(),
            position_ids=positions,
            past_key_values=_cache(layers),
            use_cache=True,
        )
        position = position + present.sum(dim=1, keepdim=True)
        return output.logits, (_layers(output.past_key_values), mask, position)

    return {"forward": forward, "init_state": init_state, "step": step, "logits": _unchanged}


def seq2seq_methods(loaded: Any) -> Methods:
    """Return the methods of `EncoderDecoder`. A state is (cache, encoder states, their mask)."""

    def forward(source: Tensor, present: Tensor, target: Tensor, **_: Any) -> Tensor:
        output = loaded(source, attention_mask=present.long(), decoder_input_ids=target)
        logits: Tensor = output.logits
        return logits

    def init_state(source: Tensor, present: Tensor) -> Any:
        encoder = loaded.get_encoder()
        memory = encoder(source, attention_mask=present.long()).last_hidden_state
        return (), memory, present

    def step(tokens: Tensor, present: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        layers, memory, memory_present = state
        output = loaded(
            encoder_outputs=BaseModelOutput(last_hidden_state=memory),
            attention_mask=memory_present.long(),
            decoder_input_ids=tokens,
            past_key_values=EncoderDecoderCache(_cache(layers), DynamicCache()),
            use_cache=True,
        )
        layers = _layers(output.past_key_values.self_attention_cache)
        return output.logits, (layers, memory, memory_present)

    def reorder(state: Any, rows: Tensor, *, beam: int, same_prompts: bool) -> Any:
        return select_rows(state, rows)

    methods: Methods = {"forward": forward, "init_state": init_state, "step": step}
    return {**methods, "logits": _unchanged, "reorder": reorder}


def _unchanged(logits: Tensor) -> Tensor:
    return logits


def _cache(layers: Any) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    for index, (keys, values) in enumerate(layers):
        cache.update(keys, values, index)
    return cache


def _layers(cache: Any) -> Any:
    return tuple((layer.keys, layer.values) for layer in cache.layers)
