"""Stop training on SIGINT, SIGTERM or SIGHUP without losing work.

By default a signal raises `Interrupted` in the main thread at once. This is safe before the first
step, because a resumed run repeats the preparation. Inside `deferred` the signal is only recorded,
so that a training step, its log line and its checkpoint stay together; the training loop reads
`received` between steps. `immediate` allows the exception again inside `deferred`, for an
evaluation that a resumed run can repeat. After the first signal, SIGINT always raises
`KeyboardInterrupt` at once, and the other signals are ignored.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP


class Interrupted(BaseException):
    """A signal stopped the training; it can be resumed.

    Not an `Exception`, so that a handler of a library's errors does not catch it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class StopSignals:
    """The first signal received, and whether a signal raises `Interrupted` at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._deferred = False

    @contextmanager
    def deferred(self, defer: bool = True) -> Iterator[None]:
        """Only record signals inside this block; with `defer=False`, raise at once again."""
        previous, self._deferred = self._deferred, defer
        try:
            yield
        finally:
            self._deferred = previous

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Raise `Interrupted` at once inside this block, also for a signal received before."""
        with self.deferred(False):
            if self.received is not None:
                raise Interrupted(self.received)
            yield

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record a signal, and raise where it stops the run; installed by `stop_signals`."""
        repeated = self.received is not None
        self.received = self.received or number
        if repeated and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not repeated and not self._deferred:
            raise Interrupted(number)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle stop signals inside this block; ignored ones (`nohup`) stay ignored."""
    stop = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may install handlers
        return
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}
    handled = [number for number in numbers if previous[number] is not signal.SIG_IGN]
    try:
        for number in handled:
            signal.signal(number, stop.handle)
        yield stop
    finally:
        for number in handled:
            signal.signal(number, previous[number])


def run_interruptibly(function: Callable[[], Result]) -> Result:
    """Call a function that runs compiled code for long, so that signals interrupt the wait for it.

    Python runs signal handlers in the main thread, between two bytecodes. A call into compiled code
    delays them until it returns, so such a call runs in another thread while the main thread waits.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(timeout=0.2)  # without a timeout, Windows would not handle signals here
    if errors:
        raise errors[0]
    return results[0]
