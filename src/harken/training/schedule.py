"""The learning rate as a factor of its peak, a function of the step s.

warm-up     (s + 1) / warmup      for s < warmup

Then, with p = (s - warmup) / (steps - warmup) and m = min_lr_ratio:

cosine      m + (1 - m) (1 + cos(pi p)) / 2
linear      1 - (1 - m) p
constant    1
"""

import math
from dataclasses import dataclass
from typing import Literal

from harken.config import MAX_STEPS, bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """Linear warm-up, then a decay that reaches its minimum one step after the last."""

    decay: Literal["cosine", "linear", "constant"] = "cosine"  # shape of the decay after warm-up
    # steps of warm-up; at most half of the steps of the stage
    warmup: int = bounded(50, at_least=0, at_most=MAX_STEPS)
    min_lr_ratio: float = bounded(0.0, at_least=0.0, at_most=1.0)  # final lr / peak lr

    def factor(self, step: int, steps: int) -> float:
        """Return the factor at a step of a stage of `steps` steps."""
        warmup = min(self.warmup, steps // 2)
        if step < warmup:
            return (step + 1) / warmup
        passed = min(1.0, (step - warmup) / max(1, steps - warmup))
        lowest = self.min_lr_ratio
        if self.decay == "cosine":
            return lowest + (1 - lowest) * (1 + math.cos(math.pi * passed)) / 2
        if self.decay == "linear":
            return 1 - (1 - lowest) * passed
        return 1.0
