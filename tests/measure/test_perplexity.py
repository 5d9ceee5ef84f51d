import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.perplexity import TokenLosses, loss_sample


def of(*parts: list[float]) -> TokenLosses:
    names = ("nats", "tokens", "words", "characters")
    return TokenLosses(**dict(zip(names, map(np.array, parts), strict=True)))


def test_figures_by_hand() -> None:
    """Three chunks; ln 2 = 0.693147, exp(2) = 7.389056."""
    samples = of([3.0, 4.0, 5.0], [2, 1, 3], [1, 1, 4], [5, 8, 11]).samples()
    assert {name: sample.value for name, sample in samples.items()} == pytest.approx(
        {
            "nats": 2.0,
            "bits": 2.885390,
            "bits_per_character": 0.721348,
            "perplexity": 7.389056,
            "perplexity_per_word": 7.389056,
            "perplexity_per_character": 1.648721,
        },
        rel=1e-6,
    )
    units = [sample.unit for sample in samples.values()]
    assert units == ["nats", *["bits"] * 2, *["perplexity"] * 3]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(2, 1000))
def test_uniform_predictions_have_the_perplexity_of_the_vocabulary(
    tokens: list[int], vocabulary: int
) -> None:
    counted = np.array(tokens, dtype=np.float64)
    estimate = loss_sample(counted * math.log(vocabulary), counted, "perplexity").estimate()
    assert estimate.value == pytest.approx(vocabulary)
    assert estimate.low is None  # constant
    assert loss_sample(counted * math.log(2), counted, "bits").value == pytest.approx(1.0)


def test_no_figure_is_infinite() -> None:
    """A text without spaces is one word of thousands of nats."""
    estimate = of([5000.0], [2000], [1], [2000]).samples()["perplexity_per_word"].estimate()
    assert math.inf > estimate.value > 1e300
