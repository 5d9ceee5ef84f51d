"""No text from data becomes markup, and none is lost."""

import numpy as np
import pytest
from markupsafe import Markup

from harken.formats.examples import SpokenWord
from harken.measure.interval import Estimate
from harken.report.attention_page import attention_figure
from harken.report.chart import Series, VerticalLine, chart
from harken.report.markup import token_html, visible_text, visible_token
from harken.report.page import Section, page
from harken.report.tables import (
    ResultRow,
    examples_table,
    plain_table,
    result_table,
    settings_table,
)
from harken.tasks.attention_view import AudioView, ImageView
from harken.tasks.prediction import Prediction, Truncation

from .parsed import Element, parse, tags
from .sample import viewed

HOSTILE = (
    "<b>bold</b>",
    "</script><script>alert(1)</script>",
    "</style></title></textarea>",
    "<!--",
    "]]>",
    "&lt;&amp;&#60;",
    "\" onmouseover='alert(1)' x=\"",
    "' style='position:fixed",
    "`{{7*7}}`",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "javascript:alert(1)",
    "שלום",
    "مرحبا",
    "e\u0301",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
)
INVISIBLE = {
    "\x00": r"\x00",
    "a\nb": r"a\nb",
    "\r\n": r"\r\n",
    "\x7f\x85": r"\x7f\x85",
    "\u202eabc": r"\u202eabc",
    "\u2066": r"\u2066",
    "\ud800": r"\ud800",
    "\u0301": "◌\u0301",
    "": "∅",
    " born": "␣born",
    "  ": "␣␣",
    "in the": "in the",
}


@pytest.mark.parametrize(("raw", "shown"), ({raw: raw for raw in HOSTILE} | INVISIBLE).items())
def test_text_is_not_markup_and_invisible_characters_are_shown(raw: str, shown: str) -> None:
    assert visible_token(raw) == shown
    assert parse(token_html(raw)).text == shown
    assert set(tags(parse(token_html(raw)))) <= {"bdi", "i"}
    token_html(raw).encode("utf-8")  # a lone surrogate would raise


def test_prose_keeps_line_ends_and_tabs() -> None:
    assert visible_text("a\r\nb\tc\x00") == "a\nb\tc\\x00"


def _everywhere(strings: tuple[str, ...]) -> str:
    """A page with the strings in every place that takes text."""
    n = len(strings)
    joined = " ".join(strings)
    weights = np.full((2, n, n), 1 / n)
    curve = Series(name=joined, x=[0, 1], y=[1.0, 2.0])
    spoken = [SpokenWord(word, 0.1 * i, 0.1 * i + 0.05) for i, word in enumerate(strings)]
    sound = AudioView(
        spectrogram=np.zeros((5, 3)),
        frame_seconds=0.1,
        first_frame_seconds=0.05,
        state_seconds=0.1,
        first_state_seconds=0.05,
        words=spoken,
    )
    picture = ImageView(
        image=np.zeros((1, n, 3), np.uint8), columns=n, rows=1, offset=0.0, stride=1.0
    )
    views = [
        viewed(strings, strings, [weights]),
        viewed(strings, strings, [weights], sound=sound),
        viewed(strings, strings, [weights], picture=picture),
    ]
    estimate = Estimate(value=0.5, low=0.4, high=0.6)
    row = ResultRow(name=joined, n=3, metric=estimate, note=joined)
    predictions = [
        Prediction(input=s, output=output, confidence=0.5, truncation=truncation)
        for s, truncation in ((s, Truncation(kept=1, total=2, part=s)) for s in strings)
        for output in (s, s + "!")
    ]
    body = (
        result_table([row], metric=joined, caption=joined)
        + plain_table([joined], [[joined]], caption=joined)
        + settings_table({joined: {joined: joined}})
        + chart(
            [curve],
            title=joined,
            x_label=joined,
            y_label=joined,
            vertical_lines=[VerticalLine(0, joined)],
        )
        + Markup().join(attention_figure(view, joined, note=joined) for view in views)
        + examples_table(predictions, [prediction.input for prediction in predictions])
    )
    return page(
        joined,
        subtitle=joined,
        sections=[Section(title=joined, body=body, lead=joined)] * 2,
        facts={joined: joined},
        footer=joined,
    )


def _attribute_names(root: Element) -> set[str]:
    names = {name for child in root.children for name in child.attributes}
    return names.union(*map(_attribute_names, root.children))


def test_no_element_and_no_attribute_is_injected() -> None:
    # Outer spaces would add elements; HOSTILE has none.
    tame = tuple(f"w{i}" for i in range(len(HOSTILE)))
    hostile_page, tame_page = parse(_everywhere(HOSTILE)), parse(_everywhere(tame))
    assert tags(hostile_page) == tags(tame_page)
    assert _attribute_names(hostile_page) == _attribute_names(tame_page)


def test_tokens_round_trip_through_the_page() -> None:
    raw = HOSTILE + tuple(INVISIBLE)
    document = parse(_everywhere(raw))
    figure = document.find_all("figure", "attention")[0]
    expected = [visible_token(s) for s in raw]
    for css_class in ("keys", "queries"):
        labels = figure.find("ol", css_class).find_all("li")
        assert [label.text for label in labels] == expected
        assert [label.attributes["title"] for label in labels] == expected
    for css_class in ("side", "scenes"):
        listed = document.find_all("ol", css_class)[0]
        tokens = listed.find_all("li") if css_class == "side" else listed.find_all("b")
        assert [element.text for element in tokens] == expected
    for css_class in ("head", "mean"):
        strip = figure.find("dd", css_class)
        assert [bdi.text for bdi in strip.find_all("bdi")] == expected


def test_examples_round_trip() -> None:
    table = parse(_everywhere(HOSTILE)).find_all("div", "examples")[0]
    assert {cell.text for cell in table.find_all("small")} == {
        f"input truncated to 1 of 2 tokens ({s})" for s in HOSTILE
    }
    answers = {cell.text for cell in table.find_all("td", "answer")}
    assert answers == set(HOSTILE) | {s + "!" for s in HOSTILE}
