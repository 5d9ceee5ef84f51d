"""A small model that copies: a row of random symbols, then the same row again.

Two layers of attention learn it in seconds, so that a claim about trained heads has some.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from harken.attention.multihead import MultiHeadConfig
from harken.claims.claim import Setting
from harken.models.gpt import GPT, GPTConfig

SYMBOLS, HALF, HEADS, KEY_WIDTH, WIDTH = 16, 8, 2, 16, 32
STEPS, ROWS = 150, 64


def copiers(setting: Setting) -> tuple[GPT, GPT, Int[Tensor, "B T"]]:
    """Before and after training, with rows to look at."""
    config = GPTConfig(
        layers=2,
        width=WIDTH,
        length=2 * HALF,
        attention=MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH),
    )
    generator = setting.generator()
    first, trained = (config.build(SYMBOLS, setting.seed) for _ in range(2))
    learn(trained, generator)
    as_large(first, trained)
    return first, trained, doubled(generator)


@torch.no_grad()
def as_large(drawn: nn.Module, trained: nn.Module) -> None:
    """As large as what training leaves, or attention would be even and nothing could move it."""
    for one, other in zip(drawn.parameters(), trained.parameters(), strict=True):
        one.mul_(other.norm() / one.norm().clamp(min=1e-9))


def doubled(generator: torch.Generator) -> Int[Tensor, "B T"]:
    """Rows that say everything twice."""
    once = torch.randint(SYMBOLS, (ROWS, HALF), generator=generator)
    return torch.cat((once, once), dim=1)


def learn(model: GPT, generator: torch.Generator) -> None:
    """Predict the second half."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(STEPS):
        rows = doubled(generator)
        scores = model.logits(model.states(rows)[:, HALF - 1 : -1])
        loss = F.cross_entropy(scores.flatten(0, 1), rows[:, HALF:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
