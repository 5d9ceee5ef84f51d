"""The equations of the course documents in numpy, independent of the code that they check.

α_it = exp(s q_i·k_t) / Σ_τ exp(s q_i·k_τ),   c_i = Σ_t α_it v_t
e_t[2i] = sin(t / 10000^(2i/d)),   e_t[2i+1] = cos(t / 10000^(2i/d))
h_t = tanh(U x_t + V h_{t-1})
"""

import math

import numpy as np
from numpy.typing import NDArray

from harken.claims.claim import Array


def numpy_softmax(scores: Array) -> Array:
    """Return the softmax of a vector."""
    exponentials = np.exp(scores - scores.max())
    weights: Array = exponentials / exponentials.sum()
    return weights


def numpy_attention(
    queries: Array, keys: Array, scale: float = 1.0, visible: NDArray[np.bool_] | None = None
) -> Array:
    """Return α of every query over every visible key; zeros for a query that sees no key."""
    weights = np.zeros((len(queries), len(keys)))
    for i, query in enumerate(queries):
        seen = range(len(keys)) if visible is None else np.flatnonzero(visible[i]).tolist()
        if seen:
            weights[i, seen] = numpy_softmax(np.array([scale * query @ keys[t] for t in seen]))
    return weights


def numpy_sinusoids(length: int, width: int) -> Array:
    """Return rows e_0, e_1, …"""
    angles = [[t / 10000.0 ** (2 * i / width) for i in range(width // 2)] for t in range(length)]
    return np.array([[f(angle) for angle in row for f in (math.sin, math.cos)] for row in angles])


def numpy_fourier(length: int, width: int, span: int) -> Array:
    """Return rows cos(πt/span), sin(πt/span), cos(2πt/span), … for t = 0, 1, …"""
    angles = [[math.pi * (i + 1) * t / span for i in range(width // 2)] for t in range(length)]
    return np.array([[f(angle) for angle in row for f in (math.cos, math.sin)] for row in angles])


def numpy_frequencies(width: int) -> Array:
    """Return 1 / 10000^(2i/d) for i = 0, …, d/2 - 1."""
    return np.array([10000.0 ** (-2 * i / width) for i in range(width // 2)])


def numpy_rotation(width: int, offset: int) -> Array:
    """Return a matrix of blocks [[cos β, -sin β], [sin β, cos β]], β = offset / 10000^(2i/d)."""
    matrix = np.zeros((width, width))
    for i, frequency in enumerate(numpy_frequencies(width)):
        cosine, sine = math.cos(frequency * offset), math.sin(frequency * offset)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cosine, -sine], [sine, cosine]]
    return matrix


def numpy_rnn(inputs: Array, initial: Array, input_weight: Array, recurrent_weight: Array) -> Array:
    """Return h_1, …, h_T, where h_0 is `initial`."""
    states = [initial]
    for token in inputs:
        states.append(np.tanh(input_weight @ token + recurrent_weight @ states[-1]))
    return np.stack(states[1:])


def normal_cdf(threshold: float) -> float:
    """Return Φ, the distribution function of the standard normal distribution."""
    return 0.5 * (1 + math.erf(threshold / math.sqrt(2)))
