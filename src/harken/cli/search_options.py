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
    known = key_specs(SearchConfig if run.search is None else type(run.search))
    limited = [] if nbest is None else [("--nbest", "beam", nbest)]
    for option, name, value in [*limited, *((flag(name), name, given[name]) for name in given)]:
        if name not in known:
            raise speech_only(option, run)
        spec = known[name]
        if names := choices(spec.types):
            require_choice(option, value, names)
        elif convert(spec.types, value) != value or not spec.is_within(value) or value == math.inf:
            problem = f"{option}: expected a number {spec.describe_bounds()}, got {value}"
            raise UserError(problem, fix="change it")
    if run.search is None:
        for option in map(flag, given):
            problem = f"{option}: task {run.recipe.task!r} does not search"
            raise UserError(problem, fix=f"leave out {option}")
        return run
    excluded = (other for name in given for other in known[name].excludes)
    changes: dict[str, Any] = {name: known[name].default_value(None) for name in excluded} | given
    if nbest is not None and changes.get("temperature", run.search.temperature) is None:
        changes["beam"] = beam = given.get("beam", max(nbest, run.search.beam))
        if beam < nbest:
            problem = f"--beam: expected {nbest} or more for --nbest {nbest}, got {beam}"
            raise UserError(problem, fix=f"leave out --beam, or use --beam {nbest}")
    try:
        return run.with_search(replace(run.search, **changes)) if changes else run
    except ValueError as error:
        flags = " ".join(map(flag, given))
        raise UserError(f"{flags}: {error}", fix="change these options") from None


def speech_only(option: str, run: Run) -> UserError:
    """Return the error for an option of speech recognizers that is used with another run."""
    problem = f"{option}: expected a speech recognizer, got a run of task {run.recipe.task!r}"
    return UserError(problem, fix=f"leave out {option}")
