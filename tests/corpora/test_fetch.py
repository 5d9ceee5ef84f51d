"""Downloads against a server on this machine: going on, giving up, and never too much."""

import email.utils
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harken.corpora.fetch import Event, Patience, Received, Waiting, fetch, is_safe

from harken.corpora import fetch as module
from harken.errors import Failure
from loopback import Loopback, Trick, loopback

BODY = random.Random(0).randbytes(200_003)  # some chunks and a rest
HASTY = Patience(silence=5.0, pause=0.001, longest_pause=0.003, tries=3)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as served:
        served.files["/f"] = BODY
        yield served


def get(server: Loopback, part: Path, *, patience: Patience = HASTY) -> list[Event]:
    events: list[Event] = []
    fetch(f"{server.base}/f", part, most=len(BODY), patience=patience, listen=events.append)
    return events


def ranges(server: Loopback) -> list[str | None]:
    return [asked for _, asked in server.asked]


def begun(server: Loopback, part: Path, count: int) -> None:
    """A download that stopped after so many bytes, as Ctrl-C leaves it."""

    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    server.tricks.append(Trick(cut=count))
    with pytest.raises(KeyboardInterrupt):
        fetch(f"{server.base}/f", part, most=len(BODY), patience=HASTY, listen=stop)
    # The first chunk may be smaller than what was sent: let the rest of the test know exactly.
    part.write_bytes(BODY[:count])
    server.asked.clear()


def test_all_of_it_in_one_go(server: Loopback, tmp_path: Path) -> None:
    events = get(server, tmp_path / "f.part")
    assert (tmp_path / "f.part").read_bytes() == BODY
    assert events[-1] == Received("f.part", len(BODY), len(BODY))
    counts = [event.bytes for event in events if isinstance(event, Received)]
    assert counts == sorted(set(counts)) and len(counts) > 1
    assert ranges(server) == [None]


def test_a_cut_connection_is_gone_on_from(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(cut=70_001), Trick(cut=50_000)]
    events = get(server, tmp_path / "f.part")
    assert (tmp_path / "f.part").read_bytes() == BODY
    assert ranges(server) == [None, "bytes=70001-", "bytes=120001-"]
    assert sum(isinstance(event, Waiting) for event in events) == 2


def test_control_c_keeps_what_is_here(server: Loopback, tmp_path: Path) -> None:
    part = tmp_path / "f.part"

    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(f"{server.base}/f", part, most=len(BODY), patience=HASTY, listen=stop)
    kept = part.stat().st_size
    assert 0 < kept < len(BODY)
    assert part.read_bytes() == BODY[:kept]
    get(server, part)
    assert part.read_bytes() == BODY
    assert ranges(server) == [None, f"bytes={kept}-"]


def test_a_whole_part_is_not_fetched_again(server: Loopback, tmp_path: Path) -> None:
    """As a kill between the last byte and the check of the digest leaves it."""
    part = tmp_path / "f.part"
    begun(server, part, len(BODY))
    assert get(server, part) == []
    assert part.read_bytes() == BODY


@pytest.mark.parametrize(
    "trick",
    [
        Trick(ignore_range=True),
        Trick(
            ignore_range=True,
            headers={"Content-Range": f"bytes 60013-{len(BODY) - 1}/{len(BODY)}"},
        ),
        Trick(headers={"Content-Range": f"bytes 7-{len(BODY) - 1}/{len(BODY)}"}),
        Trick(headers={"Content-Range": "all of it"}),
        Trick(headers={"ETag": '"two"'}),
        Trick(headers={"Last-Modified": "Thu, 21 Dec 2017 16:01:00 GMT"}),
        Trick(status=404),
    ],
    ids=[
        "200",
        "200 that says 206",
        "other range",
        "no range",
        "other etag",
        "other date",
        "404 once",
    ],
)
def test_an_answer_that_does_not_go_on_starts_again(
    server: Loopback, tmp_path: Path, trick: Trick
) -> None:
    part = tmp_path / "f.part"
    begun(server, part, 60_013)
    server.tricks = [trick]
    get(server, part)
    assert part.read_bytes() == BODY
    assert ranges(server) == ["bytes=60013-", None]


def test_a_changed_file_is_not_joined_to_the_old_one(server: Loopback, tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    begun(server, part, 60_013)
    server.files["/f"], server.etag = BODY[::-1], '"two"'
    get(server, part)
    assert part.read_bytes() == BODY[::-1]
    assert json.loads((tmp_path / "f.part.from").read_text())["ETag"] == '"two"'


def test_a_shorter_file_is_not_joined_to_the_old_one(server: Loopback, tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    begun(server, part, 60_013)
    server.files["/f"] = BODY[:50_000]
    get(server, part)
    assert part.read_bytes() == BODY[:50_000]


@pytest.mark.parametrize("origin", [None, "{half", '{"address": "https://elsewhere/f"}'])
def test_a_part_of_unknown_origin_is_not_trusted(
    server: Loopback, tmp_path: Path, origin: str | None
) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(b"something else")
    if origin is not None:
        (tmp_path / "f.part.from").write_text(origin)
    get(server, part)
    assert part.read_bytes() == BODY


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(server: Loopback, tmp_path: Path, status: int) -> None:
    server.tricks = [Trick(status=status), Trick(status=status)]
    events = get(server, tmp_path / "f.part")
    assert (tmp_path / "f.part").read_bytes() == BODY
    waits = [event for event in events if isinstance(event, Waiting)]
    assert [wait.seconds for wait in waits] == [0.001, 0.002]  # each twice the one before
    assert str(status) in waits[0].why


def test_what_the_server_asks_for_is_waited_for_within_bounds(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    soon = email.utils.formatdate(time.time() + 40, usegmt=True)
    asked = ["7", soon, "86400", "Thu, 01 Jan 1970 00:00:00 GMT", "soon"]
    server.tricks = [Trick(status=429, headers={"Retry-After": value}) for value in asked]
    patience = Patience(pause=2.0, longest_pause=50.0, tries=6)
    get(server, tmp_path / "f.part", patience=patience)
    assert slept[0] == 7
    assert 30 < slept[1] <= 40
    assert slept[2:4] == [50, 0]
    assert slept[4] == 32  # no answer to that: the fifth of 2, 4, 8, 16, 32


def test_patience_ends(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(status=503)] * 9
    with pytest.raises(Failure, match=r"found the answer 503 .* in 3 tries.*; run the same") as no:
        get(server, tmp_path / "f.part")
    assert no.value.exit_code == 1
    assert len(server.asked) == 3


def test_new_bytes_renew_patience_but_old_ones_do_not(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(cut=30_000)] * 6  # 6 * 30,000 < 200,003, each of them new
    get(server, tmp_path / "f.part")
    assert len(server.asked) == 7
    # The same first bytes over and over, never the rest.
    server.asked.clear()
    server.tricks = [
        Trick(cut=30_000, ignore_range=True, headers={"ETag": f'"{number}"'})
        for number in range(20)
    ]
    with pytest.raises(Failure, match="in 3 tries"):
        get(server, tmp_path / "g.part")


def test_a_silent_server_is_asked_again(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(silent=5.0)]
    events = get(server, tmp_path / "f.part", patience=Patience(silence=0.2, pause=0.001))
    assert (tmp_path / "f.part").read_bytes() == BODY
    assert [event.why for event in events if isinstance(event, Waiting)] == ["no byte for too long"]


def test_nobody_there(tmp_path: Path) -> None:
    with loopback() as gone:
        pass
    with pytest.raises(Failure, match=r"no connection \(Connection refused\) in 3 tries"):
        get(gone, tmp_path / "f.part")
    assert list(tmp_path.iterdir()) == []


def test_a_final_no_is_not_asked_again(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(status=403)]
    with pytest.raises(Failure, match="found the answer 403"):
        get(server, tmp_path / "f.part")
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_too_much_is_refused_when_it_is_announced(server: Loopback, tmp_path: Path) -> None:
    events: list[Event] = []
    with pytest.raises(Failure, match="found 200,003 bytes or more, wanted at most 200,002"):
        fetch(
            f"{server.base}/f",
            tmp_path / "f.part",
            most=len(BODY) - 1,
            patience=HASTY,
            listen=events.append,
        )
    assert events == []  # not one byte was read
    assert list(tmp_path.iterdir()) == []


def test_too_much_is_refused_when_it_comes(server: Loopback, tmp_path: Path) -> None:
    """Without a length, and without an end."""
    server.tricks = [Trick(endless=True)]
    with pytest.raises(Failure, match="wanted at most 200,003"):
        get(server, tmp_path / "f.part")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["http://127.0.0.1:9/f", "http://example.org/f", "file:///etc/"])
def test_a_redirection_leads_to_https_only(server: Loopback, tmp_path: Path, target: str) -> None:
    server.tricks = [Trick(status=302, headers={"Location": target})]
    with pytest.raises(Failure):
        get(server, tmp_path / "f.part")
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_redirection_to_https_is_followed(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the door: what stands behind it has no certificate here."""
    seen: list[str] = []

    def https_open(_: object, request: module.urllib.request.Request) -> None:
        seen.append(request.full_url)
        raise ConnectionResetError

    monkeypatch.setattr(module.urllib.request.HTTPSHandler, "https_open", https_open)
    server.tricks = [Trick(status=302, headers={"Location": "https://example.org/f"})] * 3
    with pytest.raises(Failure, match="in 3 tries"):
        get(server, tmp_path / "f.part")
    assert seen == ["https://example.org/f"] * 3


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_a_full_disk_is_no_fault_of_the_network(server: Loopback, tmp_path: Path) -> None:
    import resource

    part = tmp_path / "f.part"
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_003, old[1]))
    try:
        with pytest.raises(Failure, match=r"f.part: could not be written .*; free some space"):
            get(server, part)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert len(server.asked) == 1
    kept = part.stat().st_size
    assert 0 < kept <= 100_003
    get(server, part)
    assert part.read_bytes() == BODY
    assert ranges(server) == [None, f"bytes={kept}-"]


def test_a_proxy_is_not_asked_for_the_way_home(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    get(server, tmp_path / "f.part")
    assert (tmp_path / "f.part").read_bytes() == BODY


@pytest.mark.parametrize(
    ("address", "safe"),
    [
        ("https://example.org/f", True),
        ("http://127.0.0.1:8000/f", True),
        ("http://127.8.9.1/f", True),
        ("http://localhost/f", True),
        ("http://[::1]:80/f", True),
        ("http://example.org/f", False),
        ("http://127.0.0.1.example.org/f", False),
        ("http://192.168.0.1/f", False),
        ("http://localhost@example.org/f", False),
        ("https://name:word@example.org/f", False),
        ("https://example.org:port/f", False),
        ("https://[::1/f", False),
        ("https://example.org/a b", False),
        ("https://example.org/a\nb", False),
        ("https:///f", False),
        ("file:///etc/passwd", False),
        ("ftp://example.org/f", False),
        ("example.org/f", False),
        ("", False),
    ],
)
def test_only_https_is_safe_and_home(address: str, safe: bool) -> None:
    assert is_safe(address) is safe


def test_nothing_else_is_even_tried(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="found no https"):
        fetch("http://example.org/f", tmp_path / "f", most=1, patience=HASTY, listen=print)
