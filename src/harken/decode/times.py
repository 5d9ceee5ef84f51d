"""When each token was said, in frames; a caller that knows their length makes seconds of them.

By CTC: the likeliest of all paths that say the given tokens (Viterbi), over the states

    blank w_1 blank w_2 … w_n blank         stay, or go on by one; by two past a blank that w_i may
                                            do without, because w_{i+1} is another token

CTC says a token where it is surest of it and is silent for the rest, so its spans are short.

By attention: from the weights of T tokens over S frames, the peaks in an order in which no token
comes before the one that is written before it. Tokens that have a frame each, by either way, share
all frames among them (`around`).
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.ctc import Path, Span, heard, read_path

__all__ = ["Path", "Span", "align", "around", "peaks", "word_spans"]


@torch.inference_mode()
def align(
    logs: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    texts: Sequence[Sequence[int]],
    *,
    blank: int,
) -> list[Path | None]:
    """The likeliest path of each row's text; None where no path says it."""
    if len(logs) == 0:
        return []
    logs = heard(logs, present, blank)
    lengths = torch.tensor([len(text) for text in texts], device=logs.device)
    states = logs.new_full((len(texts), 2 * max(map(len, texts)) + 1), blank, dtype=torch.int64)
    for row, text in zip(states, texts, strict=True):
        row[1 : 2 * len(text) : 2] = row.new_tensor(text)
    emitted = logs.take_along_dim(states[:, None], dim=2)
    alike = states == F.pad(states, (2, 0), value=blank)[:, :-2]  # blanks are all alike

    reached = torch.full_like(states, -torch.inf, dtype=torch.float64)
    reached[:, 0] = 0.0  # before any frame
    steps = []
    for frame in range(logs.shape[1]):
        from_one = F.pad(reached, (1, 0), value=-torch.inf)[:, :-1]
        from_two = F.pad(reached, (2, 0), value=-torch.inf)[:, :-2].masked_fill(alike, -torch.inf)
        reached, step = torch.stack((reached, from_one, from_two)).max(dim=0)
        reached = reached + emitted[:, frame]
        steps.append(step)
    # The last token may be the last frame, or silence comes after it.
    ends = torch.stack((2 * lengths, (2 * lengths - 1).clamp(min=0)), dim=1)
    total, which = reached.gather(1, ends).max(dim=1)
    at = ends.gather(1, which[:, None])
    path = []
    for step in reversed(steps):
        path.append(states.gather(1, at)[:, 0])
        at = at - step.gather(1, at)
    symbols = torch.stack(path[::-1], dim=1).tolist() if path else [[] for _ in texts]
    return [
        None if log == -torch.inf else read_path(row, log, blank)
        for row, log in zip(symbols, total.tolist(), strict=True)
    ]


@torch.inference_mode()
def peaks(weights: Float[Tensor, "T S"]) -> Int[Tensor, "T"]:
    """Frames f_1 <= f_2 <= … with the largest sum of weights[t, f_t]; of equals the earliest."""
    reached = weights.double().clone()
    for at in range(1, len(reached)):
        reached[at] += reached[at - 1].cummax(dim=0).values
    frames: list[int] = []
    for sums in reversed(reached.unbind()):
        frames.append(int(sums[: frames[-1] + 1 if frames else None].argmax()))
    return torch.tensor(frames[::-1], dtype=torch.int64)


def around(frames: Sequence[int | float], count: int) -> list[Span]:
    """Of all `count` frames, to each token those that are nearest to its own."""
    edges = [(one + other + 1) / 2 for one, other in pairwise(frames)]
    return [Span(*ends) for ends in pairwise([0, *edges, count])] if frames else []


def word_spans(spans: Sequence[Span], begins: Sequence[bool]) -> list[Span]:
    """From the first token of each word to its last; `begins` says which are first."""
    words: list[Span] = []
    for span, first in zip(spans, begins, strict=True):
        start = span.start if first or not words else words.pop().start
        words.append(Span(start, span.end))
    return words
