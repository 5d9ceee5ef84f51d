"""From an address to a checked file: a wrong byte leaves nothing under the final name."""

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harken.corpora.fetch import Event, Patience
from harken.corpora.obtain import digest, obtain, where

from harken.corpora import obtain as module
from harken.corpora.catalogue import Corpus, Item, Licence, Packing
from harken.errors import Failure, UserError
from loopback import Loopback, Trick, loopback

HASTY = Patience(silence=5.0, pause=0.001, tries=2)
PLAIN = b"one line\nand another\n" * 101
VOICES = {"b.wav": b"second " * 13, "a.wav": b"first " * 11}


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("top/readme", "not wanted")
        for name, data in VOICES.items():
            archive.writestr(f"top/{name}", data)
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in VOICES.items():
            member = tarfile.TarInfo(f"top/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def of_folder() -> str:
    lines = [f"{hashlib.sha256(VOICES[name]).hexdigest()}  {name}\n" for name in sorted(VOICES)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def item(stored: str, packing: Packing = "none") -> Item:
    archive = packing not in ("none", "gz")
    return Item(
        address=f"https://example.org/far/away/{stored}",
        stored=stored,
        sha256=of_folder() if archive else hashlib.sha256(PLAIN).hexdigest(),
        bytes=sum(map(len, VOICES.values())) if archive else len(PLAIN),
        packing=packing,
        members="top/*.wav" if archive else "",
    )


def corpus(*items: Item) -> Corpus:
    licence = Licence(name="free", address="https://example.org/licence")
    return Corpus(name="small", title="a test", licence=licence, page="https://a", items=items)


ALL = corpus(item("plain.txt"), item("text", "gz"), item("zips", "zip"), item("tars", "tar.gz"))
SERVED = {
    "/mirror/small/plain.txt": PLAIN,
    "/mirror/small/text.gz": gzip.compress(PLAIN),
    "/mirror/small/zips.zip": zipped(),
    "/mirror/small/tars.tar.gz": tarred(),
}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as served:
        served.files |= SERVED
        yield served


def get(server: Loopback, folder: Path, wanted: Corpus = ALL) -> list[Path]:
    def ignore(event: Event) -> None:
        pass

    mirror = f"{server.base}/mirror/"
    return obtain(wanted, folder, mirror=mirror, patience=HASTY, listen=ignore)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_each_packing_ends_as_it_should(server: Loopback, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    paths = get(server, folder)
    assert paths == [folder / name for name in ("plain.txt", "text", "zips", "tars")]
    assert paths[0].read_bytes() == paths[1].read_bytes() == PLAIN
    for path in paths[2:]:
        assert {file.name: file.read_bytes() for file in path.iterdir()} == VOICES
    assert names(folder) == {"plain.txt", "text", "zips", "tars"}  # nothing else stays


def test_what_is_there_is_not_fetched_again(server: Loopback, tmp_path: Path) -> None:
    get(server, tmp_path)
    (tmp_path / "text").unlink()
    server.asked.clear()
    assert get(server, tmp_path)[1].read_bytes() == PLAIN
    assert [path for path, _ in server.asked] == ["/mirror/small/text.gz"]


@pytest.mark.parametrize("stored", ["plain.txt", "text", "zips", "tars"])
def test_something_else_there_is_left_alone(server: Loopback, tmp_path: Path, stored: str) -> None:
    get(server, tmp_path)
    path = tmp_path / stored
    mine = path / "mine" if path.is_dir() else path
    mine.write_text("my own work")
    server.asked.clear()
    with pytest.raises(UserError, match=rf"{stored}: found something else there \(sha256 [0-9a-f]"):
        get(server, tmp_path)
    assert mine.read_text() == "my own work"
    assert server.asked == []


@pytest.mark.parametrize("number", range(4), ids=lambda number: ALL.items[number].packing)
def test_wrong_bytes_leave_nothing(server: Loopback, tmp_path: Path, number: int) -> None:
    """Each served soundly packed, but one letter of the content is another."""
    wanted = ALL.items[number]
    lie = corpus(
        Item(
            address=wanted.address,
            stored=wanted.stored,
            sha256="0" * 64,
            bytes=wanted.bytes,
            packing=wanted.packing,
            members=wanted.members,
        )
    )
    expected = rf"{wanted.stored}: found sha256 {wanted.sha256}, wanted 0{{64}}"
    with pytest.raises(Failure, match=expected) as failure:
        get(server, tmp_path, lie)
    assert failure.value.exit_code == 1
    assert names(tmp_path) == set()


@pytest.mark.parametrize("number", [1, 2, 3], ids=lambda number: ALL.items[number].packing)
def test_a_broken_archive_leaves_nothing(server: Loopback, tmp_path: Path, number: int) -> None:
    path = f"/mirror/small/{ALL.items[number].file}"
    server.files[path] = server.files[path][:-40]
    with pytest.raises(Failure, match="found a broken archive"):
        get(server, tmp_path, corpus(ALL.items[number]))
    assert names(tmp_path) == set()
    server.files[path] = SERVED[path]  # mended: the next try starts afresh
    get(server, tmp_path, corpus(ALL.items[number]))


def test_what_is_done_stays_when_the_next_fails(server: Loopback, tmp_path: Path) -> None:
    del server.files["/mirror/small/zips.zip"]
    with pytest.raises(Failure, match="found the answer 404"):
        get(server, tmp_path)
    assert names(tmp_path) == {"plain.txt", "text"}


def test_a_broken_off_download_goes_on(server: Loopback, tmp_path: Path) -> None:
    server.tricks = [Trick(cut=1001), Trick(status=503)]
    with pytest.raises(Failure, match="in 2 tries"):
        get(server, tmp_path, corpus(ALL.items[0]))
    assert names(tmp_path) == {"plain.txt.part", "plain.txt.part.from"}
    get(server, tmp_path, corpus(ALL.items[0]))
    assert server.asked[-1] == ("/mirror/small/plain.txt", "bytes=1001-")
    assert names(tmp_path) == {"plain.txt"}


def test_a_disk_that_fills_while_unpacking_keeps_the_download(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "gunzip", full)
    with pytest.raises(Failure, match="No space left"):
        get(server, tmp_path, corpus(ALL.items[1]))
    assert names(tmp_path) == {"text.gz.part", "text.gz.part.from"}
    monkeypatch.undo()
    server.asked.clear()
    get(server, tmp_path, corpus(ALL.items[1]))
    size = len(SERVED["/mirror/small/text.gz"])
    assert server.asked == [("/mirror/small/text.gz", f"bytes={size}-")]
    assert names(tmp_path) == {"text"}


def test_more_bytes_than_the_catalogue_says(server: Loopback, tmp_path: Path) -> None:
    server.files["/mirror/small/plain.txt"] += b"!"
    with pytest.raises(Failure, match=f"wanted at most {len(PLAIN):,}"):
        get(server, tmp_path)
    assert names(tmp_path) == set()


def test_where_things_are() -> None:
    gz = ALL.items[1]
    assert where(ALL, gz, None) == gz.address
    assert (
        where(ALL, gz, "https://m/x/")
        == where(ALL, gz, "https://m/x")
        == "https://m/x/small/text.gz"
    )
    with pytest.raises(UserError, match="mirror http://m/x: expected an https"):
        where(ALL, gz, "http://m/x")


def test_a_mirror_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        obtain(ALL, tmp_path / "new", mirror="ftp://m", patience=HASTY, listen=print)
    assert names(tmp_path) == set()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="GNU coreutils are the oracle")
def test_the_digest_of_a_folder_is_what_sha256sum_says(tmp_path: Path) -> None:
    for name in ("b.wav", "a.wav", "B.wav", "10", "9", "a-b", "a_b"):
        (tmp_path / name).write_text(f"content of {name}")
    command = "LC_ALL=C; export LC_ALL; sha256sum -- * | sha256sum"
    said = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert digest(tmp_path) == said.stdout.split()[0]
    before = digest(tmp_path)
    (tmp_path / "deeper").mkdir()
    assert digest(tmp_path) != before
