"""The fast and the explicit path agree for every legal choice, forward and backward."""

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    places = torch.where(queries_at < first, queries_at, queries_at - first)
    texts = (queries_at >= first).long()
    return build_mask("causal", places, places, query_documents=texts, key_documents=texts)


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


@dataclass(frozen=True)
class Layout:
    """Sizes of the heads; `key_width` is left out for the score that has none of its own."""

    heads: int = 3
    key_width: int = 4
    head_width: int | None = 5
    kv_heads: int | None = None
    bias: bool = False
    v_proj: bool = True
    out_proj: bool = True

    def config(self, score: ScoreConfig) -> MultiHeadConfig:
        return MultiHeadConfig(
            heads=self.heads,
            key_width=None if isinstance(score, MergedConfig) else self.key_width,
            head_width=self.head_width,
            kv_heads=self.kv_heads,
            score=score,
            bias=self.bias,
            v_proj=self.v_proj,
            out_proj=self.out_proj,
        )


LAYOUTS = {
    "plain": Layout(),
    "grouped": Layout(heads=6, kv_heads=2, key_width=6),
    "no values": Layout(v_proj=False, head_width=None),
    "no output": Layout(heads=2, head_width=7, out_proj=False, key_width=10),
    "biases": Layout(heads=5, head_width=4, bias=True),  # as wide as keys: no filling up
    "all of it": Layout(heads=4, kv_heads=1, bias=True, v_proj=False, head_width=None),
    "grouped, no output": Layout(
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


def explicit(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
    return eager_attention(terms, values, mask, dropout).output


@pytest.mark.parametrize(
    ("turn", "setting", "score", "position", "mask_kind"),
    [
        pytest.param(turn, *case, id=f"{case[0]}-{name(case[1])}-{name(case[2])}-{case[3]}")
        for turn, case in enumerate(CASES)
    ],
)
def test_fast_equals_explicit(
    turn: int, setting: Setting, score: ScoreConfig, position: PositionConfig, mask_kind: str
) -> None:
    queries, keys = TIMES[setting]
    memory_width = MEMORY_WIDTH if setting == "cross" else WIDTH
    layout = LAYOUTS[TURNS[turn % len(TURNS)]]
    config = layout.config(score)
    attention = config.build(WIDTH, LENGTH, memory_width).double()
    factor = 2 if getattr(position, "place", "add") == "concat" else 1

    def kind_for(width: int) -> nn.Module:
        key_width = memory_width if isinstance(score, MergedConfig) else layout.key_width
        return position.build(
            PositionSizes(
                width=width // factor,
                key_width=key_width,
                heads=layout.heads,
                length=LENGTH,
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
        entered = of_inputs.embed(inputs, queries_on)
        assert entered.shape == (BATCH, queries, WIDTH)
        if setting != "cross":
            return attention(entered, context)[0]
        remembered = of_memory.embed(memory, keys_on)
        seen = attention.project_kv(remembered, of_memory.rotation(keys_on))
        return attention.attend(entered, seen, context)

    mixed = memory if setting == "cross" else inputs
    leaves = [mixed, *modules.parameters(), *([inputs] if setting == "cross" else [])]
    assert attention.kernel is fused_attention
    fast = run()
    if context.bias is not None:  # the fused kernel may leave a bias that learns to the other
        with torch.no_grad():
            told = run(replace(context, bias=context.bias.detach()))
        assert_close(told, fast, rtol=0, atol=1e-10)
    downstream = torch.randn_like(fast)
    fast_gradients = torch.autograd.grad(
        fast, leaves, downstream, retain_graph=True, materialize_grads=True
    )
    attention.kernel = explicit
    slow = run()
    assert slow.abs().max() > 1e-3
    assert_close(fast, slow, rtol=0, atol=1e-10)
    # Both runs share the bias of positions, made once as in a model.
    slow_gradients = torch.autograd.grad(slow, leaves, downstream, materialize_grads=True)
    assert_close(fast_gradients, slow_gradients, rtol=0, atol=1e-9)
    assert all(gradient.isfinite().all() for gradient in slow_gradients)
    assert slow_gradients[0].any()
    if mask_kind.startswith("strict"):
        blind = torch.zeros(BATCH, WIDTH, dtype=torch.float64)
        if attention.out_proj is not None and attention.out_proj.bias is not None:
            blind = blind + attention.out_proj.bias
        assert torch.equal(fast[:, 0], blind)
        assert torch.equal(slow[:, 0], blind)
