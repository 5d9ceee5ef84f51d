"""A model given by a table, all sequences that it can generate, and prompts."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from harken.decode.beam import beam_search
from harken.decode.stepper import Stepper, TokenHypothesis, log_probabilities
from harken.models.gpt import GPT
from small_models import VOCABULARY


class TableState(NamedTuple):
    """The index of the prompt, and the tokens so far as token number."""

    prompt: Tensor
    code: Tensor


class Tables:
    """Random logits of the next token for every prompt and every prefix.

    `reorder` checks that no prompt moves if `same_prompts` is set.
    """

    def __init__(
        self, prompts: int, vocabulary: int, max_tokens: int, *, seed: int, strength: float = 1.5
    ) -> None:
        self.base, self.max_tokens = vocabulary + 1, max_tokens
        generator = torch.Generator().manual_seed(seed)
        shape = (prompts, self.base**max_tokens, vocabulary)
        self.scores = strength * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.batch_sizes: list[int] = []  # rows at every step

    def prefill(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, TableState]:
        number = tokens[:, 0]
        return self.scores[number, 0], TableState(number, torch.zeros_like(number))

    def step(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        self.batch_sizes.append(len(tokens))
        code = state.code * self.base + tokens + 1
        return self.scores[state.prompt, code], TableState(state.prompt, code)

    def log_probs(self, scores: Tensor) -> Tensor:
        return log_probabilities(scores)

    def reorder(
        self, state: TableState, rows: Tensor, *, beam: int, same_prompts: bool
    ) -> TableState:
        prompt = state.prompt[rows]
        assert (prompt.view(-1, beam) == prompt[::beam, None]).all(), "prompts are mixed"
        if same_prompts:
            assert torch.equal(prompt[::beam], state.prompt.unique_consecutive()), "a prompt moved"
        return TableState(prompt, state.code[rows])

    def log(self, prompt: int, prefix: tuple[int, ...], token: int) -> float:
        """Return log P of a token after others, by the formula."""
        code = 0
        for earlier in prefix:
            code = code * self.base + earlier + 1
        row = self.scores[prompt, code].tolist()
        return row[token] - math.log(math.fsum(map(math.exp, row)))

    def sequences(self, prompt: int, end: int) -> Iterator[TokenHypothesis]:
        """Yield every sequence: tokens and `end`, or `max_tokens` tokens."""
        others = [token for token in range(self.base - 1) if token != end]
        for count in range(self.max_tokens + 1):
            for tokens in itertools.product(others, repeat=count):
                target = tokens if count == self.max_tokens else (*tokens, end)
                logs = [self.log(prompt, target[:at], token) for at, token in enumerate(target)]
                yield TokenHypothesis(tokens, math.fsum(logs))


def numbered(rows: int) -> tuple[Tensor, Tensor]:
    """Return prompts of token token, the index of the row."""
    return torch.arange(rows)[:, None], torch.ones(rows, 1).bool()


def ragged_prompts(rows: int, longest: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (rows,), generator=generator).tolist()
    drawn = torch.randint(0, VOCABULARY, (rows, longest), generator=generator).tolist()
    return [row[:length] for row, length in zip(drawn, lengths, strict=True)]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [7] * (longest - len(row)) for row in rows])
    return tokens, torch.arange(longest) < torch.tensor([[len(row)] for row in rows])


@torch.no_grad()
def rescored(model: GPT, row: list[int], target: list[int]) -> float:
    """Return log P of a continuation by token forward pass over the whole sequence."""
    logs = model(torch.tensor([row + target]))[0].double().log_softmax(dim=-1)
    return math.fsum(logs[len(row) - 1 + at, token].item() for at, token in enumerate(target))


def assert_equal_hypotheses(
    ours: Sequence[TokenHypothesis], theirs: Sequence[TokenHypothesis], tolerance: float = 1e-10
) -> None:
    assert [tuple(best.tokens) for best in ours] == [tuple(best.tokens) for best in theirs]
    log_probs = [best.log_probability for best in theirs]
    assert [best.log_probability for best in ours] == pytest.approx(log_probs, abs=tolerance)


def score_of(hypothesis: TokenHypothesis, max_tokens: int, length_penalty: float) -> float:
    """Return the score by the formula: `end` counts unless the sequence was cut."""
    length = min(len(hypothesis.tokens) + 1, max_tokens)
    return hypothesis.log_probability / length**length_penalty


def best_of(
    hypotheses: Iterable[TokenHypothesis], max_tokens: int, length_penalty: float, nbest: int
) -> list[TokenHypothesis]:
    return sorted(hypotheses, key=lambda best: -score_of(best, max_tokens, length_penalty))[:nbest]


def search_beam(
    stepper: Stepper[Any],
    prompts: tuple[Tensor, Tensor],
    end: int,
    max_tokens: int,
    *,
    beam: int = 300,
    length_penalty: float = 0.0,
    nbest: int = 3,
    early_stopping: bool = False,
) -> list[list[TokenHypothesis]]:
    return beam_search(
        stepper,
        *prompts,
        beam=beam,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        end=end,
        max_tokens=max_tokens,
        nbest=nbest,
    )


def with_end(hypothesis: TokenHypothesis, end: int, max_tokens: int) -> list[int]:
    """Return the tokens with `end`, unless the sequence was cut."""
    tokens = list(hypothesis.tokens)
    return tokens if len(tokens) == max_tokens else [*tokens, end]
