"""Archives that lie are refused: nothing is written outside the folder or beyond the room."""

import bz2
import gzip
import io
import lzma
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from harken.corpora.unpack import Archive, Limits, Unsound, gunzip, unpack
from hypothesis import given, settings
from hypothesis import strategies as st

WIDE = Limits(bytes=2**22)
TEXT = random.Random(1).randbytes(70_001)  # more than a chunk; cannot be compressed
KINDS: list[Archive] = ["zip", "tar.gz", "tar.bz2", "tar.xz"]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
}
Entry = tuple[str, bytes]
TOO_MUCH = r"far more inside| of \d+ bytes"


def zipped(*entries: Entry | zipfile.ZipInfo) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            if isinstance(entry, zipfile.ZipInfo):
                archive.writestr(entry, b"target")
            else:
                archive.writestr(*entry)
    return buffer.getvalue()


def tarred(*entries: Entry | tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                member = tarfile.TarInfo(entry[0])
                member.size = len(entry[1])
                archive.addfile(member, io.BytesIO(entry[1]))
    return buffer.getvalue()


def packed(kind: Archive, *entries: Entry) -> bytes:
    return zipped(*entries) if kind == "zip" else PACK[kind](tarred(*entries))


def opened(
    folder: Path,
    kind: Archive,
    data: bytes,
    *,
    members: str = "top/*.txt",
    limits: Limits = WIDE,
) -> dict[str, bytes]:
    archive, into = folder / "archive", folder / "into"
    archive.write_bytes(data)
    into.mkdir()
    unpack(archive, into, kind=kind, members=members, limits=limits)
    return {path.name: path.read_bytes() for path in into.iterdir()}


def refused(folder: Path, kind: Archive, data: bytes, *, found: str, limits: Limits = WIDE) -> None:
    with pytest.raises(Unsound, match=found) as failure:
        opened(folder, kind, data, limits=limits)
    assert failure.value.exit_code == 1
    assert {path.name for path in folder.iterdir()} == {"archive", "into"}
    written = sum(path.stat().st_size for path in (folder / "into").iterdir())
    assert written <= limits.bytes


@pytest.mark.parametrize("kind", KINDS)
def test_the_wanted_members_and_no_others(tmp_path: Path, kind: Archive) -> None:
    data = packed(
        kind,
        ("top/one.txt", TEXT),
        ("top/two.wav", b"another kind"),
        ("top/deep/three.txt", b"another folder"),
        ("four.txt", b"no folder"),
        ("top/five.txt", b""),
        ("./top/six.txt", b"a long way to say it"),
    )
    assert opened(tmp_path, kind, data) == {
        "one.txt": TEXT,
        "five.txt": b"",
        "six.txt": b"a long way to say it",
    }


def test_folders_of_an_archive_are_no_members(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("top")
    folder.type = tarfile.DIRTYPE
    data = gzip.compress(tarred(folder, folder, ("top/a.txt", b"a")))
    assert opened(tmp_path, "tar.gz", data) == {"a.txt": b"a"}
    (tmp_path / "zip").mkdir()
    data = zipped(("top/", b""), ("top/a.txt", b"a"))
    assert opened(tmp_path / "zip", "zip", data) == {"a.txt": b"a"}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_wanted_is_an_error(tmp_path: Path, kind: Archive) -> None:
    refused(tmp_path, kind, packed(kind, ("top/a.wav", b"a")), found=r"no member 'top/\*\.txt'")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "/etc/evil.txt",
        "//host/evil.txt",
        "../evil.txt",
        "top/../../evil.txt",
        "top/..",
        "C:evil.txt",
        "C:/evil.txt",
        "top\\..\\evil.txt",
        "top/evil.txt:stream",
        "top/evil\n.txt",
        ".",
    ],
)
def test_names_that_reach_outside(tmp_path: Path, kind: Archive, name: str) -> None:
    """Though they are not wanted: who writes such a name means no good."""
    data = packed(kind, ("top/a.txt", b"a"), (name, b"evil"))
    refused(tmp_path, kind, data, found="found the name")


def test_a_name_cut_by_a_zero_byte(tmp_path: Path) -> None:
    data = zipped(("top/a.txtZ.exe", b"a")).replace(b".txtZ.exe", b".txt\0.exe")
    refused(tmp_path, "zip", data, found="found the name")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("top/a.txt", "top/a.txt"),
        ("top/a.txt", "top//a.txt"),
        ("top/a.txt", "top/A.TXT"),
        ("top/stra\u00dfe.txt", "top/STRASSE.txt"),
        ("top/\u00e9.txt", "top/e\u0301.txt"),  # one letter, and a letter with an accent
        ("other/a", "OTHER/a"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_members_of_one_name(tmp_path: Path, kind: Archive, first: str, second: str) -> None:
    refused(tmp_path, kind, packed(kind, (first, b"1"), (second, b"2")), found="two members named")


def special(kind: bytes, name: str, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "member",
    [
        special(tarfile.SYMTYPE, "top/a.txt", "/etc/passwd"),
        special(tarfile.LNKTYPE, "top/a.txt", "/etc/passwd"),
        special(tarfile.LNKTYPE, "top/a.txt", "../archive"),
        special(tarfile.CHRTYPE, "top/a.txt"),
        special(tarfile.BLKTYPE, "top/a.txt"),
        special(tarfile.FIFOTYPE, "top/a.txt"),
        special(tarfile.SYMTYPE, "unwanted", "/"),
    ],
    ids=["symlink", "hard link", "hard link up", "character", "block", "fifo", "unwanted"],
)
def test_links_and_devices_in_a_tar(tmp_path: Path, member: tarfile.TarInfo) -> None:
    data = gzip.compress(tarred(("top/z.txt", b"z"), member))
    refused(tmp_path, "tar.gz", data, found="which is a link, a device or sparse")


def test_a_file_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = special(tarfile.SYMTYPE, "top", str(outside))
    data = gzip.compress(tarred(link, ("top/evil.txt", b"evil")))
    with pytest.raises(Unsound, match="which is a link"):
        opened(tmp_path, "tar.gz", data)
    assert list(outside.iterdir()) == list((tmp_path / "into").iterdir()) == []


def test_a_sparse_file(tmp_path: Path) -> None:
    """GNU's older form: a header of 512 bytes that stands for a gigabyte of zeros."""
    member = special(tarfile.GNUTYPE_SPARSE, "top/a.txt")
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"00000000000\0" * 2  # one piece, at 0, of no bytes
    header[483:495] = b"10000000000\0"  # the size that it pretends to
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    data = gzip.compress(bytes(header) + bytes(1024))
    refused(tmp_path, "tar.gz", data, found="which is a link, a device or sparse")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip(tmp_path: Path, mode: int) -> None:
    member = zipfile.ZipInfo("top/a.txt")
    member.external_attr = (mode | 0o644) << 16
    refused(tmp_path, "zip", zipped(member), found="which is a link or a device")


@pytest.mark.parametrize("flag", [0x1, 0x41, 0x2001])
def test_an_encrypted_member(tmp_path: Path, flag: int) -> None:
    data = bytearray(zipped(("top/a.txt", b"a")))
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = data.index(signature) + place
        data[start : start + 2] = flag.to_bytes(2, "little")
    refused(tmp_path, "zip", bytes(data), found="the encrypted member 'top/a.txt'")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path, kind: Archive) -> None:
    """The ratio bites first: 8 MiB of zeros in a few KiB."""
    data = packed(kind, ("top/a.txt", bytes(2**23)))
    assert len(data) < 2**14
    limits = Limits(bytes=2**30)
    room = max(limits.ratio * len(data), 2**20)
    with pytest.raises(Unsound, match=TOO_MUCH):
        opened(tmp_path, kind, data, limits=limits)
    assert sum(path.stat().st_size for path in (tmp_path / "into").iterdir()) <= room
    # The size alone: nothing about these bytes is suspicious but their number.
    (tmp_path / "plain").mkdir()
    data = packed(kind, ("top/a.txt", TEXT))
    refused(tmp_path / "plain", kind, data, found=TOO_MUCH, limits=Limits(bytes=len(TEXT) - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_many_members_share_one_room(tmp_path: Path, kind: Archive) -> None:
    data = packed(kind, *((f"top/{number}.txt", TEXT) for number in range(5)))
    refused(tmp_path, kind, data, found=TOO_MUCH, limits=Limits(bytes=4 * len(TEXT)))


def test_an_unwanted_bomb_in_a_tar_is_not_read_to_its_end(tmp_path: Path) -> None:
    data = gzip.compress(tarred(("other", bytes(2**23)), ("top/a.txt", b"a")))
    refused(tmp_path, "tar.gz", data, found=TOO_MUCH)


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_members(tmp_path: Path, kind: Archive) -> None:
    data = packed(kind, *((f"top/{number}.txt", b"") for number in range(12)))
    limits = Limits(bytes=2**22, members=11)
    refused(tmp_path, kind, data, found="more than 11 members", limits=limits)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["top/a.txt", "other"])
@pytest.mark.parametrize("size", [2**40, 2**62, -512])
def test_a_tar_that_declares_an_impossible_size(tmp_path: Path, name: str, size: int) -> None:
    """Python's own reader takes minutes to years to find out, where a member is skipped."""
    member = tarfile.TarInfo(name)
    member.size = size
    data = gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    refused(tmp_path, "tar.gz", data, found=f"{name}' of {size} bytes")


@pytest.mark.timeout(20)
def test_a_tar_that_declares_more_than_comes(tmp_path: Path) -> None:
    member = tarfile.TarInfo("top/a.txt")
    member.size = 2**20
    data = gzip.compress(member.tobuf() + bytes(2048))
    refused(tmp_path, "tar.gz", data, found="broken archive")


def test_a_tar_with_a_huge_header(tmp_path: Path) -> None:
    """A long name is read into memory: it too is counted."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**40
    data = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + b"x" * 2**22)
    refused(tmp_path, "tar.gz", data, found=TOO_MUCH, limits=Limits(bytes=2**20))


def test_a_zip_that_declares_a_huge_member(tmp_path: Path) -> None:
    data = bytearray(zipped(("top/a.txt", TEXT)))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        start = data.index(signature) + place
        data[start : start + 4] = (2**32 - 2).to_bytes(4, "little")
    refused(tmp_path, "zip", bytes(data), found="'a.txt' shorter than it says")


def test_members_of_a_zip_that_lie_about_their_size(tmp_path: Path) -> None:
    """Two megabytes that claim to be three bytes: no more than three are believed."""
    data = bytearray(zipped(("top/a.txt", bytes(2**21))))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        start = data.index(signature) + place
        data[start : start + 4] = (3).to_bytes(4, "little")
    refused(tmp_path, "zip", bytes(data), found="broken archive", limits=Limits(bytes=2**10))


def test_a_zip_that_points_before_its_start(tmp_path: Path) -> None:
    data = bytearray(zipped(("top/a.txt", b"a")))
    data[-5] ^= 1  # the place of the list of members, 256 bytes too far
    refused(tmp_path, "zip", bytes(data), found="broken archive")


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_archive(tmp_path: Path, kind: Archive) -> None:
    data = packed(kind, ("top/a.txt", TEXT), ("top/b.txt", TEXT))
    for number, share in enumerate((0.0, 0.3, 0.6, 0.9)):
        folder = tmp_path / str(number)
        folder.mkdir()
        refused(folder, kind, data[: int(len(data) * share)], found="broken archive|no member")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255))
def test_a_changed_byte_never_escapes_as_another_error(
    kind: Archive, place: float, byte: int
) -> None:
    """Refused, or harmless: in a time stamp, in a header that is not read."""
    data = bytearray(packed(kind, ("top/a.txt", b"a text"), ("top/b.txt", b"b text")))
    data[int(place * len(data))] ^= byte
    with TemporaryDirectory() as folder:
        with suppress(Unsound):
            opened(Path(folder), kind, bytes(data))
        assert {path.name for path in Path(folder).iterdir()} == {"archive", "into"}


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), change=st.binary(min_size=1, max_size=9))
def test_a_changed_tar_never_escapes_as_another_error(place: float, change: bytes) -> None:
    """Behind the compression's own sum, where only the tar's reader can stumble."""
    data = bytearray(tarred(("top/a.txt", b"a text"), ("x" * 200 + "/b.txt", b"b text")))
    start = int(place * len(data))
    data[start : start + len(change)] = change
    for block in range(0, len(data) - 511, 512):  # a header whose sum is right is read on
        if data[block + 257 : block + 262] == b"ustar":
            data[block + 148 : block + 156] = b" " * 8
            total = sum(data[block : block + 512])
            data[block + 148 : block + 156] = f"{total:06o}\0 ".encode()
    with TemporaryDirectory() as folder:
        with suppress(Unsound):
            opened(Path(folder), "tar.gz", gzip.compress(bytes(data), 1))
        assert {path.name for path in Path(folder).iterdir()} == {"archive", "into"}


def test_one_compressed_file(tmp_path: Path) -> None:
    archive = tmp_path / "a.gz"
    archive.write_bytes(gzip.compress(TEXT) + gzip.compress(b"and a second piece"))
    gunzip(archive, tmp_path / "a", WIDE)
    assert (tmp_path / "a").read_bytes() == TEXT + b"and a second piece"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (gzip.compress(TEXT)[:-9], "broken archive"),
        (gzip.compress(TEXT)[:-8] + bytes(8), "broken archive"),
        (gzip.compress(TEXT) + b"garbage", "broken archive"),
        (b"no archive", "broken archive"),
        (gzip.compress(bytes(2**23)), "far more inside"),
    ],
    ids=["truncated", "wrong sum", "garbage", "plain", "bomb"],
)
def test_a_compressed_file_that_lies(tmp_path: Path, data: bytes, found: str) -> None:
    archive = tmp_path / "a.gz"
    archive.write_bytes(data)
    with pytest.raises(Unsound, match=found):
        gunzip(archive, tmp_path / "a", WIDE)


def test_a_disk_that_refuses_is_not_taken_for_damage(tmp_path: Path) -> None:
    archive = tmp_path / "a.gz"
    archive.write_bytes(gzip.compress(TEXT))
    with pytest.raises(FileNotFoundError):
        gunzip(archive, tmp_path / "missing" / "a", WIDE)
