"""The learning rate as a factor of its peak, a function of the step alone.

    warm-up     (s + 1) / warmup                      for s < warmup
    cosine      floor + (1 - floor) (1 + cos(pi p)) / 2
    linear      1 - (1 - floor) p                     with p = (s - warmup) / (steps - warmup)
    constant    1

Warm-up is at most half of the stage, so that a short trial of a long recipe still learns.
"""

import math
from dataclasses import dataclass
from typing import Literal

from harken.config import MAX_STEPS, bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """Warm-up, then decay that would reach `floor` one step after the last."""

    decay: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: int = bounded(50, at_least=0, at_most=MAX_STEPS)  # steps
    min_lr_ratio: float = bounded(0.0, at_least=0.0, at_most=1.0)

    def factor(self, step: int, steps: int) -> float:
        """Return the factor at a step of a stage of `steps` steps."""
        warmup = min(self.warmup, steps // 2)
        if step < warmup:
            return (step + 1) / warmup
        passed = min(1.0, (step - warmup) / max(1, steps - warmup))
        if self.decay == "cosine":
            return (
                self.min_lr_ratio + (1 - self.min_lr_ratio) * (1 + math.cos(math.pi * passed)) / 2
            )
        if self.decay == "linear":
            return 1 - (1 - self.min_lr_ratio) * passed
        return 1.0
