"""Align tokens with the frames in which they were spoken.

`align` finds the most probable CTC path of given tokens (Viterbi), over the states

    blank w_1 blank w_2 … w_n blank

In each frame, the path stays, advances by one state, or skips a blank between different tokens.
CTC emits a token in few frames and blanks in the others, so its spans are short.

`find_peaks` finds a frame for each of T tokens, in order, from attention weights over S frames.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from harken.decode.ctc import CTCPath, LogProbs, Span, collapse_path, set_padding_to_blank
from harken.decode.stepper import Present


@torch.inference_mode()
def align(
    log_probs: LogProbs, present: Present, texts: Sequence[Sequence[int]], *, blank: int
) -> list[CTCPath | None]:
    """Return the most probable path of each row's text, or None if it has no path."""
    if len(log_probs) == 0:
        return []
    log_probs = set_padding_to_blank(log_probs, present, blank)
    lengths = torch.tensor([len(text) for text in texts], device=log_probs.device)
    states = lengths.new_full((len(texts), 2 * int(lengths.max()) + 1), blank)
    for row, text in zip(states, texts, strict=True):
        row[1 : 2 * len(text) : 2] = row.new_tensor(text)
    emitted = log_probs.take_along_dim(states[:, None], dim=2)
    no_skip = states == F.pad(states, (2, 0), value=blank)[:, :-2]  # blanks, repeated tokens

    scores = torch.full_like(states, -torch.inf, dtype=torch.float64)
    scores[:, 0] = 0.0  # before any frame
    steps = []
    for frame in range(log_probs.shape[1]):
        one_back = F.pad(scores, (1, 0), value=-torch.inf)[:, :-1]
        two_back = F.pad(scores, (2, 0), value=-torch.inf)[:, :-2].masked_fill(no_skip, -torch.inf)
        scores, step = torch.stack((scores, one_back, two_back)).max(dim=0)
        scores = scores + emitted[:, frame]
        steps.append(step)
    # The path ends with the last token or with the blank after it.
    ends = torch.stack((2 * lengths, (2 * lengths - 1).clamp(min=0)), dim=1)
    total, best_end = scores.gather(1, ends).max(dim=1)
    state = ends.gather(1, best_end[:, None])
    path = []
    for step in reversed(steps):
        path.append(states.gather(1, state)[:, 0])
        state = state - step.gather(1, state)
    paths = torch.stack(path[::-1], dim=1).tolist() if path else [[] for _ in texts]
    return [
        None if log_prob == -torch.inf else collapse_path(symbols, log_prob, blank)
        for symbols, log_prob in zip(paths, total.tolist(), strict=True)
    ]


@torch.inference_mode()
def find_peaks(weights: Float[Tensor, "T S"]) -> Int[Tensor, "T"]:
    """Find frames f_1 <= f_2 <= … that maximize the sum of weights[t, f_t]; the first on ties."""
    sums = weights.double().clone()
    for token in range(1, len(sums)):
        sums[token] += sums[token - 1].cummax(dim=0).values
    frames: list[int] = []
    for row in reversed(sums.unbind()):
        frames.append(int(row[: frames[-1] + 1 if frames else None].argmax()))
    return torch.tensor(frames[::-1], dtype=torch.int64)


def spans_around(frames: Sequence[int | float], count: int) -> list[Span]:
    """Return the span of each token: the frames, out of `count`, that are nearest to its own."""
    edges = [(left + right + 1) / 2 for left, right in pairwise(frames)]
    return [Span(start, end) for start, end in pairwise([0, *edges, count])] if frames else []


def word_spans(spans: Sequence[Span], is_first: Sequence[bool]) -> list[Span]:
    """Return the span of each word from the spans of tokens; `is_first` marks first tokens."""
    words: list[Span] = []
    for span, first in zip(spans, is_first, strict=True):
        start = span.start if first or not words else words.pop().start
        words.append(Span(start, span.end))
    return words
