"""The problems on Transformers: heads side by side, attention over a map, and parallel time.

Out[k,t] = Σ_t' α[k,t,t'] Value[k,t'],   h_out[t] = Out[1,t]; …; Out[K,t],   I = J/K
α[k,x1,y1,x2,y2] = softmax over x2 and y2 of Query[k,x1,y1]·Key[k,x2,y2]
"""

from collections.abc import Sequence

import numpy as np

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import DotConfig
from harken.claims import formulas, parallel
from harken.claims.claim import Case, Claim, Setting, worst
from harken.claims.drawn import array, normal
from harken.claims.layer import HEADS, KEY_WIDTH, QUERIES, layer, looked, matrices
from harken.layers.frontends import as_map, as_tokens

SOURCE = "problems on Transformers"
HEAD_WIDTH = 7
WIDTH = HEADS * HEAD_WIDTH
SIDE_BY_SIDE = MultiHeadConfig(
    heads=HEADS, key_width=KEY_WIDTH, score=DotConfig(), output_matrix=False
)


def heads_side_by_side(setting: Setting) -> Sequence[Case]:
    """B2: without an output matrix."""
    generator = setting.generator()
    attention, tokens = layer(SIDE_BY_SIDE, generator, WIDTH), normal(generator, QUERIES, WIDTH)
    own, known = matrices(attention), array(tokens)
    predicted = formulas.heads(known, known, own.query, own.key, own.value)
    return [
        worst("h_out, every place and number", predicted, looked(attention, tokens, tokens)),
        Case(
            what="width of a head, J / K",
            predicted=WIDTH / HEADS,
            measured=float(SIDE_BY_SIDE.head_widths(WIDTH)[0]),
            tolerance=0.0,
        ),
    ]


def over_a_map(setting: Setting) -> Sequence[Case]:
    """B7: loops over x and y against places in a row."""
    generator, columns, rows = setting.generator(), 3, 5
    attention = layer(SIDE_BY_SIDE, generator, WIDTH)
    picture = normal(generator, columns, rows, WIDTH)
    tokens = as_tokens(picture[None])[0]
    measured = as_map(looked(attention, tokens, tokens)[None], columns)[0]
    own, known = matrices(attention), array(picture)
    predicted = np.zeros_like(known)
    for head, (query, key, value) in enumerate(zip(own.query, own.key, own.value, strict=True)):
        numbers = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        for x in range(columns):
            for y in range(rows):
                scores = (known @ key.T) @ (query @ known[x, y])
                shared = np.exp(scores) / np.exp(scores).sum()  # over both axes at once
                predicted[x, y, numbers] = np.einsum("xy,xyi->i", shared, known @ value.T)
    return [worst("h_out[x, y], every place and number", predicted, measured)]


CLAIMS = (
    Claim(
        id="B2",
        source=SOURCE,
        statement="K heads compare in U numbers and carry J/K each, which side by side make J.",
        formula="h_out[t] = Out[1,t]; …; Out[K,t],  Out[k,t] = Σ α[k,t,t'] Value[k,t']",
        assumption="none; U may differ from I",
        check=heads_side_by_side,
    ),
    Claim(
        id="B7",
        source=SOURCE,
        statement="Over a picture the same holds with x and y in place of t.",
        formula="α[k,x1,y1,x2,y2] = softmax over x2, y2 of Query[k,x1,y1]·Key[k,x2,y2]",
        assumption="none; it is attention over the places in a row",
        check=over_a_map,
    ),
    Claim(
        id="C7",
        source=SOURCE,
        statement="A layer of self-attention takes O(ln T + ln J) parallel time, O(J + ln T) with "
        "serial inner products, and O(ln XY + ln J) over a map.",
        formula="projections ln J, scores ln U, softmax 2 ln T, mixture ln T",
        assumption="a sum over N terms takes log N steps, and machines are as many as needed",
        check=parallel.attention,
    ),
)
