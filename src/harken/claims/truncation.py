"""Attention of a model whose merged matrices W~ are truncated to fewer directions.

    W~ = U S V',   W~_r = its r largest directions
    change = mean over queries of Σ_t |α_t - α'_t| / 2

The model is a small Transformer trained to copy, or that of a run. It is compared with the same
model with random weights, each tensor scaled to the norm of the trained one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.merging import truncate
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import Position
from harken.attention.query_key import QueryKeyScore
from harken.claims.claim import Setting
from harken.design.install import write
from harken.errors import UserError
from harken.inspection.record import attentions, has_attention, record
from harken.models.gpt import GPT, GPTConfig
from harken.run import Run

INPUTS = 20  # of a run
SYMBOLS, HALF, HEADS, KEY_WIDTH, WIDTH = 16, 8, 2, 16, 32  # of the model that copies
STEPS, ROWS = 150, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A model, and forward passes in which its attention is recorded."""

    model: nn.Module
    forward: Callable[[], object]

    def attention(self) -> list[Float[Tensor, "B k T S"]]:
        """Attention of all layers."""
        with record(self.model) as records:
            self.forward()
        return [layer.weights for layer in records]


def copy_probes(setting: Setting) -> dict[str, Probe]:
    """A Transformer that learns to repeat a row of random symbols, and its initial weights."""
    attention = MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH)
    config = GPTConfig(layers=2, width=WIDTH, max_length=2 * HALF, attention=attention)
    generator = setting.generator()
    initial, trained = (config.build(SYMBOLS, setting.seed) for _ in range(2))
    train_copying(trained, generator)
    match_norms(initial, trained)
    rows = repeated_rows(generator)
    return {
        "first weights": Probe(model=initial, forward=lambda: initial(rows)),
        "trained to copy": Probe(model=trained, forward=lambda: trained(rows)),
    }


def train_copying(model: GPT, generator: torch.Generator) -> None:
    """Train a model to predict the second half of a row from the first."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(STEPS):
        rows = repeated_rows(generator)
        logits = model.logits(model.states(rows)[:, HALF - 1 : -1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def repeated_rows(generator: torch.Generator) -> Int[Tensor, "B T"]:
    """Random symbols, each row followed by itself."""
    half = torch.randint(SYMBOLS, (ROWS, HALF), generator=generator)
    return torch.cat((half, half), dim=1)


@torch.no_grad()
def match_norms(random: nn.Module, trained: nn.Module) -> None:
    """Scale random weights to the norms of trained ones: else attention would be uniform."""
    for weight, target in zip(random.parameters(), trained.parameters(), strict=True):
        weight.mul_(target.norm() / weight.norm().clamp(min=1e-9))


def run_probes(run: Run) -> dict[str, Probe]:
    """A trained model and one with random weights, each on inputs of the dev split."""
    check_mergeable(run.model, str(run.folder))
    random = run.task.build(run.recipe, run.vocabulary.sizes).to(run.device).eval()
    match_norms(random, run.model)
    return {
        "drawn anew": Probe(model=random, forward=recorded_inputs(replace(run, model=random))),
        run.folder.name: Probe(model=run.model, forward=recorded_inputs(run)),
    }


def recorded_inputs(run: Run) -> Callable[[], object]:
    """Forward passes over some inputs; outputs are searched once, before truncation."""
    examples = [example for example in map(run.attention, run.inputs(INPUTS)) if example]
    if not examples:
        raise UserError(
            f"{run.folder}: the model attends to none of the inputs (expected at least one)",
            fix="choose a run with attention and non-empty outputs",
        )
    return lambda: [example.run() for example in examples]


def check_mergeable(model: nn.Module, where: str) -> None:
    """Reject a model in which some score is not a product of two tokens with one matrix."""
    if not has_attention(model):
        raise UserError(f"{where}: the model has no attention", fix="choose another run")
    layers = attentions(model).values()
    scores = [layer.score for layer in layers if isinstance(layer.score, QueryKeyScore)]
    positions = [module for module in model.modules() if isinstance(module, Position)]
    reasons = {
        "rotates queries and keys (positions 'rotary')": any(map(is_rotary, positions)),
        "is no product of two matrices": len(scores) < len(layers)
        or any(score.not_a_product for score in scores),
        "has a bias (attention.bias)": any(score.q_proj.bias is not None for score in scores),
        "shares keys between heads (attention.kv_heads)": any(
            score.kv_heads != score.heads for score in scores
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(
                f"{where}: a score {reason} (expected W_Q and W_K that merge into one matrix)",
                fix="choose a run with score 'scaled' or 'dot' and positions added to the tokens",
            )


def is_rotary(position: Position) -> bool:
    """Whether a position kind rotates queries and keys."""
    return position.rotation(torch.zeros(1, 1, position.axes, dtype=torch.long)) is not None


def max_key_width(model: nn.Module) -> int:
    """The largest key width U of all layers."""
    return max(layer.score.key_width or 0 for layer in attentions(model).values())


@torch.no_grad()
def attention_change(probe: Probe, ranks: Sequence[int]) -> list[float]:
    """The change of attention for each number of directions kept in every head."""
    full, changes = probe.attention(), []
    for rank in ranks:
        with truncated(probe.model, rank):
            pairs = zip(probe.attention(), full, strict=True)
            shares = [(new - old).abs().sum(dim=-1).flatten() / 2 for new, old in pairs]
        changes.append(float(torch.cat(shares).mean()))
    return changes


@contextmanager
def truncated(model: nn.Module, rank: int) -> Iterator[None]:
    """Within the block, every head of every layer keeps its `rank` largest directions."""
    scores = [layer.score for layer in attentions(model).values()]
    saved = [
        {name: weight.clone() for name, weight in score.state_dict().items()} for score in scores
    ]
    for score in scores:
        write(truncate(score, rank))
    try:
        yield
    finally:
        for score, weights in zip(scores, saved, strict=True):
            score.load_state_dict(weights)
