"""Attention of a model whose merged matrices W~ keep only their r largest directions.

    change = mean over queries of Σ_t |α_t - α'_t| / 2

The model is a small Transformer trained to copy, or that of a run. The baseline has random weights,
each tensor scaled to the norm of the trained one.
"""

import copy
from collections.abc import Callable, Sequence
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
from harken.models.gpt import GPTConfig
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
        """Return the attention of all layers."""
        with record(self.model) as records:
            self.forward()
        return [layer.weights for layer in records]


def copy_probes(setting: Setting) -> dict[str, Probe]:
    """Return a Transformer that learned to repeat random symbols, and its initial weights."""
    attention = MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH)
    config = GPTConfig(layers=2, width=WIDTH, max_length=2 * HALF, attention=attention)
    generator = setting.generator()
    initial, trained = (config.build(SYMBOLS, setting.seed) for _ in range(2))
    optimizer = torch.optim.AdamW(trained.parameters(), lr=4e-3)
    for _ in range(STEPS):
        rows = repeated_rows(generator)
        logits = trained.logits(trained.states(rows)[:, HALF - 1 : -1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    match_norms(initial, trained)
    rows = repeated_rows(generator)
    return {
        "initial weights": Probe(model=initial, forward=lambda: initial(rows)),
        "trained to copy": Probe(model=trained, forward=lambda: trained(rows)),
    }


def repeated_rows(generator: torch.Generator) -> Int[Tensor, "B T"]:
    """Return rows of random symbols, each followed by itself."""
    half = torch.randint(SYMBOLS, (ROWS, HALF), generator=generator)
    return torch.cat((half, half), dim=1)


@torch.no_grad()
def match_norms(random: nn.Module, trained: nn.Module) -> None:
    """Scale random weights to the norms of trained ones: else attention would be uniform."""
    for weight, target in zip(random.parameters(), trained.parameters(), strict=True):
        weight.mul_(target.norm() / weight.norm().clamp(min=1e-9))


def run_probes(run: Run) -> dict[str, Probe]:
    """Return a trained model and one with random weights, on inputs of the dev split."""
    check_mergeable(run.model, str(run.folder))
    random = run.task.build(run.recipe, run.vocabulary.sizes).to(run.device).eval()
    match_norms(random, run.model)
    return {
        "random weights": Probe(model=random, forward=forward_passes(replace(run, model=random))),
        run.folder.name: Probe(model=run.model, forward=forward_passes(run)),
    }


def forward_passes(run: Run) -> Callable[[], object]:
    """Return forward passes over some inputs; outputs are searched once, before truncation."""
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
    positions = [module for module in model.modules() if isinstance(module, Position)]
    scores = [layer.score for layer in attentions(model).values()]
    pairs = [score for score in scores if isinstance(score, QueryKeyScore)]
    reasons = {
        "rotates queries and keys (positions 'rotary')": any(
            position.rotation(torch.zeros(1, 1, position.axes, dtype=torch.long)) is not None
            for position in positions
        ),
        "is not a product of two matrices": len(pairs) < len(scores)
        or any(score.not_bilinear for score in pairs),
        "has a bias (attention.bias)": any(score.q_proj.bias is not None for score in pairs),
        "shares keys between heads (attention.kv_heads)": any(
            score.kv_heads != score.heads for score in pairs
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(
                f"{where}: a score {reason} (expected W_Q and W_K that merge into one matrix)",
                fix="choose a run with score 'scaled' or 'dot' and positions added to the tokens",
            )


@torch.no_grad()
def attention_change(probe: Probe, ranks: Sequence[int]) -> list[float]:
    """Return the change of attention for each number of directions kept in every head."""
    full, changes = probe.attention(), []
    scores = [layer.score for layer in attentions(probe.model).values()]
    modules = nn.ModuleList(scores)
    saved = copy.deepcopy(modules.state_dict())
    try:
        for rank in ranks:
            modules.load_state_dict(saved)
            for score in scores:
                write(truncate(score, rank))
            pairs = zip(probe.attention(), full, strict=True)
            shares = [(new - old).abs().sum(dim=-1).flatten() / 2 for new, old in pairs]
            changes.append(float(torch.cat(shares).mean()))
    finally:
        modules.load_state_dict(saved)
    return changes
