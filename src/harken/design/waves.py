"""Places as pairs of waves, and what walking along them does to each pair.

    sinusoid   e_t[2i] = sin(w_i t),  e_t[2i+1] = cos(w_i t),   w_i = base^(-2i/J)
    fourier    e_t[2i] = cos(w_i t),  e_t[2i+1] = sin(w_i t),   w_i = pi (i+1) / span
    shift      e_{t-T} = A e_t,   A turns each pair by b = w_i T
    gap        e_t . e_t - e_t . e_{t-d} = sum over pairs of 1 - cos(w_i d)

Sine first, the block of A is [[cos b, -sin b], [sin b, cos b]]; cosine first, the sines change
their signs. A stands between key and query, e_tau . A e_t, key first; the merged matrix W~ of
`attention/merging.py` stands between query and key, so W~ is A transposed. Everything is float64;
the vectors that a model adds are made in `attention/positions.py`.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.waves import Waves as Waves


def frequencies(waves: Waves) -> Float[Tensor, "pairs"]:
    """w_i, in radians a step."""
    counts = torch.arange(waves.pairs, dtype=torch.float64)
    if waves.span is not None:
        return math.pi * (counts + 1) / waves.span
    return torch.pow(waves.base, -2 * counts / waves.width)


def wave_vectors(waves: Waves, length: int) -> Float[Tensor, "T J"]:
    """e_0, e_1, …, one a row."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies(waves)
    both = (angles.sin(), angles.cos())
    ordered = both if waves.kind == "sinusoid" else both[::-1]
    return torch.stack(ordered, dim=-1).flatten(start_dim=1)


def shift_matrix(waves: Waves, offset: int) -> Float[Tensor, "J J"]:
    """A with e_{t - offset} = A e_t for every t: the turn by w_i offset in each pair."""
    turns = frequencies(waves) * offset
    sines = turns.sin() if waves.kind == "sinusoid" else -turns.sin()
    matrix = torch.zeros(waves.width, waves.width, dtype=torch.float64)
    even = torch.arange(0, waves.width, 2)
    matrix[even, even] = matrix[even + 1, even + 1] = turns.cos()
    matrix[even, even + 1], matrix[even + 1, even] = -sines, sines
    return matrix


def gap_table(found: Float[Tensor, "pairs"], length: int) -> Float[Tensor, "S pairs"]:
    """1 - cos(w_i d) for the distances d = 0 … length - 1: what a wrong key loses by each pair."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * found
    return 2 * (angles / 2).sin().square()  # 1 - cos would lose the digits of slow waves


def choose_pairs(gaps: Float[Tensor, "S pairs"], count: int) -> tuple[int, ...]:
    """The pairs that separate best: one after the other, that which lifts the smallest gap most.

    No pair makes a gap smaller, so that as many as fit are taken. Greedy: another choice of as
    many may separate better still.
    """
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


def rows_of(pairs: Sequence[int]) -> Tensor:
    """The two coordinates of each pair, in order."""
    return torch.tensor([2 * pair + side for pair in pairs for side in (0, 1)])
