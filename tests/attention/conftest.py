from collections.abc import Callable

import pytest
import torch
from torch import Tensor

# Distinct primes: a swapped axis cannot pass by luck.
SIZES = {"B": 2, "k": 3, "T": 5, "S": 7, "U": 11, "I": 13}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def draw() -> Callable[[str], Tensor]:
    """Normal numbers in float64 by the letters of a shape: draw("BkTU")."""
    return lambda letters: torch.randn([SIZES[letter] for letter in letters], dtype=torch.float64)
