import base64
import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from harken.layers.frontends import ConvStemConfig, ImageSizes, PatchEmbeddingConfig
from harken.report.canvas import Circle, Heatmap, Label, Picture
from harken.report.image_attention import (
    OVERLAY,
    blend_overlay,
    image_drawing,
    image_figure,
    image_view,
    peak,
    reduce_image,
)
from harken.report.palette import LIGHT, color_scale
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import ImageView

from .browser import PROGRAM, Browser
from .parsed import Element, parse
from .sample import decoded, figure_page, pointed, viewed

# Distinct primes: a swapped axis cannot pass by luck.
HEADS, COLUMNS, ROWS, PATCH = 3, 7, 11, 13
WORDS = ("one", "nine", "four", "two", "<end>")
PEAKS = (3, 17, 31, 53, 73)  # of the last layer's heads; positions, row by row
PLACES, WIDTH, HEIGHT = COLUMNS * ROWS, COLUMNS * PATCH, ROWS * PATCH


def noise(rows: int, columns: int, channels: int = 3) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.integers(0, 256, size=(rows, columns, channels), dtype=np.uint8)


def maps(
    layers: list[np.ndarray] | None = None, words: tuple[str, ...] = WORDS, **changes: object
) -> ViewedAttention:
    """Words that attend to one square of `PATCH` pixels each."""
    given: dict[str, object] = {
        "image": noise(HEIGHT, WIDTH),
        "columns": COLUMNS,
        "rows": ROWS,
        "offset": (PATCH - 1) / 2,
        "stride": PATCH,
    }
    view = ImageView(**(given | changes))  # type: ignore[arg-type]
    weights = layers or [pointed(range(5), HEADS, PLACES), pointed(PEAKS, HEADS, PLACES)]
    return viewed(words, [f"{i}" for i in range(view.columns * view.rows)], weights, picture=view)


def nearest(view: ImageView) -> np.ndarray:
    """The position of every pixel [Y, X] by comparing all distances; -1 where two are as near."""

    def along(pixels: int, places: int) -> np.ndarray:
        centers = view.offset + view.stride * np.arange(places)
        distances = np.abs(np.arange(pixels)[:, None] - centers[None])
        near = distances <= distances.min(axis=1, keepdims=True) + 1e-6 * view.stride
        return np.where(near.sum(axis=1) == 1, near.argmax(axis=1), -1)

    height, width = view.image.shape[:2]
    x, y = along(width, view.columns), along(height, view.rows)
    both = (x[None] >= 0) & (y[:, None] >= 0)
    return np.where(both, y[:, None] * view.columns + x[None], -1)


def figure(attention: ViewedAttention) -> Element:
    return parse(image_figure(attention, title="t", note="n"))


def numbers(element: Element, *names: str) -> list[float]:
    return [float(element.attributes[name]) for name in names]


def cells(head_view: Element) -> list[Element]:
    """The items of a row that are words; the first is the image."""
    return head_view.find("ol", "scenes").find_all("li")[1:]


def shown(root: Element) -> Element:
    """The element after the checked radio button, which is visible by default."""
    elements = root.find("div", "head-views").children
    checked = [
        element.tag == "label" and "checked" in element.find("input").attributes
        for element in elements
    ]
    return elements[checked.index(True) + 1]


def opacity(word: Element) -> np.ndarray:
    """Opacity 0..1 of the overlay at the center of each pixel [Y, X], as SVG defines it."""
    scene = word.find("svg", "scene")
    left, top, width, height = map(float, scene.attributes["viewbox"].split())
    assert (left, top) == (0, 0)
    above = scene.find("image")
    assert above.attributes["preserveaspectratio"] == "none"
    pixels = decoded(above.attributes["href"], "RGBA")
    assert (pixels[..., :3] == OVERLAY).all()
    x, y, wide, high = numbers(above, "x", "y", "width", "height")
    columns = (np.arange(width) + 0.5 - x) / wide * pixels.shape[1]
    rows = (np.arange(height) + 0.5 - y) / high * pixels.shape[0]
    assert columns.min() >= 0 and columns.max() < pixels.shape[1]  # it covers the image
    assert rows.min() >= 0 and rows.max() < pixels.shape[0]
    return np.asarray(pixels[rows.astype(int)[:, None], columns.astype(int)[None], 3] / 255)


@st.composite
def grids(draw: st.DrawFn) -> tuple[ViewedAttention, int]:
    """Positions over an image that may reach beyond them by less than a stride."""
    columns, rows = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    stride = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 128 / 7, 2.5]))
    offset = draw(st.floats(-0.5, stride - 0.5))
    last = [offset + 0.5 + stride * (count - 1) for count in (columns, rows)]
    width, height = (draw(st.integers(int(np.ceil(end)), int(end + stride))) for end in last)
    lit = draw(st.integers(0, columns * rows - 1))
    image = np.full((max(height, 1), max(width, 1), 1), 255, np.uint8)
    weights = [np.eye(columns * rows)[None, None, lit]]
    grid = {"image": image, "columns": columns, "rows": rows, "offset": offset, "stride": stride}
    return maps(weights, ("word",), **grid), lit


@settings(max_examples=60)
@given(grids())
def test_a_weight_clears_exactly_the_pixels_of_its_position(
    grid: tuple[ViewedAttention, int],
) -> None:
    attention, lit = grid
    view = image_view(attention)
    (word,) = cells(figure(attention).find("div", "head-view"))
    owner = nearest(view)
    assert (opacity(word)[owner == lit] == 0).all()
    np.testing.assert_allclose(opacity(word)[(owner != lit) & (owner >= 0)], 0.8)
    centers = [
        view.offset + 0.5 + view.stride * at for at in (lit % view.columns, lit // view.columns)
    ]
    assert numbers(word.find_all("circle", "peak")[0], "cx", "cy") == pytest.approx(
        centers, rel=1e-5
    )
    # The file shows the same pixels.
    pixels = blend_overlay(view, attention.layers[0].weights[0, 0], reduce_image(view.image, 512))
    assert (pixels[owner == lit] == 255).all()
    covered = np.rint(0.2 * 255 + 0.8 * np.array(OVERLAY))
    assert (pixels[(owner != lit) & (owner >= 0)] == covered).all()


def receptive_field(front: torch.nn.Module, token: int) -> np.ndarray:
    """The pixels [Y, X] that a token of a front depends on, by its gradient."""
    image = torch.rand(1, 3, HEIGHT, WIDTH, requires_grad=True)
    front(image).tokens[0, token].sum().backward()
    return np.asarray((image.grad[0] != 0).any(dim=0).numpy())


def test_a_patch_is_what_the_front_reads() -> None:
    sizes = ImageSizes(channels=3, columns=WIDTH, rows=HEIGHT)
    front = PatchEmbeddingConfig(patch=PATCH).build(sizes, width=2)
    layers = [pointed((19, 76), 1, PLACES)]
    attention = maps(layers, ("a", "b"), offset=front.offset, stride=front.stride)
    for place, word in zip((19, 76), cells(figure(attention)), strict=True):
        np.testing.assert_array_equal(opacity(word) == 0, receptive_field(front, place))


def test_a_position_of_a_convolution_is_the_center_of_its_receptive_field() -> None:
    sizes = ImageSizes(channels=3, columns=WIDTH, rows=HEIGHT)
    front = ConvStemConfig(channels=(5, 7)).build(sizes, width=2)
    for parameter in front.parameters():
        parameter.data.abs_()  # no unit is inactive
    place = 6 * front.columns + 11  # not at the edge, where zeros are read
    layers = [pointed((place,), 1, front.columns * front.rows)]
    names = ("columns", "rows", "offset", "stride")
    attention = maps(layers, ("a",), **{name: getattr(front, name) for name in names})
    (word,) = cells(figure(attention))
    for axis, cleared in enumerate(np.nonzero(opacity(word) == 0)):
        read = np.nonzero(receptive_field(front, place))[axis]
        # The center of four pixels is between two of them.
        assert cleared.mean() == pytest.approx(read.mean(), abs=0.5)
        assert read.min() <= cleared.min() < cleared.max() <= read.max()


def test_the_overlay_fades_with_the_square_root_of_the_weight() -> None:
    weights = np.zeros((1, 1, PLACES), np.float16)
    weights[0, 0, [5, 6, 7]] = [0.5, 0.125, 0.25]
    attention = maps([weights], ("a",))
    owner = nearest(image_view(attention))
    for place, expected in ((5, 0.0), (6, 0.4), (7, 0.8 * (1 - 0.5**0.5)), (8, 0.8)):
        covered = opacity(cells(figure(attention))[0])[owner == place]
        np.testing.assert_allclose(covered, expected, atol=0.5 / 255)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_image_is_there_once_and_first_in_every_row(channels: int) -> None:
    image = noise(HEIGHT, WIDTH, channels)
    root = figure(maps(image=image))
    (shared,) = root.find("defs").find_all("image")
    assert numbers(shared, "x", "y", "width", "height") == [0, 0, WIDTH, HEIGHT]
    pixels = decoded(shared.attributes["href"])
    np.testing.assert_array_equal(pixels, np.broadcast_to(image, (HEIGHT, WIDTH, 3)))
    for head_view in root.find_all("div", "head-view"):
        scenes = head_view.find("ol", "scenes").find_all("li")
        uses = [scene.find("use").attributes["href"] for scene in scenes]
        assert uses == ["#" + shared.attributes["id"]] * (1 + len(WORDS))
        assert scenes[0].find_all("image") == scenes[0].find_all("circle") == []


def test_a_large_image_is_reduced_in_the_same_place() -> None:
    image = np.repeat(np.repeat(noise(701, 1013), 2, axis=0), 2, axis=1)
    grid = {"columns": 10, "rows": 7, "offset": 100.8, "stride": 202.6}
    attention = maps([pointed((3,), HEADS, 70)], ("a",), image=image, **grid)
    (shared,) = figure(attention).find("defs").find_all("image")
    assert numbers(shared, "width", "height") == [2026, 1402]
    drawn = decoded(shared.attributes["href"])
    assert drawn.shape == (351, 507, 3)  # 1402 / 4, rounded up
    np.testing.assert_allclose(drawn[5, 7], image[20:24, 28:32].mean(axis=(0, 1)), atol=0.51)
    np.testing.assert_array_equal(reduce_image(image[:100, :100], 512), image[:100, :100])


def test_the_mean_of_the_last_layer_is_shown_and_every_head_may_be_chosen() -> None:
    root = figure(maps())
    names = [label.text.strip() for label in root.find_all("label")]
    assert names == [
        name
        for layer in ("L1", "L2")
        for name in (f"{layer}, mean over 3 heads", *(f"{layer}.H{i}" for i in (1, 2, 3)))
    ]
    groups = {label.find("input").attributes["name"] for label in root.find_all("label")}
    assert len(groups) == 1
    rows = shown(root).find("details").find("tbody").find_all("tr")
    assert [[td.text for td in row.find_all("td")] for row in rows] == [
        [word, str(at % COLUMNS + 1), str(at // COLUMNS + 1), "0.9"]
        for word, at in zip(WORDS, PEAKS, strict=True)
    ]
    description = cells(shown(root))[1].find("svg", "scene").attributes["aria-label"]
    assert description == ("L2, mean over 3 heads: nine attends most to column 4 of 7, row 3 of 11")
    other = figure(maps([pointed(PEAKS, HEADS, PLACES)]))
    assert other.find_all("input")[0].attributes["name"] not in groups
    assert not figure(maps([pointed(PEAKS, 1, PLACES)])).find_all("input")


@pytest.mark.parametrize("weight", [0.0, 1 / PLACES])
def test_equal_weights_have_no_peak(weight: float) -> None:
    weights = np.full((1, 1, PLACES), weight)
    assert peak(weights[0, 0]) is None
    root = figure(maps([weights], ("a",)))
    scene = cells(root)[0].find("svg", "scene")
    assert scene.attributes["aria-label"].endswith("a attends equally to several positions")
    assert scene.find_all("circle") == []


def test_a_feature_map_without_image_is_a_heatmap() -> None:
    attention = maps([pointed(PEAKS, 1, PLACES)], image=None)
    root = figure(attention)
    scenes = root.find("ol", "scenes").find_all("li")
    assert len(scenes) == len(WORDS)
    for scene, place in zip(scenes, PEAKS, strict=True):
        pixels = decoded(scene.find("img").attributes["src"])
        assert pixels.shape == (ROWS, COLUMNS, 3)
        assert pixels[place // COLUMNS, place % COLUMNS].tolist() == color_scale(LIGHT)[-1].tolist()
    marks = [mark for mark in image_drawing(attention, "t").marks if isinstance(mark, Heatmap)]
    assert [int(mark.weights.argmax()) for mark in marks] == list(PEAKS)


def test_the_same_maps_give_the_same_page_and_nothing_is_fetched() -> None:
    html = image_figure(maps(), title="t")
    assert image_figure(maps(), title="t") == html
    assert set(re.findall(r'(?:href|src|srcset)="([^"]{5})', html)) == {"data:", "#imag"}


def test_columns_are_words_and_rows_are_heads() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(PLACES), size=(HEADS, len(WORDS)))
    mean, *heads = maps([weights]).layers[0].mean_and_heads()
    np.testing.assert_allclose(mean.weights, weights.mean(axis=0))
    np.testing.assert_allclose(heads[1].weights, weights[1])
    drawn = image_drawing(maps(), "t")
    pictures = [mark for mark in drawn.marks if isinstance(mark, Picture)]
    columns = 1 + len(WORDS)
    assert len(pictures) == (1 + HEADS) * columns
    labels = {mark.text: mark for mark in drawn.marks if isinstance(mark, Label)}
    view, image = image_view(maps()), noise(HEIGHT, WIDTH)
    for row, choice in enumerate(maps().layers[-1].mean_and_heads()):
        first = pictures[row * columns]
        np.testing.assert_array_equal(first.pixels, image)
        assert labels[choice.name].y == pytest.approx(first.y + first.height / 2 + 4)
        for word, raw in enumerate(WORDS):
            cell = pictures[row * columns + 1 + word]
            np.testing.assert_array_equal(
                cell.pixels, blend_overlay(view, choice.weights[word], image)
            )
            assert cell.x == labels[raw].x
    rings = [mark for mark in drawn.marks if isinstance(mark, Circle) and mark.color == "peak"]
    cell, unit = pictures[1], 120 / HEIGHT
    center = [(at + 0.5) * PATCH * unit for at in (PEAKS[0] % COLUMNS, PEAKS[0] // COLUMNS)]
    assert (rings[0].x - cell.x, rings[0].y - cell.y) == pytest.approx(center)
    assert pictures[-1].x + pictures[-1].width < drawn.width
    assert pictures[-1].y + pictures[-1].height < drawn.height


def test_a_long_caption_continues_below() -> None:
    words = tuple(f"w{i}" for i in range(13))
    drawn = image_drawing(maps([pointed(range(13), 1, PLACES)], words), "t")
    pictures = [mark for mark in drawn.marks if isinstance(mark, Picture)]
    tops = [mark.y for mark in pictures]
    assert len(set(tops)) == 2 and tops.count(tops[0]) == 11 and tops.count(tops[-1]) == 4


def test_a_long_caption_stays_affordable() -> None:
    random = np.random.default_rng(0)
    layers = [random.dirichlet(np.ones(441), size=(4, 20)) for _ in range(2)]
    words = tuple(f"w{i}" for i in range(20))
    grid = {"columns": 21, "rows": 21, "offset": 0, "stride": 4}
    attention = maps(layers, words, image=noise(84, 84, 1), **grid)
    assert len(image_figure(attention, title="t")) < 600_000


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
def test_browser_clears_the_pixels_of_a_position_and_keys_select_heads(tmp_path: Path) -> None:
    image = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    layers = [np.eye(PLACES)[None, list(PEAKS)], pointed(PEAKS, HEADS, PLACES)]
    attention = maps(layers, image=image)
    file = tmp_path / "page.html"
    file.write_text(figure_page(image_figure(attention, title="t")), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.resize(1200, 1400, scale=2)
        browser.open(file)

        def shown_head() -> str:
            every = "[...document.querySelectorAll('.head-view')]"
            visible = f"{every}.filter((e) => e.checkVisibility())"
            (text,) = browser.run(f"{visible}.map((e) => e.querySelector('summary').innerText)")
            return str(text)

        assert shown_head().endswith("L2, mean over 3 heads")
        browser.run("document.querySelector('input:checked').focus()")
        browser.press("ArrowUp")
        assert shown_head().endswith("L1.H1")
        shot = base64.b64decode(browser.send("Page.captureScreenshot", format="png")["data"])
        screen = np.asarray(Image.open(BytesIO(shot)).convert("RGB")).astype(int)
        boxes = browser.boxes("li > svg.scene")
        assert len(boxes) == 1 + len(WORDS)
        owner = nearest(image_view(attention))
        covered = np.rint(0.2 * 255 + 0.8 * np.array(OVERLAY))
        for box, place in zip(boxes[1:], PEAKS, strict=True):
            x = box["left"] + (np.arange(WIDTH) + 0.5) * box["width"] / WIDTH
            y = box["top"] + (np.arange(HEIGHT) + 0.5) * box["height"] / HEIGHT
            colors = screen[(2 * y).astype(int)[:, None], (2 * x).astype(int)[None]]
            column, row = np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5
            center = (np.array([place % COLUMNS, place // COLUMNS]) + 0.5) * PATCH
            ring = np.hypot(column[None] - center[0], row[:, None] - center[1]) < 9
            assert (colors[(owner == place) & ~ring] == 255).all()
            assert np.abs(colors[(owner != place) & ~ring] - covered).max() <= 2


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("image", [noise(HEIGHT, WIDTH), None], ids=["image", "grid"])
def test_a_long_caption_takes_more_lines_of_a_page(tmp_path: Path, image: np.ndarray) -> None:
    words = ("extraordinarily" * 3, *(f"word {i}" for i in range(18)))
    file = tmp_path / "page.html"
    layers = [pointed(range(len(words)), HEADS, PLACES)]
    body = image_figure(maps(layers, words, image=image), title="t")
    file.write_text(figure_page(body), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        for width, columns in ((390, 2), (1200, 7)):
            browser.resize(width)
            browser.open(file)
            assert browser.run("document.documentElement.scrollWidth") == width
            items = browser.boxes(".scenes li")
            scenes = browser.boxes(".scenes li :is(svg.scene, img)")
            assert len(items) == len(words) + (image is not None)
            tops = [round(item["top"]) for item in items]
            assert max(tops.count(top) for top in set(tops)) == columns
            for scene in scenes:  # no image is stretched
                assert scene["height"] / scene["width"] == pytest.approx(ROWS / COLUMNS, rel=0.02)
            # Words of any length leave room for their weight.
            assert browser.boxes(".scenes b")[0]["right"] < items[image is not None]["right"] - 15
