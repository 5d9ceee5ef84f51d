"""page.js in Chromium, under the content security policy of the page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.report.text_attention import text_figure

from .browser import PROGRAM, Browser
from .parsed import parse
from .sample import TOKENS, attention

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine"),
]

LAST = len(TOKENS) - 1


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as value:
        yield value


@pytest.fixture
def shown(browser: Browser, sample: str, tmp_path: Path) -> Browser:
    """The sample page, reloaded, after its script has run."""
    file = tmp_path / "page.html"
    file.write_text(sample, encoding="utf-8")
    browser.resize(1200, 2600)
    browser.open(file)
    browser.until("document.querySelector('.small[aria-pressed=true]')")
    browser.until("document.querySelector('.queries .selected')")
    return browser


def texts(browser: Browser, selector: str) -> list[str]:
    value = browser.run(
        f"[...document.querySelectorAll({selector!r})].map((value) => value.textContent)"
    )
    assert isinstance(value, list)
    return [str(text) for text in value]


def text(browser: Browser, selector: str) -> str:
    (value,) = texts(browser, selector)
    return value


def point_at_cell(browser: Browser, row: int, column: int, *, click: bool = False) -> None:
    (at,) = browser.boxes(".cells")
    cell = at["width"] / len(TOKENS)
    browser.point(at["x"] + (column + 0.4) * cell, at["y"] + (row + 0.6) * cell, click=click)


def click_small(browser: Browser, layer: int, head: int) -> None:
    (at,) = browser.boxes(f'.small[data-layer="{layer}"][data-head="{head}"]')
    browser.point(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2, click=True)
    browser.until(
        f"document.querySelector('.detail .name').textContent === 'L{layer + 1}.H{head + 1}'"
    )


def seen(token: str) -> str:
    return token.replace(" ", "␣")


def sentence(layer: int, head: int, row: int, column: int) -> str:
    weight = attention().layers[layer].weights[head][row, column]
    return (
        f"‘{seen(TOKENS[row])}’ attends to ‘{seen(TOKENS[column])}’ ({weight:.2f}) "
        f"({row + 1} → {column + 1})"
    )


def strip(layer: int, head: int | None, query: int) -> list[str]:
    weights = attention().layers[layer].weights[:, query]
    row = weights.mean(axis=0) if head is None else weights[head]
    return [f"{weight:.2f}" if weight >= 0.05 else "" for weight in row]


def test_script_agrees_with_static_page(shown: Browser) -> None:
    assert text(shown, ".weight-text") == "‘?’ attends most to ‘␣Melvar’ (0.98) (25 → 16)"
    assert texts(shown, ".strips .head small") == strip(2, 2, LAST)
    assert texts(shown, ".strips .mean small") == strip(2, None, LAST)
    assert shown.run("document.querySelector('.hint').hidden") is False


def test_a_click_enlarges_another_head(shown: Browser) -> None:
    click_small(shown, 0, 1)
    assert shown.run(
        "[...document.querySelectorAll('.small[aria-pressed=true], .small.chosen')]"
        ".map((small) => small.dataset.name)"
    ) == ["L1.H2"]
    for attribute, element in (("src", "img"), ("srcset", "source")):
        assert shown.run(
            f"document.querySelector('.cells {element}').{attribute} === "
            f"document.querySelector('.small.chosen {element}').{attribute}"
        )
    assert texts(shown, ".strips .head small") == strip(0, 1, LAST)
    assert texts(shown, ".strips .mean small") == strip(0, None, LAST)
    rows = attention().layers[0].weights[1]
    strongest = [f"{seen(TOKENS[int(row.argmax())])} {row.max():.2f}" for row in rows]
    attended = texts(shown, ".strongest td:nth-child(2)")
    weights = texts(shown, ".strongest td:nth-child(3)")
    assert [" ".join(pair) for pair in zip(attended, weights, strict=True)] == strongest


def test_arrow_keys_move_between_heads_and_enter_selects(shown: Browser) -> None:
    click_small(shown, 0, 1)
    shown.run("document.querySelector('.small.chosen').focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowRight"):
        shown.press(key)
    assert text(shown, ".detail .name") == "L1.H2"
    assert shown.run("document.activeElement.dataset.name") == "L2.H3"
    in_tab_order = "[...document.querySelectorAll('.small[tabindex=\"0\"]')]"
    assert shown.run(f"{in_tab_order}.map((small) => small.dataset.name)") == ["L2.H3"]
    shown.press("Enter")
    shown.until("document.querySelector('.detail .name').textContent === 'L2.H3'")
    assert texts(shown, ".strips .head small") == strip(1, 2, LAST)


def test_selected_cell_stays_when_the_head_changes(shown: Browser) -> None:
    point_at_cell(shown, 20, 3)
    assert text(shown, ".weight-text") == sentence(2, 2, 20, 3)
    assert texts(shown, ".map .at") == [seen(TOKENS[3]), seen(TOKENS[20])]
    click_small(shown, 3, 0)
    assert text(shown, ".weight-text") == sentence(3, 0, 20, 3)


def test_click_selects_the_query(shown: Browser) -> None:
    point_at_cell(shown, 13, 2, click=True)
    assert text(shown, ".strips .query") == seen(TOKENS[13])
    assert texts(shown, ".strips .head small") == strip(2, 2, 13)
    assert shown.run("document.querySelector('.strips .last').hidden") is True


def test_keys_move_the_cell_up_to_the_edge(shown: Browser) -> None:
    shown.run("document.querySelector('.map').focus()")
    shown.press("ArrowDown")  # shows where the reader is
    assert text(shown, ".weight-text") == sentence(2, 2, LAST, 0)
    for key in ("ArrowUp", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft"):
        shown.press(key)
    assert text(shown, ".weight-text") == sentence(2, 2, LAST - 2, 1)
    shown.press("ArrowLeft")
    shown.press("ArrowLeft")
    assert text(shown, ".weight-text") == sentence(2, 2, LAST - 2, 0)
    shown.press("Enter")
    assert text(shown, ".strips .query") == seen(TOKENS[LAST - 2])


def lines(browser: Browser) -> list[str]:
    value = browser.run(
        "[...document.querySelectorAll('.sides path')].map((line) => "
        "['d', 'stroke-opacity', 'stroke-width'].map((n) => line.getAttribute(n)).join(' '))"
    )
    return [str(line) for line in value]


def served(layer: int, head: int) -> tuple[list[str], str]:
    """The lines and the caption of the static page."""
    alone = attention().layers[layer].select([head + 1])
    figure = parse(text_figure(attention()._replace(layers=[alone]), title="t"))
    drawn = [
        " ".join(path.attributes[name] for name in ("d", "stroke-opacity", "stroke-width"))
        for path in figure.find("div", "sides").find_all("path")
    ]
    return drawn, figure.find("span", "caption").text


@pytest.mark.parametrize("head", range(4))
def test_script_draws_the_lines_of_the_static_page(shown: Browser, head: int) -> None:
    for layer in (0, 3):
        click_small(shown, layer, head)
        assert (lines(shown), text(shown, ".caption")) == served(layer, head)


def test_keys_select_query_and_head_of_lines(shown: Browser) -> None:
    shown.run("document.querySelector('.sides').focus()")
    shown.press("ArrowUp")
    shown.press("ArrowUp")
    assert text(shown, ".strips .query") == seen(TOKENS[LAST - 2])
    assert texts(shown, ".from .selected") == [seen(TOKENS[LAST - 2])]
    assert shown.run(
        "[...document.querySelectorAll('.sides path.selected')]"
        f".every((line) => line.getAttribute('d').startsWith('M0 {LAST - 2}.5'))"
    )
    shown.press("ArrowRight")
    shown.until("document.querySelector('.links .name').textContent === 'L3.H4'")
    assert lines(shown) == served(2, 3)[0]
    assert text(shown, ".strips .query") == seen(TOKENS[LAST - 2])
    assert shown.run("document.activeElement.className") == "sides"


def test_the_policy_stops_a_foreign_script(shown: Browser) -> None:
    shown.run(
        "(() => { const script = document.createElement('script');"
        "script.textContent = 'window.foreign = true';"
        "document.body.append(script); })()"
    )
    assert shown.run("window.foreign") is None


@pytest.mark.parametrize("width", [360, 400, 700, 1200])
def test_no_horizontal_scrolling(shown: Browser, width: int) -> None:
    shown.resize(width)
    assert shown.run("document.documentElement.scrollWidth") == width
