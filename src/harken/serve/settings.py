"""ServerSettings and limits of the server."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harken.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits on requests; a request beyond a limit is refused."""

    json_bytes: int = 2**20  # of a JSON body
    upload_bytes: int = 2**25  # of a sound or image
    text_characters: int = 100_000
    body_seconds: float = 30.0  # until the whole body has arrived
    header_seconds: float = 10.0  # until the headers of a request have arrived
    write_seconds: float = 30.0  # until the client has read a part of the answer
    header_bytes: int = 16_384
    job_seconds: float = 120.0  # until a request is answered
    connections: int = 128
    streams: int = 16  # of events at once
    queue: int = 16  # requests that wait for the model
    inspections: int = 64  # stored
    weight_bytes: int = 2**29  # of all stored inspections
    uploads: int = 64  # stored
    runs: int = 4  # loaded at once


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """What the server serves, where it listens and who may connect."""

    paths: Sequence[Path]
    host: str = "127.0.0.1"
    port: int = 8765
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    limits: Limits = Limits()

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Names that the `Host` header may have, without the port."""
        return frozenset((*LOOPBACK, self.host.lower()))

    @property
    def cookie(self) -> str:
        """Name of the cookie; browsers share cookies between ports."""
        return f"harken-{self.port}"


def choose_token(host: str, token: str | None) -> str:
    """Return the token, or a random one; another host than loopback needs one of the user."""
    if token is None:
        if host not in LOOPBACK:
            raise UserError(
                f"host {host!r}: other machines could connect without a secret",
                fix="also give a token (command line: --token TEXT), or leave out the host",
            )
        return secrets.token_urlsafe(24)
    if (
        len(token) < 16
        or not token.isascii()
        or not token.replace("-", "").replace("_", "").isalnum()
    ):
        raise UserError(
            "token: expected 16 or more ASCII letters, digits, - or _",
            fix="make one with `python -c 'import secrets; print(secrets.token_urlsafe())'`",
        )
    return token
