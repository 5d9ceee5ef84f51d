"""The options that change how a run seeks its outputs: `--beam 8` in place of `search.beam`.

What the command line says wins over the recipe: a temperature turns the recipe's beam off, a beam
its temperature. `--nbest` alone widens the beam to as many; with a temperature it takes as many
samples.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.decode.search import SearchConfig
    from harken.run import Run

# Options by their name in a task's `search`: type, what stands for the value, help.
OPTIONS: dict[str, tuple[type, str, str]] = {
    "beam": (int, "N", "hypotheses kept while searching; 1 is greedy"),
    "length_penalty": (float, "X", "0 ranks by probability, 1 by the mean a token"),
    "most": (int, "N", "tokens written at most"),
    "temperature": (float, "X", "take samples: below 1 likelier ones, above 1 bolder ones"),
    "top_k": (int, "N", "samples come from the likeliest N tokens"),
    "top_p": (float, "P", "samples come from the likeliest tokens that make up the share P"),
    "seed": (int, "N", "of samples"),
    "by": (str, "WAY", "of a recogniser: ctc, attention or both"),
    "ctc_weight": (float, "X", "of ctc beside attention, where both are asked"),
}


def add_search_options(
    parser: argparse.ArgumentParser, names: Sequence[str] = tuple(OPTIONS)
) -> None:
    """Those options that a command has; what is left out stays as the recipe says."""
    for name in names:
        kind, value, said = OPTIONS[name]
        parser.add_argument(_flag(name), type=kind, metavar=value, help=said)


def searched(run: "Run", options: argparse.Namespace) -> "Run":
    """The run with the search that the options ask for."""
    given = {name: value for name in OPTIONS if (value := getattr(options, name, None)) is not None}
    nbest: int | None = getattr(options, "nbest", None)
    if nbest is not None:
        _check("--nbest", "beam", nbest, run)
    for name, value in given.items():
        _check(_flag(name), name, value, run)
    if run.search is None:
        for name in given:
            raise UserError(
                f"{_flag(name)}: task {run.recipe.task!r} does not search",
                fix=f"leave out {_flag(name)}",
            )
        return run
    changes: dict[str, Any] = {**_set_aside(given, run.search), **given}
    temperature = changes.get("temperature", run.search.temperature)
    if nbest is not None and temperature is None:
        changes["beam"] = _wide_enough(nbest, given.get("beam"), run.search.beam)
    if not changes:
        return run
    try:
        return run.searching(replace(run.search, **changes))
    except ValueError as error:
        flags = " ".join(map(_flag, given))
        raise UserError(f"{flags}: {error}", fix="change these options") from None


def _set_aside(given: dict[str, Any], search: "SearchConfig") -> dict[str, Any]:
    """Defaults of the keys that the options exclude, whatever the recipe says of them."""
    from harken.config.schema import slots

    kind: type = type(search)
    known = slots(kind)
    excluded = (other for name in given for other in known[name].excludes)
    return {name: known[name].absent(None) for name in excluded}


def _wide_enough(nbest: int, asked: int | None, usual: int) -> int:
    if asked is not None and asked < nbest:
        raise UserError(
            f"--beam {asked}: found fewer than --nbest {nbest}, wanted at least as many",
            fix=f"leave out --beam, or use --beam {nbest}",
        )
    return max(nbest, usual) if asked is None else asked


def _check(flag: str, name: str, value: float | str, run: "Run") -> None:
    """A recipe's bounds hold for an option too; and `inf` is a float that no search can use."""
    from harken.config.schema import choices, fit, slots
    from harken.config.spelling import require_choice
    from harken.decode.search import SearchConfig

    known = slots(SearchConfig if run.search is None else type(run.search))
    if name not in known:
        raise UserError(
            f"{flag}: found it for a run of task {run.recipe.task!r}, wanted a recogniser",
            fix=f"leave out {flag}",
        )
    slot = known[name]
    if named := choices(slot.types):
        require_choice(flag, value, named)
        return
    usable = fit(slot.types, value) == value and slot.within(value) and value != math.inf
    if not usable:
        raise UserError(f"{flag}: found {value}, wanted {slot.bounds}", fix="choose such a number")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
