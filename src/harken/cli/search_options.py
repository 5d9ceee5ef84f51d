"""Replace the search settings of a run's recipe by the options of the command line.

`--temperature` turns off the beam of the recipe, and `--beam` turns off its temperature.
`--nbest N` widens the beam to at least N; with a temperature, N samples are drawn.
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
    checked = [(flag(name), name, value) for name, value in given.items()]
    if nbest is not None:  # checked with the bounds of the key `beam`
        checked.insert(0, ("--nbest", "beam", nbest))
    for option, name, value in checked:
        if name not in known:  # only speech recognizers have settings beyond `SearchConfig`
            raise speech_only_error(option, run)
        spec = known[name]
        if names := choices(spec.types):
            require_choice(option, value, names)
        elif convert(spec.types, value) != value or not spec.is_within(value) or value == math.inf:
            problem = f"{option}: expected a number {spec.describe_bounds()}, got {value}"
            raise UserError(problem, fix="choose a number in this range")
    if run.search is None:
        for option in map(flag, given):
            problem = f"{option}: task {run.recipe.task!r} does not search"
            raise UserError(problem, fix=f"leave out {option}")
        return run
    # An option resets the settings that it excludes to the defaults of `SearchConfig`.
    excluded = (other for name in given for other in known[name].excludes)
    defaults = {name: known[name].default_value(defaults=None) for name in excluded}
    changes: dict[str, Any] = defaults | given
    if nbest is not None and changes.get("temperature", run.search.temperature) is None:
        changes["beam"] = beam = given.get("beam", max(nbest, run.search.beam))
        if beam < nbest:
            problem = f"--beam: expected {nbest} or more for --nbest {nbest}, got {beam}"
            raise UserError(problem, fix=f"leave out --beam, or use --beam {nbest}")
    try:
        return run.with_search(replace(run.search, **changes)) if changes else run
    except ValueError as error:
        flags, (problem, _, fix) = " ".join(map(flag, given)), str(error).partition("; ")
        raise UserError(f"{flags}: {problem}", fix=fix or "change these options") from None


def speech_only_error(option: str, run: Run) -> UserError:
    """Return the error for an option of speech recognizers that is used with another run."""
    problem = f"{option}: expected a speech recognizer, got a run of task {run.recipe.task!r}"
    return UserError(problem, fix=f"leave out {option}")
