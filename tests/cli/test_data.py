"""`harken data`, with downloads from a server on this machine."""

import dataclasses
import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Cli
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


def test_a_download_prints_license_and_paths(server: Loopback, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    command = ("data", "tinyshakespeare", "--out", out, "--from", f"{server.base}/m")
    printed = cli(*command)
    assert printed.out == f"{out / 'input.txt'}\n"
    assert "license: public domain, https://" in printed.err
    assert f"from {server.base}/m/tinyshakespeare/input.txt" in printed.err
    assert (out / "input.txt").read_bytes() == TEXT
    assert cli(*command).out == printed.out
    assert len(server.asked) == 1  # the second call downloads nothing


def test_the_license_is_printed_before_the_first_request(
    server: Loopback, tmp_path: Path, cli: Cli
) -> None:
    server.tricks = [Trick(status=404)]
    command = ("data", "tinyshakespeare", "--out", tmp_path, "--from", f"{server.base}/m")
    printed = cli(*command, code=1)
    assert printed.out == ""
    assert printed.err.index("license:") < printed.err.index("got 404")


@pytest.mark.parametrize("digest", ["of the text", "of the catalog"])
def test_wrong_bytes_are_reported_with_both_digests(
    request: pytest.FixtureRequest, digest: str, tmp_path: Path, cli: Cli
) -> None:
    item = CATALOG["tinyshakespeare"].items[0]
    wrong, expected = bytes(item.bytes), item.sha256
    if digest == "of the text":
        request.getfixturevalue("server")
        wrong, expected = TEXT[:-1] + b"?", hashlib.sha256(TEXT).hexdigest()
    with loopback() as served:
        served.files["/tinyshakespeare/input.txt"] = wrong
        printed = cli("data", "tinyshakespeare", "--out", tmp_path, "--from", served.base, code=1)
    assert expected in printed.err and hashlib.sha256(wrong).hexdigest() in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_control_c_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in another process while the server is silent."""
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


def test_the_list(cli: Cli) -> None:
    table = cli("data").out
    assert table == cli("data", "--list").out
    assert "people" in table
    for corpus in CATALOG.values():
        for cell in (corpus.name, corpus.license.name, f"{corpus.bytes / 1e6:.1f} MB"):
            assert cell in table
    listed = cli.json("data")
    assert {"people", "sentences"} <= {entry["name"] for entry in listed["generated"]}
    assert [corpus["name"] for corpus in listed["public"]] == list(CATALOG)
    for corpus in listed["public"]:
        assert corpus["bytes"] == sum(file["bytes"] for file in corpus["files"])
        assert corpus["license"]["url"].startswith("https://")


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ("multi30", ["got 'multi30'", "did you mean 'multi30k'?"]),
        ("Peple", ["got 'Peple'", "did you mean 'people'?"]),
        ("xyz", ["got 'xyz'", "run `harken data`"]),
        ("--json people", ["--json applies only to the list"]),
    ],
)
def test_wrong_names_of_data_sets(arguments: str, messages: list[str], cli: Cli) -> None:
    line = cli.error("data", *arguments.split(), "--out", "nowhere")
    assert all(message in line for message in messages)


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        ("people", "--out", 2),
        ("multi30k", "--out", 2),
        ("multi30k --out x --people 7", "--people", 2),
        ("people --out x --from https://m", "--from", 2),
        ("people --help", "--biographies", 0),
    ],
)
def test_each_corpus_has_its_own_options(arguments: str, message: str, code: int, cli: Cli) -> None:
    printed = cli("data", *arguments.split(), code=code)
    assert message in (printed.err if code else printed.out)
