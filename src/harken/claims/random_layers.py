"""Layers with random float64 weights, and their outputs computed with `formulas.py`."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from harken.attention.kernels import attention_weights
from harken.attention.masks import NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.attention.positions import FourierConfig, SinusoidConfig
from harken.attention.query_key import QueryKeyScore, ScoreSizes
from harken.attention.relative import PositionSizes
from harken.claims.claim import Array, Case, Setting, compare_arrays
from harken.claims.formulas import numpy_attention

AnyModule = TypeVar("AnyModule", bound=nn.Module)

# Distinct primes, so that swapped axes never have equal sizes.
HEADS, KEY_WIDTH, HEAD_WIDTH, WIDTH, QUERIES, KEYS = 3, 5, 7, 13, 11, 17


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def randomize(module: AnyModule, generator: torch.Generator) -> AnyModule:
    """Fill the parameters of a module with normal numbers of variance 1 / fan_in."""
    module.double().requires_grad_(False)
    for weight in module.parameters():
        weight.copy_(normal(generator, *weight.shape) * weight.shape[-1] ** -0.5)
    return module


def orthonormal(generator: torch.Generator, count: int, width: int) -> Float[Tensor, "count J"]:
    """Return random orthonormal rows."""
    directions: Tensor = torch.linalg.qr(normal(generator, width, count)).Q
    return directions.T.contiguous()


def to_numpy(tensor: Tensor) -> Array:
    """Return the values of a tensor in float64."""
    values: Array = tensor.detach().double().numpy()
    return values


def numpy_parameters(module: nn.Module) -> dict[str, Array]:
    """Return all parameters by name."""
    return {name: to_numpy(weight) for name, weight in module.named_parameters()}


def position_vectors(
    config: FourierConfig | SinusoidConfig, positions: Int[Tensor, "N"], width: int
) -> Float[Tensor, "N J"]:
    """Return the vectors that `harken.attention` adds at these positions."""
    length = int(positions.max()) + 1
    sizes = PositionSizes(width=width, key_width=width, heads=1, max_length=length)
    return config.build(sizes).vectors(positions[None, :, None])[0]


@dataclass(frozen=True, slots=True)
class Matrices:
    """Weights of an attention layer: W_Q and W_K [k, U, J], W_V [k, I, J], W_O [J, k I]."""

    query: Array
    key: Array
    value: Array
    output: Array | None = None

    def weights(
        self, tokens: Tensor, scale: float = 1.0, visible: NDArray[np.bool_] | None = None
    ) -> Array:
        """Return self-attention weights [k, T, T], computed with `numpy_attention`."""
        inputs, pairs = to_numpy(tokens), zip(self.query, self.key, strict=True)
        weights = [numpy_attention(inputs @ q.T, inputs @ k.T, scale, visible) for q, k in pairs]
        return np.stack(weights)

    def outputs(self, tokens: Tensor, memory: Tensor) -> Array:
        """Return the outputs of the concatenated heads, multiplied by W_O if there is one."""
        inputs, states = to_numpy(tokens), to_numpy(memory)
        heads = [
            numpy_attention(inputs @ query.T, states @ key.T) @ (states @ value.T)
            for query, key, value in zip(self.query, self.key, self.value, strict=True)
        ]
        joined = np.concatenate(heads, axis=1)
        return joined if self.output is None else joined @ self.output.T


def random_attention(
    config: MultiHeadConfig,
    generator: torch.Generator,
    width: int = WIDTH,
    memory_width: int | None = None,
) -> tuple[MultiHead, Matrices]:
    """Return an attention layer with random weights, and its matrices."""
    layer = randomize(config.build(width, KEYS, memory_width), generator)
    score, values = layer.score, layer.v_proj
    assert isinstance(score, QueryKeyScore) and values is not None

    def by_head(weight: Tensor) -> Array:
        return to_numpy(weight).reshape(score.heads, -1, weight.shape[1])

    return layer, Matrices(
        query=by_head(score.q_proj.weight),
        key=by_head(score.k_proj.weight),
        value=by_head(values.weight),
        output=None if layer.out_proj is None else to_numpy(layer.out_proj.weight),
    )


def sequence_context(queries: int, keys: int, mask: Mask = NO_MASK) -> AttentionContext:
    """Return a context with positions 0, 1, 2, … for queries and keys."""
    return AttentionContext(
        mask=mask,
        query_positions=torch.arange(queries)[None],
        key_positions=torch.arange(keys)[None],
    )


def attend(
    attention: MultiHead, tokens: Float[Tensor, "T J"], memory: Float[Tensor, "S width"]
) -> Float[Tensor, "T outputs"]:
    """Return the layer's output for each token."""
    context = sequence_context(len(tokens), len(memory))
    return attention.attend(tokens[None], attention.project_kv(memory[None]), context)[0]


def self_attention(
    attention: MultiHead, tokens: Float[Tensor, "T J"], mask: Mask = NO_MASK
) -> Float[Tensor, "k T S"]:
    """Return the layer's self-attention weights."""
    memory = attention.project_kv(tokens[None])
    context = sequence_context(len(tokens), len(tokens), mask)
    return attention_weights(attention.terms(tokens[None], memory, context), mask)[0]


def output_case(
    name: str,
    config: MultiHeadConfig,
    setting: Setting,
    width: int = WIDTH,
    memory_width: int | None = None,
) -> Case:
    """Compare a random layer with `Matrices.outputs`; `memory_width` selects cross-attention."""
    generator = setting.generator()
    attention, matrices = random_attention(config, generator, width, memory_width)
    tokens = normal(generator, QUERIES, width)
    memory = tokens if memory_width is None else normal(generator, KEYS, memory_width)
    return compare_arrays(name, matrices.outputs(tokens, memory), attend(attention, tokens, memory))


def score_sizes(width: int = WIDTH, key_width: int = KEY_WIDTH) -> ScoreSizes:
    """Return the sizes of a score over tokens of this width."""
    return ScoreSizes(
        width=width,
        memory_width=width,
        heads=HEADS,
        kv_heads=HEADS,
        key_width=key_width,
        max_length=QUERIES,
    )
