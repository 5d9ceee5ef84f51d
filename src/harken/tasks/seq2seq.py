"""Batched search, and what encoder-decoders share: loss, teacher forcing and attention views."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.batch.padding import Seq2SeqBatch, pad
from harken.batch.ragged import Numbers, ragged
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper, State, Stepper, TokenHypothesis
from harken.encode.vocabulary import END, PAD
from harken.inspection.refs import is_cross_attention, is_decoder_attention
from harken.models.captioner import Captioner
from harken.models.seq2seq import EncoderDecoder
from harken.tasks.attention_view import AttentionView, AudioView, ImageView, TokenTexts
from harken.tasks.prediction import Indices, Truncation
from harken.tasks.probe import target_losses


class Prompt(NamedTuple):
    """The tokens that a model continues, and the truncation of the input."""

    tokens: Numbers
    truncation: Truncation | None


def sample_keys(inputs: Sequence[str], indices: Indices = None) -> list[SampleKey]:
    """Return what the sample of each input depends on, in addition to the seed."""
    return [(index,) for index in (range(len(inputs)) if indices is None else indices)]


def input_batches(
    inputs: Sequence[str], indices: Indices, size: int
) -> Iterator[tuple[Sequence[str], list[SampleKey]]]:
    """Yield batches of inputs with the keys of their samples."""
    keys = sample_keys(inputs, indices)
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size], keys[start : start + size]


def max_tokens(model: EncoderDecoder | Captioner, search: SearchConfig) -> int:
    """Return the maximum number of output tokens, the end token included."""
    return min(search.max_tokens or model.max_target, model.max_target)


def search_outputs(
    model: EncoderDecoder | Captioner,
    source: Int[Tensor, "B M"] | Float[Tensor, "B M J"],
    present: Bool[Tensor, "B M"],
    search: SearchConfig,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[TokenHypothesis]]:
    """Return the best outputs for each row of source tokens or encoder states."""
    stepper, limit = Seq2SeqStepper(model, END), max_tokens(model, search)
    return generate(
        stepper, source, present, search=search, end=END, max_tokens=limit, nbest=nbest, keys=keys
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


def cross_entropy_loss(smoothing: float) -> Callable[[nn.Module, Seq2SeqBatch], Tensor]:
    """Return a loss with label smoothing, summed over the targets."""

    def loss(model: nn.Module, batch: Seq2SeqBatch) -> Tensor:
        source, present, inputs, targets = batch
        encoder_inputs = (source,) if present is None else (source, present)
        return target_losses(model, targets, *encoder_inputs, inputs, smoothing=smoothing).sum()

    return loss


def decoder_inputs(outputs: Sequence[int], device: torch.device) -> Int[Tensor, "1 T"]:
    """Return the decoder inputs from which `outputs` are predicted (teacher forcing)."""
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
    queries, inputs = token_texts(outputs), token_texts([END, *outputs[:-1]])
    cross = f"Cross-attention: target tokens to {keys_name}"
    decoder = "Decoder self-attention: target tokens"
    return [
        AttentionView(cross, is_cross_attention, queries, encoder.keys, sound, picture),
        encoder,
        AttentionView(decoder, is_decoder_attention, queries, inputs),
    ]
