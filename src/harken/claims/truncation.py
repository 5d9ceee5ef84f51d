"""A small model that copies, and what becomes of its attention when W~ keeps fewer directions.

    W~ = U S V',   W~_r = its r largest directions
    moved = mean over queries of Σ_t |α_t - α'_t| / 2

The task: a row of random symbols, then the same row again, which two layers of attention learn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from harken.attention.merging import merge_pair, split_merged
from harken.attention.multihead import MultiHead, MultiHeadConfig
from harken.attention.scores import Product
from harken.claims.claim import Setting
from harken.inspection.record import record
from harken.models.language_model import GPTConfig, LanguageModel

SYMBOLS, HALF, HEADS, KEY_WIDTH, WIDTH = 16, 8, 2, 16, 32
STEPS, ROWS = 150, 64


def models(setting: Setting) -> dict[str, tuple[LanguageModel, Int[Tensor, "B T"]]]:
    """Before and after training, each with rows to look at."""
    config = GPTConfig(
        layers=2,
        width=WIDTH,
        length=2 * HALF,
        attention=MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH),
    )
    generator = setting.generator()
    first, trained = (config.build(SYMBOLS, setting.seed) for _ in range(2))
    # As large as what training leaves, or attention would be even and nothing could move it.
    learn(trained, generator)
    with torch.no_grad():
        for one, other in zip(first.parameters(), trained.parameters(), strict=True):
            one.mul_(other.norm() / one.norm().clamp(min=1e-9))
    rows = doubled(generator)
    return {"first weights": (first, rows), "trained to copy": (trained, rows)}


def doubled(generator: torch.Generator) -> Int[Tensor, "B T"]:
    """Rows that say everything twice."""
    once = torch.randint(SYMBOLS, (ROWS, HALF), generator=generator)
    return torch.cat((once, once), dim=1)


def learn(model: LanguageModel, generator: torch.Generator) -> None:
    """Predict the second half."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(STEPS):
        rows = doubled(generator)
        scores = model.scores(model(rows)[:, HALF - 1 : -1])
        loss = F.cross_entropy(scores.flatten(0, 1), rows[:, HALF:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


@torch.no_grad()
def moved(model: LanguageModel, tokens: Int[Tensor, "B T"], ranks: Sequence[int]) -> list[float]:
    """For each number of directions kept in every head."""
    whole = looked(model, tokens)
    found = []
    for rank in ranks:
        with truncated(model, rank):
            found.append(float((looked(model, tokens) - whole).abs().sum(dim=-1).mean() / 2))
    return found


def looked(model: LanguageModel, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "layers B k T S"]:
    """Attention of all layers."""
    with record(model) as seen:
        model(tokens)
    return torch.stack([one.weights for one in seen])


@contextmanager
def truncated(model: LanguageModel, rank: int) -> Iterator[None]:
    """Within the block, every head of every layer keeps its `rank` largest directions."""
    scores = [part.score for part in model.modules() if isinstance(part, MultiHead)]
    before = [{name: one.clone() for name, one in score.state_dict().items()} for score in scores]
    for score in scores:
        assert isinstance(score, Product)
        queries, keys = (
            one.weight.view(score.heads, -1, one.in_features)
            for one in (score.to_queries, score.to_keys)
        )
        pair = split_merged(merge_pair(queries, keys, score.scale), rank)
        spare = (0, 0, 0, queries.shape[1] - rank)
        score.to_queries.weight.copy_(F.pad(pair.queries / score.scale, spare).flatten(0, 1))
        score.to_keys.weight.copy_(F.pad(pair.keys, spare).flatten(0, 1))
    try:
        yield
    finally:
        for score, weights in zip(scores, before, strict=True):
            score.load_state_dict(weights)
