"""The lecture on attention: a mass over time, heads, masks, and where positions are told.

    c_i = Σ_t α_it v_t,  α_it = exp(q_i·k_t) / Σ_τ exp(q_i·k_τ),  Σ_t α_it = 1
    e_t = cos(πt/T), sin(πt/T), …, cos(πDt/2T), sin(πDt/2T),   e_{t-d} = A e_t

Recurrent networks, which it begins with, are in `recurrence.py`.
"""

from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.kernels import ScoreTerms, eager_attention, fused_attention
from harken.attention.masks import NO_MASK, build_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import FourierConfig, Place, SinusoidConfig, model_width
from harken.attention.relative import PositionSizes
from harken.attention.scores import DotConfig
from harken.claims import formulas
from harken.claims.claim import EXACT, NARROWER, SINGLE, Case, Claim, Setting, worst
from harken.claims.drawn import array, normal
from harken.claims.layer import (
    HEAD_WIDTH,
    HEADS,
    KEY_WIDTH,
    KEYS,
    QUERIES,
    WIDTH,
    layer,
    looked,
    matrices,
    weights,
)
from harken.design.waves import Waves, shift_matrix
from harken.models.gpt import GPTConfig

SOURCE = "lecture on attention"
SPAN, OFFSETS = 67, (1, 7, 31)
PLACES: tuple[Place, Place] = ("add", "concat")
PLAIN = MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH, head_width=HEAD_WIDTH, score=DotConfig())


def fourier_basis(setting: Setting) -> Sequence[Case]:
    """A2: the vectors, and when they repeat."""
    measured = fourier_vectors(3 * SPAN, setting.width)
    again = (measured[1:] - measured[0]).abs().amax(dim=1) < SINGLE
    return [
        worst(
            "the element that differs most",
            formulas.fourier(SPAN, setting.width, SPAN),
            measured[:SPAN],
            SINGLE,
        ),
        Case(
            what="spans after which places repeat",
            predicted=2.0,
            measured=(1 + int(again.nonzero()[0])) / SPAN if again.any() else np.inf,
            tolerance=0.0,
        ),
    ]


def fourier_vectors(length: int, width: int) -> torch.Tensor:
    """Places of a text as the library tells them."""
    sizes = PositionSizes(width=width, key_width=width, heads=1, length=length)
    return FourierConfig(span=SPAN).build(sizes).vectors(torch.arange(length)[None, :, None])[0]


def sinusoid_vectors(length: int, width: int) -> torch.Tensor:
    """The same of the other basis."""
    sizes = PositionSizes(width=width, key_width=width, heads=1, length=length)
    return SinusoidConfig().build(sizes).vectors(torch.arange(length)[None, :, None])[0]


def shift_is_a_turn(setting: Setting) -> Sequence[Case]:
    """A3: both bases, several offsets, and the printed block."""
    width = setting.width
    cases = []
    for waves, measured, predicted in (
        (
            Waves(kind="fourier", width=width, span=SPAN),
            fourier_vectors(SPAN, width),
            formulas.fourier(SPAN, width, SPAN),
        ),
        (Waves(width=width), sinusoid_vectors(SPAN, width), formulas.sinusoids(SPAN, width)),
    ):
        for offset in OFFSETS:
            turned = measured.double() @ shift_matrix(waves, offset).T
            what = f"{waves.kind}: A e_t is e_(t-{offset})"
            cases.append(worst(what, predicted[:-offset], turned[offset:], SINGLE))
    block = shift_matrix(Waves(kind="fourier", width=width, span=SPAN), 7)[:2, :2]
    angle = np.pi * 7 / SPAN
    printed = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return [*cases, worst("fourier: the first block as the lecture prints it", printed, block)]


def added_or_beside(setting: Setting) -> Sequence[Case]:
    """A7: every matrix of a model with positions added, and beside."""
    added, beside = (matrix_sizes(SinusoidConfig(place=place), setting.width) for place in PLACES)
    layers = [name for name in added if "blocks" in name]
    return [
        Case(
            what="vectors, times as large",
            predicted=2.0,
            measured=model_width(SinusoidConfig(place="concat"), setting.width) / setting.width,
            tolerance=0.0,
        ),
        *(
            Case(
                what=f"{what}, times as large",
                predicted=predicted,
                measured=beside[name] / added[name],
                tolerance=0.0,
                stated=stated,
            )
            for what, name, predicted, stated in (
                ("table of words, as stated", "embedding.weight", 4.0, True),
                ("table of words", "embedding.weight", 1.0, False),
                ("matrix that reads out", "lm_head.weight", 2.0, False),
            )
        ),
        Case(
            what="all matrices of a block, times as large",
            predicted=4.0,
            measured=sum(beside[name] for name in layers) / sum(added[name] for name in layers),
            tolerance=0.0,
            stated=False,
        ),
    ]


def matrix_sizes(position: SinusoidConfig, width: int) -> dict[str, int]:
    """Numbers of every matrix of a language model, by name."""
    attention = MultiHeadConfig(heads=4)
    config = GPTConfig(layers=1, width=width, attention=attention, position=position, tied=False)
    model = config.build(vocabulary=97, seed=0)
    return {name: one.numel() for name, one in model.named_parameters() if one.dim() == 2}


def order_is_lost(setting: Setting) -> Sequence[Case]:
    """A8: tokens shuffled."""
    generator = setting.generator()
    attention, tokens = layer(PLAIN, generator), normal(generator, QUERIES, WIDTH)
    shuffled = torch.randperm(QUERIES, generator=generator)
    own = matrices(attention)
    assert own.output is not None
    plain = formulas.heads(array(tokens), array(tokens), own.query, own.key, own.value)
    predicted = (plain @ own.output.T)[shuffled.numpy()]
    measured = looked(attention, tokens[shuffled], tokens[shuffled])
    return [worst("shuffled tokens: outputs shuffled alike", predicted, measured)]


def mass_over_time(setting: Setting) -> Sequence[Case]:
    """B1: both kernels."""
    generator = setting.generator()
    queries = normal(generator, QUERIES, KEY_WIDTH)
    keys, values = normal(generator, KEYS, KEY_WIDTH), normal(generator, KEYS, HEAD_WIDTH)
    predicted = formulas.attention(array(queries), array(keys))
    terms = ScoreTerms(queries=queries[None, None], keys=keys[None, None])
    explicit = eager_attention(terms, values[None, None], NO_MASK)
    fast = fused_attention(terms, values[None, None], NO_MASK)[0, 0]
    return [
        worst("α, explicit kernel", predicted, explicit.weights[0, 0]),
        worst("c, explicit kernel", predicted @ array(values), explicit.output[0, 0]),
        worst("c, fused kernel", predicted @ array(values), fast),
        worst("Σ_t α_it", np.ones(QUERIES), explicit.weights[0, 0].sum(dim=1)),
    ]


def heads_joined(setting: Setting) -> Sequence[Case]:
    """B3: with the output matrix."""
    generator = setting.generator()
    attention, tokens = layer(PLAIN, generator), normal(generator, QUERIES, WIDTH)
    own = matrices(attention)
    assert own.output is not None
    stacked = formulas.heads(array(tokens), array(tokens), own.query, own.key, own.value)
    return [
        worst(
            "W_O over the stacked heads", stacked @ own.output.T, looked(attention, tokens, tokens)
        )
    ]


def looking_across(setting: Setting) -> Sequence[Case]:
    """B4: a memory of another width."""
    generator = setting.generator()
    memory_width = 19
    attention = layer(PLAIN, generator, memory_width=memory_width)
    written, memory = normal(generator, QUERIES, WIDTH), normal(generator, KEYS, memory_width)
    own = matrices(attention)
    assert own.output is not None
    mixed = formulas.heads(array(written), array(memory), own.query, own.key, own.value)
    return [
        worst(
            "queries of the output so far, keys and values of the input",
            mixed @ own.output.T,
            looked(attention, written, memory),
        )
    ]


def only_the_past(setting: Setting) -> Sequence[Case]:
    """B5: the lecture's mask and the common one."""
    generator = setting.generator()
    attention, tokens = layer(PLAIN, generator), normal(generator, QUERIES, WIDTH)
    places = torch.arange(QUERIES)[None]
    strict, causal = (
        weights(attention, tokens, build_mask(order, places, places))
        for order in ("strict", "causal")
    )
    own = matrices(attention)
    by_head = list(zip(own.query, own.key, strict=True))

    def predicted(before: int) -> np.ndarray:
        known = array(tokens)
        return np.stack(
            [
                formulas.attention(known @ q.T, known @ k.T, seen=lambda i, t: t + before <= i)
                for q, k in by_head
            ]
        )

    return [
        Case(
            what="t < i: Σ_t α of the first query, 1 as stated",
            predicted=1.0,
            measured=float(strict[0, 0].sum()),
            tolerance=EXACT,
        ),
        worst("t < i: α of all others", predicted(1)[:, 1:], strict[:, 1:], stated=False),
        worst(
            "t < i: α of the first query, zeros",
            np.zeros((HEADS, QUERIES)),
            strict[:, 0],
            stated=False,
        ),
        worst("t <= i: α of all", predicted(0), causal, stated=False),
    ]


CLAIMS = (
    Claim(
        id="A2",
        source=SOURCE,
        statement="Places can be told by cosines and sines of 1, 2, 3, … half turns over T steps.",
        formula="e_t = cos(πt/T), sin(πt/T), …, cos(πDt/2T), sin(πDt/2T)",
        assumption="texts of T at most: places repeat after 2T, so farther offsets read two ways",
        check=fourier_basis,
    ),
    Claim(
        id="A3",
        source=SOURCE,
        statement="Going back by a fixed offset is one matrix for all places: a turn in each pair.",
        formula="e_{t-d} = A e_t, blocks [[cos, sin], [-sin, cos]] of πd/T (cosine first)",
        assumption="none; sine first, as in the sinusoids, the signs of the sines change",
        check=shift_is_a_turn,
    ),
    Claim(
        id="A7",
        source=SOURCE,
        statement="Positions set beside tokens make every vector twice and every matrix four times "
        "as large; added, they cost nothing.",
        formula="x_t = [x_t, e_t]:  J -> 2J,  J x J -> 2J x 2J",
        assumption="widths of heads and of the feed-forward layer grow with J",
        check=added_or_beside,
        expected=NARROWER,
        remark="Four times is true of the matrices between two vectors of the model. The table of "
        "words stays as it is, since positions come after it, and the read-out doubles.",
    ),
    Claim(
        id="A8",
        source=SOURCE,
        statement="Without positions, attention does not know when anything happened.",
        formula="f(x_π(1), …, x_π(n)) = f(x)_π(1), …, f(x)_π(n)",
        assumption="no mask: one that hides the future tells the order",
        check=order_is_lost,
    ),
    Claim(
        id="B1",
        source=SOURCE,
        statement="Each context is a sum of values, weighted by a probability mass over time.",
        formula="c_i = Σ_t α_it v_t, α_it = exp(q_i·k_t) / Σ_τ exp(q_i·k_τ), Σ_t α_it = 1",
        assumption="none",
        check=mass_over_time,
    ),
    Claim(
        id="B3",
        source=SOURCE,
        statement="Several heads with matrices of their own are stacked and joined by one more.",
        formula="c_i = W_O [h_1i; …; h_ki]",
        assumption="none",
        check=heads_joined,
    ),
    Claim(
        id="B4",
        source=SOURCE,
        statement="Across two sequences, the query comes from the output so far, key and value "
        "from the input.",
        formula="q_i = W_Q o_{i-1}, k_t = W_K x_t, v_t = W_V x_t",
        assumption="none; the two may have different widths",
        check=looking_across,
    ),
    Claim(
        id="B5",
        source=SOURCE,
        statement="A mask lets the i-th context attend only to values before it.",
        formula="score = q_i·k_t where t < i, else -∞",
        assumption="none",
        check=only_the_past,
        expected=NARROWER,
        remark="It holds for queries that see a key. The first sees none, where the formula is "
        "0/0: there is no mass to share out, and Harken gives zeros. The common "
        "mask t <= i has no such query.",
    ),
)
