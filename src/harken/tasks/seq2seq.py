"""Batched search, and what encoder-decoders share: teacher forcing and attention views."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.batch.padding import pad
from harken.batch.ragged import Numbers, ragged
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper, State, Stepper, TokenHypothesis
from harken.encode.vocabulary import END, PAD
from harken.inspection.refs import is_cross_attention, is_decoder_attention
from harken.models.captioner import Captioner
from harken.models.seq2seq import EncoderDecoder
from harken.tasks.attention_view import AttentionView, AudioView, ImageView, TokenTexts


def max_tokens(model: EncoderDecoder | Captioner, search: SearchConfig) -> int:
    """The most tokens of an output, with the end token if there is one."""
    return min(search.max_tokens or model.max_target, model.max_target)


def search_outputs(
    model: EncoderDecoder | Captioner,
    source: Int[Tensor, "B M"] | Float[Tensor, "B M J"],
    present: Bool[Tensor, "B M"],
    search: SearchConfig,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[TokenHypothesis]]:
    """The best outputs for each row of source tokens or encoder states."""
    return generate(
        Seq2SeqStepper(model, END),
        source,
        present,
        search=search,
        end=END,
        max_tokens=max_tokens(model, search),
        nbest=nbest,
        keys=keys,
    )


def search_tokens(
    stepper: Stepper[State],
    rows: Sequence[Numbers],
    device: torch.device,
    search: SearchConfig,
    max_tokens: int,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[TokenHypothesis]]:
    """Return the best outputs for each row of prompt or source tokens, searched in one batch."""
    tokens, present = pad(ragged(rows), PAD)
    return generate(
        stepper,
        tokens.to(device),
        present.to(device),
        search=search,
        end=END,
        max_tokens=max_tokens,
        nbest=nbest,
        keys=keys,
    )


def decoder_inputs(outputs: Sequence[int], device: torch.device) -> Int[Tensor, "1 T"]:
    """Return what the decoder reads while it predicts `outputs` (teacher forcing)."""
    return torch.tensor([[END, *outputs[:-1]]], device=device)


def output_views(
    outputs: Sequence[int],
    token_texts: TokenTexts,
    encoder: AttentionView,
    keys_name: str,
    *,
    sound: AudioView | None = None,
    picture: ImageView | None = None,
) -> list[AttentionView]:
    """Return the views of cross-attention and of self-attention in encoder and decoder."""
    queries = token_texts(outputs)
    cross, inputs = f"Cross-attention: target tokens to {keys_name}", [END, *outputs[:-1]]
    return [
        AttentionView(cross, is_cross_attention, queries, encoder.keys, sound, picture),
        encoder,
        AttentionView(
            "Decoder self-attention: target tokens",
            is_decoder_attention,
            queries,
            token_texts(inputs),
        ),
    ]
