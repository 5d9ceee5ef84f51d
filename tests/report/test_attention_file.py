import base64
import re
import warnings
from collections.abc import Iterator
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from harken.report.attention_file import attention_png, attention_svg, lines_png, lines_svg
from harken.report.heatmap import AttentionMaps
from harken.report.palette import DARK, LIGHT, scale

from .test_escaping import HOSTILE, INVISIBLE

SVG = "{http://www.w3.org/2000/svg}"
# Distinct primes: a swapped axis cannot pass by luck.
LAYERS, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def maps(queries: int = QUERIES, keys: int = KEYS, **changes: object) -> AttentionMaps:
    """Query i looks at key i alone; only layer 2, head 3 looks at key i + 1."""
    weights = np.zeros((LAYERS, HEADS, queries, keys))
    for i in range(queries):
        weights[..., i, min(i, keys - 1)] = 0.9
        weights[1, 2, i, min(i, keys - 1)] = 0.0
        weights[1, 2, i, min(i + 1, keys - 1)] = 1.0
    given: dict[str, object] = {
        "query_tokens": [f"q{i}" for i in range(queries)],
        "key_tokens": [f"k{i}" for i in range(keys)],
        "layers": list(weights),
    }
    return AttentionMaps(**(given | changes))  # type: ignore[arg-type]


class Drawn:
    """What a reader of the SVG finds."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.width, self.height = (float(self.root.attrib[side]) for side in ("width", "height"))
        self.texts = [one.text or "" for one in self.root.iter(f"{SVG}text")]
        self.light = [one for one in self.root.iter(f"{SVG}image") if "class" in one.attrib]
        self.dark = [one for one in self.root.iter(f"{SVG}image") if "class" not in one.attrib]

    def place(self, words: str) -> tuple[float, float]:
        (one,) = (one for one in self.root.iter(f"{SVG}text") if one.text == words)
        return float(one.attrib["x"]), float(one.attrib["y"])

    def labels(self, *, turned: bool) -> Iterator[tuple[float, float, str]]:
        for one in self.root.iter(f"{SVG}text"):
            side = "transform" in one.attrib if turned else one.attrib["text-anchor"] == "end"
            if side:
                yield float(one.attrib["x"]), float(one.attrib["y"]), one.text or ""


def box(image: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(image.attrib[key]) for key in ("x", "y", "width", "height"))
    return x, y, width, height


def pixels(image: ElementTree.Element) -> np.ndarray:
    data = base64.b64decode(image.attrib["href"].partition(",")[2])
    return np.asarray(Image.open(BytesIO(data)).convert("RGB"))


def test_the_sharpest_head_is_large_and_every_head_is_small() -> None:
    drawn = Drawn(attention_svg(maps(), "a title"))
    large, _, *small = drawn.light
    assert len(small) == LAYERS * HEADS and len(drawn.dark) == len(drawn.light)
    assert {"a title", "L2.H3", "L1", "L2", "H1", "H3"} <= set(drawn.texts)
    for images, anchors in ((drawn.light, LIGHT), (drawn.dark, DARK)):
        colours = scale(anchors)
        assert pixels(images[0]).shape == (QUERIES, KEYS, 3)
        for row in range(QUERIES):
            assert pixels(images[0])[row, row + 1].tolist() == colours[-1].tolist()
            assert pixels(images[2])[row, row].tolist() == colours[round(63 * 0.9**0.5)].tolist()
    assert pixels(small[-1]).tolist() == pixels(large).tolist()


def test_labels_stand_beside_their_row_and_column() -> None:
    drawn = Drawn(attention_svg(maps(), "t"))
    x, y, width, height = box(drawn.light[0])
    for i in range(QUERIES):
        at = drawn.place(f"q{i}")
        assert at[0] < x and at[1] - 4 == pytest.approx(y + (i + 0.5) * height / QUERIES, abs=0.1)
    for i in range(KEYS):
        at = drawn.place(f"k{i}")
        assert at[1] < y and at[0] - 4 == pytest.approx(x + (i + 0.5) * width / KEYS, abs=0.1)


@pytest.mark.parametrize("count", [2, 61, 331, 1021])
def test_labels_never_overlap_and_what_is_left_out_is_said(count: int) -> None:
    drawn = Drawn(attention_svg(maps(count, count), "t"))
    _, y, width, height = box(drawn.light[0])
    assert width == height <= 900
    columns = sorted(at for at, _, _ in drawn.labels(turned=True))
    rows = sorted(at for _, at, _ in drawn.labels(turned=False) if at < y + height)
    for places in (rows, columns):
        assert len(places) >= min(count, 41)
        assert min(np.diff(places)) >= 13.9
    said = " ".join(drawn.texts)
    assert ("largest weight of 4 × 4 tokens" in said) == (count == 1021)
    assert ("not every token is named" in said) == (count > 61)
    for image in drawn.light:
        assert max(pixels(image).shape) <= 320
        left, top, wide, high = box(image)
        assert left + wide <= drawn.width and top + high <= drawn.height


def test_few_queries_among_many_keys_are_seen() -> None:
    large, _, *small = Drawn(attention_svg(maps(3, 1021), "t")).light
    assert box(large)[2:] == (640, 84)
    assert all(height >= 18 for _, _, _, height in map(box, small))


def test_one_sharp_weight_among_many_survives_the_blocks() -> None:
    weights = np.zeros((1, 1021, 1021))
    weights[0, 700, 300] = 1.0
    tokens = ["w"] * 1021
    found = AttentionMaps(query_tokens=tokens, key_tokens=tokens, layers=[weights])
    large, _, small = Drawn(attention_svg(found, "t")).light
    for image in (large, small):
        dark = np.argwhere((pixels(image) == scale(LIGHT)[-1]).all(axis=-1))
        assert len(dark) == 1
        np.testing.assert_allclose(
            dark[0] / len(pixels(image)), [700 / 1021, 300 / 1021], atol=0.02
        )


def test_lines_run_between_the_labels() -> None:
    drawn = Drawn(lines_svg(maps(), "t", 1, 2))
    found = list(drawn.root.iter(f"{SVG}line"))
    assert len(found) == QUERIES
    for line in found:
        start, end = (tuple(float(line.attrib[f"{axis}{n}"]) for axis in "xy") for n in (1, 2))
        query = next(i for i in range(QUERIES) if drawn.place(f"q{i}")[1] - 4 == start[1])
        assert drawn.place(f"k{query + 1}")[1] - 4 == end[1]
        assert drawn.place(f"q{query}")[0] < start[0] < end[0] < drawn.place(f"k{query}")[0]
    assert "a line for every weight of at least 0.02" in drawn.texts
    with pytest.raises(ValueError, match="no head 3 in layer 1"):
        lines_svg(maps(), "t", 1, HEADS)


def test_lines_of_a_long_text_join_blocks() -> None:
    drawn = Drawn(lines_svg(maps(331, 331), "t", 0, 0))
    assert "331 queries and 331 keys: each line is the largest weight of 3 × 3" in " ".join(
        drawn.texts
    )
    assert drawn.texts.count("4 q3 …") == 1


def test_the_file_of_pixels_shows_the_same() -> None:
    found, ratio = maps(), 3
    drawn = Drawn(attention_svg(found, "t"))
    file = Image.open(BytesIO(attention_png(found, "t", ratio)))
    assert file.size == (ratio * drawn.width, ratio * drawn.height)
    image = np.asarray(file.convert("RGB"))
    assert image[0, 0].tolist() == [255, 255, 255]
    x, y, width, height = box(drawn.light[0])
    for row in range(QUERIES):
        for column in range(KEYS):
            across = round(ratio * (x + (column + 0.5) * width / KEYS))
            down = round(ratio * (y + (row + 0.5) * height / QUERIES))
            assert image[down, across].tolist() == pixels(drawn.light[0])[row, column].tolist()


def test_lines_are_seen_in_the_file_of_pixels() -> None:
    image = np.asarray(Image.open(BytesIO(lines_png(maps(), "t", 1, 2, 1))).convert("RGB"))
    line = next(Drawn(lines_svg(maps(), "t", 1, 2)).root.iter(f"{SVG}line")).attrib
    x, y = (round((float(line[f"{axis}1"]) + float(line[f"{axis}2"])) / 2) for axis in "xy")
    assert image[y, x].tolist() == [0x1D, 0x5F, 0xA6]


def test_equal_maps_give_equal_bytes() -> None:
    assert attention_png(maps(), "t") == attention_png(maps(), "t")
    assert attention_svg(maps(), "t") == attention_svg(maps(), "t")


def hostile() -> AttentionMaps:
    tokens = [
        *HOSTILE,
        *INVISIBLE,
        "\ufffe\uffff",
        "中" * 500,
        "a" + "\u0301" * 5000,
        "x" * 100_000,
    ]
    weights = np.full((1, len(tokens), len(tokens)), 1 / len(tokens))
    name = " ".join(HOSTILE)
    return AttentionMaps(
        query_tokens=tokens, key_tokens=tokens, layers=[weights], layer_names=[name]
    )


def test_hostile_tokens_are_text() -> None:
    for svg in (attention_svg(hostile(), HOSTILE[1]), lines_svg(hostile(), HOSTILE[1], 0, 0)):
        root = ElementTree.fromstring(svg.encode("utf-8"))
        names = {one.tag.removeprefix(SVG) for one in root.iter()}
        assert names <= {"svg", "title", "desc", "style", "rect", "text", "image", "line"}
        assert root.findtext(f"{SVG}title") == HOSTILE[1]
        assert "url(" not in svg and "@import" not in svg
        assert all(one.attrib["href"].startswith("data:") for one in root.iter(f"{SVG}image"))
        assert not re.search(r"\son\w+=", re.sub(r">[^<]*<", "><", svg))
        assert len(svg) < 200_000


def test_letters_without_a_font_are_written_as_python_does() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        file = attention_png(hostile(), HOSTILE[1], 1)
        assert Image.open(BytesIO(file)).size[0] < 2000
        one = maps(1, 1, query_tokens=["\U000f0000"], key_tokens=["\U000f0000"])
        same = maps(1, 1, query_tokens=[r"\U000f0000"], key_tokens=[r"\U000f0000"])
        assert attention_png(one, "t", 1) == attention_png(same, "t", 1)


def test_many_heads_of_a_long_text_stay_affordable() -> None:
    random = np.random.default_rng(0)
    layers = [random.uniform(size=(16, 512, 512)).astype(np.float32) for _ in range(4)]
    tokens = [f"w{i}" for i in range(512)]
    found = AttentionMaps(query_tokens=tokens, key_tokens=tokens, layers=layers)
    assert len(attention_svg(found, "t")) < 2_000_000
    assert len(lines_svg(found, "t", 0, 0)) < 150_000


@pytest.mark.parametrize("kind", ["sheet", "lines"])
def test_dark_paper_has_light_ink(kind: str) -> None:
    svg = attention_svg(maps(), "t") if kind == "sheet" else lines_svg(maps(), "t", 0, 0)
    root = ElementTree.fromstring(svg)
    style = root.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style
    classes = {one.attrib["class"] for one in root.iter() if "class" in one.attrib}
    assert classes and all(f".{name}{{" in style for name in classes)
