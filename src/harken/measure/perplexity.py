"""Nats, bits and perplexity per token, word or character.

    nats = sum of -ln p / count        bits = nats / ln 2        perplexity = exp(nats)

Models with different tokenizers are comparable per word and per character only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from harken.measure.interval import LOG, LOG_LOG, MetricFunction, Sample, Unit, ratio

MAX_EXPONENT = 700.0  # exp of it is finite, as JSON requires

PerExample = Float[np.ndarray, "examples"]


def mean_nats(nats: PerExample, counted: PerExample) -> Sample:
    """Return the nats of all examples over their counts."""
    return _sample(nats, counted, ratio, "nats")


def mean_bits(nats: PerExample, counted: PerExample) -> Sample:
    """Return the bits of all examples over their counts."""
    return _sample(nats, counted, lambda sums: ratio(sums) / math.log(2), "bits")


def perplexity(nats: PerExample, counted: PerExample) -> Sample:
    """Return exp of the mean nats."""
    return _sample(
        nats, counted, lambda sums: np.exp(np.minimum(ratio(sums), MAX_EXPONENT)), "perplexity"
    )


def _sample(nats: PerExample, counted: PerExample, metric: MetricFunction, unit: Unit) -> Sample:
    counts, link = np.stack((nats, counted), axis=1), LOG_LOG if unit == "perplexity" else LOG
    return Sample(counts=counts, metric=metric, unit=unit, link=link, ordered=True)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLosses:
    """Cross-entropy of each chunk of a text, and its sizes."""

    nats: PerExample
    tokens: PerExample
    words: PerExample
    characters: PerExample

    def samples(self) -> Mapping[str, Sample]:
        """Return all metrics by name."""
        return {
            "nats": mean_nats(self.nats, self.tokens),
            "bits": mean_bits(self.nats, self.tokens),
            "bits_per_character": mean_bits(self.nats, self.characters),
            "perplexity": perplexity(self.nats, self.tokens),
            "perplexity_per_word": perplexity(self.nats, self.words),
            "perplexity_per_character": perplexity(self.nats, self.characters),
        }
