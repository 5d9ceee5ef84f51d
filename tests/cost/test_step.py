"""Compare traced counts with PyTorch's counter and with the memory of a real step."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import harken
from harken.attention.kernels import ScoreTerms
from harken.attention.multihead import MultiHeadConfig
from harken.attention.query_key import QueryKeyScore, ScoreSizes, ScoreTraits
from harken.cost.memory import footprint
from harken.cost.step import Cost, trace_step
from harken.cost.workload import Workload, trace_workload, workload
from harken.models.gpt import GPTConfig
from harken.recipe import load_recipe
from harken.tasks.lm import random_lm_batch

RECIPES = Path(__file__).parents[2] / "recipes"

CASES: dict[str, tuple[str, ...]] = {
    "answer": ("model.layers=2",),
    "answer_cs224n": ("model.layers=2",),
    "caption": (),
    "fill": (),
    "lm": ("model.layers=3",),
    "tag": (),
    "transcribe": ("model.encoder.layers=2",),
    "translate": ("model.encoder.layers=2", "model.decoder.layers=3"),
    "lm rnn": ("model.kind=rnn", "model.cell.kind=gru"),
    "lm tanh": ("model.kind=rnn", "model.cell.kind=tanh"),
    "lm lstm": ("model.kind=rnn",),
    "lm cnn": ("model.kind=cnn",),
    "lm gated": ("model.kind=cnn", "model.convolutions={kind='gated',causal=true}"),
    "lm merged": ("model.layers=2", "model.attention.score.kind=merged"),
    "lm additive": ("model.layers=2", "model.attention.score.kind=additive"),
    "lm synthesizer": ("model.layers=2", "model.attention.score.kind=synthesizer"),
    "lm distances": ("model.layers=2", "model.attention.score.kind=transformer_xl"),
    "lm alibi": ("model.layers=2", "model.position.kind=alibi"),
    "lm relative": ("model.layers=2", "model.position.kind=relative"),
    "lm concat": (
        "model.layers=2",
        "model.position={kind='sinusoid',combine='concat'}",
        "model.tie_embeddings=false",
    ),
    "lm dropout": ("model.layers=2", "model.attention.dropout=0.1", "model.norm.kind=rms"),
    "lm swiglu": (
        "model.layers=2",
        "model.feedforward.activation=swiglu",
        "model.mask=strictly_causal",
    ),
    "lm kv_heads": ("model.layers=2", "model.attention.kv_heads=2"),
    "fill masked": ("model.kind=masked",),
    "tag pyramid": ("model.encoder={kind='stride2',layers=3}",),
    "tag gated": (
        "model.encoder={kind='gated',layers=2}",
        "model.characters={kind='lstm',width=64}",
    ),
    "translate rnn": (
        "model.encoder={kind='gru',direction='both'}",
        "model.decoder={kind='rnn',hidden=256}",
    ),
    "caption spatial": ("model.encoder.layers=2", "model.decoder.kind=transformer"),
    "caption patches": ("model.frontend={kind='patch',patch=8}",),
    "transcribe both": ("model.decoder.kind=transformer",),
    "transcribe located": (
        "model.encoder={kind='lstm'}",
        "model.decoder={kind='rnn',location={channels=8}}",
        "model.ctc=false",
    ),
}


def case(name: str) -> Workload:
    """Return a workload whose length and batch size are primes."""
    recipe = load_recipe(RECIPES / f"{name.split()[0]}.toml", CASES[name])
    length = 59 if recipe.task == "transcribe" else 7
    return workload(recipe, batch=3, length=length, vocabulary=211)


def convolution_backward(
    grad_shape: Sequence[int],
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    *rest: Any,
    out_shape: Any = None,
) -> int:
    """Each gradient costs as much as the forward pass; PyTorch's own count ignores the groups."""
    transposed, needed = rest[4], rest[7]
    places = math.prod((x_shape if transposed else grad_shape)[2:])
    return int(2 * x_shape[0] * places * math.prod(w_shape) * (needed[0] + needed[1]))


def counted_products(forward: Callable[[], Tensor]) -> tuple[int, int]:
    """Return FLOPs of forward, and of forward and backward pass, without fused kernels."""
    mapping = {torch.ops.aten.convolution_backward: convolution_backward}
    with (
        sdpa_kernel(SDPBackend.MATH),
        torch.backends.mkldnn.flags(enabled=False),
        FlopCounterMode(display=False, custom_mapping=mapping) as counter,
    ):
        loss = forward()
        ahead = counter.get_total_flops()
        loss.backward()
    return ahead, counter.get_total_flops()


def check_against_run(cost: Cost, model: nn.Module, forward: Callable[[], Tensor]) -> None:
    """Compare with a model that has data."""
    assert cost.parameters == sum(parameter.numel() for parameter in model.parameters())
    ahead, both = counted_products(forward)
    assert cost.forward == pytest.approx(ahead, rel=0.01)
    assert cost.step == pytest.approx(both, rel=0.03)  # an LSTM's first state needs no gradient
    assert cost.saved_bytes == pytest.approx(footprint(forward).saved_bytes, rel=0.01)


VARIANTS = [pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[8:]]


@pytest.mark.parametrize("name", [*list(CASES)[:8], *VARIANTS])
def test_recipe_matches_a_real_step(name: str) -> None:
    step = case(name)
    model, loss = step.build(), step.loss()
    check_against_run(trace_workload(step), model, lambda: loss(model))


@pytest.mark.parametrize(
    ("name", "sets", "batch", "vocabulary"),
    [
        ("lm", ("model.width=32", "model.layers=1"), 16, 4001),
        ("lm", ("model.width=64", "model.layers=4"), 32, 31),
        ("lm", ("model.kind=rnn", "model.width=64"), 64, 31),
        ("translate", ("model.encoder.layers=1", "model.decoder.layers=1"), 64, 1009),
        ("transcribe", ("model.width=64",), 8, 2003),
        ("caption", (), 8, 2003),
    ],
)
def test_peak_equals_the_allocator(
    name: str, sets: tuple[str, ...], batch: int, vocabulary: int
) -> None:
    """Use enough rows that the buffers inside oneDNN's kernels are small."""
    recipe = load_recipe(RECIPES / f"{name}.toml", sets)
    length = 200 if name == "transcribe" else 13
    step = workload(recipe, batch=batch, length=length, vocabulary=vocabulary)
    model, loss = step.build(), step.loss()
    loss(model).backward()
    measured = footprint(lambda: loss(model)).peak
    assert trace_workload(step).peak == pytest.approx(measured, rel=0.15)


class Cosine(QueryKeyScore):
    """The score of docs/architecture.md, which `cost/` does not mention."""

    def terms(self, inputs: Any) -> ScoreTerms:
        queries, keys = F.normalize(inputs.queries, dim=-1), F.normalize(inputs.keys, dim=-1)
        return ScoreTerms(queries=queries, keys=keys, scale=10.0)


class CosineConfig(ScoreTraits):
    kind = "cosine"

    def build(self, sizes: ScoreSizes) -> Cosine:
        return Cosine(sizes)


def test_new_scores_are_traced() -> None:
    score: Any = CosineConfig()
    attention = MultiHeadConfig()
    object.__setattr__(attention, "score", score)  # the union of scores is closed to tests
    config, plain = GPTConfig(width=32, layers=2), GPTConfig(width=32, layers=2)
    object.__setattr__(config, "attention", attention)
    model, batch = config.build(53, 0), random_lm_batch(3, 11, 53)

    def loss(traced: Any) -> Tensor:
        return batch.loss(traced, torch.device("cpu"))

    cost = trace_step(lambda _: config.build(53, 0), loss)
    check_against_run(cost, model, lambda: loss(model))
    assert cost.saved_bytes > trace_step(lambda _: plain.build(53, 0), loss).saved_bytes


def test_any_module() -> None:
    model = nn.LSTM(64, 48, 2, batch_first=True)
    inputs = torch.randn(4, 61, 64, requires_grad=True)
    cost = harken.cost(model, inputs)
    check_against_run(cost, model, lambda: model(inputs)[0].sum())
    assert cost.flops == cost.step and cost.depth < cost.serial


def test_module_is_unchanged() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    harken.cost(model, torch.randn(3, 5))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_hugging_face_model() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_embd": 48, "n_head": 4, "vocab_size": 211, "n_positions": 64}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model, tokens = transformers.GPT2LMHeadModel(config).eval(), torch.randint(211, (3, 23))
    cost = harken.cost(model, tokens, labels=tokens)
    check_against_run(cost, model, lambda: model(tokens, labels=tokens).loss)
