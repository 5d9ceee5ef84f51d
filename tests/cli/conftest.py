"""The fixture of all tests of the command line."""

import pytest

from command_line import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)
