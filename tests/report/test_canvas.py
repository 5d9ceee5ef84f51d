"""SVG and PNG files show the same marks, in both themes, for any text."""

import errno
import re
import warnings
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from harken.errors import Failure, UserError
from harken.report.canvas import (
    Bars,
    Circle,
    Drawing,
    Heatmap,
    Label,
    Picture,
    Polyline,
    escape_missing_glyphs,
    heading,
    shorten,
)
from harken.report.palette import DARK, LIGHT, color_scale

from .sample import decoded
from .test_escaping import HOSTILE, INVISIBLE

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
WEIGHTS = np.array([[0.0, 1.0, 0.25], [1.0, 0.0, 0.0]])
PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 7, 3), dtype=np.uint8)
DRAWING = Drawing(
    width=200,
    height=100,
    title="A title",
    description="What it shows",
    marks=[
        Heatmap(10, 20, 60, 40, WEIGHTS),
        Picture(80, 20, 70, 50, PIXELS),
        Polyline([(10, 90), (190, 90)], "accent", 4),
        Bars([(160, 20, 10, 30)], "bar"),
        Circle(180, 40, 5, "highlight"),
        Label(10, 15, "label", "text", size=10),
    ],
)


def parsed(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.svg())


def test_png_shows_every_mark() -> None:
    file = Image.open(BytesIO(DRAWING.png(3)))
    assert file.size == (600, 300)
    pixels = np.asarray(file.convert("RGB"))
    colors = color_scale(LIGHT)
    levels = np.rint(63 * WEIGHTS**0.5).astype(int)
    np.testing.assert_array_equal(pixels[90:210:60, 60:240:60], colors[levels])
    np.testing.assert_array_equal(pixels[75:225:30, 255:465:30], PIXELS)
    assert pixels[270, 300].tolist() == [0x1D, 0x5F, 0xA6]
    assert pixels[105, 495].tolist() == [0x8D, 0xB8, 0xD8]
    assert pixels[120, 540].tolist() == [0xC2, 0x41, 0x0C]
    assert pixels[3, 3].tolist() == [255, 255, 255]
    assert (pixels[20:50, 30:90] < 100).any()  # the label


def test_the_svg_has_text_both_themes_and_a_description() -> None:
    root = parsed(DRAWING)
    assert (root.attrib["width"], root.attrib["height"]) == ("200", "100")
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title") == "A title"
    assert root.findtext(f"{SVG}desc") == "What it shows"
    assert ["".join(text.itertext()) for text in root.iter(f"{SVG}text")] == ["label"]
    images = {image.attrib["id"]: decoded(image.attrib[LINK]) for image in root.iter(f"{SVG}image")}
    assert list(images) == ["dark-0", "light-0", "picture-1"]
    # Files store rows from the bottom or flip by a transform: compare sets of colors.
    for name, anchors in (("light-0", LIGHT), ("dark-0", DARK)):
        expected = color_scale(anchors)[np.rint(63 * np.sqrt(WEIGHTS)).astype(int)]
        element = images[name]
        assert element.tolist() in (expected.tolist(), expected[::-1].tolist())
    style = root.findtext(f"{SVG}style") or ""
    default, _, dark = style.partition("@media")
    assert default == '[id^="dark"]{display:none}' and "prefers-color-scheme: dark" in dark
    for light in re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", DRAWING.svg().decode()):
        assert f': {light}"]' in dark


def test_equal_drawings_give_equal_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    svg, png = DRAWING.svg(), DRAWING.png(1)
    for key, value in {"font.size": 23.0, "figure.facecolor": "red", "lines.color": "red"}.items():
        monkeypatch.setitem(matplotlib.rcParams, key, value)  # the reader's own settings
    assert (DRAWING.svg(), DRAWING.png(1)) == (svg, png)
    assert matplotlib.rcParams["font.size"] == 23.0
    assert b"matplotlib" not in svg.lower() and b"<metadata" not in svg
    assert Image.open(BytesIO(png)).info.keys() <= {"dpi"}
    ids = [element.attrib["id"] for element in parsed(DRAWING).iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))


def test_text_is_not_markup() -> None:
    def written(strings: tuple[str, ...]) -> ElementTree.Element:
        labels = [
            label for raw in strings for label in heading(raw, [raw], 20.0, 10_000.0) if label.text
        ]
        return parsed(Drawing(width=99, height=99, title=" ".join(strings), marks=labels))

    raw = ("$x^2$", "\ufffe\uffff", "日本", *HOSTILE, "\x00", "\ud800", "\u202eabc")
    hostile, tame = written(raw), written(tuple(f"w{i}" for i in range(len(raw))))
    assert [element.tag for element in hostile.iter()] == [element.tag for element in tame.iter()]
    texts = ["".join(text.itertext()) for text in hostile.iter(f"{SVG}text")]
    escaped = (r"\ufffe\uffff", r"\x00", r"\ud800", r"\u202eabc")
    for shown in ("$x^2$", "日本", "<!--", "]]>", *escaped):
        assert texts.count(shown) == 2
    assert all(name != "script" for element in hostile.iter() for name in [element.tag.lower()])


def test_letters_without_a_font_are_escaped_in_the_png() -> None:
    assert escape_missing_glyphs("a\U000f0000 é") == r"a\U000f0000 é"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        label = Label(0, 20, escape_missing_glyphs("\U000f0000" + "".join(INVISIBLE.values())))
        Drawing(width=99, height=30, title="t", marks=[label]).png(1)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a" * 16, "a" * 16),
        ("a" * 17, "a" * 15 + "…"),
        ("中" * 8, "中" * 8),
        ("中" * 9, "中" * 7 + "…"),
        ("e\u0301" * 16, "e\u0301" * 16),
        ("e" + "\u0301" * 100, "e" + "\u0301" * 63 + "…"),
    ],
)
def test_long_labels_are_cut(raw: str, expected: str) -> None:
    assert shorten(raw) == expected


@pytest.mark.parametrize("name", ["a.svg", "a.PNG"])
def test_a_file_is_complete_or_absent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / name
    DRAWING.write(path)
    whole = path.read_bytes()
    assert whole == (DRAWING.svg() if name == "a.svg" else DRAWING.png())

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Failure, match="No space left on device"):
        DRAWING.write(path)
    assert path.read_bytes() == whole
    assert [element.name for element in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jpg", "a"])
def test_another_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected .svg or .png, got '(.jpg)?'"):
        DRAWING.write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
