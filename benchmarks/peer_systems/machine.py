"""The speed of the machine: matrix products and copies."""

from collections.abc import Callable

import torch

SIDE = 1024  # of the matrices
COPIED = 2**28  # bytes, more than the cache


def matmul() -> Callable[[], float]:
    """Multiply float32 matrices; the unit is a GFLOP."""
    left, right, product = torch.randn(3, SIDE, SIDE).unbind()

    def run() -> float:
        torch.matmul(left, right, out=product)
        return 2 * SIDE**3 / 1e9

    return run


def copy() -> Callable[[], float]:
    """Copy memory; the unit is a GB that is read and written."""
    source, target = torch.zeros(2, COPIED // 4).unbind()

    def run() -> float:
        target.copy_(source)
        return COPIED / 1e9

    return run
