"""Download a corpus of the catalog and check it.

    address -> temporary file -> decompressed -> SHA-256 -> NAME

A file gets its final name after its digest is checked. Existing files with the correct digest are
not downloaded again. Only https is used, and http to localhost. Failed requests are repeated with
growing delays; an interrupted download starts again from the beginning.
"""

import gzip
import hashlib
import http.client
import ipaddress
import lzma
import os
import re
import ssl
import struct
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from harken.corpora.catalog import Corpus, Item
from harken.errors import Failure, UserError
from harken.files import replacing, replacing_folder, sha256, write_errors
from harken.version import __version__

CHUNK = 2**16
MAX_MEMBERS = 20_000  # of a zip archive
ARCHIVE_ERRORS = (  # raised for damaged archives
    *(ArithmeticError, EOFError, RuntimeError, ValueError, lzma.LZMAError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
ANOTHER_SERVER = "try again, or use another server (command line: --from)"
NOT_PUBLISHED = "this is not the published corpus"


class BadDownload(Failure):
    """The downloaded bytes are not the published corpus."""


class Received(NamedTuple):
    """Progress of a download; `total` is None if the server does not report it."""

    file: str
    bytes: int
    total: int | None


class Waiting(NamedTuple):
    """The server is busy or unreachable; the next attempt is in `seconds`."""

    file: str
    seconds: float
    why: str


Event = Received | Waiting
Callback = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Number of attempts, and delays in seconds."""

    timeout: float = 30.0  # without receiving data
    pause: float = 1.0  # before the second attempt; doubled for each further one
    max_pause: float = 60.0  # also if the server requests more
    attempts: int = 5


class _TemporaryError(Exception):
    """A problem that another attempt may solve, after `delay` seconds if the server says so."""

    def __init__(self, why: str, delay: float | None = None) -> None:
        super().__init__(why)
        self.delay = delay


def download(
    corpus: Corpus, folder: Path, *, mirror: str | None = None, retry: RetryPolicy, report: Callback
) -> list[Path]:
    """Return the files of a corpus in `folder`; download the missing ones."""
    addresses = {item: address_of(corpus, item, mirror) for item in corpus.items}
    missing = [item for item in corpus.items if not _is_downloaded(folder / item.stored, item)]
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for item in missing:
            with tempfile.TemporaryFile(dir=folder) as packed:
                fetch(addresses[item], packed, item.download_name, item.max_bytes, retry, report)
                packed.seek(0)
                _store(packed, folder / item.stored, item)
    return [folder / item.stored for item in corpus.items]


def address_of(corpus: Corpus, item: Item, mirror: str | None) -> str:
    """Return the address of an item, or BASE/NAME/FILE of a mirror."""
    if mirror is None:
        return item.address
    address = f"{mirror.rstrip('/')}/{corpus.name}/{item.download_name}"
    if not is_safe(address):
        fix = "give one like https://HOST/FOLDER (http:// only for localhost)"
        raise UserError(f"mirror {mirror}: expected an https address", fix=fix)
    return address


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder as defined in catalog.py."""
    if not path.is_dir():
        return sha256(path)
    lines = hashlib.sha256()
    for file in sorted(path.iterdir(), key=lambda file: os.fsencode(file.name)):
        value = sha256(file) if file.is_file() else "not a file"
        lines.update(os.fsencode(f"{value}  {file.name}\n"))
    return lines.hexdigest()


def is_safe(address: str) -> bool:
    """Whether an address is plain https, or http to localhost."""
    try:
        split = urllib.parse.urlsplit(address)
        plain = split.port != 0 and split.username is None and not re.search(r"[^!-~]", address)
    except ValueError:  # a port that is not a number, an unmatched bracket
        return False
    allowed = split.scheme == "https" or (split.scheme == "http" and _is_local(address))
    return plain and allowed and bool(split.hostname)


def _is_local(address: str) -> bool:
    host = urllib.parse.urlsplit(address).hostname or ""
    with suppress(ValueError):  # a name
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_downloaded(path: Path, item: Item) -> bool:
    if path.exists() and (actual := digest(path)) != item.sha256:
        problem = f"{path}: has other contents (expected sha256 {item.sha256}, got {actual})"
        raise UserError(problem, fix="remove it, or choose another folder")
    return path.exists()


# --- network


def fetch(
    address: str, file: IO[bytes], name: str, max_bytes: int, retry: RetryPolicy, report: Callback
) -> None:
    """Download an address into a file; `name` is the file name in events."""
    if not is_safe(address):
        raise Failure(f"{address}: expected https", fix="use a server that supports it")
    for attempt in range(1, retry.attempts + 1):
        try:
            file.seek(0)
            file.truncate()
            _attempt(address, file, name, max_bytes, retry, report)
            return
        except _TemporaryError as problem:
            if attempt == retry.attempts:
                message = f"{address}: no complete answer in {attempt} attempts ({problem})"
                raise Failure(message, fix="run the same command again later") from problem
            doubled = retry.pause * 2 ** (attempt - 1)
            pause = min(doubled if problem.delay is None else problem.delay, retry.max_pause)
            report(Waiting(name, pause, str(problem)))
            time.sleep(pause)


def _attempt(
    address: str, file: IO[bytes], name: str, max_bytes: int, retry: RetryPolicy, report: Callback
) -> None:
    with _open(address, retry) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        count = 0
        _check_size(total or 0, max_bytes, address)
        while total is None or count < total:
            try:
                data = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _TemporaryError(_reason(error)) from error
            if not data:
                break
            count += len(data)
            _check_size(count, max_bytes, address)
            file.write(data)
            report(Received(name, count, total))
    if total is not None and count < total:
        raise _TemporaryError(f"connection closed after {count:,} of {total:,} bytes")
    file.flush()


def _check_size(count: int, max_bytes: int, address: str) -> None:
    if count > max_bytes:
        sizes = f"expected at most {max_bytes:,} bytes, got {count:,} or more"
        raise BadDownload(f"{address}: {NOT_PUBLISHED} ({sizes})", fix=ANOTHER_SERVER)


def _open(address: str, retry: RetryPolicy) -> http.client.HTTPResponse:
    headers = {"User-Agent": f"harken/{__version__}", "Accept-Encoding": "identity"}
    handlers: list[urllib.request.BaseHandler] = [_HttpsRedirects()]
    if _is_local(address):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(address, headers=headers)
    try:
        opener = urllib.request.build_opener(*handlers)
        response: http.client.HTTPResponse = opener.open(request, timeout=retry.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 429 or error.code >= 500:
            after = error.headers.get("Retry-After", "").strip()
            seconds = float(after) if after.isdecimal() else None
            raise _TemporaryError(
                f"the server answers {error.code} {error.reason}", seconds
            ) from error
        message = f"{address}: expected the file, got {error.code} {error.reason}"
        raise Failure(message, fix=f"check the address; {ANOTHER_SERVER}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            message = f"{address}: the certificate is not valid ({reason.verify_message})"
            fix = "check the clock and the certificates of this machine"
            raise Failure(message, fix=fix) from error
        raise _TemporaryError(_reason(error)) from error
    if response.status != 200:
        response.close()
        raise Failure(f"{address}: expected the file, got {response.status}", fix=ANOTHER_SERVER)
    return response


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirections to https only."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        request, address = arguments[0], arguments[-1]
        if urllib.parse.urlsplit(address).scheme != "https":
            message = f"{request.full_url}: expected a redirection to https, got {address}"
            raise Failure(message, fix=ANOTHER_SERVER)
        return super().redirect_request(*arguments)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "timeout"
    return f"no connection ({getattr(reason, 'strerror', None) or reason})"


# --- archives


def _store(packed: IO[bytes], path: Path, item: Item) -> None:
    """Decompress under a temporary name, compare the digest, then rename."""
    try:
        if item.packing == "zip":
            with replacing_folder(path) as unfinished:
                _unzip(packed, unfinished, item)
                _check_digest(unfinished, path, item)
        else:
            is_gzip = item.packing == "gz"
            source = cast(IO[bytes], gzip.GzipFile(fileobj=packed)) if is_gzip else packed
            with replacing(path) as unfinished:
                _copy(source, unfinished, item.max_bytes)
                _check_digest(unfinished, path, item)
    except ARCHIVE_ERRORS as error:
        raise BadDownload(f"{path}: damaged archive ({error})", fix=ANOTHER_SERVER) from error


def _unzip(packed: IO[bytes], folder: Path, item: Item) -> None:
    """Write the members that match FOLDER/PATTERN into one folder."""
    pattern, remaining = PurePosixPath(item.members), item.max_bytes
    with zipfile.ZipFile(packed) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"{len(members)} files")
        for member in members:
            path = PurePosixPath(member.filename)
            if path.parent != pattern.parent or not fnmatchcase(path.name, pattern.name):
                continue
            if re.search(r"[\\:\0]", path.name) or (folder / path.name).exists():
                raise ValueError(f"unsafe or repeated file name {member.filename[:60]!r}")
            if member.flag_bits & 1:
                raise ValueError("an encrypted file")
            with archive.open(member) as source:
                remaining -= _copy(source, folder / path.name, remaining)


def _copy(source: IO[bytes], path: Path, max_bytes: int) -> int:
    """Write a stream to a file and return its size; ValueError if it is larger or damaged."""
    count = 0
    with path.open("wb") as file:
        while True:
            try:
                data = source.read(CHUNK)
            except gzip.BadGzipFile as error:  # an OSError, which would be reported as a full disk
                raise ValueError(str(error)) from error
            if not data:
                return count
            count += len(data)
            if count > max_bytes:
                raise ValueError(f"more than {max_bytes:,} bytes")
            file.write(data)


def _check_digest(unfinished: Path, path: Path, item: Item) -> None:
    if (actual := digest(unfinished)) != item.sha256:
        digests = f"expected sha256 {item.sha256}, got {actual}"
        raise BadDownload(f"{path}: {NOT_PUBLISHED} ({digests})", fix=ANOTHER_SERVER)
