"""Argument parser with short error messages, and options that several commands share."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from harken.cli.output import escaped
from harken.config.spelling import nearest

MAX_INTEGER = 1 << 63
# Options of boolean fields that are true by default; the option sets the field to false.
NEGATIONS = {"rewrite": "--same-words", "permute": "--same-order"}
DEVICES = ("auto", "cpu", "cuda", "mps")
ENGINES = ("torch", "ctranslate2", "onnx")

# Search options by their name in `SearchConfig`: type, metavar, help.
SEARCH: dict[str, tuple[type, str, str]] = {
    "beam": (int, "N", "Beam size of the search; 1 is greedy search"),
    "length_penalty": (float, "X", "Rank hypotheses by log-probability / length ** X"),
    "max_tokens": (int, "N", "Maximum number of generated tokens"),
    "temperature": (float, "X", "Sample with this temperature instead of searching"),
    "top_k": (int, "N", "Sample from the N most probable tokens"),
    "top_p": (float, "P", "Sample from the fewest tokens with a total probability of at least P"),
    "seed": (int, "N", "Random seed for sampling"),
    "mode": (str, "MODE", "Decoding mode of a speech recognizer: ctc, attention or both"),
    "ctc_weight": (float, "X", "Weight of CTC in mode both"),
}


def flag(name: str) -> str:
    """Return the option for a field, such as --top-k for top_k."""
    return "--" + name.replace("_", "-")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keep the line ends of the epilog, and append the default of an option to its help text."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        is_value = isinstance(default, int | float | str | Path) and not isinstance(default, bool)
        is_shown = is_value and default not in ("", argparse.SUPPRESS)
        return f"{text} (default: %(default)s)" if is_shown else text


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that suggests the nearest name and prints no usage on an error."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, **keywords)

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage, and exit with code 2."""
        if "required" in message:  # a misspelled option may be the reason
            self._reject_unknown_options(self._arguments)
        end = "" if message.endswith("?") else "."
        self.exit(2, escaped(f"{self.prog}: {message}{end} See `{self.prog} --help`") + "\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the known arguments, and store all arguments for `error`."""
        self._arguments: Sequence[str] = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; the parser of the command reports unknown ones."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser: Parser = getattr(options, "parser", self)
            parser._reject_unknown_options(unknown)
            before = takewhile(lambda argument: argument != unknown[0], self._arguments)
            has_option = any(argument.startswith("-") for argument in before)
            fix = "; write files and texts before the options" if has_option else ""
            parser.error(f"unexpected argument {unknown[0]!r}{fix}")
        return options

    def _reject_unknown_options(self, arguments: Sequence[str]) -> None:
        known = [*self._option_string_actions]
        for argument in arguments:
            name = argument.partition("=")[0]
            is_option = name.startswith("-") and name[1:].lstrip("-")[:1].isalpha()
            if is_option and not any(option.startswith(name) for option in known):
                near = nearest(name, known)
                self.error(f"unknown option {name}" + (f"; did you mean {near}?" if near else ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = nearest(value, choices)
        hint = f"did you mean {near!r}?" if near else f"choose {' or '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown {str(action.metavar).lower()} {value!r}; {hint}")
        raise argparse.ArgumentError(action, f"unknown value {value!r}; {hint}")

    def add_run_folder(self, text: str = "Run folder") -> None:
        self.add_argument("folder", type=Path, metavar="RUN", help=text)

    def add_data_options(self) -> None:
        """Add options that select examples: a split of the recipe, or files."""
        add = self.add_argument
        add("--split", choices=("dev", "test"), help="Split of the recipe (default: dev)")
        add("--data", type=Path, metavar="PATH", help="File in the format of the task")
        add("--source", type=Path, metavar="PATH", help="Source sentences, one per line")
        add("--target", type=Path, metavar="PATH", help="Translations of --source, one per line")

    def add_overrides(self) -> None:
        """Add --set."""
        add, text = self.add_argument, "Override a key of the recipe (repeatable)"
        add("--set", action="append", default=[], metavar="key.key=value", dest="sets", help=text)

    def add_search_options(self, names: Iterable[str] = SEARCH) -> None:
        """Add options that replace the search settings of the recipe."""
        for name in names:
            kind, metavar, text = SEARCH[name]
            self.add_argument(flag(name), type=kind, metavar=metavar, help=text)

    def add_engine(self) -> None:
        text = "Engine that computes the model; others than torch export the run on first use"
        self.add_argument("--engine", choices=ENGINES, default="torch", help=text)

    def add_device_and_json(self) -> None:
        self.add_argument("--device", choices=DEVICES, default="auto", help="Device to run on")
        self.add_json()

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="Print one JSON object")

    def add_fields(self, config: type, **texts: str) -> None:
        """Add an option for each name in `texts`, a field of `config`, with its help text."""
        defaults = {field.name: field.default for field in fields(config)}
        for name, text in texts.items():
            option, default = NEGATIONS.get(name, flag(name)), defaults[name]
            keywords: dict[str, Any] = {"type": type(default), "default": default, "metavar": "N"}
            if isinstance(default, bool):
                keywords = {"action": f"store_{not default}".lower()}
            self.add_argument(option, dest=name, help=text, **keywords)


def at_least(minimum: int) -> Callable[[str], int]:
    """Return an argument type for integers that are at least `minimum`."""

    def integer(text: str) -> int:
        if not minimum <= (number := int(text)) < MAX_INTEGER:
            expected = f"{minimum} or more" if number < minimum else f"less than {MAX_INTEGER}"
            raise argparse.ArgumentTypeError(f"expected {expected}, got {number}")
        return number

    return integer


def fraction(text: str) -> float:
    """Parse a number above 0 and below 1."""
    if not 0 < (number := float(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and below 1, got {number}")
    return number


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    if not 0 < (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a finite number above 0, got {number}")
    return number
