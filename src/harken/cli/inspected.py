"""Load a run or a Hugging Face folder, for the commands that inspect a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from harken.errors import UserError
from harken.foreign import is_huggingface, load_huggingface
from harken.inspection.record import has_multihead
from harken.run import Run, load
from harken.tasks.attention_view import AttentionExample


class InspectedModel(NamedTuple):
    """A model to inspect; `run` is None for a Hugging Face folder."""

    kind: str  # the task of a run, or the architecture of a folder
    model: nn.Module
    attention: Callable[[str], AttentionExample | None]
    tokenizer: Any  # a `Vocabulary` or `HuggingFaceModel`, whose `token_texts` labels tokens
    run: Run | None = None

    @property
    def takes_files(self) -> bool:
        """Whether inputs are file names instead of texts."""
        return self.run is not None and self.run.input_form != "lines"


def load_for_inspection(folder: Path, device: Any) -> InspectedModel:
    """Load a run or a Hugging Face folder whose model has attention."""
    if is_huggingface(folder):
        loaded = load_huggingface(folder, device)
        kind = f"Hugging Face {loaded.contents.model_type}"
        inspected = InspectedModel(kind, loaded.model, loaded.attention, loaded)
    else:
        run = load(folder, device)
        inspected = InspectedModel(run.recipe.task, run.model, run.attention, run.vocabulary, run)
    if not has_multihead(inspected.model):
        problem = f"{folder}: the model has no attention"
        raise UserError(problem, fix="choose a model with attention, such as a Transformer")
    return inspected
