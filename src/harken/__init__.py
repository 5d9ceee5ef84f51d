"""Harken trains, measures and looks inside attention models.

    import harken
    run = harken.load("runs/demo")
    run.predict(["Where was Ada Lovelace born?"])

Importing `harken` costs nothing; PyTorch is imported when a name below is first used.
"""

from typing import TYPE_CHECKING, Any

from harken.errors import Failure, UserError
from harken.version import __version__

if TYPE_CHECKING:
    from harken.cost.api import cost
    from harken.inspection.record import record
    from harken.pipeline import train
    from harken.recipe import load_recipe
    from harken.run import Run, load

__all__ = [
    "Failure",
    "Run",
    "UserError",
    "__version__",
    "cost",
    "load",
    "load_recipe",
    "record",
    "train",
]

_HOMES = {
    "Run": "harken.run",
    "cost": "harken.cost.api",
    "load": "harken.run",
    "load_recipe": "harken.recipe",
    "record": "harken.inspection.record",
    "train": "harken.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harken' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
