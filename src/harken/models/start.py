"""The keys of [model] that start training from the weights of another model."""

from dataclasses import dataclass
from pathlib import Path

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class StartConfig:
    """Weights to start from, and layers that keep them."""

    # run folder or Hugging Face folder; its weights are loaded where names and shapes match, and it
    # determines the architecture and the tokenizer
    start_from: Path | None = None
    # number of lowest Transformer or Conformer blocks that are not trained; if not 0, the
    # embeddings are not trained either
    freeze: int = bounded(0, at_least=0)
