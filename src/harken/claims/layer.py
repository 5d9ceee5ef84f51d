"""One layer of attention with drawn weights, and its matrices as the sources index them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.kernels import attention_weights
from harken.attention.masks import NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.attention.query_key import QueryKeyScore
from harken.claims.claim import Array
from harken.claims.drawn import array, filled

# Distinct primes: a swapped axis cannot agree by luck.
HEADS, KEY_WIDTH, HEAD_WIDTH, WIDTH, QUERIES, KEYS = 3, 5, 7, 13, 11, 17


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrices:
    """W_Q and W_K are [k, U, J], W_V is [k, I, J], W_O is [J, k I]."""

    query: Array
    key: Array
    value: Array
    output: Array | None


def layer(
    config: MultiHeadConfig,
    generator: torch.Generator,
    width: int = WIDTH,
    memory_width: int | None = None,
) -> MultiHead:
    """In float64."""
    return filled(config.build(width, KEYS, memory_width), generator)


def matrices(attention: MultiHead) -> Matrices:
    """Of a layer whose score has queries and keys."""
    score, values = attention.score, attention.v_proj
    assert isinstance(score, QueryKeyScore) and values is not None

    def by_head(weight: Tensor) -> Array:
        return array(weight).reshape(score.heads, -1, weight.shape[1])

    return Matrices(
        query=by_head(score.q_proj.weight),
        key=by_head(score.k_proj.weight),
        value=by_head(values.weight),
        output=None if attention.out_proj is None else array(attention.out_proj.weight),
    )


def row_context(queries: int, keys: int, mask: Mask = NO_MASK) -> AttentionContext:
    """Tokens one after the other."""
    return AttentionContext(
        mask=mask,
        query_positions=torch.arange(queries)[None],
        key_positions=torch.arange(keys)[None],
    )


def looked(
    attention: MultiHead,
    tokens: Float[Tensor, "T J"],
    memory: Float[Tensor, "S width"],
    mask: Mask = NO_MASK,
) -> Float[Tensor, "T mixed"]:
    """What the layer gives for each token."""
    seen = attention.project_kv(memory[None])
    return attention.attend(tokens[None], seen, row_context(len(tokens), len(memory), mask))[0]


def weights(
    attention: MultiHead, tokens: Float[Tensor, "T J"], mask: Mask = NO_MASK
) -> Float[Tensor, "k T S"]:
    """Self-attention itself."""
    seen = attention.project_kv(tokens[None])
    arranged = row_context(len(tokens), len(tokens), mask)
    return attention_weights(attention.terms(tokens[None], seen, arranged), mask)[0]
