"""Activation patching: which part of a model carries the difference between two inputs.

    share(part) = (metric(corrupted, output of part from clean) - metric(corrupted))
                / (metric(clean)                                - metric(corrupted))

The clean input runs once, and the output of every part is stored. The corrupted input runs once per
part, with the output of this part replaced. A share of 1 restores the whole difference, 0 nothing.
Shares need not sum to 1, since later parts read the outputs of earlier ones. The metric is a mean
over rows. Attention that runs step by step (an RNN decoder, a cache) is patched step by step.
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
"""Tokens B T -> one number per row, by running the model."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PatchingResult:
    """The metric of both inputs, and the share of their difference that each part restores."""

    metric: str
    clean: float
    corrupted: float
    parts: Sequence[OutputPart]
    shares: Float[Tensor, "parts"]
    positions: Float[Tensor, "parts T"] | None = None  # of each position alone, if requested


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
        calls[module].append((length(module), output))
        return output

    def length(module: str) -> int:
        """Return the number of positions of the calls so far."""
        return sum(output.shape[-2] for _, output in calls[module])

    with with_outputs(model, {module: partial(store, module) for module in calls}):
        clean_mean = float(metric(clean).mean())
    corrupted_mean = float(metric(corrupted).mean())
    if clean_mean == corrupted_mean:
        raise UserError(
            f"the metric is {clean_mean} for both inputs, so nothing can be restored",
            fix="choose other inputs, or another metric",
        )

    def share(part: OutputPart, position: int | None) -> float:
        restore = partial(_restore, part, position, iter(calls[part.module]))
        with with_outputs(model, {part.module: restore}):
            restored = float(metric(corrupted).mean()) - corrupted_mean
        return restored / (clean_mean - corrupted_mean)

    positions = None
    if by_position:
        table = [[share(part, at) for at in range(length(part.module))] for part in parts]
        positions = torch.tensor(table, dtype=torch.float64)
    shares = torch.tensor([share(part, None) for part in parts], dtype=torch.float64)
    return PatchingResult(
        metric=name,
        clean=clean_mean,
        corrupted=corrupted_mean,
        parts=parts,
        shares=shares,
        positions=positions,
    )


class NextTokenMetric(NamedTuple):
    """A metric of the logits after the last token; `wrong` is None for a log-probability."""

    right: Int[Tensor, "B"]
    wrong: Int[Tensor, "B"] | None

    @property
    def name(self) -> str:
        return "log-probability" if self.wrong is None else "logit difference"

    def __call__(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B"]:
        rows = torch.arange(len(logits), device=logits.device)
        if self.wrong is None:
            return logits.double().log_softmax(dim=-1)[rows, self.right]
        return logits[rows, self.right] - logits[rows, self.wrong]


def next_token_metric(
    clean: Float[Tensor, "B V"], corrupted: Float[Tensor, "B V"]
) -> NextTokenMetric:
    """Choose the logit difference between the most probable next tokens of both inputs.

    If these are the same in any row, choose the log-probability of the clean input's token.
    """
    right, wrong = clean.argmax(dim=-1), corrupted.argmax(dim=-1)
    return NextTokenMetric(right, None if (right == wrong).any() else wrong)


def _restore(
    part: OutputPart, position: int | None, calls: Iterator[tuple[int, Tensor]], output: Tensor
) -> Tensor:
    """Replace an output by that of the clean run's next call (start, output)."""
    start, clean = next(calls)
    positions = torch.arange(start, start + output.shape[-2], device=output.device)
    chosen = torch.ones_like(positions).bool() if position is None else positions == position
    is_patched = chosen[:, None]
    if isinstance(part, HeadRef):
        is_patched = is_patched & head_mask(part, output)
    return torch.where(is_patched, clean, output)
