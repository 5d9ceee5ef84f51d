"""What CTC says frame by frame, the likeliest of its paths, and the probability of a text.

    argmax over paths of  sum over t of  log p_t(path_t)  =  the best symbol of every frame
    P(text) = sum over the paths that say it of  P(path)     (the forward algorithm)

The text of a path has repeats taken once and blanks dropped. A text that many paths share can be
likelier than the text of the best path: `ctc_beam.py` searches for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
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


@torch.inference_mode()
def text_log_probabilities(
    logs: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    texts: Sequence[Sequence[int]],
    *,
    blank: int,
) -> Float[Tensor, "B"]:
    """log P of one text a row, summed over all its paths; -inf where no path says it."""
    lengths = torch.tensor([len(text) for text in texts], dtype=torch.int64)
    targets = torch.zeros(len(texts), max([1, *map(len, texts)]), dtype=torch.int64)
    for row, text in zip(targets, texts, strict=True):
        row[: len(text)] = torch.tensor(text, dtype=torch.int64)
    if logs.shape[1] == 0:  # no frame says nothing
        return torch.where(lengths == 0, 0.0, -torch.inf).double()
    losses = F.ctc_loss(
        heard(logs, present, blank).transpose(0, 1),
        targets.to(logs.device),
        input_lengths=torch.full_like(lengths, logs.shape[1]),
        target_lengths=lengths,
        blank=blank,
        reduction="none",
    )
    return -losses


def read_path(symbols: Sequence[int], log_probability: float, blank: int) -> Path:
    """What a path of one symbol a frame says, and when."""
    tokens, spans, frame = [], [], 0
    for symbol, run in groupby(symbols):
        start, frame = frame, frame + len(list(run))
        if symbol != blank:
            tokens.append(symbol)
            spans.append(Span(start, frame))
    return Path(tokens, log_probability, spans)
