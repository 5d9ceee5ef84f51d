import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

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


def old_file(folder: Path) -> Path:
    (folder / "kept").write_text("old")
    return folder / "kept"


def old_folder(folder: Path) -> Path:
    (folder / "kept").mkdir()
    (folder / "kept" / "part").write_text("old")
    return folder / "kept"


Replace = Callable[[Path], AbstractContextManager[Path]]
# For a file and for a folder: what replaces it, what was there, and the file inside.
both = pytest.mark.parametrize(
    ("replace", "old", "part"),
    [(replacing, old_file, ""), (replacing_folder, old_folder, "part")],
    ids=["file", "folder"],
)


@both
def test_the_new_takes_the_place_of_the_old_at_the_end(
    tmp_path: Path, replace: Replace, old: Callable[[Path], Path], part: str
) -> None:
    path = old(tmp_path)
    with replace(path) as unfinished:
        (unfinished / part).write_text("new")
        assert (path / part).read_text() == "old"
    assert (path / part).read_text() == "new"
    assert names(tmp_path) == {"kept"}


@both
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_breaks_off_leaves_the_old(
    tmp_path: Path,
    replace: Replace,
    old: Callable[[Path], Path],
    part: str,
    error: type[BaseException],
) -> None:
    path = old(tmp_path)
    with pytest.raises(error), replace(path) as unfinished:
        (unfinished / part).write_text("half")
        raise error
    assert (path / part).read_text() == "old"
    assert names(tmp_path) == {"kept"}


@both
def test_parents_are_made(
    tmp_path: Path, replace: Replace, old: Callable[[Path], Path], part: str
) -> None:
    path = tmp_path / "a" / "b" / "c"
    with replace(path) as unfinished:
        (unfinished / part).write_text("new")
    assert (path / part).read_text() == "new"


HEAD = "import os, resource, sys\nfrom pathlib import Path\nfrom harken.files import *\n"


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + program, *map(str, arguments)], capture_output=True, text=True
    )


@both
def test_a_kill_in_the_middle_leaves_the_old(
    tmp_path: Path, replace: Replace, old: Callable[[Path], Path], part: str
) -> None:
    path = old(tmp_path)
    program = f"""
with {replace.__name__}(Path(sys.argv[1])) as unfinished, (unfinished / {part!r}).open("w") as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), 9)
"""
    assert run(program, path).returncode == -signal.SIGKILL
    assert (path / part).read_text() == "old"
    # Files of the killed process are ignored and removed.
    with replace(path) as unfinished:
        assert part == "" or list(unfinished.iterdir()) == []
        (unfinished / part).write_text("new")
    assert (path / part).read_text() == "new"
    assert names(tmp_path) == {"kept"}


@both
def test_a_file_that_may_not_grow_is_a_failure(
    tmp_path: Path, replace: Replace, old: Callable[[Path], Path], part: str
) -> None:
    path = old(tmp_path)
    program = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with {replace.__name__}(Path(sys.argv[1])) as unfinished:
        (unfinished / {part!r}).write_bytes(b"x" * 1001)
except Failure as failure:
    print(failure)
"""
    told = run(program, path).stdout
    assert f"{path}: cannot be written (File too large)" in told
    assert "unchanged" in told
    assert (path / part).read_text() == "old"
    assert names(tmp_path) == {"kept"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@both
def test_a_full_disk_is_a_failure(
    tmp_path: Path, replace: Replace, old: Callable[[Path], Path], part: str
) -> None:
    path = old(tmp_path)
    with pytest.raises(Failure, match="No space left on device") as caught, replace(path) as new:
        (new / part).symlink_to("/dev/full")
        (new / part).write_text("new")
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 1
    assert (path / part).read_text() == "old"
    assert names(tmp_path) == {"kept"}


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
    (tmp_path / ".kept.doomed").mkdir()  # of a process that died while removing
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
