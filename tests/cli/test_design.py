"""`harken design`: figures on stdout, a picture where asked for, one sentence where it cannot."""

import json
from pathlib import Path

import pytest
from PIL import Image

from harken.cli.main import main

KINDS = {
    "shift": ["--offset", "3", "--length", "53", "--width", "26"],
    "band": ["--offset", "7", "--band", "5", "--length", "53", "--width", "26"],
    "copy": ["--keys", "7", "--target", "2"],
    "average": ["--keys", "7", "--target", "2", "5"],
    "lookup": [],
    "previous-match": ["--symbols", "5", "--length", "29", "--width", "26"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_json_has_predicted_and_measured(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", kind, *KINDS[kind], "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["kind"] == kind and result["sharpness"] > 0
    assert result["measured"] >= result["predicted"] - 1e-9
    if kind != "band":
        assert result["measured"] >= 0.99 - 1e-9


def test_a_table_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", "shift", *KINDS["shift"], "--key-width", "4"]) == 0
    out = capsys.readouterr().out
    assert "largest length" in out and "pairs used" in out and "measured" in out


def test_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, ending in (("shift", "svg"), ("lookup", "png")):
        path = tmp_path / f"{kind}.{ending}"
        assert main(["design", kind, *KINDS[kind], "--out", str(path), "--json"]) == 0
        printed = capsys.readouterr()
        assert str(path) in printed.err
        json.loads(printed.out)
    svg = (tmp_path / "shift.svg").read_text(encoding="utf-8")
    assert svg.count("<svg") == 1 and "shift, 3 back" in svg and "target keys" in svg
    assert Image.open(tmp_path / "lookup.png").size[0] > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shift", "--key-width", "2", "--length", "4001"], "at most"),
        (["shift", "--offset", "300"], "expected 0 to 255"),
        (["shift", "--out", "head.gif"], "expected .svg or .png"),
        (["shift", "--width", "7"], "must be even"),
        (["shift", "--position", "fourier", "--span", "100"], "longer offsets are ambiguous"),
        (["band", "--sharpness", "nan"], "finite"),
        (["average", "--keys", "1"], "2 keys at least"),
        (["previous-match", "--symbols", "400", "--length", "2"], "no query has a target key"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["design", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and not printed.out
