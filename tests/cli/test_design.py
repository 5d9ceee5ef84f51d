"""`harken design`: JSON, table, figures and errors."""

from pathlib import Path

import pytest
from PIL import Image

from command_line import Cli

KINDS = {
    "shift": ["--offset", "3", "--length", "53", "--width", "26"],
    "band": ["--offset", "7", "--band", "5", "--length", "53", "--width", "26"],
    "copy": ["--keys", "7", "--target", "2"],
    "average": ["--keys", "7", "--target", "2", "5"],
    "lookup": [],
    "induction": ["--vocabulary", "5", "--length", "29", "--width", "26"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_json_has_predicted_and_measured_attention(kind: str, cli: Cli) -> None:
    result = cli.json("design", kind, *KINDS[kind])
    assert result["kind"] == kind and result["sharpness"] > 0
    assert result["measured"] >= result["predicted"] - 1e-9
    if kind != "band":
        assert result["measured"] >= 0.99 - 1e-9


def test_the_table_of_a_shift(cli: Cli) -> None:
    out = cli("design", "shift", *KINDS["shift"], "--key-width", 4).out
    assert "largest length" in out and "pairs used" in out and "measured" in out


def test_figures(tmp_path: Path, cli: Cli) -> None:
    for kind, ending in (("shift", "svg"), ("lookup", "png")):
        path = tmp_path / f"{kind}.{ending}"
        assert str(path) in cli("design", kind, *KINDS[kind], "--out", path).err
    svg = (tmp_path / "shift.svg").read_text(encoding="utf-8")
    assert svg.count("<svg") == 1 and "shift, 3 back" in svg and "target keys" in svg
    assert Image.open(tmp_path / "lookup.png").size[0] > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shift", "--key-width", "2", "--length", "4001"], "at most"),
        (["shift", "--offset", "300"], "expected 0 to 255"),
        (["shift", "--out", "head.gif"], "expected .svg or .png"),
        (["shift", "--width", "7"], "expected an even width"),
        (["shift", "--position", "fourier", "--span", "100"], "longer offsets are ambiguous"),
        (["band", "--sharpness", "nan"], "finite"),
        (["average", "--keys", "1"], "at least 2 keys"),
        (["induction", "--vocabulary", "400", "--length", "2"], "no query has a target key"),
    ],
)
def test_wrong_options_of_design(arguments: list[str], message: str, cli: Cli) -> None:
    assert message in cli.error("design", *arguments)
