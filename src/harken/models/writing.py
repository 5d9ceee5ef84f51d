"""What every model that writes about a memory does with its decoder, of either kind.

    decoder, memory B M H  --begin-->  state,  then token after token

The RNN decoder's h[0] comes from the state of a right-to-left RNN at the memory's first place; a
memory that has none gives the mean of its states. What made the memory (words, sound, a picture) is
not here.
"""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.models.attentive_decoder import AttentiveDecoder, AttentiveDecoderConfig
from harken.models.body import RecurrentBody
from harken.models.decoder import TransformerDecoder, TransformerDecoderConfig

DecoderConfig = TransformerDecoderConfig | AttentiveDecoderConfig
Decoder = TransformerDecoder | AttentiveDecoder


def build_decoder(
    config: DecoderConfig, vocabulary: int, memory_width: int, backward_width: int, seed: int
) -> Decoder:
    """Where a right-to-left RNN's state is in the memory, `backward_width` is its width; else 0."""
    if isinstance(config, TransformerDecoderConfig):
        return config.build(vocabulary, memory_width, seed)
    return config.build(vocabulary, memory_width, backward_width or memory_width, seed)


def check_memory(config: DecoderConfig, longest: int | None) -> None:
    """Refuse a score with fewer positions than the longest memory; None for one without limit."""
    if not config.attention.score.per_position:
        return
    if longest is None or longest > config.length:
        limit = "no limit" if longest is None else f"up to {longest}"
        fix = "" if longest is None else f"set decoder.length = {longest}, or "
        raise ValueError(
            f"score {config.attention.score.kind!r} of the decoder has {config.length} positions "
            f"(decoder.length), and the encoder output has {limit}; {fix}choose another "
            "decoder.attention.score"
        )


def layers_of(config: DecoderConfig) -> int:
    """Blocks or cells one above the other."""
    return config.layers if isinstance(config, TransformerDecoderConfig) else config.cell.layers


def backward_width(body: nn.Module) -> int:
    """Of a right-to-left RNN's state in what a body gives; 0 where it has none."""
    if not isinstance(body, RecurrentBody) or not body.recurrent.backwards:
        return 0
    return body.recurrent.hidden


def begin_writing(
    decoder: Decoder,
    memory: Float[Tensor, "B M H"],
    present: Bool[Tensor, "B M"],
    backward_width: int,
) -> Any:
    """The state before any token is written."""
    if isinstance(decoder, TransformerDecoder):
        return decoder.begin(memory, present)
    return decoder.begin(memory, present, first_state(memory, present, backward_width))


def first_state(
    memory: Float[Tensor, "B M H"], present: Bool[Tensor, "B M"], backward_width: int
) -> Float[Tensor, "B source"]:
    """What h[0] is made from."""
    if backward_width:
        # What reads from the right has read all when it comes to the first place.
        return memory[:, 0, memory.shape[2] - backward_width :]
    counted = present[..., None].to(memory.dtype)
    return (memory * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1.0)
