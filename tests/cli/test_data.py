"""`harken data` as a script meets it; a server on this machine stands for the world."""

import dataclasses
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.cli.main import main
from harken.corpora import catalog
from harken.corpora.catalog import CATALOG
from loopback import Loopback, Trick, loopback

TEXT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 5003


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Serves another text under the name of a public one, and a catalog that knows it."""
    public = CATALOG["tinyshakespeare"]
    sha256 = hashlib.sha256(TEXT).hexdigest()
    item = dataclasses.replace(public.items[0], sha256=sha256, bytes=len(TEXT))
    known = dataclasses.replace(public, items=(item,))
    monkeypatch.setattr(catalog, "CATALOG", CATALOG | {"tinyshakespeare": known})
    with loopback() as served:
        served.files["/m/tinyshakespeare/input.txt"] = TEXT
        yield served


def test_fetching_says_whose_it_is_and_prints_paths(
    server: Loopback, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["data", "tinyshakespeare", "--out", str(out), "--from", f"{server.base}/m"]
    assert main(command) == 0
    message = capsys.readouterr()
    assert message.out == f"{out / 'input.txt'}\n"
    assert "license: public domain, https://" in message.err
    assert f"from {server.base}/m/tinyshakespeare/input.txt" in message.err
    assert (out / "input.txt").read_bytes() == TEXT
    assert main(command) == 0  # again: nothing to fetch
    assert capsys.readouterr().out == message.out
    assert len(server.asked) == 1


def test_the_license_comes_before_the_first_request(
    server: Loopback, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.tricks = [Trick(status=404)]
    command = ["data", "tinyshakespeare", "--out", str(tmp_path), "--from", f"{server.base}/m"]
    assert main(command) == 1
    message = capsys.readouterr()
    assert message.out == ""
    assert message.err.index("license:") < message.err.index("got 404")


def test_wrong_bytes_end_with_both_digests(
    server: Loopback, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = TEXT[:-1] + b"?"
    server.files["/m/tinyshakespeare/input.txt"] = wrong
    command = ["data", "tinyshakespeare", "--out", str(tmp_path), "--from", f"{server.base}/m"]
    assert main(command) == 1
    message = capsys.readouterr()
    for text in (TEXT, wrong):
        assert hashlib.sha256(text).hexdigest() in message.err
    assert message.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_real_digest_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The catalog as it is: a text of the right size that is another is refused."""
    item = CATALOG["tinyshakespeare"].items[0]
    with loopback() as served:
        served.files["/tinyshakespeare/input.txt"] = bytes(item.bytes)
        command = ["data", "tinyshakespeare", "--out", str(tmp_path), "--from", served.base]
        assert main(command) == 1
    assert item.sha256 in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_control_c_leaves_nothing(tmp_path: Path) -> None:
    """In a process of its own: Ctrl-C while the server is silent."""
    item = CATALOG["tinyshakespeare"].items[0]
    with loopback() as served:
        served.files["/tinyshakespeare/input.txt"] = bytes(item.bytes)
        served.tricks = [Trick(cut=100_003), Trick(silent=60.0)]
        command = [sys.executable, "-m", "harken", "data", "tinyshakespeare"]
        command += ["--out", str(tmp_path), "--from", served.base]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            while len(served.asked) < 2 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert "trying again in 1 s" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["data"], ["data", "--list"]])
def test_the_list(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "people" in table
    for corpus in CATALOG.values():
        assert corpus.name in table
        assert corpus.license.name in table
        assert f"{corpus.bytes / 1e6:.1f} MB" in table


def test_the_list_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"people", "sentences"} <= {made["name"] for made in listed["made"]}
    assert [corpus["name"] for corpus in listed["public"]] == list(CATALOG)
    for corpus in listed["public"]:
        assert corpus["bytes"] == sum(file["bytes"] for file in corpus["files"])
        assert corpus["license"]["address"].startswith("https://")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("multi30", "did you mean 'multi30k'?"),
        ("Peple", "did you mean 'people'?"),
        ("xyz", "`harken data` describes them"),
    ],
)
def test_an_unknown_name(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", name, "--out", "nowhere"]) == 2
    message = capsys.readouterr().err
    assert f"got {name!r}" in message
    assert hint in message


def test_json_is_for_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--json", "people", "--out", "nowhere"]) == 2
    assert "--json is for the list only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["data", "people"], "--out"),
        (["data", "multi30k"], "--out"),
        (["data", "multi30k", "--out", "x", "--people", "7"], "--people"),
        (["data", "people", "--out", "x", "--from", "https://m"], "--from"),
    ],
)
def test_each_corpus_has_its_own_options(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_one_corpus_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", "people", "--help"])
    assert stop.value.code == 0
    assert "--biographies" in capsys.readouterr().out


def test_made_corpora(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The two commands that scripts rely on."""
    out = str(tmp_path / "p")
    assert main(["data", "people", "--people", "31", "--biographies", "2", "--out", out]) == 0
    out = str(tmp_path / "s")
    assert main(["data", "sentences", "--sentences", "40", "--out", out]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert len(paths) > 3
    assert all(path.is_file() for path in paths)
