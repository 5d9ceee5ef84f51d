"""Checks of the arguments of public functions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from harken import config
from harken.config.write import toml_literal
from harken.errors import UserError

C = TypeVar("C")


def checked_config(kind: type[C], table: Mapping[str, Any], where: str) -> C:
    """Build a config with the checks and messages of recipes."""
    text = "\n".join(f"{key} = {toml_literal(value)}" for key, value in table.items())
    try:
        checked: C = config.loads(kind, text, name=where, base=Path())
        return checked
    except UserError as error:
        place, _, message = error.message.partition(": ")  # the place is where:line
        problem = f"{place.rpartition(':')[0]}: {message}"
        raise UserError(problem, fix=error.fix.replace("recipe", "arguments")) from None


def check_integers(where: str, **numbers: tuple[object, int]) -> None:
    """Raise unless each value is an integer that is not below its minimum."""
    for name, (number, minimum) in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < minimum:
            problem = f"{where}: {name}: expected an integer from {minimum}, got {number!r}"
            raise UserError(problem, fix=f"change {name}")
