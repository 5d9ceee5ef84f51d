"""Generated lines, to compare an export with a run whose data are missing."""

import numpy as np

from harken.run import Run

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?éßñжд水日本😀"
MAX_WORDS = 30


def synthetic_lines(run: Run, count: int) -> list[str]:
    """Return random lines of 1 to 30 words; the task `fill` needs a blank in each."""
    generator = np.random.default_rng(0)
    lines = []
    for _ in range(count):
        lengths = generator.integers(1, 9, size=generator.integers(1, MAX_WORDS + 1))
        words = ["".join(generator.choice(list(ALPHABET), size=length)) for length in lengths]
        if run.recipe.task == "fill":
            words[len(words) // 2] = "___"
        lines.append(" ".join(words))
    return lines
