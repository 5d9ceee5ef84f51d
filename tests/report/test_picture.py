import base64
import re
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from harken.formats.examples import Box
from harken.layers.frontends import ConvStemConfig, ImageSizes, PatchEmbeddingConfig
from harken.report.page import Section, page
from harken.report.palette import LIGHT, scale
from harken.report.picture import (
    VEIL,
    PictureMaps,
    choices,
    peak,
    picture_figure,
    shrunk,
    two_figures,
)

from .browser import PROGRAM, Browser
from .captioned import (
    BOX,
    COLUMNS,
    HEADS,
    PATCH,
    PEAKS,
    ROWS,
    SYMBOLS,
    maps,
    nearest,
    noise,
    pointed,
)
from .parsed import Element, parse, tags
from .test_escaping import HOSTILE, INVISIBLE, _attribute_names
from .test_png import decoded

PLACES = COLUMNS * ROWS
WIDTH, HEIGHT = COLUMNS * PATCH, ROWS * PATCH


def figure(found: PictureMaps) -> Element:
    return parse(picture_figure(found, title="t", note="n"))


def numbers(element: Element, *names: str) -> list[float]:
    return [float(element.attributes[name]) for name in names]


def pixels(uri: str) -> np.ndarray:
    prefix, _, body = uri.partition(",")
    assert prefix == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(base64.b64decode(body, validate=True))))


def words(look: Element) -> list[Element]:
    """The items of a row that are words; the first is the picture."""
    return look.one("ol", "scenes").all("li")[1:]


def shown(root: Element) -> Element:
    """What is shown when nobody has chosen: that which follows the checked radio button."""
    looks = root.one("div", "looks").children
    labels = [one.tag == "label" and "checked" in one.one("input").attributes for one in looks]
    return looks[labels.index(True) + 1]


def lying(word: Element) -> np.ndarray:
    """Opacity 0..1 of the veil over the middle of each pixel [Y, X], as SVG is read."""
    scene = word.one("svg", "scene")
    left, top, width, height = map(float, scene.attributes["viewbox"].split())
    assert (left, top) == (0, 0)
    laid = scene.one("image")
    assert laid.attributes["preserveaspectratio"] == "none"
    veil = pixels(laid.attributes["href"])
    assert (veil[..., :3] == VEIL).all()
    x, y, wide, high = numbers(laid, "x", "y", "width", "height")
    columns = (np.arange(width) + 0.5 - x) / wide * veil.shape[1]
    rows = (np.arange(height) + 0.5 - y) / high * veil.shape[0]
    assert columns.min() >= 0 and columns.max() < veil.shape[1]  # it covers the picture
    assert rows.min() >= 0 and rows.max() < veil.shape[0]
    return veil[rows.astype(int)[:, None], columns.astype(int)[None], 3] / 255


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": np.zeros((143, 91), np.uint8)}, r"image of uint8 \(143, 91\), expected uint8"),
        ({"image": np.zeros((143, 91, 2), np.uint8)}, r"\(143, 91, 2\)"),
        ({"image": np.zeros((143, 91, 3))}, r"image of float64 \(143, 91, 3\)"),
        ({"image": np.zeros((0, 91, 3), np.uint8)}, r"image of uint8 \(0, 91, 3\)"),
        ({"layers": [np.zeros((HEADS, SYMBOLS, PLACES - 1))]}, "76 places, .* 7 columns x 11 rows"),
        ({"columns": ROWS}, "layer 1: weights of 77 places, expected 11 columns x 11 rows"),
        ({"columns": 0}, "0 columns, 11 rows, expected one at least"),
        ({"layers": [np.zeros((SYMBOLS, PLACES))]}, "layer 1: weights of shape"),
        ({"layers": [np.array(0.5)]}, "layer 1: weights of shape"),
        ({"layers": [np.full((1, SYMBOLS, PLACES), 1.01)]}, "outside 0..1"),
        ({"layers": [np.full((1, SYMBOLS, PLACES), np.nan)]}, "NaN"),
        ({"layers": []}, "at least one"),
        ({"symbols": []}, "at least one"),
        ({"layer_names": ["only one"]}, "1 names for 2 layers"),
        ({"stride": 0}, "stride is 0, expected more than 0"),
        ({"stride": float("nan")}, "stride is nan"),
        ({"offset": float("inf")}, "offset is inf, expected pixels"),
        (
            {"columns": ROWS, "rows": COLUMNS},
            "11 x 7 places, 13 pixels apart from pixel 6, .* 91 x",
        ),
        ({"stride": 1, "offset": 0}, "expected them to cover a picture of 91 x 143 pixels"),
        ({"offset": -1.0}, "13 pixels apart from pixel -1"),
        ({"offset": 13.0}, "13 pixels apart from pixel 13"),
        ({"boxes": [BOX]}, "1 boxes for 5 symbols"),
        ({"boxes": [None, Box(1, 1, 0, 3), None, None, None]}, "'nine' has Box"),
        ({"boxes": [None, Box(1, float("nan"), 2, 3), None, None, None]}, "'nine' has Box"),
    ],
)
def test_wrong_maps_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        maps(**changes)


@st.composite
def grids(draw: st.DrawFn) -> PictureMaps:
    """Places over a picture that may reach beyond them by less than a stride."""
    columns, rows = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    stride = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 128 / 7, 2.5]))
    offset = draw(st.floats(-0.5, stride - 0.5))
    last = [offset + 0.5 + stride * (count - 1) for count in (columns, rows)]
    width, height = (draw(st.integers(int(np.ceil(one)), int(one + stride))) for one in last)
    places = columns * rows
    lit = draw(st.integers(0, places - 1))
    return PictureMaps(
        image=np.zeros((max(height, 1), max(width, 1), 1), np.uint8),
        symbols=["word"],
        layers=[np.eye(places)[None, None, lit]],
        columns=columns,
        rows=rows,
        offset=offset,
        stride=stride,
    )


@settings(max_examples=60)
@given(grids())
def test_a_weight_clears_exactly_the_pixels_of_its_place(found: PictureMaps) -> None:
    root = figure(found)
    (word,) = words(root.one("div", "look"))
    opacity = lying(word)
    (lit,) = np.flatnonzero(found.layers[0][0, 0])
    owner = nearest(found)
    assert (opacity[owner == lit] == 0).all()
    np.testing.assert_allclose(opacity[(owner != lit) & (owner >= 0)], 0.8)
    ring = word.all("circle", "peak")[0]
    assert numbers(ring, "cx", "cy") == pytest.approx(
        [
            found.offset + 0.5 + found.stride * at
            for at in (lit % found.columns, lit // found.columns)
        ],
        rel=1e-5,
    )


def reached(front: torch.nn.Module, token: int) -> np.ndarray:
    """Which pixels [Y, X] a token of a front depends on, by its gradient."""
    image = torch.rand(1, 3, HEIGHT, WIDTH, requires_grad=True)
    front(image).tokens[0, token].sum().backward()
    assert image.grad is not None
    found: np.ndarray = (image.grad[0] != 0).any(dim=0).numpy()
    return found


def test_a_patch_is_what_the_front_reads() -> None:
    front = PatchEmbeddingConfig(patch=PATCH).build(
        ImageSizes(channels=3, columns=WIDTH, rows=HEIGHT), width=2
    )
    layers = [pointed((19, 76), heads=1)]
    found = maps(
        symbols=["a", "b"], boxes=(), layers=layers, offset=front.offset, stride=front.stride
    )
    for place, word in zip((19, 76), words(figure(found)), strict=True):
        np.testing.assert_array_equal(lying(word) == 0, reached(front, place))


def test_a_place_of_a_convolution_is_in_the_middle_of_what_the_front_reads() -> None:
    front = ConvStemConfig(channels=(5, 7)).build(
        ImageSizes(channels=3, columns=WIDTH, rows=HEIGHT), width=2
    )
    place = 6 * front.columns + 11  # not at the edge, where zeros are read
    found = maps(
        symbols=["a"],
        boxes=(),
        layers=[pointed((place,), 1, front.columns * front.rows)],
        columns=front.columns,
        rows=front.rows,
        offset=front.offset,
        stride=front.stride,
    )
    (word,) = words(figure(found))
    for axis, cleared in enumerate(np.nonzero(lying(word) == 0)):
        read = np.nonzero(reached(front, place))[axis]
        # Four pixels have no middle one: half a pixel is what is left of the difference.
        assert cleared.mean() == pytest.approx(read.mean(), abs=0.5)
        assert read.min() <= cleared.min() < cleared.max() <= read.max()


def test_the_veil_lifts_with_the_root_of_the_weight() -> None:
    weights = np.zeros((1, 1, PLACES), np.float16)
    weights[0, 0, [5, 6, 7]] = [0.5, 0.125, 0.25]
    found = maps(symbols=["a"], boxes=(), layers=[weights])
    opacity, owner = lying(words(figure(found))[0]), nearest(found)
    for place, wanted in ((5, 0.0), (6, 0.4), (7, 0.8 * (1 - 0.5**0.5)), (8, 0.8)):
        np.testing.assert_allclose(opacity[owner == place], wanted, atol=0.5 / 255)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_picture_is_there_once_and_first_in_every_row(channels: int) -> None:
    image = noise(HEIGHT, WIDTH, channels)
    root = figure(maps(image=image))
    (shared,) = root.one("defs").all("image")
    assert numbers(shared, "x", "y", "width", "height") == [0, 0, WIDTH, HEIGHT]
    np.testing.assert_array_equal(
        pixels(shared.attributes["href"]), np.broadcast_to(image, (HEIGHT, WIDTH, 3))
    )
    for look in root.all("div", "look"):
        scenes = look.one("ol", "scenes").all("li")
        assert [one.one("use").attributes["href"] for one in scenes] == [
            "#" + shared.attributes["id"]
        ] * (1 + SYMBOLS)
        assert scenes[0].all("image") == scenes[0].all("circle") == []
        # What was laid over the picture is cut where the picture ends.
        assert [one.all("svg", "scene")[0].one("svg").all("image") != [] for one in scenes] == [
            False, *[True] * SYMBOLS
        ]  # fmt: skip


def test_a_large_picture_is_drawn_smaller_in_the_same_place() -> None:
    image = np.repeat(np.repeat(noise(701, 1013), 2, axis=0), 2, axis=1)
    found = PictureMaps(
        image=image,
        symbols=["a"],
        layers=[pointed((3,), places=70)],
        columns=10,
        rows=7,
        offset=100.8,
        stride=202.6,
    )
    (shared,) = figure(found).one("defs").all("image")
    assert numbers(shared, "width", "height") == [2026, 1402]
    drawn = pixels(shared.attributes["href"])
    assert drawn.shape == (351, 507, 3)  # 1402 / 4, rounded up
    np.testing.assert_allclose(drawn[5, 7], image[20:24, 28:32].mean(axis=(0, 1)), atol=0.51)


def test_the_mean_of_the_last_layer_is_shown_and_every_head_may_be_chosen() -> None:
    last = pointed(PEAKS)
    last[0, 0] = np.eye(PLACES)[5]
    root = figure(maps(layers=[pointed((0, 1, 2, 3, 4), heads=1), last], layer_names=["<i>", "up"]))
    looks = root.one("div", "looks").children
    labels = [one.text.strip() for one in looks if one.tag == "label"]
    assert labels == [
        "<i>.H1",
        "up, mean of 3 heads",
        "up.H1",
        "up.H2",
        "up.H3",
    ]
    assert root.one("div", "looks").all("p", "layer")[0].text == "<i>"
    look = shown(root)
    assert "up, mean of 3 heads" in look.one("summary").text
    # 'one' looks at place 3 in two heads of three, at 0.9, and with all its weight at 5 in one.
    assert words(look)[0].one("p").text == "one 0.6"
    opacity, owner = lying(words(look)[0]), nearest(maps())
    assert (opacity[owner == 3] == 0).all()
    mean = (1 + 2 * 0.1 / (PLACES - 1)) / 3
    np.testing.assert_allclose(opacity[owner == 5], 0.8 * (1 - (mean / 0.6) ** 0.5), atol=0.002)
    first = looks[[one.text.strip() for one in looks].index("up.H1") + 1]
    assert words(first)[0].one("p").text == "one 1"
    assert (lying(words(first)[0])[owner == 5] == 0).all()


weights_of_heads = st.integers(1, 4).flatmap(
    lambda heads: st.lists(
        st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=heads, max_size=heads
    )
)


@given(weights_of_heads)
def test_the_mean_keeps_the_sum(drawn: list[list[float]]) -> None:
    weights = np.array(drawn)[:, None] / 6
    found = maps(image=None, symbols=["a"], boxes=(), layers=[weights], columns=3, rows=2)
    (first, *heads) = choices(found, 0)
    assert first.weights.sum() == pytest.approx(weights.sum() / len(weights))
    assert len(heads) == (len(weights) if len(weights) > 1 else 0)
    with pytest.raises(ValueError, match="no layer 1, expected 0 to 0"):
        choices(found, 1)


def test_the_choice_is_reached_by_keys_alone() -> None:
    html = picture_figure(maps(), title="t")
    root = parse(html)
    buttons = root.all("input")
    assert len(buttons) == 2 * (1 + HEADS)
    assert {one.attributes["type"] for one in buttons} == {"radio"}
    assert len({one.attributes["name"] for one in buttons}) == 1  # the arrow keys go through all
    assert sum("checked" in one.attributes for one in buttons) == 1
    looks = root.one("div", "looks").children
    for before, after in pairwise(looks):
        # picture.css shows what follows the label of a checked button.
        assert (before.tag == "label") == (after.attributes.get("class") == "look")
    assert "tabindex" not in html and not re.search(r"\son\w+=", html)


def test_two_figures_of_a_page_do_not_share_their_choice() -> None:
    found = [
        figure(maps()),
        parse(picture_figure(maps(), title="another")),
        figure(maps(image=noise(HEIGHT, WIDTH)[::-1])),
        figure(maps(layers=[pointed(PEAKS)])),
    ]
    assert len({one.all("input")[0].attributes["name"] for one in found}) == len(found)
    assert len({one.one("defs").one("image").attributes["id"] for one in found}) == len(found)


def test_one_head_needs_no_choice() -> None:
    root = figure(maps(layers=[pointed(PEAKS, heads=1)]))
    assert root.all("input") == []
    assert [one.text for one in root.one("div", "looks").all("p")[:2]] == ["L1", "L1.H1"]
    assert len(root.all("div", "look")) == 1


def test_boxes_and_peaks_are_drawn_and_told() -> None:
    root = figure(maps())
    items = words(shown(root))
    boxes = [
        [numbers(one, "x", "y", "width", "height") for one in i.all("rect", "gold")] for i in items
    ]
    assert boxes == [[], [[BOX.x, BOX.y, BOX.width, BOX.height]], [], [], []]
    for item, place in zip(items, PEAKS, strict=True):
        x, y = place % COLUMNS, place // COLUMNS
        wanted = [(x + 0.5) * PATCH, (y + 0.5) * PATCH]
        assert numbers(item.one("circle", "peak"), "cx", "cy") == wanted
        assert numbers(item.one("circle", "halo"), "cx", "cy") == wanted
    labels = [one.all("svg", "scene")[0].attributes["aria-label"] for one in items]
    assert labels[1] == "L2, mean of 3 heads: nine looks most at column 4 of 7, row 3 of 11"
    rows = shown(root).one("tbody").all("tr")
    # Place 17 is (3, 2), its centre (45.5, 32.5); with (2, 2), (2, 3) and (3, 3) it is in the box.
    mass = 0.9 + 3 * 0.1 / (PLACES - 1)
    assert [td.text for td in rows[1].all("td")] == ["nine", "4", "3", "0.9", f"{mass:.2f}"]
    assert [td.text for td in rows[4].all("td")] == ["<end>", "4", "11", "0.9", "–"]
    assert "where the thing is" in root.one("ul", "legend").text


def test_without_boxes_nothing_is_said_of_them() -> None:
    for boxes in ((), [None] * SYMBOLS):
        root = figure(maps(boxes=boxes))
        assert "thing" not in root.one("ul", "legend").text
        assert [th.text for th in shown(root).one("thead").all("th")] == [
            "word", "column", "row", "weight",
        ]  # fmt: skip


@pytest.mark.parametrize("weight", [0.0, 1 / PLACES])
def test_who_looks_nowhere_or_everywhere_has_no_peak(weight: float) -> None:
    even = np.full((1, 1, PLACES), weight)
    (word,) = words(figure(maps(symbols=["a"], boxes=(), layers=[even])))
    assert word.all("circle") == []
    np.testing.assert_allclose(lying(word), 0.0 if weight else 0.8)
    assert word.all("svg", "scene")[0].attributes["aria-label"].endswith("a looks at no place most")
    assert peak(even[0, 0]) is None


def test_a_map_without_picture_is_a_grid() -> None:
    found = maps(image=None, stride=2, offset=0, boxes=[None, Box(1, 3, 4, 6), None, None, None])
    root = figure(found)
    assert root.all("defs") == root.all("use") == root.all("image") == []
    items = shown(root).one("ol", "scenes").all("li")
    assert len(items) == SYMBOLS
    for item, place in zip(items, PEAKS, strict=True):
        image = decoded(base64.b64decode(item.one("img").attributes["src"].partition(",")[2]))
        assert image.shape == (ROWS, COLUMNS, 3)
        assert image[place // COLUMNS, place % COLUMNS].tolist() == scale(LIGHT)[-1].tolist()
        assert (image == scale(LIGHT)[-1]).all(axis=-1).sum() == 1
        # The squares of two pixels begin half a pixel before the first.
        marks = item.one("svg", "scene")
        assert marks.attributes["viewbox"] == f"-0.5 -0.5 {2 * COLUMNS} {2 * ROWS}"
        ring = numbers(marks.one("circle", "peak"), "cx", "cy")
        assert ring == [place % COLUMNS * 2 + 0.5, place // COLUMNS * 2 + 0.5]
    assert numbers(items[1].one("rect", "gold"), "x", "y", "width", "height") == [1, 3, 4, 6]


def test_weights_have_two_figures() -> None:
    assert [two_figures(one) for one in (0.0, 0.00123, 0.0999, 0.9, 1.0)] == [
        "0", "0.0012", "0.1", "0.9", "1",
    ]  # fmt: skip


def test_shrinking_never_enlarges() -> None:
    image = noise(5, 7, 1)
    np.testing.assert_array_equal(shrunk(image, 7), np.broadcast_to(image, (5, 7, 3)))


def test_no_element_is_injected_and_words_round_trip() -> None:
    def everywhere(strings: tuple[str, ...]) -> Element:
        joined = " ".join(strings)
        found = maps(
            symbols=strings,
            boxes=[BOX] * len(strings),
            layers=[np.full((2, len(strings), PLACES), 1 / PLACES)] * 2,
            layer_names=[joined, joined],
        )
        return parse(picture_figure(found, title=joined, note=joined))

    hostile, tame = everywhere(HOSTILE), everywhere(tuple(f"w{i}" for i in range(len(HOSTILE))))
    assert tags(hostile) == tags(tame)
    assert _attribute_names(hostile) == _attribute_names(tame)
    found = words(shown(everywhere(tuple(INVISIBLE))))
    assert [one.one("b").text for one in found] == list(INVISIBLE.values())
    assert [one.one("b").attributes["title"] for one in found] == list(INVISIBLE.values())


def test_the_same_maps_give_the_same_page_and_nothing_is_fetched() -> None:
    html = picture_figure(maps(), title="t")
    assert picture_figure(maps(), title="t") == html
    addresses = re.findall(r'(?:href|src|srcset)="([^"]{5})', html)
    assert set(addresses) == {"data:", "#scen"}


def test_a_long_caption_stays_affordable() -> None:
    random = np.random.default_rng(0)
    layers = [random.dirichlet(np.ones(441), size=(4, 20)) for _ in range(2)]
    found = PictureMaps(
        image=noise(84, 84, 1),
        symbols=[f"w{i}" for i in range(20)],
        layers=layers,
        columns=21,
        rows=21,
        offset=0,
        stride=4,
    )
    assert len(picture_figure(found, title="t")) < 600_000


def whole(found: PictureMaps) -> str:
    body = picture_figure(found, title="t")
    return page("p", subtitle="", facts={}, footer="", sections=[Section(title="s", body=body)])


def test_the_page_has_the_styles() -> None:
    assert ".looks:has(:checked)" in parse(whole(maps())).one("style").text


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
def test_a_browser_clears_exactly_the_pixels_of_a_place_and_obeys_keys(tmp_path: Path) -> None:
    image = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    found = maps(image=image, boxes=(), layers=[np.eye(PLACES)[None, list(PEAKS)], pointed(PEAKS)])
    file = tmp_path / "page.html"
    file.write_text(whole(found), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        size = {"width": 1200, "height": 1400, "deviceScaleFactor": 2, "mobile": False}
        browser.send("Emulation.setDeviceMetricsOverride", **size)
        browser.open(file)

        def seen() -> list[str]:
            every = "[...document.querySelectorAll('.look')]"
            shown = f"{every}.filter((look) => look.checkVisibility())"
            return list(browser.run(f"{shown}.map((e) => e.querySelector('summary').innerText)"))

        (first,) = seen()
        assert first.endswith("L2, mean of 3 heads")
        browser.run("document.querySelector('input:checked').focus()")
        browser.press("ArrowUp")
        (before,) = seen()
        assert before.endswith("L1.H1")
        shot = base64.b64decode(browser.send("Page.captureScreenshot", format="png")["data"])
        screen = np.asarray(Image.open(BytesIO(shot)).convert("RGB")).astype(int)
        boxes = browser.run(
            "[...document.querySelectorAll('li > svg.scene')].filter((e) => e.checkVisibility())"
            ".map((e) => e.getBoundingClientRect().toJSON())"
        )
        assert len(boxes) == 1 + SYMBOLS
        owner = nearest(found)
        veiled = np.rint(0.2 * 255 + 0.8 * np.array(VEIL))
        for box, place in zip(boxes[1:], PEAKS, strict=True):
            x = box["left"] + (np.arange(WIDTH) + 0.5) * box["width"] / WIDTH
            y = box["top"] + (np.arange(HEIGHT) + 0.5) * box["height"] / HEIGHT
            colours = screen[(2 * y).astype(int)[:, None], (2 * x).astype(int)[None]]
            column, row = np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5
            centre = (np.array([place % COLUMNS, place // COLUMNS]) + 0.5) * PATCH
            ring = np.hypot(column[None] - centre[0], row[:, None] - centre[1]) < 9
            assert (colours[(owner == place) & ~ring] == 255).all()
            assert np.abs(colours[(owner != place) & ~ring] - veiled).max() <= 2


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("image", [noise(HEIGHT, WIDTH), None], ids=["picture", "grid"])
def test_a_long_caption_takes_more_lines_of_a_page(tmp_path: Path, image: np.ndarray) -> None:
    longest = ["extraordinarily" * 3, *[f"word {i}" for i in range(18)]]
    layers = [pointed(tuple(range(len(longest))))]
    file = tmp_path / "page.html"
    file.write_text(
        whole(maps(image=image, symbols=longest, boxes=(), layers=layers)), encoding="utf-8"
    )
    with Browser(tmp_path / "profile") as browser:
        for width, most in ((390, 2), (1200, 7)):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.send("Emulation.setDeviceMetricsOverride", **size)
            browser.open(file)

            def boxes(selector: str) -> list[dict[str, float]]:
                every = f"[...document.querySelectorAll({selector!r})]"
                seen = f"{every}.filter((e) => e.checkVisibility())"
                return list(browser.run(f"{seen}.map((e) => e.getBoundingClientRect().toJSON())"))

            assert browser.run("document.documentElement.scrollWidth") == width
            items, scenes = boxes(".scenes li"), boxes(".scenes li :is(svg.scene, img)")
            assert len(items) == len(longest) + (image is not None)
            tops = [round(one["top"]) for one in items]
            assert max(tops.count(top) for top in set(tops)) == most
            for one in scenes:  # no picture is stretched
                assert one["height"] / one["width"] == pytest.approx(ROWS / COLUMNS, rel=0.02)
            # Words of any length leave room for their weight.
            assert boxes(".scenes b")[0]["right"] < items[image is not None]["right"] - 15
