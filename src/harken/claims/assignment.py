"""The assignment on attention: copying, averaging, noise, and looking things up.

    copy      q = M k_a                     α_a = 1 / (1 + (n-1) e^-M)
    average   q = M (k_a + k_b)             α_a = α_b = 1 / (2 + (n-2) e^-M)
    look up   V = (u_b u_b' - u_c u_c') / β²,  Q = (u_d u_a' + u_c u_d') / β²,  K = 1

Noise in the keys, which an average by one head does not survive, is in `fragility.py`.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.query_key import ScoreSizes
from harken.attention.scores import SynthesizerConfig, SynthesizerScore
from harken.claims import formulas
from harken.claims.claim import EXACT, Case, Claim, Setting, worst
from harken.claims.drawn import array, filled, normal, orthonormal
from harken.design.content import average, copy, lookup, lookup_norm, lookup_tokens
from harken.design.head import Head, attention

SOURCE = "assignment on attention"
KEYS, TOLERANCE = 7, 0.01
ASKED = (2, 5)


def synthesised(setting: Setting) -> Sequence[Case]:
    """B9: rows of scores from tokens, then with all other tokens changed."""
    generator, heads, time, width, hidden = setting.generator(), 3, 11, 13, 5
    sizes = ScoreSizes(
        width=width, memory_width=width, heads=heads, kv_heads=heads, key_width=hidden, length=time
    )
    dense = filled(SynthesizerConfig(form="dense").build(sizes), generator)
    random = filled(SynthesizerConfig(form="random").build(sizes), generator)
    tokens = normal(generator, time, width)
    others = normal(generator, time, width)
    others[4] = tokens[4]
    places = torch.arange(time)[None]
    named = {name: array(weight) for name, weight in dense.named_parameters()}
    read = np.maximum(
        array(tokens) @ named["from_token.0.weight"].T + named["from_token.0.bias"], 0
    )
    predicted = np.stack(
        [
            read[:, head * hidden : (head + 1) * hidden] @ named["to_scores"][head]
            + named["score_offsets"][head]
            for head in range(heads)
        ]
    )

    def rows(score: SynthesizerScore, inputs: torch.Tensor) -> torch.Tensor:
        bias = score.terms(inputs[None], None, None, places, places).bias
        assert isinstance(bias, torch.Tensor)
        return bias[0]

    assert random.table is not None
    return [
        worst("dense: scores W_2 relu(W_1 x_i)", predicted, rows(dense, tokens)),
        worst(
            "dense: scores of one token when all others change",
            predicted[:, 4],
            rows(dense, others)[:, 4],
        ),
        worst("random: scores whatever the tokens", array(random.table), rows(random, others)),
    ]


def copying(setting: Setting) -> Sequence[Case]:
    """B10: among orthonormal keys, with M from the tolerance."""
    keys = orthonormal(setting.generator(), KEYS, setting.width)
    one, other = ASKED
    by_one = attention(copy(keys, one, TOLERANCE), keys, "any")[0]
    head = average(keys, one, other, TOLERANCE)
    by_two = attention(head, keys, "any")[0]
    enough = math.log((KEYS - 1) * (1 - TOLERANCE) / TOLERANCE)
    for_two = math.log((KEYS - 2) / 2 * (1 - TOLERANCE) / TOLERANCE)
    known = array(keys)
    mixed = formulas.attention(for_two * (known[[one]] + known[[other]]), known) @ known
    return [
        Case(
            what=f"α_a for q = M k_a, M = {enough:.2f}",
            predicted=1 / (1 + (KEYS - 1) * math.exp(-enough)),
            measured=float(by_one[one]),
            tolerance=EXACT,
        ),
        *(
            Case(
                what=f"α_{name} for q = M (k_a + k_b), M = {for_two:.2f}",
                predicted=1 / (2 + (KEYS - 2) * math.exp(-for_two)),
                measured=float(by_two[at]),
                tolerance=EXACT,
            )
            for name, at in zip("ab", ASKED, strict=True)
        ),
        worst("c of the average", mixed[0], by_two @ keys),
        Case(
            what="|c - (v_a + v_b) / 2|, at most the tolerance",
            predicted=0.0,
            measured=float((by_two @ keys - (keys[one] + keys[other]) / 2).norm()),
            tolerance=TOLERANCE,
        ),
    ]


def looking_up(setting: Setting) -> Sequence[Case]:
    """B12: the two contexts, and what identity attention does in their place."""
    directions = orthonormal(setting.generator(), 4, setting.width)
    norm = math.sqrt(math.log(2 * (1 - TOLERANCE) / TOLERANCE))
    vectors = directions * norm
    a, b, c, d = vectors
    tokens = lookup_tokens(directions, norm)
    head = lookup(directions)
    assert head.values is not None
    mixed = attention(head, tokens, "any") @ (tokens @ head.values.T)
    right = 1 / (1 + 2 * math.exp(-(norm**2)))
    wrong = (1 - right) / 2
    same = torch.eye(setting.width, dtype=torch.float64)
    identity = Head(queries=same, keys=same)
    known = array(vectors)
    # In c_1 the wrong keys are x_1, whose value is u_b, and x_2, whose value is nothing.
    first = right * (known[1] - known[2]) + wrong * known[1]
    second = right * known[1] + wrong * (known[1] - known[2])
    cases = [
        Case(
            what="β for a tolerance of 0.01",
            predicted=norm,
            measured=lookup_norm(TOLERANCE),
            tolerance=EXACT,
        ),
        worst("c_1, which is u_b - u_c as β grows", first, mixed[0]),
        worst("c_2, which is u_b as β grows", second, mixed[1]),
    ]
    for name, added in (("u_c", c), ("u_d", d)):
        plain = torch.stack((d + b, a + added, c + b))
        found = attention(identity, plain, "any")[1] @ plain
        # The added vector raises one neighbour to β², and the token itself to 2 β².
        scores = np.array([norm**2, 2 * norm**2, 0.0])
        predicted = 1 - formulas.softmax(scores)[1]
        cases.append(
            Case(
                what=f"identity attention: share of u_b in c_2 with {name} added to x_2",
                predicted=float(predicted),
                measured=float(found @ b) / norm**2,
                tolerance=EXACT,
            )
        )
    return cases


CLAIMS = (
    Claim(
        id="B9",
        source=SOURCE,
        statement="A Synthesizer scores from each token alone, or from no token: no query meets a "
        "key.",
        formula="dense: row i = W_2 relu(W_1 x_i);  random: row i is learned",
        assumption="none",
        check=synthesised,
        remark="That it is poor at long distances is an experiment of training: see "
        "benchmarks/synthesizer_distance.py.",
    ),
    Claim(
        id="B10",
        source=SOURCE,
        statement="A query along one key copies its value, a query along two averages theirs.",
        formula="q = M k_a: α_a ≈ 1;  q = M (k_a + k_b): c ≈ (v_a + v_b) / 2",
        assumption="keys orthonormal, M large: log((n-1) (1-ε) / ε) for a tolerance ε",
        check=copying,
        remark="The condition is printed as α_a ≈ α_b ≈ 1, which no mass of one allows; its own "
        "text has 1/2, and so does the measurement.",
    ),
    Claim(
        id="B12",
        source=SOURCE,
        statement="Without matrices u_b cannot be copied out of a sum into c_2; with V, Q and "
        "K = 1 it can, and c_1 loses u_c.",
        formula="V = (u_b u_b' - u_c u_c') / β², Q = (u_d u_a' + u_c u_d') / β²:  "
        "c_1 = u_b - u_c, c_2 = u_b",
        assumption="the u orthogonal with norm β, and β² large: log(2 (1-ε) / ε) for a tolerance ε",
        check=looking_up,
    ),
)
