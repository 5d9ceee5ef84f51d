import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from harken.errors import Failure, UserError
from harken.files import (
    appended,
    locked_folder,
    remove_folder,
    replacing,
    replacing_folder,
    sha256,
    write_text,
)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


Replace = Callable[[Path], AbstractContextManager[Path]]


class Target(NamedTuple):
    """A file or folder to replace, how, and the name of the file inside; it contains "old"."""

    path: Path
    replace: Replace
    part: str

    def read(self) -> str:
        assert names(self.path.parent) == {self.path.name}
        return (self.path / self.part).read_text()


def old_folder(folder: Path) -> Path:
    (folder / "kept").mkdir()
    (folder / "kept" / "part").write_text("old")
    return folder / "kept"


@pytest.fixture(params=["file", "folder"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "folder":
        return Target(old_folder(tmp_path), replacing_folder, "part")
    write_text(tmp_path / "kept", "old")
    return Target(tmp_path / "kept", replacing, "")


def test_the_old_is_replaced_at_the_end(target: Target) -> None:
    with target.replace(target.path) as unfinished:
        (unfinished / target.part).write_text("new")
        assert (target.path / target.part).read_text() == "old"
    assert target.read() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_replacement_leaves_the_old(
    target: Target, error: type[BaseException]
) -> None:
    with pytest.raises(error), target.replace(target.path) as unfinished:
        (unfinished / target.part).write_text("half")
        raise error
    assert target.read() == "old"


def test_parents_are_created(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    with target.replace(path) as unfinished:
        (unfinished / target.part).write_text("new")
    assert (path / target.part).read_text() == "new"


HEAD = "import os, resource, sys\nfrom pathlib import Path\nfrom harken.files import *\n"


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + program, *map(str, arguments)], capture_output=True, text=True
    )


def test_a_kill_leaves_the_old(target: Target) -> None:
    program = f"""
with {target.replace.__name__}(Path(sys.argv[1])) as new, (new / {target.part!r}).open("w") as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), 9)
"""
    assert run(program, target.path).returncode == -signal.SIGKILL
    assert (target.path / target.part).read_text() == "old"
    # Files of the killed process are ignored and removed.
    with target.replace(target.path) as unfinished:
        assert target.part == "" or list(unfinished.iterdir()) == []
        (unfinished / target.part).write_text("new")
    assert target.read() == "new"


def test_a_file_that_is_too_large_is_a_failure(target: Target) -> None:
    program = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with {target.replace.__name__}(Path(sys.argv[1])) as unfinished:
        (unfinished / {target.part!r}).write_bytes(b"x" * 1001)
except Failure as failure:
    print(failure)
"""
    printed = run(program, target.path).stdout
    assert f"{target.path}: cannot be written (File too large)" in printed
    assert "unchanged" in printed
    assert target.read() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_a_failure(target: Target) -> None:
    message, path = "No space left on device", target.path
    with pytest.raises(Failure, match=message) as caught, target.replace(path) as unfinished:
        (unfinished / target.part).symlink_to("/dev/full")
        (unfinished / target.part).write_text("new")
    assert str(target.path) in caught.value.message
    assert caught.value.exit_code == 1
    assert target.read() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_appending_to_a_full_disk_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    with (
        pytest.raises(Failure, match="log: cannot be written"),
        appended(tmp_path / "log") as write_line,
    ):
        write_line("event")


def test_a_locked_folder_is_refused_until_its_process_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    program = """
with locked_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", HEAD + program, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(UserError, match="another process"), locked_folder(folder):
        pass
    holder.kill()
    holder.communicate()
    assert names(folder) == {".lock"}
    with locked_folder(folder):
        assert names(folder) == {".lock"}
    assert names(folder) == set()


def test_a_refused_move_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename = old_folder(tmp_path), Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == ".kept.unfinished":
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UserError, match="Permission denied"), replacing_folder(path) as unfinished:
        (unfinished / "part").write_text("new")
    assert (path / "part").read_text() == "old"
    assert names(tmp_path) == {"kept"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux for a handle's name")
def test_nothing_gets_its_name_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def record(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        synced.append((name, (tmp_path / "kept").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    write_text(tmp_path / "kept", "new")
    assert synced == [(".kept.unfinished", False), (tmp_path.name, True)]
    (tmp_path / "kept").unlink()
    synced.clear()
    with replacing_folder(tmp_path / "kept") as unfinished:
        (unfinished / "part").write_text("new")
    assert synced == [("part", False), (".kept.unfinished", False), (tmp_path.name, True)]


def test_text_is_the_same_on_every_system(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "één\r\ntwo\n")
    assert (tmp_path / "text").read_bytes() == "één\r\ntwo\n".encode()


def test_removing_a_folder(tmp_path: Path) -> None:
    folder = old_folder(tmp_path)
    (tmp_path / ".kept.removed").mkdir()  # of a process that died while removing
    remove_folder(folder)
    remove_folder(folder)  # none is fine too
    assert names(tmp_path) == set()


def test_a_digest(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    assert sha256(tmp_path / "file").startswith("ba7816bf8f01cfea")
    large = b"harken" * 100_003
    (tmp_path / "file").write_bytes(large)
    assert sha256(tmp_path / "file") == hashlib.sha256(large).hexdigest()
