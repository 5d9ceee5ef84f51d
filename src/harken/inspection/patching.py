"""Activation patching: which part of a model carries the difference between two inputs.

    share(part) = (metric(corrupted, output of part from clean) - metric(corrupted))
                / (metric(clean)                                - metric(corrupted))

The model runs once on the clean input, and the output of every part is stored. It then runs on the
corrupted input once per part, with the output of this part replaced. A share of 1 restores the
whole difference. Shares need not sum to 1, since later parts read the outputs of earlier ones. The
metric is averaged over rows. If a module is called several times, as in generation with a cache,
each call is patched with the output of the same call on the clean input.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.errors import UserError
from harken.inspection.ablation import OutputPart, head_mask, with_outputs
from harken.inspection.refs import HeadRef

Metric = Callable[[Tensor], Tensor]
"""Function that runs the model on tokens (B T) and returns one number per row."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PatchingResult:
    """The metric of both inputs, and the share of their difference that each part restores."""

    metric: str  # name of the metric
    clean: float  # its value on the clean input
    corrupted: float
    parts: Sequence[OutputPart]
    shares: Float[Tensor, "parts"]
    positions: Float[Tensor, "parts T"] | None = None  # shares of single positions


@torch.inference_mode()
def patch_parts(
    model: nn.Module,
    clean: Int[Tensor, "B T"],
    corrupted: Int[Tensor, "B other"],
    metric: Metric,
    parts: Sequence[OutputPart],
    *,
    by_position: bool = False,
    name: str = "metric",
) -> PatchingResult:
    """Patch each part in turn; with `by_position` also each position of each part alone."""
    if clean.shape != corrupted.shape:
        raise UserError(
            f"clean and corrupted: expected equal shapes, got {tuple(clean.shape)} and "
            f"{tuple(corrupted.shape)}",
            fix="choose inputs with the same number of tokens",
        )
    calls: dict[str, list[tuple[int, Tensor]]] = {part.module: [] for part in parts}

    def store(module: str, output: Tensor) -> Tensor:
        calls[module].append((count_positions(module), output))
        return output

    def count_positions(module: str) -> int:
        """Return the number of positions in the calls so far."""
        return sum(output.shape[-2] for _, output in calls[module])

    with with_outputs(model, {module: partial(store, module) for module in calls}):
        clean_mean = float(metric(clean).mean())
    corrupted_mean = float(metric(corrupted).mean())
    if clean_mean == corrupted_mean:
        raise UserError(
            f"the metric is {clean_mean} for both inputs, so nothing can be restored",
            fix="choose other inputs, or another metric",
        )

    def measure_share(part: OutputPart, position: int | None) -> float:
        restore = partial(_restore, part, position, iter(calls[part.module]))
        with with_outputs(model, {part.module: restore}):
            restored = float(metric(corrupted).mean()) - corrupted_mean
        return restored / (clean_mean - corrupted_mean)

    positions = None
    if by_position:
        lengths = [count_positions(part.module) for part in parts]
        pairs = zip(parts, lengths, strict=True)
        table = [[measure_share(part, i) for i in range(length)] for part, length in pairs]
        positions = torch.tensor(table, dtype=torch.float64)
    shares = torch.tensor([measure_share(part, None) for part in parts], dtype=torch.float64)
    return PatchingResult(
        metric=name,
        clean=clean_mean,
        corrupted=corrupted_mean,
        parts=parts,
        shares=shares,
        positions=positions,
    )


class NextTokenMetric(NamedTuple):
    """The logit of the clean input's next token minus that of the corrupted input's next token.

    If `corrupted` is None, the log-probability of the clean input's next token.
    """

    clean: Int[Tensor, "B"]
    corrupted: Int[Tensor, "B"] | None

    @property
    def name(self) -> str:
        return "log-probability" if self.corrupted is None else "logit difference"

    def __call__(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B"]:
        rows = torch.arange(len(logits), device=logits.device)
        if self.corrupted is None:
            return logits.double().log_softmax(dim=-1)[rows, self.clean]
        return logits[rows, self.clean] - logits[rows, self.corrupted]


def next_token_metric(
    clean: Float[Tensor, "B V"], corrupted: Float[Tensor, "B V"]
) -> NextTokenMetric:
    """Return the metric for the most probable next tokens of both inputs.

    If these are the same in any row, the metric is the log-probability of the clean one.
    """
    first, second = clean.argmax(dim=-1), corrupted.argmax(dim=-1)
    return NextTokenMetric(first, None if (first == second).any() else second)


def _restore(
    part: OutputPart, position: int | None, calls: Iterator[tuple[int, Tensor]], output: Tensor
) -> Tensor:
    """Patch one call; `calls` yields the first position and the output of each clean call."""
    start, clean = next(calls)
    positions = torch.arange(start, start + output.shape[-2], device=output.device)
    chosen = torch.ones_like(positions).bool() if position is None else positions == position
    is_patched = chosen[:, None]
    if isinstance(part, HeadRef):
        is_patched = is_patched & head_mask(part, output)
    return torch.where(is_patched, clean, output)
