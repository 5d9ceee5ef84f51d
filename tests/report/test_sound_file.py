import base64
import re
from io import BytesIO
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from harken.formats.examples import SpokenWord
from harken.report.palette import LIGHT, scale
from harken.report.sound import SoundMaps
from harken.report.sound_file import sound_png, sound_svg

from .spoken import FIRST_FRAME, FRAME, FRAMES, HEADS, LAYERS, PEAKS, maps, pointed, second
from .test_escaping import HOSTILE, INVISIBLE

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


class Drawn:
    """What a reader of the SVG finds: texts with their places, pictures with their pixels."""

    def __init__(self, found: SoundMaps, title: str = "t") -> None:
        self.root = ElementTree.fromstring(sound_svg(found, title))
        _, _, self.width, self.height = map(float, self.root.attrib["viewBox"].split())
        self.texts = ["".join(one.itertext()).strip() for one in self.root.iter(f"{SVG}text")]
        self.images = list(self.root.iter(f"{SVG}image"))

    def place(self, wanted: str) -> tuple[float, float]:
        """x and y of the first text that reads so."""
        one = next(one for one in self.root.iter(f"{SVG}text") if "".join(one.itertext()) == wanted)
        if "x" in one.attrib:
            return float(one.attrib["x"]), float(one.attrib["y"])
        numbers = re.findall(r"-?[\d.]+", one.attrib["transform"])
        return float(numbers[-2]), float(numbers[-1])

    def pixels(self, which: int) -> np.ndarray:
        data = base64.b64decode(self.images[which].attrib[LINK].partition(",")[2])
        return np.asarray(Image.open(BytesIO(data)).convert("RGB"))

    def point(self, which: int, column: float, row: float) -> tuple[float, float]:
        """Where a place of a picture, in its own pixels, stands in the drawing."""
        attributes = self.images[which].attrib
        width, height = float(attributes["width"]), float(attributes["height"])
        tall, wide, _ = self.pixels(which).shape
        x = float(attributes.get("x", 0)) + column * width / wide
        y = float(attributes.get("y", 0)) + row * height / tall
        a, b, c, d, e, f = matrix(attributes["transform"])
        return a * x + c * y + e, b * x + d * y + f

    def second(self, x: float) -> float:
        """As a reader finds it, between two ticks."""
        (low, _), (high, _) = self.place("0.2"), self.place("1")
        return 0.2 + (x - low) / (high - low) * 0.8

    def peaks(self, which: int) -> list[float]:
        columns = self.pixels(which).sum(axis=-1, dtype=int).argmin(axis=1)
        return [self.second(self.point(which, c + 0.5, 0)[0]) for c in columns]


def matrix(transform: str) -> tuple[float, ...]:
    """The product of an SVG's list of transforms, as a, b, c, d, e, f."""
    total = np.eye(3)
    for kind, inside in re.findall(r"(\w+)\(([^)]*)\)", transform):
        n = [float(one) for one in re.split(r"[ ,]+", inside.strip())]
        if kind == "matrix":
            step = np.array([[n[0], n[2], n[4]], [n[1], n[3], n[5]], [0, 0, 1]])
        elif kind == "scale":
            step = np.diag([n[0], n[-1], 1])
        else:
            assert kind == "translate", transform
            step = np.array([[1, 0, n[0]], [0, 1, n[1] if len(n) > 1 else 0], [0, 0, 1]])
        total = total @ step
    return tuple(total[:2].T.flatten())


def test_a_peak_stands_at_its_second() -> None:
    drawn = Drawn(maps())
    sound, large, legend, *small = range(len(drawn.images))
    assert len(small) == LAYERS * HEADS
    assert drawn.peaks(large) == pytest.approx([second(peak) for peak in PEAKS], abs=1e-4)
    assert drawn.peaks(small[0]) == pytest.approx([second(i) for i in range(5)], abs=1e-4)
    left, right = (drawn.second(drawn.point(sound, at, 0)[0]) for at in (0, FRAMES))
    assert left == pytest.approx(FIRST_FRAME - FRAME / 2, abs=1e-4)
    assert right == pytest.approx(FIRST_FRAME + (FRAMES - 0.5) * FRAME, abs=1e-4)
    assert drawn.point(legend, 0, 0)[0] == pytest.approx(drawn.place("L1")[0], abs=0.1)


def test_pictures_and_names_stand_below_each_other() -> None:
    drawn = Drawn(maps(symbols=list("abcde")))
    tops = [drawn.point(i, 0, 0)[1] for i in range(len(drawn.images))]
    assert tops == sorted(tops)
    for row, symbol in enumerate("abcde"):
        middle = drawn.point(1, 0, row + 0.5)[1]
        assert drawn.place(symbol)[1] == pytest.approx(middle + 4, abs=0.1)
    assert tops[2] < drawn.place("L1")[1] < tops[3]
    assert tops[2 + HEADS] < drawn.place("L2")[1] < tops[3 + HEADS] < drawn.height


def test_words_stand_above_the_sound() -> None:
    drawn = Drawn(maps(gold=[SpokenWord("eight", 0.25, 0.5), SpokenWord("ten", 1.1, 1.15)]))
    assert drawn.second(drawn.place("nine")[0]) == pytest.approx(0.125, abs=1e-4)
    assert drawn.second(drawn.place("eight")[0]) == pytest.approx(0.25, abs=1e-4)
    assert drawn.place("nine")[1] < drawn.place("eight")[1] < drawn.point(0, 0, 0)[1]


def test_the_file_of_pixels_shows_the_same() -> None:
    found, ratio = maps(), 3
    drawn = Drawn(found)
    file = Image.open(BytesIO(sound_png(found, "t", ratio)))
    assert file.size == (round(ratio * drawn.width), round(ratio * drawn.height))
    pixels = np.asarray(file.convert("RGB"))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    for row, peak in enumerate(PEAKS):
        x, y = (round(ratio * at) for at in drawn.point(1, peak + 0.5, row + 0.5))
        colour = drawn.pixels(1)[row, peak]
        assert colour.tolist() == scale(LIGHT)[-1].tolist()
        assert pixels[y, x].tolist() == colour.tolist()
        (left, _), (right, _) = (drawn.point(1, peak + side, row) for side in (0, 1))
        run = np.flatnonzero((pixels[y] == colour).all(axis=-1))
        assert run.min() == pytest.approx(ratio * left, abs=1.5)
        assert run.max() + 1 == pytest.approx(ratio * right, abs=1.5)


def test_the_same_maps_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    svg, png = sound_svg(maps(), "t"), sound_png(maps(), "t", 1)
    for key, value in {"font.size": 23.0, "figure.facecolor": "red", "lines.color": "red"}.items():
        monkeypatch.setitem(matplotlib.rcParams, key, value)  # as a reader might have it
    assert sound_svg(maps(), "t") == svg
    assert sound_png(maps(), "t", 1) == png
    assert matplotlib.rcParams["font.size"] == 23.0
    assert "matplotlib" not in svg.lower().replace("http://matplotlib.org", "")
    assert Image.open(BytesIO(png)).info.keys() <= {"dpi"}


@pytest.mark.parametrize("heads", [1, 8])
def test_one_head_and_many(heads: int) -> None:
    drawn = Drawn(maps(layers=[pointed(PEAKS, heads=heads)], layer_names=["cross"]))
    assert len(drawn.images) == 3 + (heads if heads > 1 else 0)
    assert drawn.texts.count("seconds") == (2 if heads > 1 else 1)
    assert ("cross, mean of its 8 heads" if heads > 1 else "cross.H1") in drawn.texts


def test_a_long_title_takes_more_lines_and_stays_whole() -> None:
    title = "she had your dark suit in greasy wash water all year " * 4
    drawn = Drawn(maps(), title)
    assert drawn.height == Drawn(maps(), "t").height + 24
    assert " ".join(drawn.texts[:2]) == title.strip()


def test_text_from_data_is_only_text() -> None:
    def everywhere(strings: tuple[str, ...]) -> Drawn:
        found = maps(
            symbols=strings,
            layers=[pointed(tuple(range(len(strings))), heads=1)],
            layer_names=[strings[1]],
            words=[SpokenWord(one, 0.1, 0.2) for one in strings],
        )
        return Drawn(found, strings[2])

    raw = ("$x^2$", *HOSTILE[:6], *INVISIBLE)
    hostile, tame = everywhere(raw), everywhere(tuple(f"w{i}" for i in range(len(raw))))
    assert [one.tag for one in hostile.root.iter()] == [one.tag for one in tame.root.iter()]
    assert hostile.texts[0] == raw[2]
    for shown in ("$x^2$", "<b>bold</b>", "<!--", "]]>", r"\x00", r"\u202eabc", "␣born", "␣␣", "∅"):
        assert hostile.texts.count(shown) == 2  # a label of the map, and a word
