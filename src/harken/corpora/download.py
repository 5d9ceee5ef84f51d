"""Download a corpus of the catalog and check it.

    URL -> temporary file -> decompressed -> SHA-256 -> NAME

A file gets its final name after its digest is checked. Existing files with the correct digest are
not downloaded again. Only https is used, and http to localhost. After a lost connection or an error
of the server, the download starts again from the beginning, with growing delays.
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
from harken.files import convert_write_errors, replacing, replacing_folder, sha256
from harken.version import __version__

CHUNK = 2**16  # bytes
MAX_MEMBERS = 20_000  # of a zip archive
ARCHIVE_ERRORS = (  # raised while an archive is unpacked
    *(ArithmeticError, EOFError, RuntimeError, ValueError, lzma.LZMAError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
ANOTHER_SERVER = "try again, or use another server (command line: --from)"
NOT_PUBLISHED = "this is not the published corpus"
EXPECTED_URL = "expected an https URL of visible ASCII characters, without user name"


class BadDownload(Failure):
    """The downloaded bytes are not the published corpus."""


class DownloadProgress(NamedTuple):
    """Progress of a download; `total` is None if the server does not report it."""

    file: str
    bytes: int
    total: int | None


class RetryScheduled(NamedTuple):
    """An attempt failed for a temporary `reason`; the next one starts in `seconds`."""

    file: str
    seconds: float
    reason: str


Event = DownloadProgress | RetryScheduled
Callback = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Number of attempts, and delays in seconds."""

    timeout: float = 30.0  # without receiving data
    pause: float = 1.0  # before the second attempt; doubled before each further attempt
    max_pause: float = 60.0  # even if the server requests a longer delay
    attempts: int = 5


class _TemporaryError(Exception):
    """A problem that another attempt may solve; `delay` is the Retry-After time in seconds."""

    def __init__(self, reason: str, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


def download(
    corpus: Corpus, folder: Path, *, mirror: str | None = None, retry: RetryPolicy, report: Callback
) -> list[Path]:
    """Download the missing files of a corpus to `folder`; return the paths of all."""
    urls = {item: download_url(corpus, item, mirror) for item in corpus.items}
    missing = [item for item in corpus.items if not _is_downloaded(folder / item.stored, item)]
    with convert_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for item in missing:
            with tempfile.TemporaryFile(dir=folder) as packed:
                fetch(urls[item], packed, item.download_name, item.max_bytes, retry, report)
                packed.seek(0)
                _store(packed, folder / item.stored, item)
    return [folder / item.stored for item in corpus.items]


def download_url(corpus: Corpus, item: Item, mirror: str | None) -> str:
    """Return the URL of an item: the published one, or MIRROR/CORPUS/FILE."""
    if mirror is None:
        return item.url
    url = f"{mirror.rstrip('/')}/{corpus.name}/{item.download_name}"
    if not is_safe(url):
        fix = "give one like https://HOST/FOLDER (http:// only for localhost)"
        raise UserError(f"mirror {mirror}: {EXPECTED_URL}", fix=fix)
    return url


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder as defined in catalog.py."""
    if not path.is_dir():
        return sha256(path)
    lines = hashlib.sha256()
    for file in sorted(path.iterdir(), key=lambda file: os.fsencode(file.name)):
        value = sha256(file) if file.is_file() else "not a file"
        lines.update(os.fsencode(f"{value}  {file.name}\n"))
    return lines.hexdigest()


def is_safe(url: str) -> bool:
    """Whether a URL uses https, or http to localhost, and has visible ASCII characters only.

    It must have a host and no user name; a port must be valid.
    """
    try:
        split = urllib.parse.urlsplit(url)
        is_plain = split.port != 0 and split.username is None and not re.search(r"[^!-~]", url)
    except ValueError:  # a port that is not a number, an unmatched bracket
        return False
    is_secure = split.scheme == "https" or (split.scheme == "http" and _is_local(url))
    return is_plain and is_secure and bool(split.hostname)


def _is_local(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    with suppress(ValueError):  # a name
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_downloaded(path: Path, item: Item) -> bool:
    if path.exists() and (actual := digest(path)) != item.sha256:
        problem = f"{path}: different contents (expected sha256 {item.sha256}, got {actual})"
        raise UserError(problem, fix="remove it, or choose another folder")
    return path.exists()


# --- network


def fetch(
    url: str, file: IO[bytes], name: str, max_bytes: int, retry: RetryPolicy, report: Callback
) -> None:
    """Download a URL into a file; `name` is the file name in events."""
    if not is_safe(url):
        raise Failure(f"{url}: {EXPECTED_URL}", fix="use a server that supports https")
    for attempt in range(1, retry.attempts + 1):
        try:
            file.seek(0)
            file.truncate()
            _attempt(url, file, name, max_bytes, retry, report)
            return
        except _TemporaryError as error:
            if attempt == retry.attempts:
                message = f"{url}: no complete response in {attempt} attempts ({error})"
                raise Failure(message, fix="run the same command again later") from error
            doubled = retry.pause * 2 ** (attempt - 1)
            pause = min(doubled if error.delay is None else error.delay, retry.max_pause)
            report(RetryScheduled(name, pause, str(error)))
            time.sleep(pause)


def _attempt(
    url: str, file: IO[bytes], name: str, max_bytes: int, retry: RetryPolicy, report: Callback
) -> None:
    with _open(url, retry) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        count = 0
        _check_size(total or 0, max_bytes, url)
        while total is None or count < total:
            try:
                data = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _TemporaryError(_reason(error)) from error
            if not data:
                break
            count += len(data)
            _check_size(count, max_bytes, url)
            file.write(data)
            report(DownloadProgress(name, count, total))
    if total is not None and count < total:
        raise _TemporaryError(f"connection closed after {count:,} of {total:,} bytes")
    file.flush()


def _check_size(count: int, max_bytes: int, url: str) -> None:
    if count > max_bytes:
        sizes = f"expected at most {max_bytes:,} bytes, got {count:,} or more"
        raise BadDownload(f"{url}: {NOT_PUBLISHED} ({sizes})", fix=ANOTHER_SERVER)


def _open(url: str, retry: RetryPolicy) -> http.client.HTTPResponse:
    headers = {"User-Agent": f"harken/{__version__}", "Accept-Encoding": "identity"}
    handlers: list[urllib.request.BaseHandler] = [_HttpsRedirects()]
    if _is_local(url):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=headers)
    try:
        opener = urllib.request.build_opener(*handlers)
        response: http.client.HTTPResponse = opener.open(request, timeout=retry.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 429 or error.code >= 500:
            after = error.headers.get("Retry-After", "").strip()
            seconds = float(after) if after.isdecimal() else None
            raise _TemporaryError(
                f"the server returned {error.code} {error.reason}", seconds
            ) from error
        message = f"{url}: expected the file, got {error.code} {error.reason}"
        raise Failure(message, fix=f"check the URL; {ANOTHER_SERVER}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            message = f"{url}: the certificate is not valid ({reason.verify_message})"
            fix = "check the clock and the certificates of this machine"
            raise Failure(message, fix=fix) from error
        raise _TemporaryError(_reason(error)) from error
    if response.status != 200:
        response.close()
        raise Failure(f"{url}: expected the file, got {response.status}", fix=ANOTHER_SERVER)
    return response


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirections to https only."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        request, url = arguments[0], arguments[-1]
        if urllib.parse.urlsplit(url).scheme != "https":
            message = f"{request.full_url}: expected a redirection to https, got {url}"
            raise Failure(message, fix=ANOTHER_SERVER)
        return super().redirect_request(*arguments)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "timeout"
    return f"connection failed ({getattr(reason, 'strerror', None) or reason})"


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
        raise BadDownload(f"{path}: cannot unpack it ({error})", fix=ANOTHER_SERVER) from error


def _unzip(packed: IO[bytes], folder: Path, item: Item) -> None:
    """Write the members that match FOLDER/PATTERN into one folder."""
    pattern, total = PurePosixPath(item.members), 0
    with zipfile.ZipFile(packed) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"{len(members):,} files, more than {MAX_MEMBERS:,}")
        for member in members:
            path = PurePosixPath(member.filename)
            if path.parent != pattern.parent or not fnmatchcase(path.name, pattern.name):
                continue
            if re.search(r"[\\:\0]", path.name) or (folder / path.name).exists():
                raise ValueError(f"an unsafe or repeated file name {member.filename[:60]!r}")
            if member.flag_bits & 1:
                raise ValueError("an encrypted file")
            with archive.open(member) as source:
                total = _copy(source, folder / path.name, item.max_bytes, total)


def _copy(source: IO[bytes], path: Path, max_bytes: int, count: int = 0) -> int:
    """Write a stream to a file; return `count` plus the size of the stream.

    Raises ValueError if this sum is more than `max_bytes` or the stream is damaged.
    """
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
                raise ValueError(f"more than {max_bytes:,} decompressed bytes")
            file.write(data)


def _check_digest(unfinished: Path, path: Path, item: Item) -> None:
    if (actual := digest(unfinished)) != item.sha256:
        digests = f"expected sha256 {item.sha256}, got {actual}"
        raise BadDownload(f"{path}: {NOT_PUBLISHED} ({digests})", fix=ANOTHER_SERVER)
