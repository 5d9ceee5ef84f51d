"""A server on this machine that misbehaves as it is told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(kw_only=True)
class Trick:
    """What to do wrong in one answer."""

    status: int | None = None  # answer with this and nothing else
    headers: dict[str, str] = field(default_factory=dict)  # replace or extend the correct ones
    cut: int | None = None  # hang up after so many bytes of the body
    silent: float = 0.0  # seconds before the first byte
    endless: bool = False  # no length, and more bytes than there are


@dataclass(kw_only=True)
class Loopback:
    """What is served, how the next answers go wrong, and what was asked."""

    base: str
    files: dict[str, bytes] = field(default_factory=dict)
    tricks: list[Trick] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    awake: threading.Event = field(default_factory=threading.Event)


@contextmanager
def loopback() -> Iterator[Loopback]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            answer(self, served)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Loopback(base=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            served.awake.set()
            server.shutdown()
            thread.join()


def answer(handler: BaseHTTPRequestHandler, served: Loopback) -> None:
    trick = served.tricks.pop(0) if served.tricks else Trick()
    served.asked.append(handler.path)
    served.awake.wait(trick.silent)
    body = served.files.get(handler.path)
    status, headers = 200, {}
    if body is None:
        status, body = 404, b"no such thing"
    elif trick.status is not None:
        status, body = trick.status, b"not now"
    if not trick.endless:
        headers["Content-Length"] = str(len(body))
    handler.send_response(status)
    for name, value in (headers | trick.headers).items():
        handler.send_header(name, value)
    handler.end_headers()
    try:
        handler.wfile.write(body if trick.cut is None else body[: trick.cut])
        while trick.endless and not served.awake.is_set():
            handler.wfile.write(b"more" * 4096)
    except OSError:
        pass  # the other side has seen enough
    handler.close_connection = True
