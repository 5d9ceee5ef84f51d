"""Harken trains, evaluates and inspects attention models.

    import harken
    run = harken.load("runs/demo")
    run.predict(["Where was Ada Lovelace born?"])

`import harken` does not import PyTorch; most names below import it when they are first used.
docs/python-api.md describes them.
"""

from typing import TYPE_CHECKING, Any

from harken.errors import Failure, UserError
from harken.version import __version__

if TYPE_CHECKING:
    from harken.api.inspection import ablate, heads, patch
    from harken.api.models import SelfAttention as MultiHead
    from harken.api.models import build_gpt as GPT
    from harken.api.search import search
    from harken.cost.step import cost
    from harken.foreign import load_huggingface
    from harken.inspection.record import Selection, record
    from harken.inspection.store import open_recording, record_to_disk
    from harken.pipeline import train
    from harken.recipe import load_recipe
    from harken.run import Run, load
    from harken.seeds import train_seeds

__all__ = [
    "GPT",
    "Failure",
    "MultiHead",
    "Run",
    "Selection",
    "UserError",
    "__version__",
    "ablate",
    "cost",
    "heads",
    "load",
    "load_huggingface",
    "load_recipe",
    "open_recording",
    "patch",
    "record",
    "record_to_disk",
    "search",
    "train",
    "train_seeds",
]

_MODULES = {
    "harken.api.inspection": ("ablate", "heads", "patch"),
    "harken.api.search": ("search",),
    "harken.cost.step": ("cost",),
    "harken.foreign": ("load_huggingface",),
    "harken.inspection.record": ("Selection", "record"),
    "harken.inspection.store": ("open_recording", "record_to_disk"),
    "harken.pipeline": ("train",),
    "harken.recipe": ("load_recipe",),
    "harken.run": ("Run", "load"),
    "harken.seeds": ("train_seeds",),
}
_SOURCES = {name: (module, name) for module, names in _MODULES.items() for name in names}
_SOURCES["GPT"] = "harken.api.models", "build_gpt"
_SOURCES["MultiHead"] = "harken.api.models", "SelfAttention"


def __getattr__(name: str) -> Any:
    if name not in _SOURCES:
        raise AttributeError(f"module 'harken' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _SOURCES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
