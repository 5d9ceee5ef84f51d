"""How a sequence is sought in a model's scores, as a recipe or a command line says it."""

from dataclasses import dataclass
from typing import Literal

from harken.config import MAX_SEED, bounded

Stop = Literal["filled", "exact"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConfig:
    """A beam, greedy where it is 1; or with a `temperature`, a sample.

    A recipe that sets one of them turns off the other where it is only the default of its task.

    A finished hypothesis of n tokens, `end` among them, is ranked by its log-probability divided by
    n ** length_penalty: 0 ranks by probability, which favours the short, 1 by the mean a token.
    """

    beam: int = bounded(1, at_least=1, at_most=1024, excludes=("temperature", "top_k", "top_p"))
    length_penalty: float = bounded(1.0, at_least=0.0, at_most=10.0)
    stop: Stop = "filled"  # when `beam` hypotheses have ended; or when no other can do better
    most: int | None = bounded(None, at_least=1)  # tokens written; as many as the task allows
    temperature: float | None = bounded(None, above=0.0, at_most=1e6, excludes=("beam",))
    top_k: int | None = bounded(None, at_least=1)  # a sample comes from the likeliest k
    top_p: float | None = bounded(None, above=0.0, at_most=1.0)  # or those that make up this share
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of samples

    def __post_init__(self) -> None:
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise ValueError("top_k and top_p cut a sample down; give a temperature too")
        if self.temperature is not None and self.beam > 1:
            raise ValueError("a beam takes no samples; leave out beam, or temperature")
