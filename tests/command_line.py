"""Call commands in this process and check how they end."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from harken.cli.main import main


def sets(overrides: Iterable[str]) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


class Cli(NamedTuple):
    """Calls of `harken`; arguments may be paths and numbers."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object, code: int = 0) -> Any:
        """Return what was printed, as `out` and `err`."""
        self.capsys.readouterr()
        try:
            ended: object = main(list(map(str, arguments)))
        except SystemExit as stop:  # of argparse
            ended = stop.code
        assert ended == code
        return self.capsys.readouterr()

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments, "--json").out, parse_constant=pytest.fail)

    def error(self, *arguments: object, code: int = 2) -> str:
        """Return the only line, which is on stderr."""
        printed = self(*arguments, code=code)
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith("harken: ")
        return line
