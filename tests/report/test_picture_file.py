import base64
import errno
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

from harken.errors import Failure, UserError
from harken.formats.examples import Box
from harken.report.palette import LIGHT, scale
from harken.report.picture import VEIL, PictureMaps
from harken.report.picture_file import BAND, SIDE, picture_png, picture_svg, write_picture

from .captioned import (
    BOX,
    COLUMNS,
    HEADS,
    PATCH,
    PEAKS,
    ROWS,
    SYMBOLS,
    WORDS,
    maps,
    nearest,
    noise,
    pointed,
)
from .test_escaping import HOSTILE, INVISIBLE
from .test_sound_file import LINK, SVG, matrix

PLACES, WIDTH, HEIGHT = COLUMNS * ROWS, COLUMNS * PATCH, ROWS * PATCH
ROW = 1 + 2 * SYMBOLS  # images of a row: the picture, and for each word the picture and its veil


class Drawn:
    """What a reader of the SVG finds: texts with their places, pictures with their pixels."""

    def __init__(self, found: PictureMaps, title: str = "t", layer: int | None = None) -> None:
        self.root = ElementTree.fromstring(picture_svg(found, title, layer=layer))
        _, _, self.width, self.height = map(float, self.root.attrib["viewBox"].split())
        self.texts = ["".join(one.itertext()).strip() for one in self.root.iter(f"{SVG}text")]
        self.images = list(self.root.iter(f"{SVG}image"))

    def place(self, wanted: str) -> tuple[float, float]:
        """x and y of the first text that reads so."""
        one = next(one for one in self.root.iter(f"{SVG}text") if "".join(one.itertext()) == wanted)
        if "x" in one.attrib:
            return float(one.attrib["x"]), float(one.attrib["y"])
        _, _, _, _, x, y = matrix(one.attrib["transform"])
        return x, y

    def pixels(self, which: int) -> np.ndarray:
        data = base64.b64decode(self.images[which].attrib[LINK].partition(",")[2])
        return np.asarray(Image.open(BytesIO(data)))

    def point(self, which: int, column: float, row: float) -> tuple[float, float]:
        """Where a place of an image, in its own pixels, stands in the drawing."""
        a, b, c, d, e, f = matrix(self.images[which].attrib["transform"])
        return a * column + c * row + e, b * column + d * row + f


def test_a_veil_lies_over_its_picture() -> None:
    drawn = Drawn(maps())
    assert len(drawn.images) == (1 + HEADS) * ROW
    for row in range(1 + HEADS):
        for word, peak in enumerate(PEAKS):
            under, over = row * ROW + 1 + 2 * word, row * ROW + 2 + 2 * word
            np.testing.assert_array_equal(drawn.pixels(under)[..., :3], noise(HEIGHT, WIDTH))
            veil = drawn.pixels(over)
            assert (veil[..., :3] == VEIL).all()
            rows, columns = np.nonzero(veil[..., 3] == 0)
            first = drawn.point(over, columns.min(), rows.min())
            last = drawn.point(over, columns.max() + 1, rows.max() + 1)
            # What is laid over the picture may reach beyond it, where nothing is drawn.
            corner, end = drawn.point(under, 0, 0), drawn.point(under, WIDTH, HEIGHT)
            x, y = peak % COLUMNS * PATCH, peak // COLUMNS * PATCH
            wanted = drawn.point(under, x, y), drawn.point(under, x + PATCH, y + PATCH)
            assert np.maximum(first, corner) == pytest.approx(wanted[0], abs=0.01)
            assert np.minimum(last, end) == pytest.approx(wanted[1], abs=0.01)


def test_words_stand_above_columns_and_heads_beside_rows() -> None:
    drawn = Drawn(maps())
    corners = [drawn.point(i, 0, 0) for i in range(len(drawn.images))]
    for word, raw in enumerate(WORDS):
        x, y = drawn.place(raw)
        left, top = corners[1 + 2 * word]
        assert x == pytest.approx(left, abs=0.1) and top - 12 < y < top
        for row in range(1 + HEADS):
            assert corners[row * ROW + 1 + 2 * word][0] == pytest.approx(left, abs=0.01)
    for row, name in enumerate(["L2, mean of 3 heads", "L2.H1", "L2.H2", "L2.H3"]):
        x, y = drawn.place(name)
        assert x < corners[row * ROW][0]
        assert y == pytest.approx(drawn.point(row * ROW, 0, HEIGHT / 2)[1] + 4, abs=0.1)
    assert drawn.texts.count("the picture") == 1 + HEADS
    assert drawn.texts.count("0.9") == (1 + HEADS) * SYMBOLS
    right, bottom = drawn.point(len(drawn.images) - 2, WIDTH, HEIGHT)
    assert right < drawn.width and bottom < drawn.height
    tall = drawn.point(0, 0, HEIGHT)[1] - corners[0][1]
    assert tall == pytest.approx(SIDE, abs=0.01)  # the longer side


def test_the_file_of_pixels_clears_exactly_the_pixels_of_a_place() -> None:
    ratio = 3
    image = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    found = maps(image=image, boxes=(), layers=[np.eye(PLACES)[None, list(PEAKS)]])
    drawn = Drawn(found)
    file = Image.open(BytesIO(picture_png(found, "t", ratio)))
    assert file.size == pytest.approx((ratio * drawn.width, ratio * drawn.height), abs=1)
    pixels = np.asarray(file.convert("RGB")).astype(int)
    assert pixels[0, 0].tolist() == [255, 255, 255]
    owner = nearest(found)
    veiled = np.rint(0.2 * 255 + 0.8 * np.array(VEIL))
    column, row = np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5
    for word, peak in enumerate(PEAKS):
        points = [drawn.point(1 + 2 * word, *one) for one in zip(column, column, strict=True)]
        x = np.array([ratio * one[0] for one in points]).astype(int)
        points = [drawn.point(1 + 2 * word, *one) for one in zip(row, row, strict=True)]
        y = np.array([ratio * one[1] for one in points]).astype(int)
        colours = pixels[y[:, None], x[None]]
        centre = (np.array([peak % COLUMNS, peak // COLUMNS]) + 0.5) * PATCH
        ring = np.hypot(column[None] - centre[0], row[:, None] - centre[1]) < 9
        assert (colours[(owner == peak) & ~ring] == 255).all()
        assert np.abs(colours[(owner != peak) & ~ring] - veiled).max() <= 2
        middle = pixels[int(ratio * drawn.point(1 + 2 * word, *centre)[1])]
        at = int(ratio * drawn.point(1 + 2 * word, *centre)[0])
        assert middle[at].tolist() == [255] * 3  # the ring leaves what it marks visible
        assert middle[at - 5 * ratio : at].min() < 64  # and is there


def test_boxes_are_outlined() -> None:
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    found = maps(image=image, symbols=["a"], boxes=[BOX], layers=[pointed((3,), heads=1)])
    drawn = Drawn(found)
    pixels = np.asarray(Image.open(BytesIO(picture_png(found, "t", 2))).convert("RGB"))
    gold = (np.abs(pixels.astype(int) - [0xFF, 0xD5, 0x4A]) < 40).all(axis=-1)
    rows, columns = np.nonzero(gold)
    left, top = np.array(drawn.point(1, BOX.x, BOX.y)) * 2
    right, bottom = np.array(drawn.point(1, BOX.x + BOX.width, BOX.y + BOX.height)) * 2
    edges = [columns.min(), columns.max() + 1, rows.min(), rows.max() + 1]
    assert edges == pytest.approx([left, right, top, bottom], abs=2.5)
    across = np.flatnonzero(gold[int((top + bottom) / 2)])  # a line, not an area
    assert ((np.abs(across - left) < 3) | (np.abs(across - right) < 3)).all()


def test_a_layer_may_be_chosen() -> None:
    found = maps(layer_names=["below", "above"])
    assert "above" in Drawn(found).texts
    drawn = Drawn(found, layer=0)
    assert "below" in drawn.texts and "above" not in drawn.texts
    assert drawn.pixels(2)[0, 0, 3] == 0  # 'one' looks at place 0
    with pytest.raises(ValueError, match="no layer 2, expected 0 to 1"):
        picture_svg(found, "t", layer=2)


def test_a_long_caption_goes_on_below() -> None:
    count = 2 * BAND + 3
    words = [f"word {i}" for i in range(count)]
    found = maps(symbols=words, boxes=(), layers=[pointed(tuple(range(count)), heads=1)])
    drawn = Drawn(found)
    assert len(drawn.images) == 3 + 2 * count  # the picture stands before each band
    places = [drawn.place(word) for word in words]
    assert len({round(y) for _, y in places}) == 3
    assert [round(x) for x, _ in places[:BAND]] == [round(x) for x, _ in places[BAND : 2 * BAND]]
    assert places[0][1] < drawn.point(0, 0, HEIGHT)[1] < places[BAND][1]
    assert max(y for _, y in places) + SIDE < drawn.height


def test_a_map_without_picture_is_a_grid() -> None:
    box = Box(1, 3, 4, 6)
    found = maps(image=None, stride=2, offset=0, boxes=[None, box, None, None, None])
    drawn = Drawn(found)
    assert len(drawn.images) == (1 + HEADS) * SYMBOLS
    assert "the picture" not in drawn.texts
    for word, peak in enumerate(PEAKS):
        pixels = drawn.pixels(word)
        assert pixels.shape[:2] == (ROWS, COLUMNS)
        darkest = (pixels[..., :3] == scale(LIGHT)[-1]).all(axis=-1)
        assert np.argwhere(darkest).tolist() == [[peak // COLUMNS, peak % COLUMNS]]


def test_a_long_title_takes_more_lines_and_a_long_word_is_cut() -> None:
    title = "five three six two and what else there may be to see in such a picture " * 2
    drawn = Drawn(maps(symbols=["extraordinarily", *"abcd"]), title)
    lines = drawn.texts[: drawn.texts.index("L2")]
    assert len(lines) > 1 and " ".join(lines) == title.strip()
    assert drawn.height == Drawn(maps(), "t").height + 24 * (len(lines) - 1)
    # A picture of 76 pixels has room for ten letters.
    assert "extraordi…" in drawn.texts


def test_the_same_maps_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = maps(layers=[pointed(PEAKS, heads=1)])
    svg, png = picture_svg(found, "t"), picture_png(found, "t", 1)
    for key, value in {"font.size": 23.0, "figure.facecolor": "red", "lines.color": "red"}.items():
        monkeypatch.setitem(matplotlib.rcParams, key, value)  # as a reader might have it
    assert picture_svg(found, "t") == svg
    assert picture_png(found, "t", 1) == png
    assert matplotlib.rcParams["font.size"] == 23.0
    assert "matplotlib" not in svg.lower().replace("http://matplotlib.org", "")
    assert Image.open(BytesIO(png)).info.keys() <= {"dpi"}
    assert pyplot.get_fignums() == []
    ids = [one.attrib["id"] for one in ElementTree.fromstring(svg).iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))


def test_text_from_data_is_only_text() -> None:
    def everywhere(strings: tuple[str, ...]) -> Drawn:
        found = maps(
            symbols=strings,
            boxes=(),
            layers=[pointed(tuple(range(len(strings))), heads=1)],
            layer_names=[strings[1]],
        )
        return Drawn(found, strings[2])

    raw = ("$x^2$", *HOSTILE[:6], *INVISIBLE)
    hostile, tame = everywhere(raw), everywhere(tuple(f"w{i}" for i in range(len(raw))))
    assert [one.tag for one in hostile.root.iter()] == [one.tag for one in tame.root.iter()]
    for shown in ("$x^2$", "<!--", "]]>", r"\x00", "␣born", "␣␣", "∅"):
        assert shown in hostile.texts


@pytest.mark.parametrize("name", ["a.svg", "a.PNG"])
def test_a_file_is_whole_or_not_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = maps(symbols=["a"], boxes=(), layers=[pointed((3,), heads=1)] * 2)
    path = tmp_path / "new" / name
    write_picture(found, path, title="t")
    whole = path.read_bytes()
    if name.endswith("svg"):
        assert whole.decode("utf-8") == picture_svg(found, "t")
    else:
        assert Image.open(BytesIO(whole)).format == "PNG" and whole == picture_png(found, "t")

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Failure, match=r"could not be written \(No space left on device\)"):
        write_picture(found, path, title="another", layer=0)
    assert path.read_bytes() == whole
    assert [one.name for one in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jpg", "a"])
def test_another_kind_of_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"found the ending '(.jpg)?', wanted .svg or .png; name"):
        write_picture(maps(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
