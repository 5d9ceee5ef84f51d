"""Harken trains, evaluates and inspects attention models.

    import harken
    run = harken.load("runs/demo")
    run.predict(["Where was Ada Lovelace born?"])

`import harken` takes no time: PyTorch is imported when a name below is first used.
docs/python-api.md shows every name.
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
]

_HOMES = {
    "GPT": ("harken.api.models", "build_gpt"),
    "MultiHead": ("harken.api.models", "SelfAttention"),
    "Run": ("harken.run", "Run"),
    "Selection": ("harken.inspection.record", "Selection"),
    "ablate": ("harken.api.inspection", "ablate"),
    "cost": ("harken.cost.step", "cost"),
    "heads": ("harken.api.inspection", "heads"),
    "load": ("harken.run", "load"),
    "load_huggingface": ("harken.foreign", "load_huggingface"),
    "load_recipe": ("harken.recipe", "load_recipe"),
    "open_recording": ("harken.inspection.store", "open_recording"),
    "patch": ("harken.api.inspection", "patch"),
    "record": ("harken.inspection.record", "record"),
    "record_to_disk": ("harken.inspection.store", "record_to_disk"),
    "search": ("harken.api.search", "search"),
    "train": ("harken.pipeline", "train"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harken' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
