"""Run the application with uvicorn."""

import asyncio
import socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from harken.errors import UserError
from harken.serve.app import build_app
from harken.serve.settings import ServerSettings
from harken.serve.state import ServerState, make_state


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for the headers of each request.

    Without it, a client that sends one byte a minute keeps its connection forever.
    """

    _deadline: asyncio.TimerHandle | None = None
    header_seconds = 10.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_idle():  # the headers are complete
            self._cancel_deadline()
        elif self._deadline is None:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._expire)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self._is_idle():
            self.transport.close()


class Server(uvicorn.Server):
    """Ends streams of events when the process is asked to stop."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop streams, and let uvicorn answer the requests that it has accepted."""
        self._state.stopping.set()
        super().handle_exit(sig, frame)


def bind(settings: ServerSettings) -> socket.socket:
    """Return a socket that listens on the address of the settings."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=128)
    except OSError as error:
        raise UserError(
            f"{settings.host}:{settings.port}: cannot listen ({error.strerror})",
            fix="choose another port, or end the program that uses this one",
        ) from None


def make_server(settings: ServerSettings) -> Server:
    """Return a server of the application."""
    state, limits = make_state(settings), settings.limits
    protocol = type("Protocol", (DeadlineProtocol,), {"header_seconds": limits.header_seconds})
    config = uvicorn.Config(
        build_app(state),
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=limits.header_bytes,
    )
    return Server(config, state)


def link(settings: ServerSettings) -> str:
    """Return the address with the token."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/?token={settings.token}"
