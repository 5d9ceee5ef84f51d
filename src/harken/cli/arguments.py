"""A parser with short error messages, and the options that several commands share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from harken.cli.output import escaped
from harken.config.spelling import nearest


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that suggests the nearest name and prints no usage on an error."""

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage, and exit with code 2."""
        if "required" in message:  # a misspelled option may be the reason
            self.reject_options(self._arguments)
        end = "" if message.endswith("?") else "."
        self.exit(2, escaped(f"{self.prog}: {message}{end} See `{self.prog} --help`") + "\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the known arguments, and keep the list for `error`."""
        self._arguments: Sequence[str] = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; the parser of the command reports unknown ones."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser: Parser = getattr(options, "parser", self)
            parser.reject_options(unknown)
            parser.error(f"unexpected argument {unknown[0]!r}")
        return options

    def reject_options(self, arguments: Sequence[str]) -> None:
        """Exit if an option among the arguments is unknown."""
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
        hint = f"did you mean {near!r}?" if near else f"choose one of {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown {str(action.metavar).lower()} {value!r}; {hint}")
        raise argparse.ArgumentError(action, f"unknown value {value!r}; {hint}")


MAX_INTEGER = 1 << 63
NEGATIONS = {"rewrite": "--same-words", "permute": "--same-order"}  # set a field to false
DEVICES = ("auto", "cpu", "cuda", "mps")

# Search options by their name in `SearchConfig`: type, metavar, help.
SEARCH: dict[str, tuple[type, str, str]] = {
    "beam": (int, "N", "Beam size of the search; 1 is greedy search"),
    "length_penalty": (float, "X", "Rank hypotheses by log-probability / length ** X"),
    "max_tokens": (int, "N", "Maximum number of generated tokens"),
    "temperature": (float, "X", "Sample with this temperature instead of searching"),
    "top_k": (int, "N", "Sample from the N most probable tokens"),
    "top_p": (float, "P", "Sample from the most probable tokens that sum to probability P"),
    "seed": (int, "N", "Random seed for sampling"),
    "mode": (str, "MODE", "Decoding mode of a speech recognizer: ctc, attention or both"),
    "ctc_weight": (float, "X", "Weight of CTC in the mode both"),
}


def flag(name: str) -> str:
    """Return the option for a field, such as --top-k for top_k."""
    return "--" + name.replace("_", "-")


def add_search_options(
    parser: argparse.ArgumentParser, names: Sequence[str] = tuple(SEARCH)
) -> None:
    """Add options that replace the search settings of the recipe."""
    for name in names:
        kind, metavar, text = SEARCH[name]
        parser.add_argument(flag(name), type=kind, metavar=metavar, help=text)


def add_run_folder(parser: argparse.ArgumentParser, text: str = "Run folder") -> None:
    """Add the run folder as the first argument."""
    parser.add_argument("folder", type=Path, metavar="RUN", help=text)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add options that select examples: a split of the recipe, or files."""
    add = parser.add_argument
    add("--split", choices=("dev", "test"), help="Split of the recipe (default: dev)")
    add("--data", type=Path, metavar="PATH", help="File in the format of the task")
    add("--source", type=Path, metavar="PATH", help="Source sentences, one per line")
    add("--target", type=Path, metavar="PATH", help="Translations of --source, one per line")


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add --set."""
    add, text = parser.add_argument, "Override a key of the recipe (repeatable)"
    add("--set", action="append", default=[], metavar="key.key=value", dest="sets", help=text)


def add_json(parser: argparse.ArgumentParser, *, device: bool = False) -> None:
    """Add --json, and with `device` also --device."""
    if device:
        text = "Device to run on (default: auto)"
        parser.add_argument("--device", choices=DEVICES, default="auto", help=text)
    parser.add_argument("--json", action="store_true", help="Print one JSON object")


def add_fields(parser: argparse.ArgumentParser, config: type, **texts: str) -> None:
    """Add an option for each field of a config dataclass that has a help text in `texts`."""
    defaults = {field.name: field.default for field in fields(config)}
    for name, text in texts.items():
        option, default = NEGATIONS.get(name, flag(name)), defaults[name]
        keywords: dict[str, Any] = {"type": type(default), "default": default, "metavar": "N"}
        keywords["help"] = f"{text} (default: {default})"
        if isinstance(default, bool):
            keywords = {"action": f"store_{not default}".lower(), "help": text}
        parser.add_argument(option, dest=name, **keywords)


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
