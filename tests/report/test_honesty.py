"""The section on confidence and unknown questions."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from harken.measure.honesty import Honesty, measure_honesty
from harken.measure.nearest_name_errors import known_answers
from harken.measure.scored_answers import Answer
from harken.report.honesty import honesty_section

from .parsed import Element, parse

KNOWN = known_answers(
    ["Ada Kong", "Bob", "Cleo <b>Vark</b>", "Dan Elk"], ["Rome", "Oslo", "Rome", "Bonn"]
)


TITLES = [
    "Calibration.",
    "Error rate against coverage.",
    "Guaranteed error rates.",
    "Kinds of answers.",
    "Confusions with the most similar name, by spelling.",
    "Confusions with the most similar name, by the model's hidden state.",
    "Fictional names.",
    "Accuracy by group.",
]


def embed(names: Sequence[str]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(names), 3))


def honesty(
    answers: Sequence[Answer], expected: Sequence[str], invented: Sequence[Answer] = ()
) -> Honesty:
    *_, result = measure_honesty(
        answers, expected, KNOWN, template="Who is …?", embed=embed, fictional=invented, seed=1
    )
    return result


def section(result: Honesty) -> Element:
    drawn = honesty_section(result)
    assert "nan" not in drawn.body and "inf" not in re.sub("<[^>]*>", "", drawn.body).split()
    return parse(f"<main>{drawn.body}</main>")


def captions(root: Element) -> dict[str, str]:
    """Titles of figures, and how to read each."""
    return {
        result.find("strong").text: result.find("span").text
        for figure in root.find_all("figure")
        for result in figure.find_all("figcaption")
    }


def rows(root: Element, number: int) -> list[list[str]]:
    table = root.find_all("table")[number].find("tbody")
    return [[cell.text for cell in row.children] for row in table.find_all("tr")]


def people(count: int, right: int) -> tuple[list[Answer], list[str]]:
    """The `right` most confident answers are correct; the others are the answer for Bob."""
    names = [f"Bobby {i}" if i % 3 else f"Bøb {i}" for i in range(count)]
    places = ["Rome"] * right + ["Oslo"] * (count - right)
    answers = [Answer(names[i], places[i], 1 - i / count) for i in range(count)]
    return answers, ["Rome"] * count


@pytest.fixture(scope="module")
def usual() -> Element:
    answers, expected = people(800, 600)
    return section(
        honesty(answers, expected, [Answer("Ada Elk", "Rome", 0.9), Answer("Dan Kong", "?", 0.1)])
    )


def test_every_figure_says_how_to_read_it(usual: Element) -> None:
    result = captions(usual)
    assert list(result) == TITLES
    assert all(len(reading) > 40 for reading in result.values())
    assert "not enough" not in result["Error rate against coverage."]
    # Of the two hundred, those with an ø share no trigram with Bob.
    assert (
        "133 of 200 wrong answers" in result["Confusions with the most similar name, by spelling."]
    )
    assert "50.0 would be expected" in result["Confusions with the most similar name, by spelling."]
    assert "Of the 2 answers, 1 are known answers" in result["Fictional names."]


def test_guarantees_in_figures(usual: Element) -> None:
    five, ten, twenty = rows(usual, 0)
    assert [row[0] for row in rows(usual, 0)] == [f"at most {rate} %" for rate in (5, 10, 20)]
    assert float(five[1]) >= float(ten[1]) > float(twenty[1])
    assert re.fullmatch(r"\d+\.\d % \(\d+\.\d % - \d+\.\d %\)", ten[2])


def test_the_threshold_is_marked(usual: Element) -> None:
    plots = usual.find_all("svg", "plot")
    assert len(plots) == 2
    mark = plots[1].find("g", "marks")
    assert mark.find("text").text.startswith("at most 10 % errors: confidence ≥ 0.")
    answers, expected = people(800, 600)
    threshold = honesty(answers, expected).guarantees[1].threshold
    passing = sum(answer.confidence >= threshold for answer in answers)
    assert mark.find("line").attributes["x1"] == f"{passing / 8:.2f}%"


def test_no_guarantee_is_possible() -> None:
    answers, expected = people(20, 0)
    result = section(honesty(answers, expected, [Answer("Ada Elk", "Rome", 0.9)]))
    caption = captions(result)["Error rate against coverage."]
    assert "No confidence threshold guarantees at most 10 % errors" in caption
    assert [row[1] for row in rows(result, 0)] == ["no threshold"] * 3
    assert not result.find_all("g", "marks")
    assert "no threshold" in result.text


def test_one_question() -> None:
    result = section(honesty([Answer("Ada King", "Rome", 0.7)], ["Rome"]))
    assert "about one name" in result.text
    assert len(result.find_all("svg", "plot")) == 2
    assert list(captions(result)) == TITLES[:4]


def test_names_are_text() -> None:
    hostile = '<script>alert("x")</script>'
    answers = [Answer(f"Cleo {hostile}", "Rome", 0.9), Answer("אבא שלום", hostile, 0.8)]
    result = section(honesty(answers, ["Oslo", "Oslo"], [Answer("Ada Elk", hostile, 0.9)]))
    assert not result.find_all("script")
    assert not [answer for answer in result.find_all("b") if "Vark" in answer.text]
    assert f"Cleo {hostile}" in result.text
    assert "Cleo <b>Vark</b>" in result.text
