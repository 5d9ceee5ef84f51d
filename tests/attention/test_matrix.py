"""The fused and the eager kernel agree for all compatible choices, forward and backward."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from choices import EVERY_PAIR, EVERY_POSITION, EVERY_SCORE, name
from harken.attention.compatibility import conflict
from harken.attention.kernels import ScoreTerms, eager_attention, fused_attention
from harken.attention.masks import CAUSAL, NO_MASK, Mask, build_mask, padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import PositionConfig
from harken.attention.relative import PositionSizes
from harken.attention.scores import MergedConfig, ScoreConfig

Setting = Literal["self", "cross", "spatial"]
BATCH, ACROSS, DOWN = 2, 3, 5
WIDTH, MEMORY_WIDTH = 14, 10  # even, for pairs and for concatenated positions
LENGTH = 17
TIMES = {"self": (7, 7), "cross": (7, 5), "spatial": (ACROSS * DOWN, ACROSS * DOWN)}

Masks = dict[str, Callable[[Tensor, Tensor], Mask]]


def present(keys_at: Tensor) -> Tensor:
    slots = torch.arange(keys_at.shape[1])
    return slots < torch.tensor([[len(slots) - 2], [len(slots)]])


def packed(queries_at: Tensor, keys_at: Tensor) -> Mask:
    """A text of two tokens and a text of three, each followed by another."""
    first = torch.tensor([[2], [3]])
    positions = torch.where(queries_at < first, queries_at, queries_at - first)
    texts = (queries_at >= first).long()
    return build_mask("causal", positions, positions, query_documents=texts, key_documents=texts)


ANY_SHAPE: Masks = {
    "bidirectional": lambda queries_at, keys_at: NO_MASK,
    "padding": lambda queries_at, keys_at: padding_mask(present(keys_at)),
    # In cross-attention the last of seven queries sees none of five keys.
    "window": lambda queries_at, keys_at: build_mask(
        "bidirectional", queries_at, keys_at, window=1
    ),
}
MASKS: dict[Setting, Masks] = {
    "self": {
        **ANY_SHAPE,
        "causal flag": lambda queries_at, keys_at: CAUSAL,
        "causal table": lambda queries_at, keys_at: build_mask("causal", queries_at, keys_at),
        "strictly_causal": lambda queries_at, keys_at: build_mask(
            "strictly_causal", queries_at, keys_at
        ),
        "strict window, padding": lambda queries_at, keys_at: build_mask(
            "strictly_causal", queries_at, keys_at, window=2, present=present(keys_at)
        ),
        "packed": packed,
    },
    "cross": ANY_SHAPE,
    "spatial": {
        **{kind: ANY_SHAPE[kind] for kind in ("bidirectional", "padding")},
        "raster": lambda queries_at, keys_at: build_mask("causal", queries_at, keys_at),
    },
}


LAYOUTS: dict[str, MultiHeadConfig] = {
    "plain": MultiHeadConfig(heads=3, key_width=4, head_width=5),
    "grouped": MultiHeadConfig(heads=6, kv_heads=2, key_width=6, head_width=5),
    "no values": MultiHeadConfig(heads=3, key_width=4, v_proj=False),
    "no output": MultiHeadConfig(heads=2, head_width=7, out_proj=False, key_width=10),
    "biases": MultiHeadConfig(heads=5, key_width=4, head_width=4, bias=True),  # no padding
    "all of it": MultiHeadConfig(heads=4, kv_heads=1, key_width=4, bias=True, v_proj=False),
    "grouped, no output": MultiHeadConfig(
        heads=2, kv_heads=1, head_width=7, key_width=2, out_proj=False, bias=True
    ),
}
CASES = [
    (setting, score, position, mask)
    for setting in MASKS
    for score, position in EVERY_PAIR
    for mask in MASKS[setting]
]
# Layouts take turns, so that every score, position and mask meets each of them in some setting.
TURNS = list(LAYOUTS)


def test_layouts_meet_every_choice() -> None:
    met: dict[object, set[str]] = {}
    for turn, (_, score, position, mask) in enumerate(CASES):
        for choice in (score, position, mask):
            met.setdefault(choice, set()).add(TURNS[turn % len(TURNS)])
    assert all(layouts == set(LAYOUTS) for layouts in met.values())
    pairs = {(score, position) for _, score, position, _ in CASES}
    every = {(score, position) for score in EVERY_SCORE for position in EVERY_POSITION}
    assert all(conflict(*pair) is not None for pair in every - pairs)


def coordinates_of(setting: Setting, time: int) -> Tensor:
    """1 T axes."""
    if setting == "spatial":
        return torch.cartesian_prod(torch.arange(ACROSS), torch.arange(DOWN))[None]
    return torch.arange(time)[None, :, None]


def eager(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
    return eager_attention(terms, values, mask, dropout).output


@pytest.mark.parametrize(
    ("turn", "setting", "score", "position", "mask_kind"),
    [
        pytest.param(turn, *case, id=f"{case[0]}-{name(case[1])}-{name(case[2])}-{case[3]}")
        for turn, case in enumerate(CASES)
    ],
)
def test_fused_equals_eager(
    turn: int, setting: Setting, score: ScoreConfig, position: PositionConfig, mask_kind: str
) -> None:
    queries, keys = TIMES[setting]
    memory_width = MEMORY_WIDTH if setting == "cross" else WIDTH
    layout = LAYOUTS[TURNS[turn % len(TURNS)]]
    key_width = None if isinstance(score, MergedConfig) else layout.key_width
    config = replace(layout, score=score, key_width=key_width)
    attention = config.build(WIDTH, LENGTH, memory_width).double()
    factor = 2 if getattr(position, "combine", "add") == "concat" else 1

    def kind_for(width: int) -> nn.Module:
        return position.build(
            PositionSizes(
                width=width // factor,
                key_width=key_width or memory_width,
                heads=layout.heads,
                max_length=LENGTH,
                axes=2 if setting == "spatial" else 1,
            )
        ).double()

    of_inputs, of_memory = kind_for(WIDTH), kind_for(memory_width)
    if setting != "cross":
        of_memory = of_inputs
    modules = nn.ModuleList([attention, of_inputs, of_memory])
    for parameter in modules.parameters():
        nn.init.normal_(parameter, std=0.5)
    inputs = torch.randn(BATCH, queries, WIDTH // factor, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(
        BATCH, keys, memory_width // factor, dtype=torch.float64, requires_grad=True
    )
    queries_on, keys_on = coordinates_of(setting, queries), coordinates_of(setting, keys)
    queries_at, keys_at = torch.arange(queries)[None], torch.arange(keys)[None]
    context = AttentionContext(
        mask=MASKS[setting][mask_kind](queries_at, keys_at),
        query_positions=queries_at,
        key_positions=keys_at,
        rotation=of_inputs.rotation(queries_on),
        bias=of_inputs.bias(queries_on, keys_on),
    )

    def run(context: AttentionContext = context) -> Tensor:
        embedded = of_inputs.embed(inputs, queries_on)
        assert embedded.shape == (BATCH, queries, WIDTH)
        if setting != "cross":
            return attention(embedded, context)[0]
        embedded_memory = of_memory.embed(memory, keys_on)
        cache = attention.project_kv(embedded_memory, of_memory.rotation(keys_on))
        return attention.attend(embedded, cache, context)

    mixed = memory if setting == "cross" else inputs
    leaves = [mixed, *modules.parameters(), *([inputs] if setting == "cross" else [])]
    assert attention.kernel is fused_attention
    fused = run()
    if context.bias is not None:  # a bias that needs a gradient is computed by the eager kernel
        with torch.no_grad():
            detached = run(replace(context, bias=context.bias.detach()))
        assert_close(detached, fused, rtol=0, atol=1e-10)
    downstream = torch.randn_like(fused)
    fused_gradients = torch.autograd.grad(
        fused, leaves, downstream, retain_graph=True, materialize_grads=True
    )
    attention.kernel = eager
    output = run()
    assert output.abs().max() > 1e-3
    assert_close(fused, output, rtol=0, atol=1e-10)
    # Both runs share the bias of positions, made once as in a model.
    eager_gradients = torch.autograd.grad(output, leaves, downstream, materialize_grads=True)
    assert_close(fused_gradients, eager_gradients, rtol=0, atol=1e-9)
    assert all(gradient.isfinite().all() for gradient in eager_gradients)
    assert eager_gradients[0].any()
    if mask_kind.startswith("strict"):
        empty = torch.zeros(BATCH, WIDTH, dtype=torch.float64)
        if attention.out_proj is not None and attention.out_proj.bias is not None:
            empty = empty + attention.out_proj.bias
        assert torch.equal(fused[:, 0], empty)
        assert torch.equal(output[:, 0], empty)
