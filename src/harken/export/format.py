"""The interface of an export format.

    check(run, precision)           raise `UserError` if the format cannot represent the model
    write(run, folder, precision)   write the files of the model
    load(folder, run)               return a copy of `run.model` that computes with these files

`load` serves two purposes: `parity.py` compares its model with the original before an export is
published, and `--engine` predicts with it. It returns `replace_methods(run.model, …)`, which
replaces the methods that predictors call, with equal arguments and outputs:

    forward                                 every model: all logits, also for a given target (the
                                            positional arguments of the original are enough)
    encode, ctc_log_probs                   captioners and recognizers
    init_state, step, logits, reorder       models that generate with the search of Harken
    search                                  models with their own search instead of `step`; it has
                                            the arguments of `search_steps` in `decode/search.py`

Everything else, such as attention, is computed by the original.
"""

import copy
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from torch import nn

from harken.errors import UserError
from harken.run import Run

FormatName = Literal["hf", "onnx", "ctranslate2"]
Precision = Literal["float32", "float16", "int8"]
M = TypeVar("M", bound=nn.Module)


class ExportFormat(Protocol):
    """A format to which models are exported."""

    name: ClassVar[FormatName]
    precisions: ClassVar[tuple[Precision, ...]]
    # Python packages that `write` and `load` need; the extra of Harken with their names is `name`.
    packages: ClassVar[tuple[str, ...]]

    def check(self, run: Run, precision: Precision) -> None:
        """Raise `unsupported(…)` if the format cannot represent the model."""

    def write(self, run: Run, folder: Path, precision: Precision) -> None:
        """Write weights, tokenizer and config into an existing folder.

        `folder.py` adds README.md, parity.json and manifest.json.
        """

    def load(self, folder: Path, run: Run) -> nn.Module:
        """Return a copy of `run.model` that computes with the files of an export."""

    def usage(self, run: Run, name: str) -> str:
        """Return the code or command that uses the folder `name`, for its model card."""


def unsupported(format_name: str, choice: str, alternative: str) -> UserError:
    """Return the error of a model that a format cannot represent.

    `choice` names a key of the recipe and its value, such as "model.position.kind = 'alibi'".
    """
    return UserError(f"format {format_name}: it cannot represent {choice}", fix=alternative)


def replace_methods(model: M, **methods: Callable[..., Any]) -> M:
    """Return a shallow copy of a model, with the same weights, some of whose methods differ."""
    changed = copy.copy(model)
    for name, method in methods.items():
        setattr(changed, name, method)
    return changed


def export_format(name: FormatName) -> ExportFormat:
    """Return a format; raise `UserError` if a package that it needs is not installed."""
    chosen: ExportFormat
    if name == "hf":
        from harken.export.huggingface import HuggingFaceFormat

        chosen = HuggingFaceFormat()
    elif name == "onnx":
        from harken.export.onnx import ONNXFormat

        chosen = ONNXFormat()
    else:
        from harken.export.ctranslate2 import CTranslate2Format

        chosen = CTranslate2Format()
    missing = [package for package in chosen.packages if find_spec(package) is None]
    if missing:
        raise UserError(
            f"format {name}: Python package {missing[0]!r} is not installed",
            fix=f'install it with `pip install "harken[{name}]"`',
        )
    return chosen
