"""The most probable valid sequence of tags, if tags are independent given the input.

    P(y | valid) = prod over t of p_t(y_t) / sum over valid y' of prod over t of p_t(y'_t)
    g_t(j) = log p_t(j) + log of the sum over i that may follow j of exp(g_{t+1}(i))
    P(y_t = j | y_{t-1} = i, valid) = softmax of g_t over the j that may follow i

The best sequence has the largest g_t at each position if the sum is replaced by the maximum. The
tag O stands for the start and the end of a sequence; O may follow O.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.ctc import LogProbs, set_padding_to_blank
from harken.decode.stepper import Present


@torch.inference_mode()
def best_valid_tags(
    log_probs: LogProbs, present: Present, follow: Bool[Tensor, "V V"], outside: int
) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Return the best valid tags of each row, and the log-probability of each given the one before.

    `follow[i, j]` is true if tag j may follow tag i, and `outside` is the index of O. The
    log-probabilities of a row sum to log P(y | valid); both results are undefined at padding.
    """
    allowed = torch.zeros(follow.shape, dtype=torch.float64).masked_fill(~follow, -torch.inf)
    # One more position, which is padding in every row, so that the end is preceded by a valid tag.
    ended = F.pad(present, (0, 1))
    scores = set_padding_to_blank(F.pad(log_probs, (0, 0, 0, 1)), ended, outside)
    best, total = (_suffix_scores(scores, allowed, kind) for kind in (torch.amax, torch.logsumexp))
    tags, log_conditionals = torch.full(ended.shape, outside), torch.zeros_like(scores[..., 0])
    previous = tags[:, 0]
    for step in range(ended.shape[1]):
        mask = allowed[previous]
        tags[:, step] = (best[:, step] + mask).argmax(dim=-1)
        previous = tags[:, step]
        options = (total[:, step] + mask).log_softmax(dim=-1)
        log_conditionals[:, step] = options.gather(1, previous[:, None])[:, 0]
    return tags[:, :-1], log_conditionals[:, :-1]


def _suffix_scores(
    scores: LogProbs, allowed: Float[Tensor, "V V"], reduce: Callable[..., Tensor]
) -> LogProbs:
    """Return g_t."""
    row = scores[:, -1]
    rows = [row]
    for score in reversed(scores[:, :-1].unbind(dim=1)):
        row = score + reduce(row[:, None] + allowed, dim=-1)
        rows.append(row)
    return torch.stack(rows[::-1], dim=1)
