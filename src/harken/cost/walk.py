"""From a subject to its costs: one walk over the model, summed up.

forward     products of the forward pass, two operations for each multiply-and-add
step        the same with the backward pass: each operand that has a gradient costs the product
            once more, so a layer in the middle of a model costs three times its forward pass
traffic     bytes that the operations of a step read and write, caches not considered: twice the
            forward pass again for the backward pass, and what the optimiser touches
kept        bytes that autograd keeps for the backward pass, each storage once; weights, their
            gradients and momenta are apart
peak        the same with what the widest kernel of the backward pass needs for itself
depth       the longest chain of dependent operations of the forward pass, logarithmic sums
serial      the same where the inner products of features are summed one term after the other
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from harken.cost.decoders import B, T
from harken.cost.expression import Expression, larger, of
from harken.cost.models import (
    blank_model,
    captioner,
    encoder_decoder,
    language_model,
    recogniser,
    tagger,
)
from harken.cost.subject import Subject, stage_of
from harken.cost.tape import FLOAT, Tape, Value, whole
from harken.models.blank import MaskedBlank, RecurrentBlank
from harken.models.captioner import Captioner
from harken.models.encoder_decoder import EncoderDecoder
from harken.models.fixed_state import FixedStateModel
from harken.models.language_model import LanguageModel
from harken.models.recogniser import Recogniser
from harken.models.tagger import Tagger
from harken.recipe import Recipe
from harken.tasks.fill import FillRecipe
from harken.training.optimiser import (
    ROUNDS,
    DescentConfig,
    MuonConfig,
    OptimiserConfig,
    layer_matrices,
)

ADAMW_TRAFFIC = 7  # numbers read and written for each weight, as in all of these
SGD_TRAFFIC, MOMENTUM_TRAFFIC = 3, 8
MUON_TRAFFIC = 16  # all but the rounds of `orthogonalise`


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """See the top of this file."""

    parameters: Expression
    forward: Expression
    step: Expression
    traffic: Expression
    kept: Expression
    peak: Expression
    depth: Expression
    serial: Expression

    def numbers(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """All of them, for inputs of these sizes."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return {name: round(one.value(sizes)) for name, one in named.items()}


def blanks_of(recipe: FillRecipe) -> float:
    """The share of words that a batch asks for."""
    return 1.0 if recipe.model.together else recipe.training.blanks


def follow(tape: Tape, model: nn.Module, recipe: Recipe | None = None) -> Value:
    """The forward pass of a model up to its loss."""
    if isinstance(model, LanguageModel | FixedStateModel):
        return language_model(tape, model)
    if isinstance(model, Tagger):
        return tagger(tape, model)
    if isinstance(model, EncoderDecoder):
        return encoder_decoder(tape, model)
    if isinstance(model, Recogniser):
        return recogniser(tape, model)
    if isinstance(model, Captioner):
        return captioner(tape, model)
    assert isinstance(model, RecurrentBlank | MaskedBlank) and isinstance(recipe, FillRecipe)
    hundredths = round(100 * blanks_of(recipe))
    return blank_model(tape, model, (B * T * hundredths).over(100))


def cost_of(model: nn.Module, recipe: Recipe | None = None) -> Cost:
    """Two walks: one for each way to sum."""
    tape, serial = Tape(), Tape(serial=True)
    loss, serial_loss = (follow(one, model, recipe) for one in (tape, serial))
    optimiser = None
    if recipe is not None:
        optimiser = of(optimiser_traffic(model, stage_of(recipe).optimiser))
    return summed(tape, loss, serial_loss, optimiser)


def summed(tape: Tape, loss: Value, serial_loss: Value, optimiser: Expression | None) -> Cost:
    """What a tape holds, in sum; AdamW's traffic where no optimizer's is given."""
    forward = step = traffic = kept = parameters = of(0)
    for one in tape.operations:
        forward = forward + one.products * one.times
        step = step + one.products * one.times * (1 + one.gradients)
        traffic = traffic + one.moved * one.times * 3
    for size in tape.kept.values():
        kept = kept + size
    for size in tape.weights.values():
        parameters = parameters + size
    return Cost(
        parameters=parameters,
        forward=forward,
        step=step,
        traffic=traffic + (optimiser or parameters * (ADAMW_TRAFFIC * FLOAT)),
        kept=kept,
        peak=kept + larger(0, *tape.passing),
        depth=whole(loss).first if len(loss.shape) > 1 else loss.first,
        serial=whole(serial_loss).first if len(serial_loss.shape) > 1 else serial_loss.first,
    )


def held_bytes(subject: Subject) -> int:
    """Weights, their gradients and the state of the optimizer."""
    weights = sum(weight.numel() for weight in subject.model.parameters())
    state = optimiser_state(subject.model, stage_of(subject.recipe).optimiser)
    return 2 * weights * FLOAT + state


def optimiser_state(model: nn.Module, optimiser: OptimiserConfig) -> int:
    """Bytes: two momenta of AdamW, one of Muon, one of SGD where it has momentum."""
    count, adamw, matrices = _optimised(model, optimiser)
    if isinstance(optimiser, DescentConfig):
        return FLOAT * count if optimiser.momentum else 0
    return FLOAT * (2 * adamw + sum(short * long for short, long in matrices))


def optimiser_traffic(model: nn.Module, optimiser: OptimiserConfig) -> int:
    """Bytes that a step of the optimizer reads and writes."""
    count, adamw, matrices = _optimised(model, optimiser)
    if isinstance(optimiser, DescentConfig):
        return FLOAT * count * (MOMENTUM_TRAFFIC if optimiser.momentum else SGD_TRAFFIC)
    numbers = ADAMW_TRAFFIC * adamw
    for short, long in matrices:
        # A round reads and writes the matrix 9 times, its square 12 times (see `orthogonalise`).
        numbers += MUON_TRAFFIC * short * long + ROUNDS * (9 * short * long + 12 * short * short)
    return FLOAT * numbers


def _optimised(
    model: nn.Module, optimiser: OptimiserConfig
) -> tuple[int, int, list[tuple[int, int]]]:
    """Count all weights and those of AdamW, and list the sides of Muon's matrices, short first."""
    count = sum(weight.numel() for weight in model.parameters())
    if not isinstance(optimiser, MuonConfig):
        return count, count, []
    flat = [matrix.flatten(1).shape for matrix in layer_matrices(model, optimiser.kernels)]
    matrices = [(min(shape), max(shape)) for shape in flat]
    return count, count - sum(short * long for short, long in matrices), matrices


def orthogonalising(model: nn.Module, optimiser: object) -> list[int]:
    """Products of one step of Muon, by matrix: three of it with itself, five times over."""
    if not isinstance(optimiser, MuonConfig):
        return []
    _, _, matrices = _optimised(model, optimiser)
    return [muon_products(short, long) for short, long in matrices]


def muon_products(short: int, long: int) -> int:
    """Of one matrix."""
    return ROUNDS * 2 * (2 * short * short * long + short**3)
