"""Batched search, and the loss, teacher forcing and attention views of encoder-decoders."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from harken.batch.padding import Seq2SeqBatch, pad
from harken.batch.ragged import IntArray, ragged
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import State, Stepper, TokenHypothesis
from harken.encode.vocabulary import END, SpecialIds
from harken.inspection.refs import is_cross_attention, is_decoder_attention
from harken.models.captioner import Captioner
from harken.models.seq2seq import EncoderDecoder
from harken.tasks.attention_view import AttentionView, AudioView, ImageView, TokenTexts
from harken.tasks.attention_view import scored_output as scored_output
from harken.tasks.dummy_batches import target_losses
from harken.tasks.prediction import Truncation
from harken.tasks.task import Keys

Beams = list[list[TokenHypothesis]]  # the hypotheses of each row, the best first


class Prompt(NamedTuple):
    """The tokens that a model continues, and the truncation of the input."""

    tokens: IntArray
    truncation: Truncation | None


def max_tokens(model: EncoderDecoder | Captioner, search: SearchConfig) -> int:
    """Return the maximum number of output tokens, the end token included."""
    return min(search.max_tokens or model.max_target, model.max_target)


def search_tokens(
    stepper: Stepper[State],
    rows: Sequence[IntArray],
    device: torch.device,
    search: SearchConfig,
    max_tokens: int,
    nbest: int = 1,
    keys: Keys | None = None,
    special: SpecialIds | None = None,
) -> Beams:
    """Return the best outputs for each row of prompt or source tokens, searched in one batch."""
    special = special or SpecialIds()
    tokens, present = (tensor.to(device) for tensor in pad(ragged(rows), special.pad))
    return generate(
        stepper,
        tokens,
        present,
        search=search,
        end=special.end,
        max_tokens=max_tokens,
        nbest=nbest,
        sample_keys=keys,
    )


def cross_entropy_loss(smoothing: float) -> Callable[[nn.Module, Seq2SeqBatch], Tensor]:
    """Return a function that computes the summed cross-entropy with label smoothing."""

    def loss(model: nn.Module, batch: Seq2SeqBatch) -> Tensor:
        source, present, inputs, targets = batch
        encoder_inputs = (source,) if present is None else (source, present)
        return target_losses(model, targets, *encoder_inputs, inputs, smoothing=smoothing).sum()

    return loss


def decoder_inputs(outputs: Sequence[int], device: torch.device) -> Int[Tensor, "1 T"]:
    """Return the start token and all `outputs` but the last, the inputs of teacher forcing."""
    return torch.tensor([[END, *outputs[:-1]]], device=device)


def output_views(
    outputs: Sequence[int],
    token_texts: TokenTexts,
    encoder: AttentionView,
    keys_name: str,
    *,
    sound: AudioView | None = None,
    picture: ImageView | None = None,
    start: int = END,
) -> list[AttentionView]:
    """Return the views of cross-attention and of self-attention in encoder and decoder.

    A query of the decoder is labeled with the token that it predicts, a key with its input token.
    """
    queries, inputs = token_texts(outputs), token_texts([start, *outputs[:-1]])
    cross = f"Cross-attention: target tokens to {keys_name}"
    decoder = "Decoder self-attention: target tokens"
    return [
        AttentionView(cross, is_cross_attention, queries, encoder.keys, sound, picture),
        encoder,
        AttentionView(decoder, is_decoder_attention, queries, inputs),
    ]
