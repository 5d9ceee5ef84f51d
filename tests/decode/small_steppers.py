"""A model that is a table, every sequence it can write, and rows of prompts."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from harken.decode.stepper import TokenHypothesis, log_probabilities
from harken.models.gpt import GPT
from small_models import VOCABULARY


class Written(NamedTuple):
    """What a table has been told: the prompt's number, and all tokens as one number."""

    prompt: Tensor
    code: Tensor


class Tables:
    """Scores of the next token for every prompt and every beginning, at random.

    A state's `prompt` stays where it is when `same_prompts` says that nothing would change.
    """

    def __init__(
        self, prompts: int, vocabulary: int, most: int, *, seed: int, strength: float = 1.5
    ) -> None:
        self.base, self.most = vocabulary + 1, most
        generator = torch.Generator().manual_seed(seed)
        shape = (prompts, self.base**most, vocabulary)
        self.scores = strength * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.asked: list[int] = []  # rows at every step

    def prefill(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, Written]:
        number = tokens[:, 0]
        return self.scores[number, 0], Written(number, torch.zeros_like(number))

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        self.asked.append(len(tokens))
        code = state.code * self.base + tokens + 1
        return self.scores[state.prompt, code], Written(state.prompt, code)

    def log_probs(self, scores: Tensor) -> Tensor:
        return log_probabilities(scores)

    def reorder(self, state: Written, rows: Tensor, *, same_prompts: bool) -> Written:
        prompt = state.prompt[rows]
        if same_prompts:
            assert prompt.tolist() == state.prompt.tolist(), "a prompt has moved"
        return Written(prompt, state.code[rows])

    def log(self, prompt: int, written: tuple[int, ...], token: int) -> float:
        """Of one token after others, by the formula."""
        code = 0
        for one in written:
            code = code * self.base + one + 1
        row = self.scores[prompt, code].tolist()
        return row[token] - math.log(math.fsum(map(math.exp, row)))

    def sequences(self, prompt: int, end: int) -> Iterator[TokenHypothesis]:
        """All that can be written: any tokens, then `end`, or as many as there is room for."""
        others = [token for token in range(self.base - 1) if token != end]
        for count in range(self.most + 1):
            for tokens in itertools.product(others, repeat=count):
                told = tokens if count == self.most else (*tokens, end)
                logs = [self.log(prompt, told[:at], one) for at, one in enumerate(told)]
                yield TokenHypothesis(tokens, math.fsum(logs))


def numbered(rows: int) -> tuple[Tensor, Tensor]:
    """Prompts of one token, each row's own number."""
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
def rescored(model: GPT, row: list[int], told: list[int]) -> float:
    """The log-probability of what was written after a row, by one forward of it all."""
    logs = model(torch.tensor([row + told]))[0].double().log_softmax(dim=-1)
    return math.fsum(logs[len(row) - 1 + at, one].item() for at, one in enumerate(told))


def told(found: TokenHypothesis, end: int, most: int) -> list[int]:
    """With `end` where there was room for it."""
    tokens = list(found.tokens)
    return tokens if len(tokens) == most else [*tokens, end]
