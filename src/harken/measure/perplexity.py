"""Nats, bits and perplexity per token, word or character.

    nats = sum of -ln p / count        bits = nats / ln 2        perplexity = exp(nats)

Models with different tokenizers are comparable per word and per character only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from harken.measure.interval import LOG, LOG_LOG, MetricFunction, Sample, ratio

MAX_EXPONENT = 700.0  # exp of it is finite, as JSON requires

LossUnit = Literal["nats", "bits", "perplexity"]
PerExample = Float[np.ndarray, "examples"]

METRICS: dict[LossUnit, MetricFunction] = {
    "nats": ratio,
    "bits": lambda sums: ratio(sums) / math.log(2),
    "perplexity": lambda sums: np.exp(np.minimum(ratio(sums), MAX_EXPONENT)),
}


def loss_sample(
    nats: PerExample, counted: PerExample, unit: LossUnit, *, ordered: bool = True
) -> Sample:
    """Return the sum of `nats` / sum of `counted`, in the given unit."""
    counts, link = np.stack((nats, counted), axis=1), LOG_LOG if unit == "perplexity" else LOG
    return Sample(counts=counts, metric=METRICS[unit], unit=unit, link=link, ordered=ordered)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLosses:
    """Sum of -ln p over the tokens of each piece of a text, and the sizes of the piece."""

    nats: PerExample
    tokens: PerExample
    words: PerExample
    characters: PerExample

    def samples(self) -> Mapping[str, Sample]:
        return {
            "nats": loss_sample(self.nats, self.tokens, "nats"),
            "bits": loss_sample(self.nats, self.tokens, "bits"),
            "bits_per_character": loss_sample(self.nats, self.characters, "bits"),
            "perplexity": loss_sample(self.nats, self.tokens, "perplexity"),
            "perplexity_per_word": loss_sample(self.nats, self.words, "perplexity"),
            "perplexity_per_character": loss_sample(self.nats, self.characters, "perplexity"),
        }
