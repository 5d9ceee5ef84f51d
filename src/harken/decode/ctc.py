"""CTC decoding: the best path, and the probability of a text.

    argmax over paths of  sum over t of  log p_t(path_t)  =  the best symbol of every frame
    P(text) = sum over the paths of the text of  P(path)     (the forward algorithm)

A symbol is a token or the blank. The text of a path is the path with repeated symbols merged and
blanks removed. Another text, with more paths, can be more probable than the text of the best path;
`ctc_prefix.py` searches for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from harken.decode.stepper import Present, TokenHypothesis

LogProbs = Float[Tensor, "B T V"]


class Span(NamedTuple):
    """Frames from `start` up to, but not including, `end`."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class CTCPath(TokenHypothesis):
    """The text of one path, the log-probability of the path, and the frames of each token."""

    spans: Sequence[Span]


def set_padding_to_blank(log_probs: LogProbs, present: Present, blank: int) -> LogProbs:
    """Return log-probabilities in float64, with P(blank) = 1 at padding."""
    padding = log_probs.new_full(log_probs.shape[-1:], -torch.inf, dtype=torch.float64)
    padding[blank] = 0.0
    return torch.where(present[..., None], log_probs.double(), padding)


@torch.inference_mode()
def best_paths(log_probs: LogProbs, present: Present, *, blank: int) -> list[CTCPath]:
    """Return the best path of each row; ties go to the symbol with the lowest index."""
    best, symbols = set_padding_to_blank(log_probs, present, blank).max(dim=-1)
    return [
        collapse_path(row, total, blank)
        for row, total in zip(symbols.tolist(), best.sum(dim=1).tolist(), strict=True)
    ]


@torch.inference_mode()
def text_log_probs(
    log_probs: LogProbs, present: Present, texts: Sequence[Sequence[int]], *, blank: int
) -> Float[Tensor, "B"]:
    """Return log P of one text per row, summed over all its paths; -inf if it has none."""
    lengths = torch.tensor([len(text) for text in texts], dtype=torch.int64)
    targets = torch.zeros(len(texts), max([1, *map(len, texts)]), dtype=torch.int64)
    for row, text in zip(targets, texts, strict=True):
        row[: len(text)] = torch.tensor(text, dtype=torch.int64)
    if log_probs.shape[1] == 0:
        return torch.where(lengths == 0, 0.0, -torch.inf).double()
    return -F.ctc_loss(
        set_padding_to_blank(log_probs, present, blank).transpose(0, 1),
        targets.to(log_probs.device),
        input_lengths=torch.full_like(lengths, log_probs.shape[1]),
        target_lengths=lengths,
        blank=blank,
        reduction="none",
    )


def collapse_path(symbols: Sequence[int], log_probability: float, blank: int) -> CTCPath:
    """Merge repeated symbols, remove blanks, and return the tokens with their spans."""
    tokens, spans, frame = [], [], 0
    for symbol, run in groupby(symbols):
        start, frame = frame, frame + len(list(run))
        if symbol != blank:
            tokens.append(symbol)
            spans.append(Span(start, frame))
    return CTCPath(tokens, log_probability, spans)
