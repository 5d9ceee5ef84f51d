"""What becomes of a model's attention when W~ keeps fewer directions.

    W~ = U S V',   W~_r = its r largest directions
    moved = mean over queries of Σ_t |α_t - α'_t| / 2

Of a small model that copies, or of a run; beside it stands the same model with weights that are
drawn anew, each tensor as large as the trained one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.merging import truncate
from harken.attention.positions import Position
from harken.attention.query_key import QueryKeyScore
from harken.claims.claim import Setting
from harken.claims.copier import as_large, copiers
from harken.design.install import write
from harken.errors import UserError
from harken.inspection.record import attentions, has_attention, record
from harken.run import Run

INPUTS = 20  # of a run


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """A model, and passes that make it look."""

    model: nn.Module
    look: Callable[[], object]


def of_copier(setting: Setting) -> dict[str, Watched]:
    """The lines of a figure, by name."""
    first, trained, rows = copiers(setting)
    return {
        "first weights": Watched(model=first, look=lambda: first(rows)),
        "trained to copy": Watched(model=trained, look=lambda: trained(rows)),
    }


def of_run(run: Run) -> dict[str, Watched]:
    """A trained model on inputs of its dev split, and one drawn anew; each with its own outputs."""
    check(run.model, str(run.folder))
    drawn = run.task.build(run.recipe, run.vocabulary.sizes).to(run.device).eval()
    as_large(drawn, run.model)
    return {
        "drawn anew": Watched(model=drawn, look=looking(replace(run, model=drawn))),
        run.folder.name: Watched(model=run.model, look=looking(run)),
    }


def looking(run: Run) -> Callable[[], object]:
    """Passes over some inputs; what is written is sought once, before anything is cut."""
    examples = [example for example in map(run.attention, run.inputs(INPUTS)) if example]
    if not examples:
        raise UserError(
            f"{run.folder}: found no input that its model attends to, wanted some to measure on",
            fix="choose a run with attention that writes something",
        )
    return lambda: [example.run() for example in examples]


def check(model: nn.Module, where: str) -> None:
    """Whether every score of a model is a product of two tokens by one matrix."""
    if not has_attention(model):
        raise UserError(f"{where}: found no attention, wanted some", fix="choose another run")
    layers = attentions(model).values()
    pairs = [layer.score for layer in layers if isinstance(layer.score, QueryKeyScore)]
    reasons = {
        "turns queries and keys between their two matrices (positions 'rotary')": any(
            isinstance(part, Position) and _rotates(part) for part in model.modules()
        ),
        "is no product of two matrices": len(pairs) < len(layers)
        or any(score.not_a_product for score in pairs),
        "has offsets besides (attention.bias)": any(
            score.q_proj.bias is not None for score in pairs
        ),
        "shares keys between heads (attention.key_value_heads)": any(
            score.kv_heads != score.heads for score in pairs
        ),
    }
    for reason, found in reasons.items():
        if found:
            raise UserError(
                f"{where}: found a score that {reason}, wanted W_Q and W_K that merge into one",
                fix="choose a run with score 'scaled' or 'dot' and positions told to the tokens",
            )


def _rotates(position: Position) -> bool:
    return position.rotation(torch.zeros(1, 1, position.axes, dtype=torch.long)) is not None


def key_width(model: nn.Module) -> int:
    """U, the widest of all layers."""
    return max(layer.score.key_width or 0 for layer in attentions(model).values())


@torch.no_grad()
def moved(watched: Watched, ranks: Sequence[int]) -> list[float]:
    """For each number of directions kept in every head."""
    whole = looked(watched)
    found = []
    for rank in ranks:
        with truncated(watched.model, rank):
            pairs = zip(looked(watched), whole, strict=True)
            shares = [(one - other).abs().sum(dim=-1).flatten() / 2 for one, other in pairs]
        found.append(float(torch.cat(shares).mean()))
    return found


def looked(watched: Watched) -> list[Float[Tensor, "B k T S"]]:
    """Attention of all layers."""
    with record(watched.model) as seen:
        watched.look()
    return [one.weights for one in seen]


@contextmanager
def truncated(model: nn.Module, rank: int) -> Iterator[None]:
    """Within the block, every head of every layer keeps its `rank` largest directions."""
    scores = [layer.score for layer in attentions(model).values()]
    before = [{name: one.clone() for name, one in score.state_dict().items()} for score in scores]
    for score in scores:
        write(truncate(score, rank))
    try:
        yield
    finally:
        for score, weights in zip(scores, before, strict=True):
            score.load_state_dict(weights)
