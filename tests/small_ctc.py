"""CTC with so few frames and symbols that all paths can be listed."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

seeds = st.integers(0, 10**6)
strengths = st.sampled_from([0.0, 1.0, 4.0])  # from uniform to nearly certain


class TextPaths(NamedTuple):
    """The probability of all paths of a text, and its best path."""

    log_probability: float
    best_path: float
    symbols: tuple[int, ...]


def collapse(symbols: Sequence[int], blank: int) -> tuple[int, ...]:
    """Merge repeats, then remove blanks."""
    return tuple(symbol for symbol, _ in itertools.groupby(symbols) if symbol != blank)


def every_path(logs: Tensor) -> Iterator[tuple[tuple[int, ...], float]]:
    rows = logs.tolist()
    for symbols in itertools.product(range(logs.shape[1]), repeat=len(rows)):
        yield symbols, math.fsum(row[symbol] for row, symbol in zip(rows, symbols, strict=True))


def every_text(logs: Tensor, blank: int) -> dict[tuple[int, ...], TextPaths]:
    """Return all texts of frames T V."""
    paths: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = {}
    for symbols, log in every_path(logs):
        paths.setdefault(collapse(symbols, blank), []).append((log, symbols))
    return {
        text: TextPaths(log_sum([log for log, _ in own]), *max(own)) for text, own in paths.items()
    }


def log_sum(logs: Sequence[float]) -> float:
    """Return the log of a sum of exponentials."""
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


def random_logs(rows: int, frames: int, symbols: int, seed: int, strength: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, frames, symbols)
    scores = strength * torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores.log_softmax(dim=-1)


def lengths_present(lengths: Sequence[int], frames: int) -> Tensor:
    return torch.arange(frames) < torch.tensor(lengths)[:, None]


def padded_texts(texts: Sequence[Sequence[int]], padding_value: int) -> tuple[Tensor, Tensor]:
    longest = max(map(len, texts))
    rows = [[*text, *[padding_value] * (longest - len(text))] for text in texts]
    tokens = torch.tensor(rows, dtype=torch.int64).view(len(texts), longest)
    return tokens, lengths_present([len(text) for text in texts], longest)
