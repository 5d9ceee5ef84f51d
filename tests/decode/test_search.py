"""Every search on real models: single rows equal batches, and scores equal a forward pass."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_steppers import (
    Tables,
    assert_equal_hypotheses,
    numbered,
    padded,
    ragged_prompts,
    rescored,
    search_beam,
    with_end,
)
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import RotaryConfig
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

END, MAX_TOKENS = 10, 6
END_WITH_MEMORY = 12  # which all these models generate, not in every row
ROWS, SINGLE = 64, range(0, 64, 13)
SEARCHES = {
    "greedy": (SearchConfig(), 1),
    "beam": (SearchConfig(beam=4, length_penalty=0.7), 3),
    "n-best": (SearchConfig(), 3),
    "sampling": (SearchConfig(temperature=0.8, top_k=11, top_p=0.95, seed=5), 2),
}
searches = pytest.mark.parametrize(("search", "nbest"), SEARCHES.values(), ids=SEARCHES)

DECODERS: dict[str, DecoderConfig] = {
    "transformer": TransformerDecoderConfig(
        layers=2,
        width=12,
        max_length=MAX_TOKENS + 1,
        attention=MultiHeadConfig(heads=3),
        position=RotaryConfig(),
    ),
    "rnn": AttentionRNNDecoderConfig(width=12, hidden=14, cell=GRUConfig(layers=2)),
    "rnn with location": AttentionRNNDecoderConfig(
        width=12, hidden=14, location=LocationConfig(channels=2, kernel=3, hidden=5)
    ),
}


def language_model() -> GPT:
    """Return a model that generates `end` after any number of tokens: rows end at every step."""
    return small_model(position="rotary", seed=3).double()


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


def search_rows(
    stepper: Stepper[object],
    rows: list[list[int]],
    search: SearchConfig,
    nbest: int,
    end: int = END,
) -> list[list[TokenHypothesis]]:
    return generate(
        stepper, *padded(rows), search=search, end=end, max_tokens=MAX_TOKENS, nbest=nbest
    )


def search_single(
    stepper: Stepper[object],
    rows: list[list[int]],
    at: int,
    search: SearchConfig,
    nbest: int,
    end: int = END,
) -> list[TokenHypothesis]:
    """Search one row; a sample depends on the index of its row, so that row is repeated."""
    copies = at if search.temperature is not None else 0
    return search_rows(stepper, [rows[at]] * (copies + 1), search, nbest, end)[-1]


def tokens_of(hypotheses: list[TokenHypothesis]) -> list[list[int]]:
    return [list(hypothesis.tokens) for hypothesis in hypotheses]


@searches
def test_batch_equals_single_rows(search: SearchConfig, nbest: int) -> None:
    stepper, rows = LMStepper(language_model()), ragged_prompts(ROWS, 5, seed=1)
    together = search_rows(stepper, rows, search, nbest)
    for at in SINGLE:
        ours, theirs = together[at], search_single(stepper, rows, at, search, nbest)
        assert len(ours) == nbest
        assert_equal_hypotheses(ours, theirs)
    lengths = {len(row[0].tokens) for row in together}
    assert len(lengths) >= MAX_TOKENS, "rows should end at many different steps"


@searches
def test_scores_equal_a_forward_pass(search: SearchConfig, nbest: int) -> None:
    model, rows = language_model(), ragged_prompts(17, 5, seed=3)
    for row, hypotheses in zip(
        rows, search_rows(LMStepper(model), rows, search, nbest), strict=True
    ):
        for hypothesis in hypotheses:
            expected = rescored(model, row, with_end(hypothesis, END, MAX_TOKENS))
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("decoder", DECODERS)
@searches
def test_encoder_decoders(decoder: str, search: SearchConfig, nbest: int) -> None:
    model, rows, start = translator(decoder), ragged_prompts(13, 7, seed=4), 3
    stepper, end = Seq2SeqStepper(model, start), END_WITH_MEMORY
    together = search_rows(stepper, rows, search, nbest, end)
    for at in (0, 12):
        assert tokens_of(together[at]) == tokens_of(
            search_single(stepper, rows, at, search, nbest, end)
        )
    for row, hypotheses in zip(rows, together, strict=True):
        for hypothesis in hypotheses:
            target = with_end(hypothesis, end, MAX_TOKENS)
            source, present = padded([row])
            expected = forced(model, source, present, start, target)
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-10)


class FromMemory:
    """A translator whose prompts are encoder states."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.step, self.reorder, self.logits = model.step, model.reorder, model.logits
        self.model = model

    def init_state(self, source: Tensor, present: Tensor) -> Any:
        return Seq2Seq.init_state(self.model, source, present)


@pytest.mark.parametrize("decoder", DECODERS)
@torch.no_grad()
def test_prompts_may_be_vectors(decoder: str) -> None:
    model, (tokens, present) = translator(decoder), padded(ragged_prompts(7, 5, seed=5))
    memory = model.encoder(model.decoder.embedding(tokens), present)
    search = SearchConfig(beam=3)
    ours, theirs = (
        generate(
            Seq2SeqStepper(translator_model, 3),
            prompts,
            present,
            search=search,
            end=END_WITH_MEMORY,
            max_tokens=MAX_TOKENS,
        )
        for translator_model, prompts in ((FromMemory(model), memory), (model, tokens))
    )
    assert ours == theirs


@torch.no_grad()
def forced(
    model: EncoderDecoder, source: Tensor, present: Tensor, start: int, target: list[int]
) -> float:
    logits = model(source, present, torch.tensor([[start, *target[:-1]]]))
    logs = logits[0].log_softmax(dim=-1)
    return math.fsum(logs[at, token].item() for at, token in enumerate(target))


def test_config_selects_the_search() -> None:
    tables, prompts = Tables(5, 7, 4, seed=0), numbered(5)

    def run(search: SearchConfig, nbest: int = 1) -> list[list[TokenHypothesis]]:
        return generate(tables, *prompts, search=search, end=0, max_tokens=4, nbest=nbest)

    def by_beam(beam: int, length_penalty: float, nbest: int) -> list[list[TokenHypothesis]]:
        sizes = {"beam": beam, "length_penalty": length_penalty, "nbest": nbest}
        return search_beam(tables, prompts, 0, 4, **sizes, early_stopping=True)

    greedy = [[best] for best in greedy_search(tables, *prompts, end=0, max_tokens=4)]
    assert run(SearchConfig()) == greedy
    wide = SearchConfig(beam=6, length_penalty=0.0)
    assert run(wide) == by_beam(6, 0.0, 1) != greedy
    assert run(replace(wide, length_penalty=2.0)) == by_beam(6, 2.0, 1) != run(wide)
    assert run(SearchConfig(), nbest=3) == by_beam(3, 1.0, 3)
    warm = SearchConfig(temperature=3.0, seed=1)
    assert run(warm) != run(replace(warm, seed=2))
    assert run(replace(warm, top_k=1)) == run(replace(warm, top_p=1e-9)) == greedy
    with pytest.raises(ValueError, match="at most the beam size 2, got 3"):
        run(SearchConfig(beam=2), nbest=3)


@searches
def test_no_rows(search: SearchConfig, nbest: int) -> None:
    stepper = LMStepper(language_model())
    empty = torch.zeros(0, 3).long()
    assert (
        generate(stepper, empty, empty.bool(), search=search, end=END, max_tokens=3, nbest=nbest)
        == []
    )
