"""Search by CTC, by attention, and by both."""

import math
from dataclasses import replace

import pytest
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.decode.ctc import best_paths
from harken.decode.ctc_prefix import CTCPrefixScorer, search_prefixes
from harken.decode.joint import (
    DecodingMode,
    JointScorer,
    SpeechSearchConfig,
    decoding_mode,
    search_speech,
)
from harken.decode.search import generate
from harken.decode.stepper import Seq2SeqStepper
from harken.errors import UserError
from harken.layers.frontends import Conv2dSubsamplingConfig
from harken.layers.recurrent import GRUConfig
from harken.models.decoders import TransformerDecoderConfig
from harken.models.recognizer import BLANK, EncoderOutput, RecognizerConfig, SpeechRecognizer
from small_ctc import every_text
from small_layers import randomized

VOCABULARY, FEATURES, END, MAX_TOKENS = 7, 11, 3, 5
DECODER = TransformerDecoderConfig(
    layers=1, width=12, max_length=13, attention=MultiHeadConfig(heads=3), dropout=0.0
)
BOTH = RecognizerConfig(
    width=12,
    frontend=Conv2dSubsamplingConfig(channels=3),
    encoder=GRUConfig(direction="both"),
    decoder=DECODER,
    dropout=0.0,
)


def build(config: RecognizerConfig) -> SpeechRecognizer:
    torch.manual_seed(2)
    return randomized(config.build(VOCABULARY, FEATURES, 10.0, seed=5), std=0.5)


def encoded(model: SpeechRecognizer) -> EncoderOutput:
    frames = torch.randn(3, 20, FEATURES, generator=torch.Generator().manual_seed(1)).double()
    present = torch.arange(20) < torch.tensor([20, 17, 9])[:, None]
    with torch.inference_mode():
        return model.encode(frames, present)


def search_model(model: SpeechRecognizer, search: SpeechSearchConfig, nbest: int = 1) -> list:
    return search_speech(
        model,
        *encoded(model),
        search=search,
        blank=BLANK,
        end=END,
        max_tokens=MAX_TOKENS,
        nbest=nbest,
    )


def test_ctc_uses_the_best_path_or_all_paths() -> None:
    model = build(BOTH)
    memory, present = encoded(model)
    with torch.inference_mode():
        logs = model.ctc_log_probs(memory)
    paths = best_paths(logs, present, blank=BLANK)
    results = search_model(model, SpeechSearchConfig(mode="ctc"))
    assert [beam[0].tokens for beam in results] == [path.tokens for path in paths]
    wide = search_model(model, SpeechSearchConfig(mode="ctc", beam=6), nbest=4)
    prefixes = search_prefixes(logs, present, blank=BLANK, beam=6, nbest=6)
    for row, ours in enumerate(wide):
        texts = every_text(logs[row][present[row]], BLANK)
        exact = {
            tuple(hypothesis.tokens): texts[tuple(hypothesis.tokens)].log_probability
            for hypothesis in prefixes[row]
        }
        best = sorted(exact, key=lambda text: -exact[text])[:4]
        assert [tuple(hypothesis.tokens) for hypothesis in ours] == best
    assert [len(beam) for beam in search_model(model, SpeechSearchConfig(mode="ctc"), nbest=3)] == [
        3
    ] * 3


@pytest.mark.parametrize(
    ("by", "weight", "beam"),
    [("ctc", 0.3, 1), ("ctc", 0.3, 3), ("both", 0.4, 1), ("both", 0.4, 3), ("both", 1.0, 3)],
)
def test_confidence_is_the_probability_of_the_text(
    by: DecodingMode, weight: float, beam: int
) -> None:
    """Compare with all paths of CTC and hypothesis forward pass of the decoder over the text."""
    model = build(BOTH)
    memory, present = encoded(model)
    with torch.inference_mode():
        logs = model.ctc_log_probs(memory)
    share = weight if by == "both" else 1.0
    search = SpeechSearchConfig(mode=by, ctc_weight=weight, beam=beam)
    for row, results in enumerate(search_model(model, search, nbest=beam)):
        texts = every_text(logs[row][present[row]], BLANK)
        assert len(results) == beam
        for hypothesis in results:
            target = torch.tensor([[END, *hypothesis.tokens, END][: MAX_TOKENS + 1]])
            with torch.inference_mode():
                states = model.decoder(
                    target[:, :-1], model.init_state(memory[[row]], present[[row]])
                )
                scores = model.logits(states).log_softmax(dim=-1)
            attention = scores.gather(2, target[:, 1:, None]).sum().exp().item()
            ctc = math.exp(texts[tuple(hypothesis.tokens)].log_probability)
            expected = (1 - share) * attention + share * ctc
            assert math.exp(hypothesis.log_probability) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_both_is_the_weighted_sum(weight: float) -> None:
    model = build(BOTH)
    memory, present = encoded(model)
    search = SpeechSearchConfig(mode="both", ctc_weight=weight, beam=5)
    with torch.inference_mode():
        ctc = CTCPrefixScorer(model.ctc_log_probs(memory), present, blank=BLANK, end=END)
        stepper = JointScorer(Seq2SeqStepper(model, END), ctc, weight)
        expected = generate(stepper, memory, present, search=search, end=END, max_tokens=MAX_TOKENS)
    results = search_model(model, search)
    assert [beam[0].tokens for beam in results] == [beam[0].tokens for beam in expected]


def test_attention_alone_ignores_ctc() -> None:
    model, search = build(BOTH), SpeechSearchConfig(mode="attention", beam=5)
    alone = search_model(model, search)
    both = search_model(model, replace(search, mode="both", ctc_weight=0.0))
    for ours, theirs in zip(alone, both, strict=True):
        assert ours[0].tokens == theirs[0].tokens
        assert ours[0].log_probability == pytest.approx(theirs[0].log_probability, abs=1e-9)
    model.ctc = None
    assert alone == search_model(model, search) == search_model(model, replace(search, mode="both"))


def test_unavailable_modes_are_rejected() -> None:
    only_ctc = build(replace(BOTH, decoder=None))
    only_attention = build(replace(BOTH, ctc=False))
    assert (decoding_mode(only_ctc, "both"), decoding_mode(only_attention, "both")) == (
        "ctc",
        "attention",
    )
    with pytest.raises(UserError, match="does not support it"):
        decoding_mode(only_ctc, "attention")
    with pytest.raises(UserError, match="expected 'attention'"):
        decoding_mode(only_attention, "ctc")
    with pytest.raises(UserError, match="temperature"):
        search_model(only_ctc, SpeechSearchConfig(temperature=1.0))
