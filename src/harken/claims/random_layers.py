"""Layers with random float64 weights, and their matrices as the documents index them."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.kernels import attention_weights
from harken.attention.masks import NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.attention.query_key import QueryKeyScore
from harken.claims import formulas
from harken.claims.claim import Array

AnyModule = TypeVar("AnyModule", bound=nn.Module)

# Distinct primes, so that swapped axes never agree by chance.
HEADS, KEY_WIDTH, HEAD_WIDTH, WIDTH, QUERIES, KEYS = 3, 5, 7, 13, 11, 17


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def randomize(module: AnyModule, generator: torch.Generator) -> AnyModule:
    """Fill the parameters of a module with normal numbers of variance 1 / inputs."""
    module.double().requires_grad_(False)
    for weight in module.parameters():
        weight.copy_(normal(generator, *weight.shape) * weight.shape[-1] ** -0.5)
    return module


def orthonormal(generator: torch.Generator, count: int, width: int) -> Float[Tensor, "count J"]:
    """Random orthonormal rows."""
    directions: Tensor = torch.linalg.qr(normal(generator, width, count)).Q
    return directions.T.contiguous()


def to_numpy(tensor: Tensor) -> Array:
    """The values of a tensor in float64."""
    values: Array = tensor.detach().double().numpy()
    return values


def numpy_parameters(module: nn.Module) -> dict[str, Array]:
    """All parameters by name."""
    return {name: to_numpy(weight) for name, weight in module.named_parameters()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrices:
    """W_Q and W_K are [k, U, J], W_V is [k, I, J], W_O is [J, k I]."""

    query: Array
    key: Array
    value: Array
    output: Array | None

    def weights(
        self, tokens: Tensor, scale: float = 1.0, visible: formulas.Visible = formulas.all_visible
    ) -> Array:
        """Self-attention weights [k, T, T] by the formula."""
        known = to_numpy(tokens)
        return formulas.stack_heads(known, self.query, self.key, scale, visible)

    def outputs(self, tokens: Tensor, memory: Tensor) -> Array:
        """Outputs by the formula: heads side by side, then W_O if there is one."""
        heads = formulas.heads(to_numpy(tokens), to_numpy(memory), self.query, self.key, self.value)
        return heads if self.output is None else heads @ self.output.T


def random_layer(
    config: MultiHeadConfig,
    generator: torch.Generator,
    width: int = WIDTH,
    memory_width: int | None = None,
) -> MultiHead:
    """An attention layer with random weights."""
    return randomize(config.build(width, KEYS, memory_width), generator)


def head_matrices(attention: MultiHead) -> Matrices:
    """The matrices of a layer that compares queries with keys."""
    score, values = attention.score, attention.v_proj
    assert isinstance(score, QueryKeyScore) and values is not None

    def by_head(weight: Tensor) -> Array:
        return to_numpy(weight).reshape(score.heads, -1, weight.shape[1])

    return Matrices(
        query=by_head(score.q_proj.weight),
        key=by_head(score.k_proj.weight),
        value=by_head(values.weight),
        output=None if attention.out_proj is None else to_numpy(attention.out_proj.weight),
    )


def sequence_context(queries: int, keys: int, mask: Mask = NO_MASK) -> AttentionContext:
    """Positions 0, 1, 2, … for queries and keys."""
    return AttentionContext(
        mask=mask,
        query_positions=torch.arange(queries)[None],
        key_positions=torch.arange(keys)[None],
    )


def attend(
    attention: MultiHead, tokens: Float[Tensor, "T J"], memory: Float[Tensor, "S width"]
) -> Float[Tensor, "T mixed"]:
    """The layer's output for each token."""
    context = sequence_context(len(tokens), len(memory))
    return attention.attend(tokens[None], attention.project_kv(memory[None]), context)[0]


def self_attention(
    attention: MultiHead, tokens: Float[Tensor, "T J"], mask: Mask = NO_MASK
) -> Float[Tensor, "k T S"]:
    """The layer's self-attention weights."""
    memory = attention.project_kv(tokens[None])
    context = sequence_context(len(tokens), len(tokens), mask)
    return attention_weights(attention.terms(tokens[None], memory, context), mask)[0]
