import math

from harken.report.examples import Example, examples_table

from .parsed import parse


def example(answer: str, confidence: float | None) -> Example:
    return Example(input="q", expected="Melvar", answer=answer, confidence=confidence)


def test_wrong_before_right_and_surest_first() -> None:
    table = parse(
        examples_table(
            [
                example("Melvar", 0.2),
                example("London", None),
                example(" Melvar\n", 0.9),
                example("Paris", 0.4),
                example("Rome", 0.7),
            ]
        )
    )
    groups = {
        body.attributes["class"]: [cell.text.strip() for cell in body.all("td", "sure")]
        for body in table.all("tbody")
    }
    assert list(groups) == ["wrong", "right"]
    assert groups == {"wrong": ["0.70", "0.40", "–"], "right": ["0.90", "0.20"]}
    assert [body.all("th")[0].text for body in table.all("tbody")] == ["Wrong 3", "Right 2"]


def test_bar_is_as_long_as_the_confidence() -> None:
    bars = parse(examples_table([example("x", 0.37)])).all("rect")
    assert [bar.attributes["width"] for bar in bars] == ["100%", "37%"]


def test_confidence_that_is_no_number_has_no_bar() -> None:
    html = examples_table([example("x", math.nan), example("x", None)])
    assert not parse(html).all("rect") and "nan" not in html


def test_an_empty_group_is_left_out_and_nothing_says_so() -> None:
    assert [
        b.attributes["class"] for b in parse(examples_table([example("x", 0.5)])).all("tbody")
    ] == ["wrong"]
    assert "No examples" in examples_table([])


def test_the_verdict_of_the_measure_wins_over_the_text() -> None:
    kind = Example(input="q", expected="Melvar", answer="melvar.", right=True)
    strict = Example(input="q", expected="Melvar", answer="Melvar", right=False)
    bodies = parse(examples_table([kind, strict])).all("tbody")
    answers = {body.attributes["class"]: body.one("td", "answer").text for body in bodies}
    assert answers == {"wrong": "Melvar", "right": "melvar."}
