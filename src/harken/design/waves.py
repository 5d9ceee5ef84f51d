"""Positions as pairs of waves, and the rotation of each pair that shifts a position.

    sinusoid   e_t[2i] = sin(w_i t),  e_t[2i+1] = cos(w_i t),   w_i = base^(-2i/J)
    fourier    e_t[2i] = cos(w_i t),  e_t[2i+1] = sin(w_i t),   w_i = pi (i+1) / span
    shift      e_{t-T} = A e_t,   A rotates each pair by b = w_i T
    gap        e_t . e_t - e_t . e_{t-d} = sum over pairs of 1 - cos(w_i d)

Sine first, the block of A is [[cos b, -sin b], [sin b, cos b]]; cosine first, the sines change
their signs. A is key-first, e_tau . A e_t; the merged matrix of `attention/merging.py` is
query-first, so it is A transposed. Everything is float64.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.waves import Waves as Waves


def frequencies(waves: Waves) -> Float[Tensor, "pairs"]:
    """Return w_i, in radians per step."""
    counts = torch.arange(waves.pairs, dtype=torch.float64)
    if waves.span is not None:
        return math.pi * (counts + 1) / waves.span
    return torch.pow(waves.base, -2 * counts / waves.width)


def wave_vectors(waves: Waves, length: int) -> Float[Tensor, "T J"]:
    """Return e_0, e_1, … as rows."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies(waves)
    ordered = [angles.sin(), angles.cos()][:: 1 if waves.kind == "sinusoid" else -1]
    return torch.stack(ordered, dim=-1).flatten(start_dim=1)


def shift_matrix(waves: Waves, offset: int) -> Float[Tensor, "J J"]:
    """Return A with e_{t - offset} = A e_t for every t."""
    angles = frequencies(waves) * offset
    sines = angles.sin() if waves.kind == "sinusoid" else -angles.sin()
    matrix = torch.zeros(waves.width, waves.width, dtype=torch.float64)
    even = torch.arange(0, waves.width, 2)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even, even + 1], matrix[even + 1, even] = -sines, sines
    return matrix


def gap_table(rates: Float[Tensor, "pairs"], length: int) -> Float[Tensor, "S pairs"]:
    """Return 1 - cos(w_i d) for the distances d = 0 … length - 1."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return 2 * (angles / 2).sin().square()  # 1 - cos would cancel for low frequencies


def choose_pairs(gaps: Float[Tensor, "S pairs"], count: int) -> tuple[int, ...]:
    """Greedily choose the pairs that increase the smallest gap most; no pair decreases a gap."""
    wrong, chosen = gaps[1:], list[int]()
    if count >= gaps.shape[1]:
        return tuple(range(gaps.shape[1]))
    if not len(wrong):
        return tuple(range(count))
    total = torch.zeros(len(wrong), 1, dtype=torch.float64)
    for _ in range(count):
        smallest = (total + wrong).amin(dim=0)
        smallest[chosen] = -1.0
        chosen.append(int(smallest.argmax()))
        total = total + wrong[:, chosen[-1:]]
    return tuple(sorted(chosen))


def pair_rows(pairs: Sequence[int]) -> Tensor:
    """Return the two elements of each pair, in order."""
    return torch.tensor([2 * pair + side for pair in pairs for side in (0, 1)])
