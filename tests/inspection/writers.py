"""Small models of every kind that generates text, with steppers and full passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import RotaryConfig
from harken.decode.ctc_prefix import CTCPrefixScorer
from harken.decode.joint import JointScorer
from harken.decode.stepper import LMStepper, Seq2SeqStepper, Stepper
from harken.layers.frontends import Conv2dSubsamplingConfig, FeatureProjectionConfig, ImageSizes
from harken.layers.recurrent import GRUConfig
from harken.layers.spatial import SpatialConfig
from harken.models.captioner import CaptionerConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.encoders import TransformerEncoderConfig
from harken.models.gpt import GPTConfig
from harken.models.recognizer import BLANK, RecognizerConfig
from harken.models.seq2seq import DecoderConfig, EncoderDecoderConfig

VOCABULARY, START, MAX_TOKENS = 17, 3, 6
WIDTH, LONGEST = 12, 7
HEADS = MultiHeadConfig(heads=3)
GROUPED = MultiHeadConfig(heads=4, kv_heads=2, head_width=5, key_width=6)
DECODERS: dict[str, DecoderConfig] = {
    "transformer": TransformerDecoderConfig(
        layers=2, width=WIDTH, max_length=MAX_TOKENS + 1, attention=GROUPED, position=RotaryConfig()
    ),
    "rnn": AttentionRNNDecoderConfig(width=WIDTH, hidden=14, cell=GRUConfig(layers=2)),
}
# The end token of each model, which it predicts at different steps.
ENDS = {
    "translate transformer": 15,
    "translate rnn": 15,
    "caption transformer": 13,
    "caption rnn": 12,
    "attention transformer": 15,
    "attention rnn": 5,
    "joint transformer": 5,
    "joint rnn": 5,
    "language model": 6,
}


@dataclass(frozen=True)
class Writer:
    """`whole` runs the model on some items and their inputs, without a search or a cache."""

    model: nn.Module
    stepper: Stepper[Any]
    prompts: Tensor
    present: Tensor
    whole: Callable[[list[int], Tensor], object]

    def prefix(self, item: int) -> list[int]:
        """Return the tokens before the generated ones."""
        if type(self.stepper) is LMStepper:
            tokens: list[int] = self.prompts[item, self.present[item]].tolist()
            return tokens
        return [START]


def writer(kind: str, items: int, dtype: torch.dtype) -> Writer:
    """Return a model with `items` inputs of different lengths."""
    random = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, LONGEST + 1, (items,), generator=random)
    task, _, decoder = kind.partition(" ")
    if task == "language":
        return language_model(lengths, random, dtype)
    if task == "translate":
        return translator(decoder, lengths, random, dtype)
    if task == "caption":
        return captioner(decoder, items, random, dtype)
    return recognizer(task, decoder, lengths, random, dtype)


def language_model(lengths: Tensor, random: torch.Generator, dtype: torch.dtype) -> Writer:
    config = GPTConfig(
        layers=2,
        width=WIDTH,
        max_length=LONGEST + MAX_TOKENS,
        attention=GROUPED,
        position=RotaryConfig(),
    )
    model = stirred(config.build(VOCABULARY, 0), dtype)
    tokens, present = ragged(lengths, random)
    return Writer(model, LMStepper(model), tokens, present, lambda items, prefix: model(prefix))


def translator(
    decoder: str, lengths: Tensor, random: torch.Generator, dtype: torch.dtype
) -> Writer:
    body = TransformerEncoderConfig(layers=1, max_length=LONGEST, attention=HEADS)
    config = EncoderDecoderConfig(encoder=body, decoder=DECODERS[decoder])
    model = stirred(config.build(VOCABULARY, 0), dtype)
    tokens, present = ragged(lengths, random)

    def whole(items: list[int], prefix: Tensor) -> object:
        longest = int(lengths[items].max())
        return model(tokens[items, :longest], present[items, :longest], prefix)

    return Writer(model, Seq2SeqStepper(model, START), tokens, present, whole)


def captioner(decoder: str, items: int, random: torch.Generator, dtype: torch.dtype) -> Writer:
    config = CaptionerConfig(
        width=WIDTH,
        frontend=FeatureProjectionConfig(),
        encoder=SpatialConfig(layers=1, attention=HEADS),
        decoder=DECODERS[decoder],
    )
    model = stirred(config.build(VOCABULARY, ImageSizes(channels=2, columns=5, rows=3), 0), dtype)
    pictures = torch.randn(items, 5, 3, 2, generator=random).to(dtype)
    with torch.inference_mode():
        seen = model.encode(pictures)
    return Writer(
        model,
        Seq2SeqStepper(model, START),
        *seen,
        lambda items_, prefix: model(pictures[items_], prefix),
    )


def recognizer(
    way: str, decoder: str, lengths: Tensor, random: torch.Generator, dtype: torch.dtype
) -> Writer:
    config = RecognizerConfig(
        width=WIDTH,
        frontend=Conv2dSubsamplingConfig(channels=3),
        encoder=GRUConfig(direction="both"),
        decoder=DECODERS[decoder],
    )
    model = stirred(config.build(VOCABULARY, 11, 10.0, 0), dtype)
    frames = torch.randn(len(lengths), 4 * LONGEST, 11, generator=random).to(dtype)
    sounding = torch.arange(4 * LONGEST) < 4 * lengths[:, None]
    with torch.inference_mode():
        heard = model.encode(frames, sounding)
        stepper: Stepper[Any] = Seq2SeqStepper(model, START)
        if way == "joint":
            ctc = CTCPrefixScorer(
                model.ctc_log_probs(heard.memory),
                heard.present,
                blank=BLANK,
                end=ENDS[f"joint {decoder}"],
            )
            stepper = JointScorer(stepper, ctc, 0.3)

    def whole(items: list[int], prefix: Tensor) -> object:
        longest = 4 * int(lengths[items].max())
        return model(frames[items, :longest], sounding[items, :longest], prefix)

    return Writer(model, stepper, *heard, whole)


def ragged(lengths: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, VOCABULARY, (len(lengths), LONGEST), generator=random)
    return tokens, torch.arange(LONGEST) < lengths[:, None]


def stirred(model: Any, dtype: torch.dtype) -> Any:
    """Add noise to the weights, so that attention is not uniform."""
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.empty_like(parameter).normal_(generator=random)
            parameter.add_(1.2 * parameter.shape[-1] ** -0.5 * noise)
    return model.to(dtype).eval()
