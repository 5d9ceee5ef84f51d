"""The sources' equations as they print them, in numpy and loops, one query at a time.

    α_it = exp(s q_i·k_t) / Σ_τ exp(s q_i·k_τ),   c_i = Σ_t α_it v_t
    e_t[2i] = sin(t / 10000^(2i/d)),   e_t[2i+1] = cos(t / 10000^(2i/d))
    h_t = tanh(U x_t + V h_{t-1})

Nothing of the library is imported: these are what its parts are measured against.
"""

import math
from collections.abc import Callable

import numpy as np

from harken.claims.claim import Array

Seen = Callable[[int, int], bool]
"""Whether query i may look at key t."""


def everyone(query: int, key: int) -> bool:
    """No mask."""
    return True


def softmax(scores: Array) -> Array:
    """Over one row."""
    grown = np.exp(scores - scores.max())
    shared: Array = grown / grown.sum()
    return shared


def attention(queries: Array, keys: Array, scale: float = 1.0, seen: Seen = everyone) -> Array:
    """α of every query over every key; a query that sees none has no row to share out."""
    weights = np.zeros((len(queries), len(keys)))
    for i, query in enumerate(queries):
        visible = [t for t in range(len(keys)) if seen(i, t)]
        if visible:
            weights[i, visible] = softmax(np.array([scale * query @ keys[t] for t in visible]))
    return weights


def heads(tokens: Array, memory: Array, query: Array, key: Array, value: Array) -> Array:
    """Head after head side by side; matrices are [k, U, J] and [k, I, J]."""
    outputs = [
        attention(tokens @ q.T, memory @ k.T) @ (memory @ v.T)
        for q, k, v in zip(query, key, value, strict=True)
    ]
    return np.concatenate(outputs, axis=1)


def sinusoids(length: int, width: int, base: float = 10000.0) -> Array:
    """e_0, e_1, …, one a row."""
    vectors = np.zeros((length, width))
    for t in range(length):
        for i in range(width // 2):
            angle = t / base ** (2 * i / width)
            vectors[t, 2 * i], vectors[t, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return vectors


def fourier(length: int, width: int, span: int) -> Array:
    """cos(πt/T), sin(πt/T), cos(2πt/T), …"""
    vectors = np.zeros((length, width))
    for t in range(length):
        for i in range(width // 2):
            angle = math.pi * (i + 1) * t / span
            vectors[t, 2 * i], vectors[t, 2 * i + 1] = math.cos(angle), math.sin(angle)
    return vectors


def rates(width: int, base: float = 10000.0) -> Array:
    """1 / 10000^(2i/d) of every pair."""
    return np.array([base ** (-2 * i / width) for i in range(width // 2)])


def turning(width: int, offset: int) -> Array:
    """A of the problem set: blocks [[cos β, -sin β], [sin β, cos β]], β = T/10000^(2i/d)."""
    matrix = np.zeros((width, width))
    for i, rate in enumerate(rates(width)):
        cosine, sine = math.cos(rate * offset), math.sin(rate * offset)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cosine, -sine], [sine, cosine]]
    return matrix


def states(inputs: Array, first: Array, input_weight: Array, recurrent_weight: Array) -> Array:
    """h_1 .. h_T."""
    found, state = [], first
    for token in inputs:
        state = np.tanh(input_weight @ token + recurrent_weight @ state)
        found.append(state)
    return np.stack(found)


def below(threshold: float) -> float:
    """Φ: how often a standard normal number falls below it."""
    return 0.5 * (1 + math.erf(threshold / math.sqrt(2)))
