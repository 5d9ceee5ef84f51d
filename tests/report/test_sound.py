import base64
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.formats.examples import SpokenWord
from harken.report.page import Section, page
from harken.report.palette import LIGHT, scale
from harken.report.sound import SoundMaps, TimeAxis, arranged, sound_figure, time_axis

from .browser import PROGRAM, Browser
from .parsed import Element, parse, tags
from .spoken import (
    BINS,
    FIRST_FRAME,
    FIRST_PLACE,
    FRAME,
    FRAMES,
    HEADS,
    LAYERS,
    PEAKS,
    PLACE,
    PLACES,
    SYMBOLS,
    maps,
    pointed,
    second,
)
from .test_escaping import HOSTILE, INVISIBLE
from .test_png import decoded


def figure(found: SoundMaps, chosen: tuple[int, int] | None = None) -> Element:
    return parse(sound_figure(found, title="t", note="n", chosen=chosen))


def per_cent(shown: str) -> float:
    assert shown.endswith("%")
    return float(shown[:-1])


def on_axis(root: Element, at: float) -> float:
    """The second at a per cent of the width, as a reader finds it: between two ticks."""
    drawn = root.all("svg", "seconds")[0].all("text", "x")
    seconds = [float(mark.text) for mark in drawn]
    return float(
        np.polyval(np.polyfit([per_cent(m.attributes["x"]) for m in drawn], seconds, 1), at)
    )


def image(window: Element) -> np.ndarray:
    uri = window.one("img").attributes["src"]
    return decoded(base64.b64decode(uri.partition(",")[2]))


def darkest(window: Element) -> list[float]:
    """Where the darkest column of each row of a window is, in per cent of the width."""
    style = dict(part.split(":") for part in window.one("span").attributes["style"].split(";"))
    columns = image(window).sum(axis=-1, dtype=int).argmin(axis=1)
    share = (columns + 0.5) / image(window).shape[1]
    return [per_cent(style["left"]) + per_cent(style["width"]) * float(one) for one in share]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [np.zeros((HEADS, PLACES, SYMBOLS))]}, "layer 1: weights of shape"),
        ({"layers": [np.zeros((SYMBOLS, PLACES))]}, "expected .heads, 5 queries, 29 keys"),
        ({"layers": [np.array(0.5)]}, "at least one"),
        ({"layers": [pointed(PEAKS), pointed(PEAKS, places=PLACES + 2)]}, "layer 2"),
        ({"layers": [np.full((1, SYMBOLS, PLACES), 1.01)]}, "outside 0..1"),
        ({"layers": [np.full((1, SYMBOLS, PLACES), np.nan)]}, "NaN"),
        ({"layers": []}, "at least one"),
        ({"symbols": []}, "at least one"),
        ({"layer_names": ["only one"]}, "1 names for 2 layers"),
        ({"spectrogram": np.zeros(FRAMES)}, r"spectrogram of shape \(113,\)"),
        ({"spectrogram": np.zeros((0, BINS))}, r"spectrogram of shape \(0, 7\)"),
        ({"spectrogram": np.full((FRAMES, BINS), -np.inf)}, "infinite"),
        ({"frame_seconds": 0.0}, "frame_seconds is 0.0"),
        ({"place_seconds": float("nan")}, "place_seconds is nan"),
        ({"first_frame_seconds": float("inf")}, "first_frame_seconds is inf"),
        ({"first_place_seconds": float("nan")}, "first_place_seconds is nan"),
        ({"words": [SpokenWord("nine", 0.5, 0.4)]}, "'nine' lasts from 0.5 to 0.4 s"),
        ({"gold": [SpokenWord("nine", 0.5, float("nan"))]}, "'nine' lasts from 0.5 to nan s"),
    ],
)
def test_wrong_maps_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        maps(**changes)


def test_the_axis_holds_all_that_is_drawn() -> None:
    frames_end, places_end = FIRST_FRAME + (FRAMES - 0.5) * FRAME, second(PLACES - 1) + PLACE / 2
    axis = time_axis(maps(words=()))
    assert axis.begin == 0  # though no picture begins there
    assert axis.end == pytest.approx(places_end)
    assert time_axis(maps(layers=[pointed(PEAKS, places=28)])).end == pytest.approx(frames_end)
    early = maps(first_place_seconds=FIRST_FRAME, gold=[SpokenWord("late", 1.0, 9.75)])
    assert time_axis(early) == TimeAxis(begin=FIRST_FRAME - PLACE / 2, end=9.75)


def test_a_peak_stands_at_its_second() -> None:
    root = figure(maps())
    found = [on_axis(root, at) for at in darkest(root.one("div", "large"))]
    assert found == pytest.approx([second(peak) for peak in PEAKS], abs=1e-5)


def test_a_loud_frame_stands_at_its_second_and_low_pitch_at_the_bottom() -> None:
    spectrogram = np.zeros((FRAMES, BINS))
    spectrogram[67, 1] = 5.0
    root = figure(maps(spectrogram=spectrogram))
    heard = root.one("div", "heard")
    at = darkest(heard)[BINS - 2]
    assert on_axis(root, at) == pytest.approx(FIRST_FRAME + 67 * FRAME, abs=1e-5)
    assert image(heard)[BINS - 2, 67].tolist() == scale(LIGHT)[-1].tolist()


def test_half_a_minute_keeps_its_peaks() -> None:
    """More columns than a screen has are drawn together, each as its strongest."""
    peaks = (0, 701, 1409, 2203, 2902)
    layers = [pointed(peaks, heads=1, places=2903)]
    found = maps(layers=layers, place_seconds=FRAME, spectrogram=np.zeros((2903, BINS)))
    root = figure(found)
    large = root.one("div", "large")
    assert image(large).shape[1] == 968  # 2903 / 3, rounded up
    for at, peak in zip(darkest(large), peaks, strict=True):
        assert on_axis(root, at) == pytest.approx(FIRST_PLACE + peak * FRAME, abs=1.01 * FRAME)
    rows = root.one("details").one("tbody").all("tr")
    assert rows[2].all("td")[1].text == f"{FIRST_PLACE + 1409 * FRAME:.2f}"  # not of the picture


def test_words_begin_and_end_at_their_seconds() -> None:
    gold = [SpokenWord("nine", 0.25, 0.625), SpokenWord("one", 0.625, 1.0)]
    root = figure(maps(gold=gold))
    bar = root.one("svg", "words").one("line").attributes
    ends = [on_axis(root, per_cent(bar[name])) for name in ("x1", "x2")]
    assert ends == pytest.approx([0.125, 0.75], abs=1e-5)
    for window in ("heard", "large"):
        lines = root.one("div", window).one("svg", "marks").all("line", "gold")
        found = [on_axis(root, per_cent(line.attributes["x1"])) for line in lines]
        assert found == pytest.approx([0.25, 0.625, 1.0], abs=1e-5)  # each time once
    assert [word.text for word in root.all("svg", "gold")[0].all("text")] == ["nine", "one"]


words = st.lists(
    st.tuples(st.text("aé ", min_size=1, max_size=9), st.floats(0, 29), st.floats(0, 1)),
    max_size=40,
)


@given(words, st.integers(440, 900))
def test_words_on_a_line_stay_apart(drawn: list[tuple[str, float, float]], width: int) -> None:
    axis = TimeAxis(begin=0, end=30)
    spoken = [SpokenWord(word, start, start + length) for word, start, length in drawn]
    placed = arranged(spoken, axis, width)
    assert sorted(one.spoken.start for one in placed) == sorted(one.start for one in spoken)
    ends: dict[int, float] = {}
    for one in placed:
        start, end = one.spoken.start * width / 30, one.spoken.end * width / 30
        size = 7 * len(one.spoken.word)
        left, right = (end - size, end) if one.flipped else (start, start + size)
        assert right <= width  # nothing is cut off
        assert left >= ends.get(one.line, -width)
        ends[one.line] = max(right, end) + 6


def test_every_head_is_there_with_its_own_picture() -> None:
    first = [pointed(tuple(range(i, i + SYMBOLS)), heads=1)[0] for i in range(HEADS)]
    found = maps(layers=[np.stack(first), pointed(PEAKS)], layer_names=["below", "above"])
    root = figure(found)
    strips = root.all("div", "strip")
    assert [strip.one("img").attributes["alt"] for strip in strips] == [
        f"{name}.H{j + 1}" for name in ("below", "above") for j in range(HEADS)
    ]
    for head, strip in enumerate(strips[:HEADS]):
        seconds = [on_axis(root, at) for at in darkest(strip)]
        assert seconds == pytest.approx([second(head + i) for i in range(SYMBOLS)], abs=1e-5)
    assert len(root.all("svg", "seconds")) == 2


def test_the_mean_of_the_last_layer_is_large_or_the_head_that_is_chosen() -> None:
    last = pointed(PEAKS)
    last[0, 0] = np.eye(PLACES)[5]
    found = maps(layers=[pointed((0, 1, 2, 3, 4)), last])
    shown = figure(found)
    assert shown.one("b").text == f"L{LAYERS}, mean of its {HEADS} heads"
    rows = shown.one("details").one("tbody").all("tr")
    # 'n' looks at place 3 in two heads of three, at 0.9, and not at all in the third.
    assert [td.text for td in rows[0].all("td")] == ["n", f"{second(3):.2f}", "0.600"]
    chosen = figure(found, chosen=(1, 0))
    assert chosen.one("b").text == "L2.H1"
    alt = chosen.one("div", "large").one("img").attributes["alt"]
    assert f"symbol n looks most at {second(5):.2f} s" in alt
    assert f"symbol ␣ looks most at {second(PEAKS[-1]):.2f} s" in alt
    with pytest.raises(ValueError, match="no head 3 in layer 1"):
        figure(found, chosen=(1, HEADS))


def test_one_head_is_drawn_once() -> None:
    root = figure(maps(layers=[pointed(PEAKS, heads=1)]))
    assert root.one("b").text == "L1.H1"
    assert root.all("div", "strip") == []
    assert len(root.all("svg", "seconds")) == 1


def test_the_strongest_weight_of_all_gets_the_last_colour() -> None:
    layers = [pointed(PEAKS) / 4, pointed(PEAKS)]
    root = figure(maps(layers=layers))
    assert image(root.one("div", "large"))[0, PEAKS[0]].tolist() == scale(LIGHT)[-1].tolist()
    # A quarter of the weight is half of the way: 63 / 2, rounded to even.
    assert image(root.all("div", "strip")[0])[0, PEAKS[0]].tolist() == scale(LIGHT)[32].tolist()
    marks = root.one("div", "scale").one("div").all("span")
    assert [mark.text for mark in marks] == ["0", "0.056", "0.23", "0.51", "0.9"]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_silence_and_blindness_are_drawn(weight: float) -> None:
    blind = np.full((1, SYMBOLS, PLACES), weight, dtype=np.float16)
    root = figure(maps(layers=[blind], spectrogram=np.full((FRAMES, BINS), -15.9)))
    assert (image(root.one("div", "heard")) == scale(LIGHT)[0]).all()
    assert (image(root.one("div", "large")) == scale(LIGHT)[-1 if weight else 0]).all()


def test_no_element_is_injected_and_symbols_round_trip() -> None:
    def everywhere(strings: tuple[str, ...]) -> Element:
        joined = " ".join(strings)
        said = [SpokenWord(one, 0.1, 0.2) for one in strings]
        found = maps(
            symbols=strings,
            layers=[np.full((2, len(strings), PLACES), 1 / PLACES)],
            layer_names=[joined],
            words=said,
            gold=said,
        )
        return parse(sound_figure(found, title=joined, note=joined))

    hostile, tame = everywhere(HOSTILE), everywhere(tuple(f"w{i}" for i in range(len(HOSTILE))))
    assert tags(hostile) == tags(tame)
    found = everywhere(tuple(INVISIBLE))
    assert [one.text for one in found.one("ol", "side").all("li")] == list(INVISIBLE.values())
    spoken = [one.text for one in found.one("svg", "words").all("text")]
    assert sorted(spoken) == sorted(INVISIBLE.values())


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
def test_a_browser_draws_it_on_one_axis_without_overlap(tmp_path: Path) -> None:
    text = ["she", "had", "your", "dark", "suit", "in", "greasy", "wash", "water", "all", "year"]
    said = [SpokenWord(word, 0.1 * i, 0.1 * i + 0.09) for i, word in enumerate(text)]
    body = sound_figure(maps(words=said), title="t")
    file = tmp_path / "page.html"
    whole = page("p", subtitle="", facts={}, footer="", sections=[Section(title="s", body=body)])
    file.write_text(whole, encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        for width in (390, 1200):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.send("Emulation.setDeviceMetricsOverride", **size)
            browser.open(file)

            def boxes(selector: str) -> list[dict[str, float]]:
                every = f"[...document.querySelectorAll({selector!r})]"
                return list(browser.run(f"{every}.map((e) => e.getBoundingClientRect().toJSON())"))

            assert browser.run("document.documentElement.scrollWidth") == width
            lefts = {box["left"] for box in boxes(".window, .seconds, .lane")}
            rights = {box["right"] for box in boxes(".window, .seconds, .lane")}
            assert len(lefts) == len(rights) == 1
            labels = boxes(".lane text")
            assert len(labels) == len(text)
            for i, one in enumerate(labels):
                for other in labels[i + 1 :]:
                    apart = one["right"] <= other["left"] or other["right"] <= one["left"]
                    assert apart or abs(one["top"] - other["top"]) >= 14
            rows, symbols = boxes(".large")[0], boxes(".panels ol li")
            assert symbols[0]["top"] == pytest.approx(rows["top"], abs=1)
            assert symbols[-1]["bottom"] == pytest.approx(rows["bottom"], abs=1)
