"""What CTC says frame by frame, and the likeliest of its paths.

    argmax over paths of  sum over t of  log p_t(path_t)  =  the best symbol of every frame

Its text is that path with repeats taken once and blanks dropped. A text that many paths share can
be likelier than the text of the best path: `ctc_beam.py` sums over paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Span(NamedTuple):
    """From the beginning of frame `start` to the beginning of frame `end`."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Path:
    """The text of one path, its log-probability, and the frames in which each token is said."""

    tokens: Sequence[int]
    log_probability: float
    spans: Sequence[Span]


def heard(
    logs: Float[Tensor, "B T V"], present: Bool[Tensor, "B T"], blank: int
) -> Float[Tensor, "B T V"]:
    """In double precision, with a blank beyond doubt where there is no frame.

    Such a frame changes neither a text nor its probability, so that no search need know of padding.
    """
    silence = logs.new_full(logs.shape[-1:], -torch.inf, dtype=torch.float64)
    silence[blank] = 0.0
    return torch.where(present[..., None], logs.double(), silence)


@torch.inference_mode()
def best_paths(
    logs: Float[Tensor, "B T V"], present: Bool[Tensor, "B T"], *, blank: int
) -> list[Path]:
    """Of each row; of equal symbols the first in the vocabulary."""
    best, symbols = heard(logs, present, blank).max(dim=-1)
    return [
        read_path(row, total, blank)
        for row, total in zip(symbols.tolist(), best.sum(dim=1).tolist(), strict=True)
    ]


def read_path(symbols: Sequence[int], log_probability: float, blank: int) -> Path:
    """What a path of one symbol a frame says, and when."""
    tokens, spans, frame = [], [], 0
    for symbol, run in groupby(symbols):
        start, frame = frame, frame + len(list(run))
        if symbol != blank:
            tokens.append(symbol)
            spans.append(Span(start, frame))
    return Path(tokens, log_probability, spans)
