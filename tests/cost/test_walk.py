"""The walk against built models: their weights, PyTorch's count of products, what is saved."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harken.cost.exercise import loss_of, made_batch
from harken.cost.memory import footprint
from harken.cost.subject import Subject, subject_of
from harken.cost.walk import cost_of, orthogonalising
from harken.recipe import load_recipe
from harken.training.optimiser import AdamWConfig, MuonConfig

RECIPES = Path(__file__).parents[2] / "recipes"

CASES: dict[str, tuple[str, ...]] = {
    "answer": ("model.layers=2",),
    "answer_sources": ("model.layers=2",),
    "caption": (),
    "fill": (),
    "lm": ("model.layers=3",),
    "tag": (),
    "transcribe": ("model.encoder.layers=2",),
    "translate": ("model.encoder.layers=2", "model.decoder.layers=3"),
    "lm rnn": ("model.kind=rnn", "model.recurrence.kind=gru"),
    "lm tanh": ("model.kind=rnn", "model.recurrence.kind=tanh"),
    "lm lstm": ("model.kind=rnn",),
    "lm cnn": ("model.kind=cnn",),
    "lm gated": ("model.kind=cnn", "model.convolutions={kind='gated',causal=true}"),
    "lm merged": ("model.layers=2", "model.attention.score.kind=merged"),
    "lm additive": ("model.layers=2", "model.attention.score.kind=additive"),
    "lm synthesizer": ("model.layers=2", "model.attention.score.kind=synthesizer"),
    "lm distances": ("model.layers=2", "model.attention.score.kind=relative_product"),
    "lm alibi": ("model.layers=2", "model.position.kind=alibi"),
    "lm relative": ("model.layers=2", "model.position.kind=relative"),
    "lm concat": (
        "model.layers=2",
        "model.position={kind='sinusoid',place='concat'}",
        "model.tied=false",
    ),
    "lm dropout": ("model.layers=2", "model.attention.dropout=0.1", "model.norm.kind=rms"),
    "lm swiglu": ("model.layers=2", "model.feedforward.activation=swiglu", "model.order=strict"),
    "lm groups": ("model.layers=2", "model.attention.key_value_heads=2"),
    "fill masked": ("model.kind=masked",),
    "tag pyramid": ("model.body={kind='stride2',layers=3}",),
    "tag gated": ("model.body={kind='gated',layers=2}", "model.characters={kind='lstm',width=64}"),
    "translate rnn": (
        "model.encoder={kind='gru',direction='both'}",
        "model.decoder={kind='rnn',hidden=256}",
    ),
    "caption spatial": ("model.encoder.layers=2", "model.decoder.kind=transformer"),
    "caption patches": ("model.front={kind='patch',patch=8}",),
    "transcribe both": ("model.decoder.kind=transformer",),
    "transcribe located": (
        "model.encoder={kind='lstm'}",
        "model.decoder={kind='rnn',location={channels=8}}",
        "model.ctc=false",
    ),
}


def case(name: str) -> Subject:
    """Lengths and rows are primes; the model keeps its own width."""
    recipe = load_recipe(RECIPES / f"{name.split()[0]}.toml", CASES[name])
    length = 131 if recipe.task == "transcribe" else 23
    return subject_of(recipe, batch=3, length=length, vocabulary=211)


def convolution_backward(
    grad_shape: Sequence[int],
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    *rest: Any,
    out_shape: Any = None,
) -> int:
    """Each gradient costs what the forward pass does; PyTorch's own count forgets the groups."""
    transposed, wanted = rest[4], rest[7]
    places = math.prod((x_shape if transposed else grad_shape)[2:])
    return int(2 * x_shape[0] * places * math.prod(w_shape) * (wanted[0] + wanted[1]))


def counted_products(forward: Callable[[], Tensor]) -> tuple[int, int]:
    """(forward, forward and backward) by PyTorch's counter, which knows no fused kernels."""
    found = []
    mapping = {torch.ops.aten.convolution_backward: convolution_backward}
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        for backward in (False, True):
            with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
                loss = forward()
                if backward:
                    loss.backward()
            found.append(counter.get_total_flops())
    return found[0], found[1]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_a_built_model(name: str) -> None:
    subject = case(name)
    counted = cost_of(subject.model, subject.recipe).numbers(subject.sizes)
    model, batch, loss = subject.built().train(), made_batch(subject), loss_of(subject)
    assert counted["parameters"] == sum(one.numel() for one in model.parameters())
    forward, step = counted_products(lambda: loss(model, batch))
    assert counted["forward"] == pytest.approx(forward, rel=0.01)
    assert counted["step"] == pytest.approx(step, rel=0.01)
    assert counted["kept"] == pytest.approx(footprint(lambda: loss(model, batch)).kept, rel=0.15)


@pytest.mark.parametrize(
    ("name", "sets", "batch", "vocabulary"),
    [
        ("lm", ("model.width=32", "model.layers=1"), 16, 4001),
        ("lm", ("model.width=64", "model.layers=4"), 32, 31),
        ("lm", ("model.kind=rnn", "model.width=64"), 64, 31),
        ("translate", ("model.encoder.layers=1", "model.decoder.layers=1"), 64, 1009),
        ("transcribe", ("model.width=64",), 8, 2003),
        ("caption", (), 16, 4001),
    ],
)
def test_peak_is_that_of_the_allocator(
    name: str, sets: tuple[str, ...], batch: int, vocabulary: int
) -> None:
    """Rows enough that what is kept is large beside the gradient of one weight."""
    recipe = load_recipe(RECIPES / f"{name}.toml", sets)
    length = 200 if name == "transcribe" else 23
    subject = subject_of(recipe, batch=batch, length=length, vocabulary=vocabulary)
    counted = cost_of(subject.model, recipe).numbers(subject.sizes)
    model, made, loss = subject.built().train(), made_batch(subject), loss_of(subject)
    loss(model, made).backward()
    assert counted["peak"] == pytest.approx(footprint(lambda: loss(model, made)).peak, rel=0.15)


def test_no_tensor_is_made() -> None:
    assert all(one.is_meta for one in case("lm").model.parameters())


def test_concatenated_positions_make_matrices_four_times_as_large() -> None:
    narrow, wide = (cost_of(case(name).model) for name in ("lm alibi", "lm concat"))
    blocks = [one.numbers({"B": 1, "T": 23})["parameters"] for one in (narrow, wide)]
    tables = 211 * 256, 211 * 256 * 3  # the wide one has a read-out of its own, twice as wide
    weights = [total - table for total, table in zip(blocks, tables, strict=True)]
    assert weights[1] / weights[0] == pytest.approx(4, rel=0.01)


def test_merged_scores_have_the_square_of_the_width() -> None:
    pair, merged = (cost_of(case(name).model) for name in ("lm alibi", "lm merged"))
    numbers = [one.numbers({"B": 1, "T": 23})["parameters"] for one in (pair, merged)]
    learned_positions = 128 * 256
    heads, width, key_width, layers = 4, 256, 64, 2
    gained = layers * heads * (width**2 - 2 * key_width * width)
    assert numbers[1] - numbers[0] == gained + learned_positions


def test_muon_multiplies_each_matrix_with_itself() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 3, bias=False))
    rounds = 5 * 2 * (3 * 3 * 5 + 3 * 3 * 3 + 3 * 3 * 5)
    assert orthogonalising(model, MuonConfig()) == [rounds]
    assert orthogonalising(model, AdamWConfig()) == []
