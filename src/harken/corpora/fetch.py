"""An address -> all of its bytes in a file, going on where an earlier try stopped.

A download that broke off (a cut connection, Ctrl-C, a full disk) goes on from NAME.part;
NAME.part.from says of which address and which version (ETag, Last-Modified) its bytes are. A
server that is busy or out of reach is asked again, each time later. Only https is spoken, and http
to this machine itself.

What is not here: whether the bytes are the right ones (obtain.py compares their digest).
"""

import email.utils
import http.client
import ipaddress
import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
from typing import NamedTuple

from harken.errors import Failure
from harken.files import refusals, write_text
from harken.version import __version__

CHUNK = 2**16


class Received(NamedTuple):
    """So much of a file is here; `total` is None where the server does not say."""

    file: str
    bytes: int
    total: int | None


class Waiting(NamedTuple):
    """The server asked for time, or was out of reach; the next try is in so many seconds."""

    file: str
    seconds: float
    why: str


Event = Received | Waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long to wait for a server, in seconds."""

    silence: float = 30.0  # without a byte
    pause: float = 1.0  # before the second try; each further one doubles it
    longest_pause: float = 60.0  # whatever the server asks for
    tries: int = 5  # one after the other without a new byte


class _Passing(Exception):
    """Trouble that may be gone at the next try; `after` seconds if the server said so."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


def fetch(
    address: str,
    part: Path,
    *,
    most: int,
    patience: Patience,
    listen: Callable[[Event], None],
) -> None:
    """Fill `part` with all of an address, going on from what it holds; at most `most` bytes."""
    if not is_safe(address):
        raise Failure(f"{address}: found no https, wanted it", fix="use a server that speaks it")
    tried, best = 0, 0
    while True:
        try:
            _attempt(address, part, most, patience, listen)
            return
        except _Passing as trouble:
            size = _size(part)
            tried, best = (1, size) if size > best else (tried + 1, best)
            if tried >= patience.tries:
                raise Failure(
                    f"{address}: found {trouble} in {tried} tries, wanted an answer",
                    fix="run the same command again later: it goes on where it stopped",
                ) from trouble
            doubled = patience.pause * 2 ** (tried - 1)
            pause = min(doubled if trouble.after is None else trouble.after, patience.longest_pause)
            listen(Waiting(part.name, pause, str(trouble)))
            time.sleep(pause)


def discard(part: Path) -> None:
    """Forget an unfinished download."""
    part.unlink(missing_ok=True)
    _origin(part).unlink(missing_ok=True)


def _attempt(
    address: str, part: Path, most: int, patience: Patience, listen: Callable[[Event], None]
) -> None:
    """One request, and a second one where the first could not go on from what is here."""
    start = _size(part) if _origin(part).exists() else 0
    response = _ask(address, start, patience)
    if start and not _goes_on(response, address, part, start):
        if response.status == 416 and _total(response) == start:  # all of it was here
            response.close()
            return
        response.close()
        start = 0
        response = _ask(address, 0, patience)
    with response:
        if response.status not in (200, 206) or (response.status == 206 and not start):
            raise Failure(
                f"{address}: found the answer {response.status} {response.reason}, wanted the file",
                fix="check the address, or use another server (command line: --from)",
            )
        if not start:
            discard(part)
            write_text(_origin(part), json.dumps(_version(response, address)))
        _receive(response, address, part, start, most, listen)


def _receive(
    response: HTTPResponse,
    address: str,
    part: Path,
    start: int,
    most: int,
    listen: Callable[[Event], None],
) -> None:
    total = _total(response)
    _within(total or 0, most, address, part)
    count = start
    with refusals(part), part.open("ab") as file:  # what fails to be read is no OSError by then
        while total is None or count < total:
            try:
                data = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _Passing(_why(error)) from error
            if not data:
                break
            count += len(data)
            _within(count, most, address, part)
            file.write(data)
            file.flush()  # a full disk says so here, and what is here survives a kill
            listen(Received(part.name, count, total))
    if total is not None and count < total:
        raise _Passing(f"the connection cut at {count:,} of {total:,} bytes")


def _within(count: int, most: int, address: str, part: Path) -> None:
    if count > most:
        discard(part)
        raise Failure(
            f"{address}: found {count:,} bytes or more, wanted at most {most:,}",
            fix="it is not the published corpus: use another server (command line: --from)",
        )


def _goes_on(response: HTTPResponse, address: str, part: Path, start: int) -> bool:
    """Whether an answer is the rest of what is here, of the same version."""
    asked = re.fullmatch(r"bytes (\d+)-\d+/(?:\d+|\*)", response.headers.get("Content-Range", ""))
    if response.status != 206 or asked is None or int(asked[1]) != start:
        return False
    try:
        old = json.loads(_origin(part).read_text(encoding="utf-8"))
    except ValueError:
        return False
    return bool(old == _version(response, address))


def _version(response: HTTPResponse, address: str) -> dict[str, str | None]:
    headers = ("ETag", "Last-Modified")
    return {"address": address} | {name: response.headers.get(name) for name in headers}


def _total(response: HTTPResponse) -> int | None:
    """Bytes of the whole file, as the server says."""
    of_range = re.fullmatch(r"bytes .*/(\d+)", response.headers.get("Content-Range", ""))
    if of_range is not None:
        return int(of_range[1])
    length = response.headers.get("Content-Length", "")
    return int(length) if response.status == 200 and length.isdecimal() else None


def _ask(address: str, start: int, patience: Patience) -> HTTPResponse:
    headers = {"User-Agent": f"harken/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(address, headers=headers)
    handlers: list[urllib.request.BaseHandler] = [_Redirects(), _Answers()]
    if _is_here(address):
        handlers.append(urllib.request.ProxyHandler({}))  # no proxy is needed to reach ourselves
    try:
        response: HTTPResponse = urllib.request.build_opener(*handlers).open(
            request, timeout=patience.silence
        )
    except urllib.error.HTTPError as error:  # only redirections come here: no end, no way
        raise Failure(
            f"{address}: found {error}", fix="use another server (command line: --from)"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Failure(
                f"{address}: found a certificate that does not verify ({reason.verify_message})",
                fix="see whether this machine's clock and certificates are right",
            ) from error
        raise _Passing(_why(error)) from error
    if response.status == 429 or response.status >= 500:
        response.close()
        after = _retry_after(response.headers)
        raise _Passing(f"the answer {response.status} {response.reason}", after)
    return response


def _retry_after(headers: HTTPMessage) -> float | None:
    """Seconds that the server asks us to wait: it says them, or a date."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


class _Answers(urllib.request.HTTPErrorProcessor):
    """Leaves every answer but a redirection to us."""

    def http_response(self, request, response):  # type: ignore[no-untyped-def]
        if response.status in (301, 302, 303, 307, 308):
            return super().http_response(request, response)
        return response

    https_response = http_response


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to https only."""

    def redirect_request(self, request, file, code, message, headers, address):  # type: ignore[no-untyped-def]
        if urllib.parse.urlsplit(address).scheme != "https":
            raise Failure(
                f"{request.full_url}: found a redirection to {address}, wanted https",
                fix="use another server (command line: --from)",
            )
        return super().redirect_request(request, file, code, message, headers, address)


def is_safe(address: str) -> bool:
    """Whether an address is plain https, or http to this machine itself."""
    try:
        split = urllib.parse.urlsplit(address)
        plain = split.port != 0 and split.username is None and not re.search(r"[^!-~]", address)
    except ValueError:  # a port that is no number, a bracket that is not closed
        return False
    spoken = split.scheme == "https" or (split.scheme == "http" and _is_here(address))
    return plain and spoken and bool(split.hostname)


def _is_here(address: str) -> bool:
    host = urllib.parse.urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "no byte for too long"
    if isinstance(reason, http.client.IncompleteRead):
        return "the connection cut"
    return f"no connection ({getattr(reason, 'strerror', None) or reason})"


def _origin(part: Path) -> Path:
    return part.with_name(f"{part.name}.from")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
