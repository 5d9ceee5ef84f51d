"""The documents' equations in numpy and loops, one query at a time, without the library.

α_it = exp(s q_i·k_t) / Σ_τ exp(s q_i·k_τ),   c_i = Σ_t α_it v_t
e_t[2i] = sin(t / 10000^(2i/d)),   e_t[2i+1] = cos(t / 10000^(2i/d))
h_t = tanh(U x_t + V h_{t-1})
"""

import math
from collections.abc import Callable

import numpy as np

from harken.claims.claim import Array

Visible = Callable[[int, int], bool]
"""Whether query i may attend to key t."""


def all_visible(query: int, key: int) -> bool:
    """No mask."""
    return True


def softmax(scores: Array) -> Array:
    """Softmax of a vector."""
    exponentials = np.exp(scores - scores.max())
    weights: Array = exponentials / exponentials.sum()
    return weights


def attention(
    queries: Array, keys: Array, scale: float = 1.0, visible: Visible = all_visible
) -> Array:
    """α of every query over every key; zeros for a query that sees no key."""
    weights = np.zeros((len(queries), len(keys)))
    for i, query in enumerate(queries):
        seen = [t for t in range(len(keys)) if visible(i, t)]
        if seen:
            weights[i, seen] = softmax(np.array([scale * query @ keys[t] for t in seen]))
    return weights


def stack_heads(
    tokens: Array, query: Array, key: Array, scale: float, visible: Visible = all_visible
) -> Array:
    """Self-attention weights [k, T, T] for matrices [k, U, J]."""
    pairs = zip(query, key, strict=True)
    return np.stack([attention(tokens @ q.T, tokens @ k.T, scale, visible) for q, k in pairs])


def heads(tokens: Array, memory: Array, query: Array, key: Array, value: Array) -> Array:
    """Head outputs side by side; matrices are [k, U, J] and [k, I, J]."""
    outputs = [
        attention(tokens @ q.T, memory @ k.T) @ (memory @ v.T)
        for q, k, v in zip(query, key, value, strict=True)
    ]
    return np.concatenate(outputs, axis=1)


def sinusoids(length: int, width: int, base: float = 10000.0) -> Array:
    """e_0, e_1, … as rows."""
    vectors = np.zeros((length, width))
    for t in range(length):
        for i in range(width // 2):
            angle = t / base ** (2 * i / width)
            vectors[t, 2 * i], vectors[t, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return vectors


def fourier(length: int, width: int, span: int) -> Array:
    """cos(πt/T), sin(πt/T), cos(2πt/T), … as rows."""
    vectors = np.zeros((length, width))
    for t in range(length):
        for i in range(width // 2):
            angle = math.pi * (i + 1) * t / span
            vectors[t, 2 * i], vectors[t, 2 * i + 1] = math.cos(angle), math.sin(angle)
    return vectors


def frequencies(width: int, base: float = 10000.0) -> Array:
    """1 / 10000^(2i/d) of every pair."""
    return np.array([base ** (-2 * i / width) for i in range(width // 2)])


def rotation(width: int, offset: int) -> Array:
    """A of the problem set: blocks [[cos β, -sin β], [sin β, cos β]], β = T/10000^(2i/d)."""
    matrix = np.zeros((width, width))
    for i, frequency in enumerate(frequencies(width)):
        cosine, sine = math.cos(frequency * offset), math.sin(frequency * offset)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cosine, -sine], [sine, cosine]]
    return matrix


def rnn_states(inputs: Array, first: Array, input_weight: Array, recurrent_weight: Array) -> Array:
    """h_1 .. h_T."""
    states = [first]
    for token in inputs:
        states.append(np.tanh(input_weight @ token + recurrent_weight @ states[-1]))
    return np.stack(states[1:])


def normal_cdf(threshold: float) -> float:
    """Φ, the distribution function of the standard normal distribution."""
    return 0.5 * (1 + math.erf(threshold / math.sqrt(2)))
