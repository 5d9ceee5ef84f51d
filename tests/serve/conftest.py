"""A server with untrained runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .serving import Serving


@pytest.fixture(scope="session")
def serving(untrained_run: Callable[[str], Path]) -> Iterator[Serving]:
    runs = [untrained_run(task) for task in ("lm", "translate", "transcribe", "caption")]
    serving = Serving(runs)
    yield serving
    serving.stop()
    assert not serving.thread.is_alive()
