"""One head, written down, and what it attends to.

    score(i, t) = (W_Q x_i + b_Q) . (W_K x_t + b_K)      carried: W_O W_V x_t

Queries and keys are turned by their places where there is a `rotation`, as in a layer of position
'rotary'. A head without values says only where to look; what it carries is left to others.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head as Head
from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import MaskKind, build_mask
from harken.attention.relative import Rotation, rotate


def attention(
    head: Head,
    tokens: Float[Tensor, "T J"],
    order: MaskKind = "causal",
    rotation: Rotation | None = None,
) -> Float[Tensor, "T S"]:
    """What each token gives to each; a row of zeros for one that sees nothing."""
    queries, keys = tokens @ head.queries.T, tokens @ head.keys.T
    queries = queries if head.query_offset is None else queries + head.query_offset
    keys = keys if head.key_offset is None else keys + head.key_offset
    queries, keys = queries[None, None], keys[None, None]
    if rotation is not None:
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
    places = torch.arange(len(tokens))[None]
    terms = ScoreTerms(queries=queries, keys=keys)
    return attention_weights(terms, build_mask(order, places, places))[0, 0]


def carry(
    heads: Sequence[Head], tokens: Float[Tensor, "T J"], order: MaskKind = "causal"
) -> Float[Tensor, "T J"]:
    """Tokens behind layers of one head each, every one adding what it carries; no norms."""
    for head in heads:
        assert head.values is not None and head.output is not None, "it carries nothing"
        mixed = attention(head, tokens, order) @ (tokens @ head.values.T)
        tokens = tokens + mixed @ head.output.T
    return tokens


def steady(head: Head, direction: Float[Tensor, "J"]) -> Head:
    """The same head without offsets, for tokens that all have `direction . x = 1`."""

    def fold(matrix: Tensor, offset: Tensor | None) -> Tensor:
        return matrix if offset is None else matrix + offset[:, None] * direction

    return Head(
        queries=fold(head.queries, head.query_offset),
        keys=fold(head.keys, head.key_offset),
        values=head.values,
        output=head.output,
    )
