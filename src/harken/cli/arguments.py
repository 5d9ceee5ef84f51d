"""Parsing of command lines, with one line of explanation for what is wrong."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from harken.cli.output import printable
from harken.config.spelling import nearest


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that suggests the nearest name and prints no usage on an error."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after one line."""
        if "required" in message:  # a misspelled option may be the reason
            self.reject_options(self._arguments)
        end = "" if message.endswith("?") else "."
        self.exit(2, printable(f"{self.prog}: {message}{end} See `{self.prog} --help`") + "\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what is known, and remember the rest for error messages."""
        self._arguments: Sequence[str] = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; an unknown option is an error of the command that it follows."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser: Parser = getattr(options, "parser", self)
            parser.reject(unknown)
        return options

    def reject(self, unknown: Sequence[str]) -> NoReturn:
        """Name the first unknown option, or the first argument that is too many."""
        self.reject_options(unknown)
        self.error(f"unexpected argument {unknown[0]!r}")

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
        """Raise for a value that is not among the choices of an argument."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = nearest(value, choices)
        hint = f"did you mean {near!r}?" if near else f"choose one of {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown {str(action.metavar).lower()} {value!r}; {hint}")
        raise argparse.ArgumentError(action, f"unknown value {value!r}; {hint}")
