"""Checks of the arguments of public functions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from harken import config
from harken.config.write import toml_literal
from harken.errors import UserError

C = TypeVar("C")


def build_config(kind: type[C], table: Mapping[str, Any], where: str) -> C:
    """Build a config from arguments, with the checks of recipes.

    Messages use the names and the syntax of recipes, such as [attention.score].
    """
    text = "\n".join(f"{key} = {toml_literal(value)}" for key, value in table.items())
    try:
        checked: C = config.loads(kind, text, name=where, base=Path())
        return checked
    except UserError as error:
        location, _, message = error.message.partition(": ")  # location is where:line
        problem = f"{location.rpartition(':')[0]}: {message}"
        raise UserError(problem, fix=error.fix.replace("the recipe", "the arguments")) from None


def check_integers(where: str, **numbers: tuple[object, int]) -> None:
    """Raise a UserError unless, for each (value, minimum), the value is an integer >= minimum."""
    for name, (number, minimum) in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < minimum:
            problem = f"{where}: {name}: expected an integer of at least {minimum}, got {number!r}"
            raise UserError(problem, fix=f"change {name}")
