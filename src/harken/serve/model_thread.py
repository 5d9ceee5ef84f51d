"""One thread that runs all models, and its bounded queue.

Models are changed while they run (recording, ablation), so two requests may not use one at the same
time; and PyTorch uses all cores for one.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harken.serve.errors import ApiError

Result = TypeVar("Result")


class Stopped(Exception):
    """Raised by `Job.check` in the model thread when nobody waits for the result any more."""


@dataclass(eq=False, slots=True)
class Job:
    """A function to call in the model thread, and who waits for its result."""

    function: Callable[["Job"], Any]
    future: "asyncio.Future[Any]"
    client: str | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise `Stopped` if the request was cancelled or superseded."""
        if self.stopped.is_set():
            raise Stopped


class ModelThread:
    """Runs jobs one after the other."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(
        self,
        function: Callable[[Job], Result],
        *,
        client: str | None = None,
        timeout: float | None = None,
        continues: bool = False,
    ) -> Result:
        """Call `function` in the model thread and return its result.

        The earlier jobs of the same client are stopped. Raises `ApiError` 503 if the queue is full,
        unless the job `continues` a request that was already accepted. If the caller is cancelled,
        the job is stopped.
        """
        loop = asyncio.get_running_loop()
        job = Job(function, loop.create_future(), client)
        with self._changed:
            if client is not None:
                for other in [*self._waiting, *filter(None, [self._running])]:
                    if other.client == client:
                        self._supersede(other)
            if self._closed or (len(self._waiting) >= self._capacity and not continues):
                raise ApiError(503, "the server is busy", fix="try again later")
            self._waiting.append(job)
            self._changed.notify()
        try:
            result: Result = await asyncio.wait_for(job.future, timeout)
        except TimeoutError:
            raise ApiError(503, "the answer took too long", fix="send a shorter input") from None
        finally:
            job.stopped.set()
            with self._changed:
                if job in self._waiting:
                    self._waiting.remove(job)
        return result

    def close(self) -> None:
        """Refuse new jobs, and end the thread after the current one."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _supersede(self, job: Job) -> None:
        job.stopped.set()
        if job in self._waiting:
            self._waiting.remove(job)
        if not job.future.done():
            message = "a newer request of the same client replaces this one"
            job.future.set_exception(ApiError(409, message, fix="nothing to do"))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                job = self._running = self._waiting.popleft()
            result, error = None, None
            try:
                if not job.stopped.is_set():
                    result = job.function(job)
            except Exception as raised:  # passed to the waiting request
                error = raised
            loop = job.future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, job, result, error)
            del job, result, error


def _resolve(job: Job, result: object, error: Exception | None) -> None:
    if job.future.done():
        return
    if error is None:
        job.future.set_result(result)
    else:
        job.future.set_exception(error)
