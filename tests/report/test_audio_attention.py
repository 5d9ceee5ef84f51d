from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.formats.examples import SpokenWord
from harken.report.audio_attention import audio_drawing, audio_figure, place_words, time_axis
from harken.report.axis import exact_axis
from harken.report.canvas import Drawing, Heatmap, Label, Polyline
from harken.report.palette import LIGHT, color_scale
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AudioView

from .browser import PROGRAM, Browser
from .parsed import Element, parse
from .sample import decoded, figure_page, pointed, viewed

# Distinct primes: a swapped axis cannot pass by luck.
LAYERS, HEADS, SYMBOLS, PLACES, FRAMES, BINS = 2, 3, 5, 29, 113, 7
FRAME, FIRST_FRAME = 0.01, 0.0125
PLACE, FIRST_PLACE = 0.04, 0.0275
PEAKS = (3, 7, 11, 19, 23)  # of the last layer's heads


def second(place: int) -> float:
    return FIRST_PLACE + place * PLACE


def audio(**changes: object) -> AudioView:
    given: dict[str, object] = {
        "spectrogram": np.random.default_rng(0).normal(size=(FRAMES, BINS)),
        "frame_seconds": FRAME,
        "first_frame_seconds": FIRST_FRAME,
        "state_seconds": PLACE,
        "first_state_seconds": FIRST_PLACE,
        "words": [SpokenWord("nine", 0.125, 0.75)],
    }
    return AudioView(**(given | changes))  # type: ignore[arg-type]


def maps(layers: list[np.ndarray] | None = None, **changes: object) -> ViewedAttention:
    """An utterance whose symbols attend to one position each."""
    weights = layers or [pointed(range(5), HEADS, PLACES), pointed(PEAKS, HEADS, PLACES)]
    places = weights[0].shape[-1]
    return viewed("nine ", [f"{i}" for i in range(places)], weights, sound=audio(**changes))


def figure(attention: ViewedAttention) -> Element:
    return parse(audio_figure(attention, title="t", note="n"))


def per_cent(shown: str) -> float:
    assert shown.endswith("%")
    return float(shown[:-1])


def on_axis(root: Element, at: float) -> float:
    """The second at a per cent of the width, as a reader finds it: between two ticks."""
    drawn = root.find_all("svg", "seconds")[0].find_all("text", "x")
    places = [per_cent(tick.attributes["x"]) for tick in drawn]
    return float(np.polyval(np.polyfit(places, [float(tick.text) for tick in drawn], 1), at))


def image(window: Element) -> np.ndarray:
    return decoded(window.find("img").attributes["src"])


def darkest(window: Element) -> list[float]:
    """The darkest column of each row of a window, in per cent of the width."""
    style = dict(part.split(":") for part in window.find("span").attributes["style"].split(";"))
    columns = image(window).sum(axis=-1, dtype=int).argmin(axis=1)
    shares = (columns + 0.5) / image(window).shape[1]
    return [per_cent(style["left"]) + per_cent(style["width"]) * float(at) for at in shares]


def test_the_axis_holds_all_that_is_drawn() -> None:
    frames_end, places_end = FIRST_FRAME + (FRAMES - 0.5) * FRAME, second(PLACES - 1) + PLACE / 2
    axis = time_axis(audio(words=()), PLACES)
    assert axis.start == 0  # though no panel starts there
    assert axis.end == pytest.approx(places_end)
    assert time_axis(audio(), PLACES - 1).end == pytest.approx(frames_end)
    early = audio(first_state_seconds=FIRST_FRAME, words=[SpokenWord("late", 1.0, 9.75)])
    assert time_axis(early, PLACES)[:2] == (FIRST_FRAME - PLACE / 2, 9.75)


def test_a_peak_stands_at_its_second() -> None:
    root = figure(maps())
    seconds = [on_axis(root, at) for at in darkest(root.find("div", "large"))]
    assert seconds == pytest.approx([second(peak) for peak in PEAKS], abs=1e-5)


def test_a_loud_frame_stands_at_its_second_and_low_pitch_at_the_bottom() -> None:
    spectrogram = np.zeros((FRAMES, BINS))
    spectrogram[67, 1] = 5.0
    root = figure(maps(spectrogram=spectrogram))
    heard = root.find("div", "spectrogram")
    at = darkest(heard)[BINS - 2]
    assert on_axis(root, at) == pytest.approx(FIRST_FRAME + 67 * FRAME, abs=1e-5)
    assert image(heard)[BINS - 2, 67].tolist() == color_scale(LIGHT)[-1].tolist()


def test_half_a_minute_keeps_its_peaks() -> None:
    """More columns than a screen has are pooled by their maximum."""
    peaks = (0, 701, 1409, 2203, 2902)
    layers = [pointed(peaks, 1, 2903)]
    root = figure(maps(layers, state_seconds=FRAME, spectrogram=np.zeros((2903, BINS))))
    large = root.find("div", "large")
    assert image(large).shape[1] == 968  # 2903 / 3, rounded up
    for at, peak in zip(darkest(large), peaks, strict=True):
        assert on_axis(root, at) == pytest.approx(FIRST_PLACE + peak * FRAME, abs=1.01 * FRAME)
    rows = root.find("details").find("tbody").find_all("tr")
    assert rows[2].find_all("td")[1].text == f"{FIRST_PLACE + 1409 * FRAME:.2f}"  # before pooling


def test_words_begin_and_end_at_their_seconds() -> None:
    words = [SpokenWord("nine", 0.25, 0.625), SpokenWord("one", 0.625, 1.0)]
    root = figure(maps(words=words))
    bars = [line.attributes for line in root.find("svg", "word-lane").find_all("line")]
    ends = [on_axis(root, per_cent(bar[name])) for bar in bars for name in ("x1", "x2")]
    assert ends == pytest.approx([0.25, 0.625, 0.625, 1.0], abs=1e-5)
    assert [word.text for word in root.find("svg", "word-lane").find_all("text")] == ["nine", "one"]
    for window in ("spectrogram", "large"):
        lines = root.find("div", window).find("svg", "marks").find_all("line")
        attention = [on_axis(root, per_cent(line.attributes["x1"])) for line in lines]
        assert attention == pytest.approx([0.25, 0.625, 1.0], abs=1e-5)  # each time once


@given(
    st.lists(
        st.tuples(st.text("aé ", min_size=1, max_size=9), st.floats(0, 29), st.floats(0, 1)),
        max_size=40,
    ),
    st.integers(440, 900),
)
def test_words_on_a_line_stay_apart(drawn: list[tuple[str, float, float]], width: int) -> None:
    spoken = [SpokenWord(word, start, start + length) for word, start, length in drawn]
    placed = place_words(spoken, exact_axis(0, 30), width)
    assert sorted(word.start for word, _, _ in placed) == sorted(word.start for word in spoken)
    ends: dict[int, float] = {}
    for word, line, flipped in placed:
        start, end = word.start * width / 30, word.end * width / 30
        size = 7 * len(word.word)
        left, right = (end - size, end) if flipped else (start, start + size)
        assert right <= width and left >= ends.get(line, -width)
        ends[line] = max(right, end) + 6


def test_the_mean_of_the_last_layer_is_large_and_every_head_is_small() -> None:
    first = np.concatenate([pointed(range(i, i + SYMBOLS), 1, PLACES) for i in range(HEADS)])
    last = pointed(PEAKS, HEADS, PLACES)
    last[0, 0] = np.eye(PLACES)[5]
    root = figure(maps([first, last]))
    assert root.find("b").text == f"L2, mean over {HEADS} heads"
    rows = root.find("details").find("tbody").find_all("tr")
    # 'n' has 0.9 at position 3 in two of three heads and nothing in the other.
    assert [td.text for td in rows[0].find_all("td")] == ["n", f"{second(3):.2f}", "0.600"]
    alt = root.find("div", "large").find("img").attributes["alt"]
    assert f"n at {second(3):.2f} s, " in alt and f"␣ at {second(PEAKS[-1]):.2f} s" in alt
    strips = root.find_all("div", "strip")
    names = [strip.find("img").attributes["alt"] for strip in strips]
    assert names == [f"L{i}.H{j + 1}" for i in (1, 2) for j in range(HEADS)]
    for head, strip in enumerate(strips[:HEADS]):
        seconds = [on_axis(root, at) for at in darkest(strip)]
        assert seconds == pytest.approx([second(head + i) for i in range(SYMBOLS)], abs=1e-5)


def test_one_head_is_drawn_once() -> None:
    attention = maps([pointed(PEAKS, 1, PLACES)])
    root = figure(attention)
    assert root.find("b").text == "L1.H1"
    assert root.find_all("div", "strip") == [] and len(root.find_all("svg", "seconds")) == 1
    drawn = audio_drawing(attention, "t")
    assert sum(isinstance(mark, Heatmap) for mark in drawn.marks) == 3  # sound, large, legend


def test_the_largest_weight_of_all_heads_has_the_last_color() -> None:
    layers = [pointed(PEAKS, HEADS, PLACES) / 4, pointed(PEAKS, HEADS, PLACES)]
    root = figure(maps(layers))
    assert image(root.find("div", "large"))[0, PEAKS[0]].tolist() == color_scale(LIGHT)[-1].tolist()
    # A quarter of the weight is half of the way: 63 / 2, rounded to even.
    assert (
        image(root.find_all("div", "strip")[0])[0, PEAKS[0]].tolist()
        == color_scale(LIGHT)[32].tolist()
    )
    ticks = root.find("div", "scale").find("div").find_all("span")
    assert [tick.text for tick in ticks] == ["0", "0.056", "0.23", "0.51", "0.9"]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_silence_and_zero_weights_are_drawn(weight: float) -> None:
    equal = np.full((1, SYMBOLS, PLACES), weight, dtype=np.float16)
    root = figure(maps([equal], spectrogram=np.full((FRAMES, BINS), -15.9)))
    assert (image(root.find("div", "spectrogram")) == color_scale(LIGHT)[0]).all()
    assert (image(root.find("div", "large")) == color_scale(LIGHT)[-1 if weight else 0]).all()


def second_at(drawn: Drawing, x: float) -> float:
    """The second at x of the drawing, from its tick labels."""
    ticks = {
        mark.text: mark.x
        for mark in drawn.marks
        if isinstance(mark, Label) and mark.text in ("0.2", "1") and mark.anchor == "middle"
    }
    return 0.2 + 0.8 * (x - ticks["0.2"]) / (ticks["1"] - ticks["0.2"])


def test_the_file_has_the_same_seconds() -> None:
    drawn = audio_drawing(maps(words=[SpokenWord("eight", 0.25, 0.5)]), "t")
    sound, large, legend, *small = [mark for mark in drawn.marks if isinstance(mark, Heatmap)]
    assert len(small) == LAYERS * HEADS
    for panel, peaks in ((large, PEAKS), (small[0], range(5)), (small[-1], PEAKS)):
        columns = panel.weights.argmax(axis=1) + 0.5
        x = panel.x + columns * panel.width / panel.weights.shape[1]
        assert [second_at(drawn, at) for at in x] == pytest.approx([second(p) for p in peaks])
    ends = [second_at(drawn, x) for x in (sound.x, sound.x + sound.width)]
    expected = [FIRST_FRAME - FRAME / 2, FIRST_FRAME + (FRAMES - 0.5) * FRAME]
    assert ends == pytest.approx(expected, abs=1e-6)
    labels = {mark.text: mark for mark in drawn.marks if isinstance(mark, Label)}
    assert second_at(drawn, labels["eight"].x) == pytest.approx(0.25)
    assert labels["eight"].y < sound.y
    lines = [mark for mark in drawn.marks if isinstance(mark, Polyline) and mark.color == "word"]
    starts = {round(second_at(drawn, line.points[0][0]), 6) for line in lines}
    assert starts == {0.25, 0.5}
    panels = [sound, large, legend, *small]
    assert [panel.y for panel in panels] == sorted(panel.y for panel in panels)
    assert small[-1].y + small[-1].height < drawn.height


def test_symbols_stand_beside_their_rows() -> None:
    attention = maps()
    drawn = audio_drawing(attention._replace(view=viewed("abcde", [], [], audio()).view), "t")
    large = [mark for mark in drawn.marks if isinstance(mark, Heatmap)][1]
    for row, symbol in enumerate("abcde"):
        (label,) = [mark for mark in drawn.marks if isinstance(mark, Label) and mark.text == symbol]
        assert label.x < large.x and label.anchor == "end"
        assert label.y - 4 == pytest.approx(large.y + (row + 0.5) * large.height / SYMBOLS)


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
def test_a_browser_draws_one_axis_without_overlap(tmp_path: Path) -> None:
    text = ["she", "had", "your", "dark", "suit", "in", "greasy", "wash", "water", "all", "year"]
    words = [SpokenWord(word, 0.1 * i, 0.1 * i + 0.09) for i, word in enumerate(text)]
    file = tmp_path / "page.html"
    file.write_text(figure_page(audio_figure(maps(words=words), title="t")), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        for width in (390, 1200):
            browser.resize(width)
            browser.open(file)
            assert browser.run("document.documentElement.scrollWidth") == width
            panels = browser.boxes(".window, .seconds, .word-lane")
            assert len({box["left"] for box in panels}) == 1
            assert len({box["right"] for box in panels}) == 1
            labels = browser.boxes(".word-lane text")
            assert len(labels) == len(text)
            for i, label in enumerate(labels):
                for other in labels[i + 1 :]:
                    apart = label["right"] <= other["left"] or other["right"] <= label["left"]
                    assert apart or abs(label["top"] - other["top"]) >= 14
            rows, symbols = browser.boxes(".large")[0], browser.boxes(".panels ol li")
            assert symbols[0]["top"] == pytest.approx(rows["top"], abs=1)
            assert symbols[-1]["bottom"] == pytest.approx(rows["bottom"], abs=1)
