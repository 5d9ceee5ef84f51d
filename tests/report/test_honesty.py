"""The section on what a model does not know, as a parser reads it."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from harken.measure.borrowing import known_of
from harken.measure.honesty import Honesty, measure_honesty
from harken.measure.interval import Estimate
from harken.measure.scored_answers import Answer
from harken.report.honesty import honesty_section
from harken.report.shares import Dot, Mark, dots_plot, line_plot, parts_bar

from .parsed import Element, parse

KNOWN = known_of(
    ["Ada Kong", "Bob", "Cleo <b>Vark</b>", "Dan Elk"], ["Rome", "Oslo", "Rome", "Bonn"]
)


def embed(names: Sequence[str]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(names), 3))


def honesty(
    said: Sequence[Answer], expected: Sequence[str], invented: Sequence[Answer] = ()
) -> Honesty:
    found = measure_honesty(
        said, expected, KNOWN, frame="Who is …?", embed=embed, invented=invented, seed=1
    )
    return found.honesty


def section(found: Honesty) -> Element:
    drawn = honesty_section(found)
    assert "nan" not in drawn.body and "inf" not in re.sub("<[^>]*>", "", drawn.body).split()
    return parse(f"<main>{drawn.body}</main>")


def captions(root: Element) -> dict[str, str]:
    """Titles of figures, and how to read each."""
    return {
        found.one("strong").text: found.one("span").text
        for figure in root.all("figure")
        for found in figure.all("figcaption")
    }


def rows(root: Element, number: int) -> list[list[str]]:
    table = root.all("table")[number].one("tbody")
    return [[cell.text for cell in row.children] for row in table.all("tr")]


def people(count: int, right: int) -> tuple[list[Answer], list[str]]:
    """The surest `right` of them are right; the others say what Bob's answer is."""
    said = [
        Answer(
            f"Bobby {at}" if at % 3 else f"Bøb {at}",
            "Rome" if at < right else "Oslo",
            1 - at / count,
        )
        for at in range(count)
    ]
    return said, ["Rome"] * count


@pytest.fixture(scope="module")
def usual() -> Element:
    said, expected = people(800, 600)
    return section(
        honesty(said, expected, [Answer("Ada Elk", "Rome", 0.9), Answer("Dan Kong", "?", 0.1)])
    )


def test_every_figure_says_how_to_read_it(usual: Element) -> None:
    found = captions(usual)
    assert list(found) == [
        "How sure, and how often right.",
        "What silence would buy.",
        "Guaranteed error rates.",
        "What is said.",
        "Borrowed from the nearest name, by its letters.",
        "Borrowed from the nearest name, by the model's own state.",
        "Names that nobody bears.",
        "Who is known.",
    ]
    assert all(len(reading) > 40 for reading in found.values())
    assert "cannot guarantee" not in found["What silence would buy."]
    # Of the two hundred, those with an ø share no trigram with Bob.
    assert "133 of 200 wrong answers" in found["Borrowed from the nearest name, by its letters."]
    assert "50.0 would be" in found["Borrowed from the nearest name, by its letters."]
    assert "1 of the 2 answers are known ones" in found["Names that nobody bears."]


def test_guarantees_in_figures(usual: Element) -> None:
    five, ten, twenty = rows(usual, 0)
    assert [one[0] for one in (five, ten, twenty)] == [
        "at most 5 %",
        "at most 10 %",
        "at most 20 %",
    ]
    assert float(five[1]) >= float(ten[1]) > float(twenty[1])
    assert re.fullmatch(r"\d+\.\d % \(\d+\.\d % - \d+\.\d %\)", ten[2])


def test_the_threshold_is_marked(usual: Element) -> None:
    plots = usual.all("svg", "plot")
    assert len(plots) == 2
    mark = plots[1].one("g", "stages")
    assert mark.one("text").text.startswith("at most 10 % errors, from 0.")
    said, expected = people(800, 600)
    threshold = honesty(said, expected).guarantees[1].threshold
    assert threshold is not None
    passing = sum(one.confidence >= threshold for one in said)
    assert mark.one("line").attributes["x1"] == f"{passing / 8:.2f}%"


def test_where_nothing_can_be_guaranteed() -> None:
    said, expected = people(20, 0)
    found = section(honesty(said, expected, [Answer("Ada Elk", "Rome", 0.9)]))
    assert (
        "Half of the questions cannot guarantee at most 10 % errors"
        in captions(found)["What silence would buy."]
    )
    assert [row[1] for row in rows(found, 0)] == ["not supported by the questions"] * 3
    assert not found.all("g", "stages")
    assert "no threshold" in found.text


def test_one_question() -> None:
    found = section(honesty([Answer("Ada King", "Rome", 0.7)], ["Rome"]))
    assert "about one name" in found.text
    assert len(found.all("svg", "plot")) == 2
    assert list(captions(found)) == [
        "How sure, and how often right.",
        "What silence would buy.",
        "Guaranteed error rates.",
        "What is said.",
    ]


def test_names_are_text() -> None:
    hostile = '<script>alert("x")</script>'
    said = [Answer(f"Cleo {hostile}", "Rome", 0.9), Answer("אבא שלום", hostile, 0.8)]
    found = section(honesty(said, ["Oslo", "Oslo"], [Answer("Ada Elk", hostile, 0.9)]))
    assert not found.all("script")
    assert not [one for one in found.all("b") if "Vark" in one.text]
    assert f"Cleo {hostile}" in found.text
    assert "Cleo <b>Vark</b>" in found.text


def test_dots_stand_where_the_axes_say() -> None:
    dots = [
        Dot(x=0.25, y=Estimate(0.5, 0.4, 0.7), weight=1.0),
        Dot(x=1.0, y=Estimate(1.0, 0.8, 1.0), weight=0.25),
    ]
    drawn = parse(dots_plot(dots, x_label="sure", y_label="right", spoken="both"))
    first, second = drawn.all("circle")
    assert (first.attributes["cx"], first.attributes["cy"]) == ("25.00%", "50.00%")
    assert (second.attributes["cx"], second.attributes["cy"]) == ("100.00%", "0.00%")
    assert float(first.attributes["r"]) > float(second.attributes["r"]) > 0
    bar = drawn.all("line", "interval")[0].attributes
    assert (bar["y1"], bar["y2"]) == ("30.00%", "60.00%")
    assert drawn.one("svg").attributes["aria-label"] == "both"


def test_a_line_and_its_marks() -> None:
    drawn = parse(
        line_plot(
            [0.0, 0.5, 1.0],
            [0.0, 0.1, 0.2],
            marks=[Mark(x=0.25, name="a"), Mark(x=0.75, name="b")],
            x_label="x",
            y_label="y",
            spoken="s",
        )
    )
    assert drawn.one("path").attributes["d"] == "M0.0 1000.0L500.0 500.0L1000.0 0.0"
    assert [text.text for text in drawn.all("text", "y")] == ["0", "5", "10", "15", "20"]
    left, right = (group.one("text").attributes for group in drawn.all("g", "stages"))
    assert ("text-anchor" in left, "text-anchor" in right) == (False, True)


def test_a_line_without_errors_and_one_point() -> None:
    def drawn(x: list[float], y: list[float]) -> Element:
        return parse(line_plot(x, y, marks=[], x_label="x", y_label="y", spoken="s"))

    assert (
        drawn([0.5, 1.0], [0.0, 0.0]).one("path").attributes["d"] == "M500.0 1000.0L1000.0 1000.0"
    )
    dot = drawn([1.0], [1.0]).one("circle").attributes
    assert (dot["cx"], dot["cy"]) == ("100.00%", "0.00%")


def test_parts_fill_the_bar() -> None:
    parts = {
        "right": Estimate(0.5, 0.4, 0.6),
        "wrong": Estimate(0.5, 0.4, 0.6),
        "none": Estimate(0.0, 0.0, 0.1),
    }
    drawn = parse(parts_bar(parts))
    found = [
        (one.attributes["x"], one.attributes["width"])
        for one in drawn.one("svg", "parts").all("rect")
    ]
    assert found == [("0.00%", "50.00%"), ("50.00%", "50.00%"), ("100.00%", "0.00%")]
    assert [item.text for item in drawn.all("li")][2] == "none 0.0\u202f%, 0.0 % - 10.0 %"
