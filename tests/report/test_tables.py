import math

import pytest

from harken.measure.interval import Estimate
from harken.report.tables import (
    ResultRow,
    examples_table,
    plain_table,
    result_table,
    settings_table,
)
from harken.tasks.prediction import Prediction

from .parsed import Element, parse


def row(value: float | None, low: float | None, high: float | None, n: int = 400) -> ResultRow:
    return ResultRow(name="a", n=n, metric=Estimate(value=value, low=low, high=high), note="why")


def ticks(table: Element) -> list[str]:
    return [tick.text for tick in table.find("thead").find_all("text")]


def test_value_interval_and_drawing_agree() -> None:
    table = parse(result_table([row(0.84, 0.801, 0.873)], metric="exact match"))
    cells = table.find("tbody").find_all("td")
    assert [cell.text for cell in cells] == ["400", "84.0\u202f% 80.1–87.3", ""]
    bar = table.find("line", "interval").attributes
    assert (bar["x1"], bar["x2"]) == ("80.1%", "87.3%")
    assert table.find("circle").attributes["cx"] == "84.0%"
    assert ticks(table) == ["0", "25", "50", "75", "100"]
    assert "95 % interval" in table.find("caption").text
    assert table.find("span", "note").text == "why"


def test_without_percent_the_axis_fits_the_values() -> None:
    rows = [row(18.3, 17.2, 19.6), row(143.3, 99.0, 217.6)]
    table = parse(result_table(rows, metric="perplexity", percent=False))
    assert ticks(table) == ["0", "100", "200", "300"]
    assert table.find_all("circle")[0].attributes["cx"] == "6.1%"
    assert "%" not in table.find("tbody").text
    assert parse(result_table([], metric="m", percent=False)).find("tbody").text.strip() == ""


def test_an_unknown_value_has_no_mark() -> None:
    html = result_table([row(None, None, None, n=0)], metric="accuracy")
    table = parse(html)
    assert not table.find_all("circle") and not table.find_all("line", "interval")
    assert "nan" not in html
    assert table.find("tbody").find_all("td")[1].text == "n/a n/a"


def test_plain_table_aligns_numbers_right_and_checks_rows() -> None:
    table = parse(plain_table(["head", "drop", "n", "kept"], [["1.2", 0.0312, 12345, True]]))
    cells = table.find("tbody").find_all("td")
    assert [cell.text for cell in cells] == ["1.2", "0.0312", "12\u202f345", "yes"]
    assert [cell.attributes.get("class") for cell in cells] == [None, "number", "number", None]
    with pytest.raises((ValueError, IndexError)):
        plain_table(["a", "b"], [["only one"]])


def test_settings_are_written_with_dots() -> None:
    table = parse(
        settings_table({"seed": 1, "model": {"kind": "gpt", "tie": True, "drop": {"p": 0.1}}})
    )
    rows = [[cell.text for cell in line.find_all("code")] for line in table.find_all("tr")]
    expected = {"seed": "1", "model.kind": "gpt", "model.tie": "true", "model.drop.p": "0.1"}
    assert dict(rows) == expected


def examples(*outputs: tuple[str, float]) -> str:
    predictions = [Prediction(input="q", output=text, confidence=c) for text, c in outputs]
    return examples_table(predictions, ["Melvar"] * len(outputs))


def test_incorrect_before_correct_and_most_confident_first() -> None:
    given = [("Melvar", 0.2), ("London", math.nan), (" Melvar", 0.9), ("Paris", 0.4), ("Rome", 0.7)]
    table = parse(examples(*given))
    groups = {
        body.attributes["class"]: [cell.text.strip() for cell in body.find_all("td", "confidence")]
        for body in table.find_all("tbody")
    }
    assert groups == {"incorrect": ["0.70", "0.40", "–"], "correct": ["0.90", "0.20"]}
    titles = [body.find_all("th")[0].text for body in table.find_all("tbody")]
    assert titles == ["Incorrect 3", "Correct 2"]


def test_the_bar_is_as_long_as_the_confidence() -> None:
    bars = parse(examples(("x", 0.37))).find_all("rect")
    assert [bar.attributes["width"] for bar in bars] == ["100%", "37%"]
    html = examples(("x", math.nan))
    assert not parse(html).find_all("rect") and "nan" not in html
    assert "No examples" in examples()
