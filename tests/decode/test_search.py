"""Every search behind one door, on real models: alone or in a batch, and scored again."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_steppers import Tables, numbered, padded, ragged_prompts, rescored, told
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import RotaryConfig
from harken.decode.beam import beam_search
from harken.decode.sampling import greedy_search
from harken.decode.search import SearchConfig, TokenHypothesis, generate
from harken.decode.stepper import LMStepper, Seq2SeqStepper, Stepper
from harken.layers.recurrent import GRUConfig
from harken.models.decoders import (
    AttentionRNNDecoderConfig,
    LocationConfig,
    TransformerDecoderConfig,
)
from harken.models.encoders import TransformerEncoderConfig
from harken.models.gpt import GPT
from harken.models.seq2seq import (
    DecoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    Seq2Seq,
)
from small_models import VOCABULARY, small_model

END, MOST = 10, 6
END_WITH_MEMORY = 12  # which all of those models come to say, not in every row
ROWS, ALONE = 64, range(0, 64, 7)
SEARCHES = {
    "greedy": (SearchConfig(), 1),
    "beam": (SearchConfig(beam=4, length_penalty=0.7), 3),
    "n-best alone": (SearchConfig(), 3),
    "sampling": (SearchConfig(temperature=0.8, top_k=11, top_p=0.95, seed=5), 2),
}
searches = pytest.mark.parametrize(("search", "nbest"), SEARCHES.values(), ids=SEARCHES)

DECODERS: dict[str, DecoderConfig] = {
    "transformer": TransformerDecoderConfig(
        layers=2,
        width=12,
        max_length=MOST + 1,
        attention=MultiHeadConfig(heads=3),
        position=RotaryConfig(),
    ),
    "rnn": AttentionRNNDecoderConfig(width=12, hidden=14, cell=GRUConfig(layers=2)),
    "rnn that feels": AttentionRNNDecoderConfig(
        width=12, hidden=14, location=LocationConfig(channels=2, kernel=3, hidden=5)
    ),
}


def language_model(dtype: torch.dtype = torch.float64) -> GPT:
    """Of a seed that says `end` after any number of tokens, so that rows leave at every step."""
    return small_model(position="rotary", seed=3).to(dtype)


def translator(decoder: str) -> EncoderDecoder:
    body = TransformerEncoderConfig(layers=1, max_length=7, attention=MultiHeadConfig(heads=2))
    config = EncoderDecoderConfig(encoder=body, decoder=DECODERS[decoder])
    model = config.build(VOCABULARY, 0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 1.5 * parameter.shape[-1] ** -0.5
            parameter.add_(scale * torch.empty_like(parameter).normal_(generator=generator))
    return model


def sought(
    stepper: Stepper[object],
    rows: list[list[int]],
    search: SearchConfig,
    nbest: int,
    end: int = END,
) -> list[list[TokenHypothesis]]:
    return generate(stepper, *padded(rows), search=search, end=end, max_tokens=MOST, nbest=nbest)


def alone(
    stepper: Stepper[object],
    rows: list[list[int]],
    at: int,
    search: SearchConfig,
    nbest: int,
    end: int = END,
) -> list[TokenHypothesis]:
    """A row in a batch of one. A sample goes by its row's number: then in the last of its likes."""
    before = at if search.temperature is not None else 0
    return sought(stepper, [rows[at]] * (before + 1), search, nbest, end)[-1]


def tokens_of(found: list[TokenHypothesis]) -> list[list[int]]:
    return [list(one.tokens) for one in found]


@searches
def test_a_batch_finds_what_each_row_finds_alone(search: SearchConfig, nbest: int) -> None:
    stepper, rows = LMStepper(language_model()), ragged_prompts(ROWS, 5, seed=1)
    together = sought(stepper, rows, search, nbest)
    for at in ALONE:
        ours, theirs = together[at], alone(stepper, rows, at, search, nbest)
        assert len(ours) == nbest and tokens_of(ours) == tokens_of(theirs)
        logs = [one.log_probability for one in theirs]
        assert [one.log_probability for one in ours] == pytest.approx(logs, abs=1e-10)
    lengths = {len(row[0].tokens) for row in together}
    assert len(lengths) >= MOST, "rows should end at many different steps"


@searches
def test_a_batch_in_single_precision_finds_the_same_tokens(
    search: SearchConfig, nbest: int
) -> None:
    stepper = LMStepper(language_model(torch.float32))
    rows = ragged_prompts(ROWS, 5, seed=2)
    together = sought(stepper, rows, search, nbest)
    for at in ALONE:
        assert tokens_of(together[at]) == tokens_of(alone(stepper, rows, at, search, nbest))


@searches
def test_a_forward_of_what_was_found_scores_it_the_same(search: SearchConfig, nbest: int) -> None:
    model, rows = language_model(), ragged_prompts(17, 5, seed=3)
    for row, found in zip(rows, sought(LMStepper(model), rows, search, nbest), strict=True):
        for one in found:
            expected = rescored(model, row, told(one, END, MOST))
            assert one.log_probability == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("decoder", DECODERS)
@searches
def test_a_model_with_a_memory_is_searched_alike(
    decoder: str, search: SearchConfig, nbest: int
) -> None:
    model, rows, start = translator(decoder), ragged_prompts(13, 7, seed=4), 3
    stepper, end = Seq2SeqStepper(model, start), END_WITH_MEMORY
    together = sought(stepper, rows, search, nbest, end)
    for at in (0, 12):
        assert tokens_of(together[at]) == tokens_of(alone(stepper, rows, at, search, nbest, end))
    for row, found in zip(rows, together, strict=True):
        for one in found:
            said = told(one, end, MOST)
            source, present = padded([row])
            expected = forced(model, source, present, start, said)
            assert one.log_probability == pytest.approx(expected, abs=1e-10)


class FromMemory:
    """A translator that is handed what an encoder made: frames in place of tokens."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.step, self.reorder, self.logits = model.step, model.reorder, model.logits
        self.model = model

    def init_state(self, source: Tensor, present: Tensor) -> Any:
        return Seq2Seq.init_state(self.model, source, present)


@pytest.mark.parametrize("decoder", DECODERS)
@torch.no_grad()
def test_a_prompt_may_be_frames(decoder: str) -> None:
    model, (tokens, present) = translator(decoder), padded(ragged_prompts(7, 5, seed=5))
    memory = model.encoder(model.decoder.embedding(tokens), present)
    search = SearchConfig(beam=3)
    ours, theirs = (
        generate(
            Seq2SeqStepper(one, 3),
            prompts,
            present,
            search=search,
            end=END_WITH_MEMORY,
            max_tokens=MOST,
        )
        for one, prompts in ((FromMemory(model), memory), (model, tokens))
    )
    assert ours == theirs


@torch.no_grad()
def forced(
    model: EncoderDecoder, source: Tensor, present: Tensor, start: int, said: list[int]
) -> float:
    logits = model(source, present, torch.tensor([[start, *said[:-1]]]))
    logs = logits[0].log_softmax(dim=-1)
    return math.fsum(logs[at, one].item() for at, one in enumerate(said))


def test_which_search_is_asked_for() -> None:
    tables, prompts = Tables(5, 7, 4, seed=0), numbered(5)

    def by(search: SearchConfig, nbest: int = 1) -> list[list[TokenHypothesis]]:
        return generate(tables, *prompts, search=search, end=0, max_tokens=4, nbest=nbest)

    def by_beam(beam: int, length_penalty: float, nbest: int) -> list[list[TokenHypothesis]]:
        return beam_search(
            tables,
            *prompts,
            beam=beam,
            length_penalty=length_penalty,
            early_stopping=True,
            end=0,
            max_tokens=4,
            nbest=nbest,
        )

    greedy = [[one] for one in greedy_search(tables, *prompts, end=0, max_tokens=4)]
    assert by(SearchConfig()) == greedy
    wide = SearchConfig(beam=6, length_penalty=0.0)
    assert by(wide) == by_beam(6, 0.0, 1) != greedy
    assert by(replace(wide, length_penalty=2.0)) == by_beam(6, 2.0, 1) != by(wide)
    assert by(SearchConfig(), nbest=3) == by_beam(3, 1.0, 3)
    warm = SearchConfig(temperature=3.0, seed=1)
    assert by(warm) != by(replace(warm, seed=2))
    assert by(replace(warm, top_k=1)) == by(replace(warm, top_p=1e-9)) == greedy
    with pytest.raises(ValueError, match="at most the beam of 2, got 3"):
        by(SearchConfig(beam=2), nbest=3)


@searches
def test_no_rows_find_nothing(search: SearchConfig, nbest: int) -> None:
    stepper = LMStepper(language_model())
    empty = torch.zeros(0, 3).long()
    assert (
        generate(stepper, empty, empty.bool(), search=search, end=END, max_tokens=3, nbest=nbest)
        == []
    )
