"""Surprise in the units that people compare: -log p of all tokens over a count of something.

    nats         sum of -ln p / count           bits         nats / ln 2
    perplexity   exp(nats): as unsure as among so many equally likely

The count is of tokens, of words or of characters. Only the last two let models with different
units be compared, since a model with longer tokens has fewer of them to be surprised by.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from harken.measure.interval import LOG, LOG_LOG, Figure, Sample, Unit, ratio

LARGEST_EXPONENT = 700.0  # of what a float can hold; JSON has no infinity

PerExample = Float[np.ndarray, "examples"]


def mean_nats(nats: PerExample, counted: PerExample) -> Sample:
    """Nats of each example over what was counted in it, all examples together."""
    return _sample(nats, counted, ratio, "nats")


def mean_bits(nats: PerExample, counted: PerExample) -> Sample:
    """The same in bits."""
    return _sample(nats, counted, lambda sums: ratio(sums) / math.log(2), "bits")


def perplexity(nats: PerExample, counted: PerExample) -> Sample:
    """exp of the mean nats."""
    return _sample(
        nats, counted, lambda sums: np.exp(np.minimum(ratio(sums), LARGEST_EXPONENT)), "perplexity"
    )


def _sample(nats: PerExample, counted: PerExample, figure: Figure, unit: Unit) -> Sample:
    return Sample(
        counts=np.stack((nats, counted), axis=1),
        figure=figure,
        unit=unit,
        link=LOG_LOG if unit == "perplexity" else LOG,
        ordered=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLosses:
    """How surprised a model was by each stretch of a text, and what the stretch holds."""

    nats: PerExample
    tokens: PerExample
    words: PerExample
    characters: PerExample

    def samples(self) -> Mapping[str, Sample]:
        """All figures, by the name of their metric."""
        return {
            "nats": mean_nats(self.nats, self.tokens),
            "bits": mean_bits(self.nats, self.tokens),
            "bits_per_character": mean_bits(self.nats, self.characters),
            "perplexity": perplexity(self.nats, self.tokens),
            "perplexity_per_word": perplexity(self.nats, self.words),
            "perplexity_per_character": perplexity(self.nats, self.characters),
        }
