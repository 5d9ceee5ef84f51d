"""The door to CTC, attention and both leads where it says."""

from dataclasses import replace

import pytest
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.decode.ctc import best_paths
from harken.decode.ctc_beam import search_prefixes
from harken.decode.ctc_steps import CTCSteps
from harken.decode.joint import jointly
from harken.decode.seek import seek
from harken.decode.speech import SpeechSearchConfig, seek_speech, way_of
from harken.decode.step import WritingSteps
from harken.errors import UserError
from harken.layers.front import SpeechFrontConfig
from harken.layers.recurrent import GRUConfig
from harken.models.decoder import TransformerDecoderConfig
from harken.models.recogniser import BLANK, Heard, Recogniser, RecogniserConfig

VOCABULARY, FEATURES, END, MOST = 7, 11, 3, 5
DECODER = TransformerDecoderConfig(
    layers=1, width=12, length=13, attention=MultiHeadConfig(heads=3), dropout=0.0
)
BOTH = RecogniserConfig(
    width=12,
    front=SpeechFrontConfig(channels=3),
    encoder=GRUConfig(direction="both"),
    decoder=DECODER,
    dropout=0.0,
)


def built(config: RecogniserConfig) -> Recogniser:
    model = config.build(VOCABULARY, FEATURES, 10.0, seed=5)
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def heard(model: Recogniser) -> Heard:
    frames = torch.randn(3, 29, FEATURES, generator=torch.Generator().manual_seed(1)).double()
    present = torch.arange(29) < torch.tensor([29, 17, 9])[:, None]
    with torch.inference_mode():
        return model.hear(frames, present)


def sought(model: Recogniser, search: SpeechSearchConfig, nbest: int = 1) -> list:
    return seek_speech(
        model, *heard(model), search=search, blank=BLANK, end=END, most=MOST, nbest=nbest
    )


def test_ctc_is_the_best_path_or_the_sum_over_paths() -> None:
    model = built(BOTH)
    memory, present = heard(model)
    with torch.inference_mode():
        logs = model.symbols(memory)
    paths = best_paths(logs, present, blank=BLANK)
    found = sought(model, SpeechSearchConfig(by="ctc"))
    assert [one[0].tokens for one in found] == [path.tokens for path in paths]
    wide = sought(model, SpeechSearchConfig(by="ctc", beam=6), nbest=4)
    assert wide == search_prefixes(logs, present, blank=BLANK, beam=6, nbest=4)
    assert [len(one) for one in sought(model, SpeechSearchConfig(by="ctc"), nbest=3)] == [3] * 3


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_both_is_the_weighted_sum(weight: float) -> None:
    model = built(BOTH)
    memory, present = heard(model)
    search = SpeechSearchConfig(by="both", ctc_weight=weight, beam=5)
    with torch.inference_mode():
        ctc = CTCSteps(model.symbols(memory), present, blank=BLANK, end=END)
        stepper = jointly(WritingSteps(model, END), ctc, weight)
        expected = seek(stepper, memory, present, search=search, end=END, most=MOST)
    assert sought(model, search) == expected


def test_attention_alone_is_not_told_of_ctc() -> None:
    model, search = built(BOTH), SpeechSearchConfig(by="attention", beam=5)
    alone = sought(model, search)
    assert alone == sought(model, replace(search, by="both", ctc_weight=0.0))
    model.ctc = None
    assert alone == sought(model, search) == sought(model, replace(search, by="both"))


def test_what_a_model_does_not_have_cannot_be_asked_for() -> None:
    only_ctc = built(replace(BOTH, decoder=None))
    only_attention = built(replace(BOTH, ctc=False))
    assert (way_of(only_ctc, "both"), way_of(only_attention, "both")) == ("ctc", "attention")
    with pytest.raises(UserError, match="wanted 'ctc': the model writes by ctc alone"):
        way_of(only_ctc, "attention")
    with pytest.raises(UserError, match="wanted 'attention'"):
        way_of(only_attention, "ctc")
    with pytest.raises(UserError, match="temperature"):
        sought(only_ctc, SpeechSearchConfig(temperature=1.0))
