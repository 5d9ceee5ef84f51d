"""HTML of results in notebooks: complete, escaped, and with the numbers of the command line."""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch

import harken
from harken.files import json_text, write_text
from harken.pipeline import metrics_record
from harken.report.page import page_style
from harken.run_folder import METRICS
from harken.tasks.prediction import Evaluation

from .parsed import Element, parse


def html_of(value: object) -> str:
    """Return the HTML as a notebook finds it, on the class of the value."""
    html = type(value)._repr_html_(value)
    assert isinstance(html, str)
    return html


def rows(element: Element) -> list[list[str]]:
    table = element.find("tbody")
    return [[cell.text for cell in row.children] for row in table.find_all("tr")]


def test_a_run_and_its_evaluation(untrained_run: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "<b>&\u202e"
    shutil.copytree(untrained_run("tag"), folder)
    run = harken.load(folder)
    root = parse(html_of(run)).find("div", "harken")
    assert not root.find_all("div", "results")
    items = root.find("dl", "facts").find_all("div")
    facts = {item.find("dt").text: item.find("dd").text for item in items}
    assert facts["task"] == "tag" and facts["device"] == "cpu"
    assert facts["folder"] == str(tmp_path / "<b>&\\u202e")  # visible
    evaluation = run.evaluate()
    write_text(folder / METRICS, json_text(metrics_record(run, evaluation)))
    for value in (run, evaluation):
        (results,) = parse(html_of(value)).find_all("div", "results")
        assert rows(results)[0][0].startswith("accuracy")
        assert rows(results)[0][2].startswith(f"{100 * evaluation.metrics['accuracy'].value:.1f}")
        assert len(rows(results)) == len(evaluation.metrics)


def test_heads() -> None:
    model = harken.GPT(vocabulary=11, layers=2, width=12, heads=3, max_length=16, seed=0)
    heads = harken.heads(model, torch.randint(11, (2, 7)))
    assert isinstance(heads, list) and len(heads) == 6
    (table,) = parse(html_of(heads)).find_all("table")
    names = [cell.text for cell in table.find("thead").find_all("th")]
    found = rows(table)
    assert [row[0].rstrip("~") for row in found] == [head.label for head in heads]
    assert [row[names.index("entropy")] for row in found] == [
        f"{head.entropy:.2f}" for head in heads
    ]


def test_the_attention_of_an_input(untrained_run: Callable[[str], Path]) -> None:
    run = harken.load(untrained_run("answer"))
    text = 'Where is <script>"x"</script>?'
    example = run.attention(text)
    (frame,) = parse(html_of(example)).find_all("iframe")
    assert frame.attributes["sandbox"] == "allow-scripts"
    document = parse(frame.attributes["srcdoc"])
    assert document.find("figure", "attention").find_all("div", "map")
    assert len(document.find_all("script")) == 1
    assert text in document.text
    assert run.predictor.attention(text)._repr_html_() is None  # without a model


def test_the_style_applies_to_the_fragment_only() -> None:
    (style,) = parse(html_of(Evaluation(n=0, samples={}))).find_all("style")
    assert style.text.startswith(".harken {") and style.text.endswith("}")
    assert ":root" not in style.text and "\nbody" not in style.text
    assert "color-scheme: light dark" in style.text
    braces = style.text.count("{"), style.text.count("}")
    assert braces[0] == braces[1] > page_style().count("{")
