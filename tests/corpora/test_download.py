"""Downloads from a server on this machine: retried, limited, checked before they get names."""

import gzip
import hashlib
import io
import random
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harken.corpora import download as module
from harken.corpora.catalog import Corpus, Item, License, Packing
from harken.corpora.download import (
    BadDownload,
    DownloadProgress,
    Event,
    RetryPolicy,
    RetryScheduled,
    digest,
    download,
    download_url,
    fetch,
    is_safe,
)
from harken.errors import Failure, UserError
from loopback import Loopback, Trick, loopback

HASTY = RetryPolicy(timeout=5.0, pause=0.001, max_pause=0.003, attempts=3)
PLAIN = random.Random(0).randbytes(200_003)  # some chunks and a rest
VOICES = {"b.wav": b"second " * 13, "a.wav": b"first " * 11}


def zipped(members: dict[str | zipfile.ZipInfo, bytes] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("top/readme", "not wanted")
        archive.writestr("top/deeper/c.wav", "not wanted")
        for name, data in (members or {f"top/{name}": VOICES[name] for name in VOICES}).items():
            archive.writestr(name, data)
    return buffer.getvalue()


def folder_digest() -> str:
    lines = [f"{hashlib.sha256(VOICES[name]).hexdigest()}  {name}\n" for name in sorted(VOICES)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def item(stored: str, packing: Packing = "none") -> Item:
    archive = packing == "zip"
    return Item(
        url=f"https://example.org/far/away/{stored}",
        stored=stored,
        sha256=folder_digest() if archive else hashlib.sha256(PLAIN).hexdigest(),
        bytes=sum(map(len, VOICES.values())) if archive else len(PLAIN),
        packing=packing,
        members="top/*.wav" if archive else "",
    )


def corpus(*items: Item) -> Corpus:
    free = License(name="free", url="https://example.org/license")
    return Corpus(name="small", title="a test", license=free, page="https://a", items=items)


ALL = corpus(item("plain.txt"), item("text", "gz"), item("zips", "zip"))
SERVED = {
    "/mirror/small/plain.txt": PLAIN,
    "/mirror/small/text.gz": gzip.compress(PLAIN),
    "/mirror/small/zips.zip": zipped(),
}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as served:
        served.files |= SERVED
        yield served


def get(
    server: Loopback, folder: Path, wanted: Corpus = ALL, retry: RetryPolicy = HASTY
) -> list[Event]:
    events: list[Event] = []
    paths = download(
        wanted, folder, mirror=f"{server.base}/mirror/", retry=retry, report=events.append
    )
    assert paths == [folder / part.stored for part in wanted.items]
    return events


ONE = corpus(ALL.items[0])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_each_packing(server: Loopback, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    events = get(server, folder)
    assert (folder / "plain.txt").read_bytes() == (folder / "text").read_bytes() == PLAIN
    found = {file.name: file.read_bytes() for file in (folder / "zips").iterdir()}
    assert found == VOICES
    assert names(folder) == {"plain.txt", "text", "zips"}
    counts = [event.bytes for event in events if event.file == "plain.txt"]
    assert counts == sorted(set(counts)) and len(counts) > 1
    assert DownloadProgress("plain.txt", len(PLAIN), len(PLAIN)) in events


def test_what_is_there_is_not_downloaded_again(server: Loopback, tmp_path: Path) -> None:
    get(server, tmp_path)
    (tmp_path / "text").unlink()
    server.asked.clear()
    get(server, tmp_path)
    assert server.asked == ["/mirror/small/text.gz"]
    assert (tmp_path / "text").read_bytes() == PLAIN


@pytest.mark.parametrize("stored", ["plain.txt", "text", "zips"])
def test_something_else_there_is_left_alone(server: Loopback, tmp_path: Path, stored: str) -> None:
    get(server, tmp_path)
    path = tmp_path / stored
    mine = path / "mine" if path.is_dir() else path
    mine.write_text("my own work")
    server.asked.clear()
    with pytest.raises(UserError, match=rf"{stored}: different contents \(expected sha256"):
        get(server, tmp_path)
    assert mine.read_text() == "my own work"
    assert server.asked == []


@pytest.mark.parametrize("number", range(3), ids=lambda number: ALL.items[number].packing)
def test_wrong_bytes_leave_nothing(server: Loopback, tmp_path: Path, number: int) -> None:
    wanted = ALL.items[number]
    with pytest.raises(BadDownload, match=rf"expected sha256 0{{64}}, got {wanted.sha256}"):
        get(server, tmp_path, corpus(replace(wanted, sha256="0" * 64)))
    assert names(tmp_path) == set()


@pytest.mark.parametrize("number", [1, 2], ids=lambda number: ALL.items[number].packing)
def test_a_damaged_archive_leaves_nothing(server: Loopback, tmp_path: Path, number: int) -> None:
    """Truncated, and with every byte changed in turn: nothing but a failure, or the right files."""
    wanted = corpus(ALL.items[number])
    path = f"/mirror/small/{ALL.items[number].download_name}"
    whole = SERVED[path]
    server.files[path] = whole[:-40]
    with pytest.raises(BadDownload, match="cannot unpack"):
        get(server, tmp_path, wanted)
    assert names(tmp_path) == set()
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        server.files[path] = whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :]
        folder = tmp_path / str(place)
        try:
            get(server, folder, wanted)
        except BadDownload:
            assert names(folder) == set()
        else:
            assert digest(folder / wanted.items[0].stored) == wanted.items[0].sha256


def test_what_is_done_stays_when_the_next_fails(server: Loopback, tmp_path: Path) -> None:
    del server.files["/mirror/small/zips.zip"]
    with pytest.raises(Failure, match="expected the file, got 404"):
        get(server, tmp_path)
    assert names(tmp_path) == {"plain.txt", "text"}


# --- archives that lie


@pytest.mark.parametrize(
    "members",
    [
        {"top/a.wav": b"x", "top/../../b.wav": b"x"},
        {"top/a.wav": b"x", "/top/b.wav": b"x"},
        {"top/x\\a.wav": b"x"},
        {"top/C:a.wav": b"x"},
        {"top/a.wav": bytes(2**22)},
        {f"top/{number}": b"" for number in range(module.MAX_MEMBERS)},
        {"other/a.wav": b"x"},
    ],
    ids=["dots", "absolute", "backslash", "drive", "bomb", "members", "no member"],
)
def test_a_zip_that_lies(server: Loopback, tmp_path: Path, members: dict[str, bytes]) -> None:
    """Nothing is written outside of the folder, and none of these has the right digest."""
    server.files["/mirror/small/zips.zip"] = zipped(members)
    large = replace(ALL.items[2], bytes=2**21)
    with pytest.raises(BadDownload):
        get(server, tmp_path / "in", corpus(large))
    assert names(tmp_path) == {"in"} and names(tmp_path / "in") == set()


def test_links_encryption_and_two_of_a_name(server: Loopback, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("top/a.wav")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    twice = io.BytesIO()
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("top/a.wav", b"1")
        archive.writestr("top/a.wav", b"2")
    secret = bytearray(zipped())
    for mark, distance in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = secret.rindex(mark) + distance
        secret[place] |= 1
    for content in (twice.getvalue(), zipped({link: b"/etc/passwd"}), bytes(secret)):
        server.files["/mirror/small/zips.zip"] = content
        with pytest.raises(BadDownload):
            get(server, tmp_path, corpus(ALL.items[2]))
        assert names(tmp_path) == set()


def test_a_gzip_bomb_is_stopped(server: Loopback, tmp_path: Path) -> None:
    server.files["/mirror/small/text.gz"] = gzip.compress(bytes(2**26))
    with pytest.raises(BadDownload, match="more than"):
        get(server, tmp_path, corpus(ALL.items[1]))
    assert names(tmp_path) == set()


# --- the network


@pytest.mark.parametrize(
    ("tricks", "why"),
    [
        *(([Trick(status=status)] * 2, str(status)) for status in (429, 500, 502, 503, 504)),
        ([Trick(cut=70_001), Trick(cut=3)], ""),
    ],
    ids=["429", "500", "502", "503", "504", "cut"],
)
def test_a_failed_download_starts_again(
    server: Loopback, tmp_path: Path, tricks: list[Trick], why: str
) -> None:
    server.tricks = tricks
    waits = [event for event in get(server, tmp_path, ONE) if isinstance(event, RetryScheduled)]
    assert (tmp_path / "plain.txt").read_bytes() == PLAIN
    assert [wait.seconds for wait in waits] == [0.001, 0.002]  # each twice the one before
    assert why in waits[0].reason


def test_what_the_server_asks_for_is_waited_for_within_bounds(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    asked = ["7", "86400", "soon"]
    server.tricks = [Trick(status=429, headers={"Retry-After": value}) for value in asked]
    get(server, tmp_path, ONE, RetryPolicy(pause=2.0, max_pause=50.0, attempts=6))
    assert slept == [7, 50, 8]  # no answer to the last: the third of 2, 4, 8


def test_attempts_end(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(status=503), Trick(cut=70_001), Trick(status=503)]
    with pytest.raises(Failure, match=r"in 3 attempts \(the server returned 503 .*; run the") as no:
        get(server, tmp_path, ONE)
    assert no.value.exit_code == 1
    assert len(server.asked) == 3 and names(tmp_path) == set()


def test_a_silent_server_is_asked_again(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(silent=5.0)]
    events = get(server, tmp_path, ONE, RetryPolicy(timeout=0.2, pause=0.001))
    assert [event.reason for event in events if isinstance(event, RetryScheduled)] == ["timeout"]


def test_nobody_there(tmp_path: Path) -> None:
    with loopback() as gone:
        pass
    with pytest.raises(
        Failure, match=r"in 3 attempts \(connection failed \(Connection refused\)\)"
    ):
        get(gone, tmp_path, ONE)


@pytest.mark.parametrize(
    ("trick", "error", "message"),
    [
        (Trick(status=403), Failure, "expected the file, got 403"),
        (Trick(), BadDownload, f"expected at most {len(PLAIN):,} bytes"),
        (Trick(endless=True), BadDownload, f"expected at most {len(PLAIN):,} bytes"),
        *(
            (Trick(status=302, headers={"Location": target}), Failure, "[Rr]edirection to")
            for target in ("http://127.0.0.1:9/f", "http://example.org/f", "file:///etc/")
        ),
    ],
    ids=["forbidden", "announced", "endless", "this machine", "http", "file"],
)
def test_some_answers_are_final(
    server: Loopback, tmp_path: Path, trick: Trick, error: type[Exception], message: str
) -> None:
    server.files["/mirror/small/plain.txt"] += b"!"
    server.tricks = [trick]
    with pytest.raises(error, match=message):
        get(server, tmp_path, ONE)
    assert len(server.asked) == 1 and names(tmp_path) == set()


def test_a_redirection_to_https_is_followed(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the start of the connection: the local server has no certificate."""
    seen: list[str] = []

    def https_open(_: object, request: module.urllib.request.Request) -> None:
        seen.append(request.full_url)
        raise ConnectionResetError

    monkeypatch.setattr(module.urllib.request.HTTPSHandler, "https_open", https_open)
    server.tricks = [Trick(status=302, headers={"Location": "https://example.org/f"})] * 3
    with pytest.raises(Failure, match="in 3 attempts"):
        get(server, tmp_path, ONE)
    assert seen == ["https://example.org/f"] * 3


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_a_full_disk_is_no_fault_of_the_network(server: Loopback, tmp_path: Path) -> None:
    import resource

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_003, old[1]))
    try:
        with pytest.raises(Failure, match=r"cannot be written .*; free some space"):
            get(server, tmp_path, ONE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert len(server.asked) == 1 and names(tmp_path) == set()


def test_a_proxy_is_not_asked_for_this_machine(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    get(server, tmp_path, ONE)


SAFE = [
    *("https://example.org/f", "http://127.0.0.1:8000/f", "http://127.8.9.1/f"),
    *("http://localhost/f", "http://[::1]:80/f"),
]
UNSAFE = [
    *("http://example.org/f", "http://127.0.0.1.example.org/f", "http://192.168.0.1/f"),
    *("http://localhost@example.org/f", "https://name:word@example.org/f"),
    *("https://example.org:port/f", "https://[::1/f", "https://example.org/a b"),
    *("https://example.org/a\nb", "https:///f", "file:///etc/passwd", "ftp://example.org/f", ""),
]


@pytest.mark.parametrize("url", SAFE + UNSAFE)
def test_only_https_and_this_machine_are_safe(url: str) -> None:
    assert is_safe(url) == (url in SAFE)


def test_download_urls(tmp_path: Path) -> None:
    gz = ALL.items[1]
    assert download_url(ALL, gz, None) == gz.url
    for mirror in ("https://m/x/", "https://m/x"):
        assert download_url(ALL, gz, mirror) == "https://m/x/small/text.gz"
    with pytest.raises(UserError, match="mirror ftp://m: expected an https"):
        download(ALL, tmp_path / "new", mirror="ftp://m", retry=HASTY, report=print)
    assert names(tmp_path) == set()
    with pytest.raises(Failure, match="expected an https URL"):
        fetch("http://example.org/f", io.BytesIO(), "f", 1, HASTY, print)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="GNU coreutils are the oracle")
def test_the_digest_of_a_folder_is_what_sha256sum_says(tmp_path: Path) -> None:
    for name in ("b.wav", "a.wav", "B.wav", "10", "9", "a-b", "a_b"):
        (tmp_path / name).write_text(f"content of {name}")
    command = "LC_ALL=C; export LC_ALL; sha256sum -- * | sha256sum"
    said = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    before = digest(tmp_path)
    assert before == said.stdout.split()[0]
    (tmp_path / "deeper").mkdir()
    assert digest(tmp_path) != before
