"""What tasks with an encoder and a decoder share: search, teacher forcing, attention views."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper, TokenHypothesis
from harken.encode.vocabulary import END
from harken.inspection.refs import is_cross_attention, is_decoder_attention
from harken.models.captioner import Captioner
from harken.models.seq2seq import EncoderDecoder
from harken.tasks.attention_view import AttentionView, AudioView, ImageView, TokenTexts


def max_tokens(model: EncoderDecoder | Captioner, search: SearchConfig) -> int:
    """The most tokens of an output, with the end token if there is one."""
    return min(search.most or model.max_target, model.max_target)


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


def decoder_inputs(outputs: Sequence[int]) -> list[int]:
    """What the decoder reads while it predicts `outputs` (teacher forcing)."""
    return [END, *outputs[:-1]]


def decoder_input_tensor(outputs: Sequence[int], device: torch.device) -> Int[Tensor, "1 T"]:
    """The same as a batch of one row."""
    return torch.tensor([decoder_inputs(outputs)], device=device)


def output_views(
    outputs: Sequence[int],
    token_texts: TokenTexts,
    encoder: AttentionView,
    cross_title: str,
    *,
    sound: AudioView | None = None,
    picture: ImageView | None = None,
) -> list[AttentionView]:
    """Cross-attention, self-attention of the encoder, self-attention of the decoder."""
    queries = token_texts(outputs)
    return [
        AttentionView(
            title=cross_title,
            matches=is_cross_attention,
            queries=queries,
            keys=encoder.keys,
            sound=sound,
            picture=picture,
        ),
        encoder,
        AttentionView(
            title="Decoder self-attention: target tokens",
            matches=is_decoder_attention,
            queries=queries,
            keys=token_texts(decoder_inputs(outputs)),
        ),
    ]
