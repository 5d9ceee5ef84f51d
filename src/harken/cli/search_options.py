"""Apply the search options of the command line to a run, in place of those of its recipe.

A temperature disables the recipe's beam, and a beam its temperature. `--nbest` alone widens the
beam; with a temperature it is the number of samples.
"""

import argparse
import math
from dataclasses import replace
from typing import Any

from harken.cli.arguments import SEARCH, flag
from harken.config.schema import choices, convert, key_specs
from harken.config.spelling import require_choice
from harken.decode.search import SearchConfig
from harken.errors import UserError
from harken.run import Run


def with_search_options(run: Run, options: argparse.Namespace) -> Run:
    """Return the run with the search that the options describe."""
    given = {name: value for name in SEARCH if (value := getattr(options, name, None)) is not None}
    nbest: int | None = getattr(options, "nbest", None)
    if nbest is not None:
        _check("--nbest", "beam", nbest, run)
    for name, value in given.items():
        _check(flag(name), name, value, run)
    if run.search is None:
        for name in given:
            raise UserError(
                f"{flag(name)}: task {run.recipe.task!r} does not search",
                fix=f"leave out {flag(name)}",
            )
        return run
    kind: type = type(run.search)
    known = key_specs(kind)
    excluded = (other for name in given for other in known[name].excludes)
    changes: dict[str, Any] = {name: known[name].absent(None) for name in excluded}
    changes |= given
    if nbest is not None and changes.get("temperature", run.search.temperature) is None:
        beam = given.get("beam", max(nbest, run.search.beam))
        if beam < nbest:
            raise UserError(
                f"--beam: expected {nbest} or more for --nbest {nbest}, got {beam}",
                fix=f"leave out --beam, or use --beam {nbest}",
            )
        changes["beam"] = beam
    if not changes:
        return run
    try:
        return run.with_search(replace(run.search, **changes))
    except ValueError as error:
        flags = " ".join(map(flag, given))
        raise UserError(f"{flags}: {error}", fix="change these options") from None


def _check(option: str, name: str, value: float | str, run: Run) -> None:
    """Raise unless a value is within the bounds that recipes have, and finite."""
    known = key_specs(SearchConfig if run.search is None else type(run.search))
    if name not in known:
        raise UserError(
            f"{option}: expected a speech recognizer, got a run of task {run.recipe.task!r}",
            fix=f"leave out {option}",
        )
    spec = known[name]
    if names := choices(spec.types):
        require_choice(option, value, names)
    elif convert(spec.types, value) != value or not spec.is_within(value) or value == math.inf:
        raise UserError(f"{option}: expected a number {spec.bounds}, got {value}", fix="change it")
