"""The problems on language models, translation and attention: blanks, captions, CNNs, one matrix.

    P(w_t) = softmax over w of  e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]
    α = softmax of h[t-1]·W_key·M,  V = Σ α M,  h[t] = CELL(h[t-1], V, e[w_t])
    L_{l+1}[t] = σ(Σ W[Δ] L_l[2t+Δ] - B)
    W~[j1,j2] = Σ_i W_Q[i,j1] W_K[i,j2] / sqrt(I)

Their parallel time is in `parallel.py`, with that of the Transformer.
"""

from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import NO_MASK, Mask
from harken.attention.merging import merge_pair, split_merged
from harken.attention.multihead import MultiHeadConfig
from harken.attention.query_key import ScoreSizes
from harken.attention.scores import DotConfig, MergedConfig, ScaledConfig
from harken.claims import formulas, parallel
from harken.claims.claim import EXACT, Array, Case, Claim, Setting, worst
from harken.claims.drawn import array, filled, normal
from harken.claims.layer import HEAD_WIDTH, HEADS, KEY_WIDTH, QUERIES, layer, matrices, weights
from harken.layers.convolution import ConvPyramidConfig, Downsample
from harken.layers.frontends import as_tokens
from harken.layers.recurrent import TanhConfig
from harken.models.cloze import BiRNNClozeConfig
from harken.models.decoders import AttentionRNNDecoder, AttentionRNNDecoderConfig, AttentionRNNState

SOURCE = "problems on language models"
WORDS, TIME, WIDTH, HIDDEN, MEMORY = 23, 7, 5, 11, 13


def scaled_scores(setting: Setting) -> Sequence[Case]:
    """B6: with the root and without."""
    cases = []
    for score, scale in ((ScaledConfig(), KEY_WIDTH**-0.5), (DotConfig(), 1.0)):
        generator = setting.generator()
        config = MultiHeadConfig(
            heads=HEADS, key_width=KEY_WIDTH, head_width=HEAD_WIDTH, score=score
        )
        attention, tokens = layer(config, generator), normal(generator, QUERIES, 13)
        own, known = matrices(attention), array(tokens)
        predicted = np.stack(
            [
                formulas.attention(known @ q.T, known @ k.T, scale)
                for q, k in zip(own.query, own.key, strict=True)
            ]
        )
        cases.append(worst(f"α, score '{score.kind}'", predicted, weights(attention, tokens)))
    return cases


def one_matrix(setting: Setting) -> Sequence[Case]:
    """B8: merged, split again, and counted."""
    generator, width = setting.generator(), setting.width
    inner = width // 4
    query, key = (normal(generator, HEADS, inner, width) * width**-0.5 for _ in range(2))
    tokens = normal(generator, QUERIES, width)
    merged = merge_pair(query, key, inner**-0.5)
    score = MergedConfig().build(sizes(width, inner))
    score.double().weight.data.copy_(merged / score.scale)
    terms = ScoreTerms(queries=score.queries(tokens[None]), keys=score.keys(tokens[None]))
    known = array(tokens)
    predicted = np.stack(
        [
            formulas.attention(known @ q.T, known @ k.T, inner**-0.5)
            for q, k in zip(array(query), array(key), strict=True)
        ]
    )
    back = split_merged(merged, inner)
    again = ScoreTerms(
        queries=torch.einsum("tj,kuj->kut", tokens, back.queries).mT[None],
        keys=torch.einsum("tj,kuj->kut", tokens, back.keys).mT[None],
    )
    singular = np.stack([np.linalg.svd(array(one), compute_uv=False) for one in merged])
    half = split_merged(merged, inner // 2)
    return [
        worst("α of the merged matrix", predicted, attention_weights(terms, NO_MASK)[0]),
        worst("α of a pair split back out of it", predicted, attention_weights(again, NO_MASK)[0]),
        worst("largest singular value left out at I/2", singular[:, inner // 2], half.truncation),
        *(
            Case(
                what=f"weights a head, one matrix against two of I = {rows}",
                predicted=width**2 / (2 * rows * width),
                measured=merged_weights(width) / pair_weights(width, rows),
                tolerance=EXACT,
            )
            for rows in (inner, width // 2)
        ),
    ]


def sizes(width: int, inner: int) -> ScoreSizes:
    """Of a score that compares whole tokens."""
    return ScoreSizes(
        width=width,
        memory_width=width,
        heads=HEADS,
        kv_heads=HEADS,
        key_width=inner,
        length=QUERIES,
    )


def merged_weights(width: int) -> int:
    """Numbers in W~ of all heads."""
    score = MergedConfig().build(sizes(width, width))
    return sum(weight.numel() for weight in score.parameters())


def pair_weights(width: int, inner: int) -> int:
    """Numbers in W_Q and W_K of all heads."""
    score = ScaledConfig().build(sizes(width, inner))
    return sum(weight.numel() for weight in score.parameters())


def blanks(setting: Setting) -> Sequence[Case]:
    """C3: every word of a row as its blank."""
    generator, end = setting.generator(), 0
    config = BiRNNClozeConfig(width=WIDTH, cell=TanhConfig(hidden=HIDDEN))
    model = filled(config.build(WORDS, mask=1, end=end, seed=0), generator).eval()
    tokens = torch.randint(2, WORDS, (TIME,), generator=generator)
    everywhere = torch.ones(1, TIME, dtype=torch.bool)
    measured = model(tokens[None], everywhere, everywhere).softmax(dim=-1)
    named = {name: array(weight) for name, weight in model.named_parameters()}
    table = named["embedding.weight"]
    read = table[[end, *tokens.tolist(), end]]

    def run(inputs: Array, layer: str) -> Array:
        weights = (named[f"{layer}.weight_{of}_l0"] for of in ("ih", "hh"))
        return formulas.states(inputs, np.zeros(HIDDEN), *weights)

    left, right = run(read, "forwards.forwards.0"), run(read[::-1], "backwards.backwards.0")[::-1]
    predicted = [
        formulas.softmax(
            table @ named["from_left.weight"] @ left[t - 1]
            + table @ named["from_right.weight"] @ right[t + 1]
        )
        for t in range(1, TIME + 1)
    ]
    return [worst("P of every word at every blank", np.stack(predicted), measured)]


def translating(setting: Setting) -> Sequence[Case]:
    """C4: a row of words that is told, and which word a look decides."""
    generator = setting.generator()
    decoder = writer(generator)
    memory, first = normal(generator, 17, MEMORY), normal(generator, HIDDEN)
    tokens = torch.randint(WORDS, (TIME,), generator=generator)
    begun = decoder.init_state(memory[None], None, first[None])
    measured = decoder.logits(decoder(tokens[None], begun))[0].softmax(dim=-1)
    return [
        worst(
            "P(w_{t+1}) of every word and step",
            written(decoder, array(memory), array(first), tokens.tolist()),
            measured,
        ),
        Case(
            what="words from a look to the first that it decides",
            predicted=1.0,
            measured=float(credited(decoder, tokens, begun, look=3)),
            tolerance=0.0,
        ),
    ]


def captioning(setting: Setting) -> Sequence[Case]:
    """C5: the same decoder over x and y."""
    generator = setting.generator()
    decoder, columns, rows = writer(generator), 3, 5
    picture, first = normal(generator, columns, rows, MEMORY), normal(generator, HIDDEN)
    tokens = torch.randint(WORDS, (TIME,), generator=generator)
    begun = decoder.init_state(as_tokens(picture[None]), None, first[None])
    measured = decoder.logits(decoder(tokens[None], begun))[0].softmax(dim=-1)
    places = [array(picture)[x, y] for x in range(columns) for y in range(rows)]
    predicted = written(decoder, np.stack(places), array(first), tokens.tolist())
    return [worst("P(w_{t+1}) of every word and step", predicted, measured)]


def writer(generator: torch.Generator) -> AttentionRNNDecoder:
    """The sources' decoder, its CELL a tanh of all that it is given."""
    config = AttentionRNNDecoderConfig(width=WIDTH, hidden=HIDDEN, cell=TanhConfig())
    built = config.build(WORDS, memory_width=MEMORY, source_width=HIDDEN, seed=0)
    return filled(built, generator).eval()


def written(decoder: AttentionRNNDecoder, memory: Array, state: Array, words: list[int]) -> Array:
    """The sources' four lines for each word that is consumed; the memory may be of places."""
    named = {name: array(weight) for name, weight in decoder.named_parameters()}
    factors = decoder.attention.score.factors()
    assert factors is not None
    to_memory = array(factors.left[0].mT)
    found = []
    for word in words:
        looked = formulas.softmax(state @ to_memory @ memory.T)
        read = np.concatenate((looked @ memory, named["embedding.weight"][word]))
        state = np.tanh(
            named["cell.forwards.0.weight_ih_l0"] @ read
            + named["cell.forwards.0.weight_hh_l0"] @ state
        )
        found.append(formulas.softmax(named["embedding.weight"] @ named["to_words.weight"] @ state))
    return np.stack(found)


def credited(
    decoder: AttentionRNNDecoder, tokens: torch.Tensor, begun: AttentionRNNState, look: int
) -> int:
    """Disturb one look, and count from the word consumed then to the first word that changes."""
    kernel, looks = decoder.attention.kernel, 0

    def disturbed(
        terms: ScoreTerms, values: torch.Tensor, mask: Mask, dropout: float
    ) -> torch.Tensor:
        nonlocal looks
        looks += 1
        return kernel(terms, values, mask, dropout) + float(looks == look)

    calm = decoder(tokens[None], begun)
    decoder.attention.kernel = disturbed
    moved = (decoder(tokens[None], begun) != calm).any(dim=-1)[0]
    decoder.attention.kernel = kernel
    # State number s (from 1) decides word s + 1; the look was taken while word `look` was consumed.
    return int(moved.nonzero()[0]) + 2 - look


def halving(setting: Setting) -> Sequence[Case]:
    """C6: level by level, and the chain of steps."""
    generator, levels, kernel = setting.generator(), 3, 3
    way = filled(Downsample(ConvPyramidConfig(layers=levels, kernel=kernel), WIDTH), generator)
    tokens = normal(generator, 1, 19, WIDTH)
    measured = way(tokens)
    predicted = [array(tokens[0])]
    named = {name: array(weight) for name, weight in way.named_parameters()}
    for level in range(levels):
        weight, threshold = named[f"kernels.{level}.weight"], named[f"thresholds.{level}"]
        predicted.append(convolved(predicted[-1], weight, threshold))
    return [
        *(
            worst(f"L_{level}[t], every t", predicted[level], measured[level][0])
            for level in range(1, levels + 1)
        ),
        *parallel.sequences(setting),
    ]


def convolved(below: Array, weight: Array, threshold: Array) -> Array:
    """σ(Σ over Δ of W[Δ] L[2t + Δ] - B), Δ in -1, 0, 1, with zeros beyond both ends."""
    outputs = []
    for t in range((len(below) + 1) // 2):
        total = -threshold
        for delta in (-1, 0, 1):
            if 0 <= 2 * t + delta < len(below):
                total = total + weight[:, :, delta + 1] @ below[2 * t + delta]
        outputs.append(np.maximum(total, 0.0))
    return np.stack(outputs)


CLAIMS = (
    Claim(
        id="B6",
        source=SOURCE,
        statement="Scores are divided by the root of the width of queries and keys, or not at all.",
        formula="α = softmax of q·k / sqrt(I)",
        assumption="none; their I is our U",
        check=scaled_scores,
    ),
    Claim(
        id="B8",
        source=SOURCE,
        statement="One matrix in place of W_Q and W_K gives the same attention, with as many "
        "weights when I = J/2.",
        formula="W~[j1,j2] = Σ_i W_Q[i,j1] W_K[i,j2] / sqrt(I);  2IJ against J² a head",
        assumption="back again with I rows only if W~ has rank I; else the largest are kept",
        check=one_matrix,
        remark="The derivation writes t1 for t2 in the second token; the result is right.",
    ),
    Claim(
        id="C3",
        source=SOURCE,
        statement="A blank is filled from a state that has read up to it and one that has read "
        "back to it.",
        formula="P(w_t) = softmax of e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]",
        assumption="an end symbol is read before the first and behind the last word",
        check=blanks,
    ),
    Claim(
        id="C4",
        source=SOURCE,
        statement="A translator looks at the source with its last state, and what it saw "
        "enters the next.",
        formula="α = softmax of h[t-1]·W_key·M, V = Σ α M, h[t] = CELL(h[t-1], V, e[w_t])",
        assumption="V of step t enters h[t] and so decides w_{t+1}; a start symbol comes first",
        check=translating,
    ),
    Claim(
        id="C5",
        source=SOURCE,
        statement="The same writes captions when the memory is a map over x and y.",
        formula="α[x,y] = softmax over x, y of h[t-1]·W_key·M[x,y], V = Σ α[x,y] M[x,y]",
        assumption="none; channels K and width J may differ",
        check=captioning,
    ),
    Claim(
        id="C6",
        source=SOURCE,
        statement="A language CNN of stride 2 halves the text with every layer, and takes O(L) "
        "parallel time where RNNs take O(T + L).",
        formula="L_{l+1}[t] = σ(Σ_Δ W[Δ] L_l[2t+Δ] - B)",
        assumption="zeros beyond both ends; widths are constants; to see T tokens, L must be log T",
        check=halving,
    ),
)
