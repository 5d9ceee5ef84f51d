"""The simulations of `benchmarks/`, which tests run in a short form."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def simulation(name: str) -> ModuleType:
    """A script of `benchmarks/` as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and named tuples look for it
    spec.loader.exec_module(module)
    return module
