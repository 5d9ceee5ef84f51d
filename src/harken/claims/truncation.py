"""Change of attention if each W~ = W_Q^T W_K of a model is truncated to rank r.

    change = mean over queries of Σ_t |α_t - α'_t| / 2       (total variation distance)

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

from harken.attention.merging import truncation_patches
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import Position
from harken.attention.query_key import QueryKeyScore
from harken.claims.claim import Setting
from harken.design.install import write_patches
from harken.errors import UserError
from harken.inspection.record import attention_layers, has_multihead, record
from harken.models.gpt import GPTConfig
from harken.run import Run

INPUTS = 20  # inputs of a run
SYMBOLS, HALF, HEADS, KEY_WIDTH, WIDTH = 16, 8, 2, 16, 32  # copy task and model
STEPS, ROWS = 150, 64  # training steps, batch size


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedModel:
    """A model, and forward passes in which its attention is recorded."""

    model: nn.Module
    forward: Callable[[], object]

    def attention(self) -> list[Float[Tensor, "B k T S"]]:
        with record(self.model) as records:
            self.forward()
        return [layer.weights for layer in records]


def copy_models(setting: Setting) -> dict[str, RecordedModel]:
    """Train a Transformer to copy random symbols; return it with initial and trained weights."""
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
        "initial weights": RecordedModel(model=initial, forward=lambda: initial(rows)),
        "trained to copy": RecordedModel(model=trained, forward=lambda: trained(rows)),
    }


def repeated_rows(generator: torch.Generator) -> Int[Tensor, "B T"]:
    """Return rows of random symbols, each followed by itself."""
    half = torch.randint(SYMBOLS, (ROWS, HALF), generator=generator)
    return torch.cat((half, half), dim=1)


@torch.no_grad()
def match_norms(random: nn.Module, trained: nn.Module) -> None:
    """Scale random weights to the norms of trained ones, so that attention is not uniform."""
    for weight, target in zip(random.parameters(), trained.parameters(), strict=True):
        weight.mul_(target.norm() / weight.norm().clamp(min=1e-9))


def run_models(run: Run) -> dict[str, RecordedModel]:
    """Return the model of a run with random and trained weights, on inputs of the dev split."""
    check_mergeable(run.model, str(run.folder))
    random = run.task.build(run.recipe, run.vocabulary.sizes).to(run.device).eval()
    match_norms(random, run.model)
    return {
        "random weights": RecordedModel(
            model=random, forward=forward_passes(replace(run, model=random))
        ),
        run.folder.name: RecordedModel(model=run.model, forward=forward_passes(run)),
    }


def forward_passes(run: Run) -> Callable[[], object]:
    """Predict the outputs of some inputs; return a function that runs the model on these pairs."""
    examples = [example for example in map(run.attention, run.inputs(INPUTS)) if example]
    if not examples:
        raise UserError(
            f"{run.folder}: no attention to record (expected an input with an output)",
            fix="choose a run with attention and non-empty outputs",
        )
    return lambda: [example.run() for example in examples]


def check_mergeable(model: nn.Module, where: str) -> None:
    """Raise an error unless each head has a W_Q and a W_K that merge into one matrix W~."""
    if not has_multihead(model):
        raise UserError(f"{where}: the model has no attention", fix="choose another run")
    positions = [module for module in model.modules() if isinstance(module, Position)]
    scores = [layer.score for layer in attention_layers(model).values()]
    products = [score for score in scores if isinstance(score, QueryKeyScore)]
    reasons = {
        "rotates queries and keys (positions 'rotary')": any(
            position.rotation(torch.zeros(1, 1, position.axes, dtype=torch.long)) is not None
            for position in positions
        ),
        "is not a product of two matrices": len(products) < len(scores)
        or any(score.not_bilinear for score in products),
        "has a bias (attention.bias)": any(score.q_proj.bias is not None for score in products),
        "shares keys between heads (attention.kv_heads)": any(
            score.kv_heads != score.heads for score in products
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(
                f"{where}: a score {reason} (expected W_Q and W_K that merge into one matrix)",
                fix="choose a run with score 'scaled' or 'dot', positions added to the tokens, no "
                "attention.bias and no attention.kv_heads",
            )


@torch.no_grad()
def attention_change(recorded: RecordedModel, ranks: Sequence[int]) -> list[float]:
    """Return the change of attention if all heads are truncated to each rank."""
    full, changes = recorded.attention(), []
    scores = [layer.score for layer in attention_layers(recorded.model).values()]
    modules = nn.ModuleList(scores)
    saved = copy.deepcopy(modules.state_dict())
    try:
        for rank in ranks:
            modules.load_state_dict(saved)
            for score in scores:
                write_patches(truncation_patches(score, rank))
            pairs = zip(recorded.attention(), full, strict=True)
            distances = [(new - old).abs().sum(dim=-1).flatten() / 2 for new, old in pairs]
            changes.append(float(torch.cat(distances).mean()))
    finally:
        modules.load_state_dict(saved)
    return changes
