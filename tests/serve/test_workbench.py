"""The workbench in Chromium, compared with the API."""

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from harken.recipe import TASKS
from harken.report.palette import DARK, LIGHT, color_levels, color_scale
from harken.run_folder import LOG, METRICS
from small_files import SMALL, write_lines
from untrained import task_recipe, untrained_run

from .workbench import AXE, CHROMIUM, FLAGS, Server, serving

pytest.importorskip("starlette", reason="harken serve needs starlette")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

SOURCE = "they duck and swim here 3 times"
VIEWS = ("runs", "examples", "inspect", "compare")
VISIBLE = {
    **{code: 0x2400 + code for code in range(32)},  # control characters have symbols of their own
    **dict.fromkeys(range(127, 160), "�"),
    ord(" "): "␣",
    ord("\n"): "↵",
    ord("\t"): "⇥",
}
SERIOUS = ("serious", "critical")


def enlarge_weights(model: nn.Module) -> None:
    """Make the model depend on its input and its heads."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.5, generator=generator)


def write_results(run: Path) -> None:
    """Write the log and the metrics of a finished run."""
    estimate = {"value": 3.5, "low": 3.25, "high": 4.0, "unit": "nats", "n": 7}
    results = {"task": run.name, "n": 7, "metrics": {"nats": estimate}}
    (run / METRICS).write_text(json.dumps(results), encoding="utf-8")
    stage = {"stage": "weights", "steps": 30}
    events = [
        *({"event": "stepped", **stage, "step": step, "loss": 60 / step} for step in (10, 20, 30)),
        {"event": "evaluated", **stage, "step": 30, "value": 0.5},
    ]
    write_lines(run, *events, name=LOG)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every-task")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Server]:
    """Serve one untrained run per task."""
    for task in TASKS:
        recipe = task_recipe(task, data, SMALL[task])
        write_results(untrained_run(recipe, data / "runs" / task, enlarge_weights))
    with serving(data / "runs") as value:
        yield value


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        value = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield value
        value.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open pages; afterwards no page has an error in its console or asked another host."""
    problems: list[str] = []
    contexts = []

    def new(width: int = 1280, theme: str = "light") -> Any:
        size = {"width": width, "height": 800}
        context = browser.new_context(viewport=size, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("http://127.0.0.1:", "blob:", "data:"))
                or problems.append(request.url)
            ),
        )
        return page

    yield new
    for context in contexts:
        context.close()
    assert problems == []


def until(page: Any, condition: str, arg: object = None) -> None:
    """Wait for a condition; `wait_for_function` needs `unsafe-eval`, which the policy forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(condition, arg):
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(20)


def show(page: Any, address: str) -> Any:
    """Open a view and wait for its contents."""
    page.goto(address)
    until(page, "!document.querySelector('[role=status]:not(.warning)')")
    until(
        page,
        "document.querySelector('.runs, .examples, .notice') || "
        "document.querySelector('.output-panel output') && "
        "document.querySelector('.attention-readout:not(:empty), .notice')",
    )
    return page


def log_probability(page: Any) -> float:
    text = page.locator(".output-panel p", has_text="log-probability").inner_text()
    return float(text.split("log-probability")[1].split()[0].replace("−", "-"))


def wait_for_log_probability(page: Any, value: float) -> None:
    until(
        page,
        "value => [...document.querySelectorAll('.output-panel p')].some("
        "(line) => line.textContent.includes(`log-probability ${value}`))",
        arg=f"{value:.3f}",
    )


def exported(page: Any, kind: str = "JSON") -> bytes:
    with page.expect_download() as download:
        page.get_by_role("button", name=kind, exact=True).click()
    return Path(download.value.path()).read_bytes()


def test_inspect_shows_output_and_weights_of_the_api(
    server: Server, new_page: Callable[..., Any]
) -> None:
    head, state = "cross.L1.H2", "&text=they+duck&head=cross.L1.H2"
    page = show(new_page(), server.address("inspect", "translate", state))
    expected = server.inspect("translate", text="they duck")
    assert page.locator("output").inner_text() == expected["output"]["text"]
    wait_for_log_probability(page, expected["output"]["log_probability"])
    saved = json.loads(exported(page))
    assert saved["head"] == head
    assert saved["queries"] == expected["views"][0]["queries"]
    np.testing.assert_allclose(
        saved["weights"], server.weights(expected["id"], "cross.L1", 2), atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_map_has_the_colors_of_the_static_pages(
    server: Server, new_page: Callable[..., Any], theme: str
) -> None:
    page = show(
        new_page(theme=theme), server.address("inspect", "lm", "&text=they+duck&head=L1.H2")
    )
    weights = np.array(json.loads(exported(page))["weights"])
    saved = color_scale(LIGHT if theme == "light" else DARK)[color_levels(weights)]
    shown = page.evaluate(
        """() => {
            const canvas = document.querySelector('.attention-surface canvas');
            const context = canvas.getContext('2d');
            const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
            const colors = new Set();
            for (let i = 0; i < data.length; i += 4) colors.add(data.slice(i, i + 3).join());
            return [...colors];
        }"""
    )
    expected = {",".join(map(str, color)) for color in saved.reshape(-1, 3).tolist()}
    assert expected <= set(shown)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_every_view_of_every_task(server: Server, new_page: Callable[..., Any], task: str) -> None:
    page = new_page()
    for view in VIEWS:
        show(page, server.address(view, task))


@pytest.mark.slow
def test_only_the_last_of_fast_keystrokes_stays(
    server: Server, new_page: Callable[..., Any]
) -> None:
    page = show(new_page(), server.address("inspect", "translate", "&text=they"))
    before = json.loads(exported(page))
    page.keyboard.press("/")
    page.keyboard.press("End")
    page.keyboard.type(" duck swim", delay=15)
    expected = server.inspect("translate", text="they duck swim")
    wait_for_log_probability(page, expected["output"]["log_probability"])
    page.wait_for_timeout(500)
    wait_for_log_probability(page, expected["output"]["log_probability"])
    after = json.loads(exported(page))
    assert after["keys"] == expected["views"][0]["keys"] != before["keys"]


@pytest.mark.slow
def test_x_removes_the_head_and_restores_it(server: Server, new_page: Callable[..., Any]) -> None:
    head = "encoder.L1.H2"
    page = show(new_page(), server.address("inspect", "translate", f"&text={SOURCE}&head={head}"))
    intact = server.inspect("translate", text=SOURCE)["output"]["log_probability"]
    removed = server.inspect("translate", text=SOURCE, disabled=[head])
    assert abs(removed["output"]["log_probability"] - intact) > 0.002
    wait_for_log_probability(page, intact)
    page.keyboard.press("x")
    wait_for_log_probability(page, removed["output"]["log_probability"])
    page.keyboard.press("x")
    wait_for_log_probability(page, intact)


@pytest.mark.slow
def test_effects_equal_single_removals(server: Server, new_page: Callable[..., Any]) -> None:
    output = "swim here and duck"
    state = f"&text={SOURCE}&output={output}&color=effect"
    page = show(new_page(), server.address("inspect", "translate", state))
    until(
        page,
        "[...document.querySelectorAll('.head')].every((head) => /[0-9]/.test(head.textContent))",
    )

    def log_prob(disabled: list[str]) -> float:
        answer = server.inspect("translate", text=SOURCE, output=output, disabled=disabled)
        return float(answer["output"]["log_probability"])

    for head in ("cross.L1.H1", "encoder.L1.H2", "decoder.L1.H2"):
        change = log_prob([head]) - log_prob([])
        shown = page.locator(f'[data-head="{head}"]').inner_text().replace("−", "-")
        assert abs(change) > 0.02
        assert float(shown) == pytest.approx(change, abs=0.006)


@pytest.mark.slow
def test_a_copied_address_restores_the_state(server: Server, new_page: Callable[..., Any]) -> None:
    page = show(new_page(), server.address("inspect", "translate", f"&text={SOURCE}"))
    page.locator('[data-head="encoder.L1.H1"]').click()
    page.keyboard.press("x")
    page.wait_for_selector('[data-head="encoder.L1.H1"].off')
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "l"):
        page.keyboard.press(key)
    until(page, "location.hash.includes('view=lines')")
    copy = show(new_page(), page.url.replace("/#", f"/?{server.link.partition('?')[2]}#"))
    for shown in (page, copy):
        shown.wait_for_selector('[data-head="encoder.L1.H1"].off')
        assert (
            shown.locator('.head[aria-pressed="true"]').get_attribute("data-head")
            == "encoder.L1.H2"
        )
        assert shown.get_by_role("slider").get_attribute("aria-valuenow") == "3"
        assert shown.locator(".segments button[aria-pressed=true]").inner_text() == "Lines"
    assert log_probability(copy) == log_probability(page)
    copy.keyboard.press("Escape")
    until(copy, "!location.hash.includes('query')")


@pytest.mark.slow
def test_words_keep_rows_that_sum_to_1(server: Server, new_page: Callable[..., Any]) -> None:
    page = show(new_page(), server.address("inspect", "translate", f"&text={SOURCE}&words=1"))
    view = server.inspect("translate", text=SOURCE)["views"][0]
    saved = json.loads(exported(page))
    assert len(saved["keys"]) == len(set(view["key_words"])) < len(view["keys"])
    np.testing.assert_allclose(np.sum(saved["weights"], axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_a_click_on_a_head_does_not_scroll(server: Server, new_page: Callable[..., Any]) -> None:
    page = show(new_page(), server.address("inspect", "translate"))
    for head in page.locator(".head").all():
        head.click()
        name = head.get_attribute("data-head")
        until(page, "n => document.querySelector('.head-panel h2').textContent === n", arg=name)
        box = page.locator(".attention-surface canvas").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 800
    assert page.evaluate("scrollY") == 0


def wait_for_upload(page: Any) -> None:
    """Wait until the output belongs to an uploaded file, then forget the file."""
    until(page, "location.hash.includes('media=')")
    until(page, "document.querySelector('[aria-busy=false] output')")
    page.evaluate("location.hash = location.hash.replace(/&media=[^&]*/, '')")


@pytest.mark.slow
def test_files_and_the_microphone(server: Server, new_page: Callable[..., Any], data: Path) -> None:
    picture = data / "picture.png"
    Image.effect_noise((14, 10), 60).save(picture)
    for task, file in (("caption", picture), ("transcribe", data / "tone.wav")):
        page = show(new_page(), server.address("inspect", task))
        page.set_input_files("#input", file)
        wait_for_upload(page)
        drop = page.evaluate_handle(
            """bytes => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([new Uint8Array(bytes)], "dropped"));
                return transfer;
            }""",
            list(file.read_bytes()),
        )
        page.dispatch_event(".drop", "drop", {"dataTransfer": drop})
        wait_for_upload(page)
    page.get_by_role("button", name="Record").click()
    page.wait_for_timeout(1000)
    page.get_by_role("button", name="Stop recording").click()
    wait_for_upload(page)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_narrow_and_accessible(server: Server, new_page: Callable[..., Any], theme: str) -> None:
    page, findings = new_page(400, theme), []
    for task in ("translate", "transcribe", "caption"):
        for view in VIEWS:
            show(page, server.address(view, task, "&example=1"))
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, (view, task)
            page.evaluate(AXE.read_text(encoding="utf-8"))
            results = page.evaluate("axe.run()")
            findings += [
                (view, task, finding["id"], node["html"], node["failureSummary"])
                for finding in results["violations"]
                if finding["impact"] in SERIOUS
                for node in finding["nodes"]
            ]
    assert findings == []


@pytest.mark.slow
def test_an_expired_inspection_is_repeated(server: Server, browser: Any) -> None:
    page = show(browser.new_page(), server.address("inspect", "translate", f"&text={SOURCE}"))
    for _ in range(65):
        server.inspect("lm", text="they")
    page.locator('[data-head="decoder.L1.H1"]').click()
    until(
        page, "document.querySelector('.attention-surface').ariaLabel.startsWith('decoder.L1.H1')"
    )
    assert page.locator("[role=alert]").count() == 0
    page.close()


@pytest.mark.slow
def test_svg_and_png_show_the_whole_map(server: Server, new_page: Callable[..., Any]) -> None:
    page = show(new_page(), server.address("inspect", "translate", f"&text={SOURCE}"))
    saved = json.loads(exported(page))
    levels = color_levels(np.array(saved["weights"]))
    drawing = ElementTree.fromstring(exported(page, "SVG"))
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [
        saved["head"],
        *(token.translate(VISIBLE) for token in saved["queries"] + saved["keys"]),
    ]
    picture = Image.open(io.BytesIO(exported(page, "PNG"))).convert("RGB")
    expected = {tuple(color) for color in color_scale(LIGHT)[levels].reshape(-1, 3).tolist()}
    assert expected <= {color for _, color in picture.getcolors(2**24) or ()}


@pytest.mark.slow
def test_an_example_opens_in_inspect(server: Server, new_page: Callable[..., Any]) -> None:
    page = show(new_page(), server.address("examples", "answer", "&sort=length"))
    run = server.runs["answer"]["id"]
    expected = server.get(f"/api/runs/{run}/examples?sort=length")["examples"][0]
    cells = page.locator(".examples tbody tr").first.locator("td").all_inner_texts()
    assert [text.strip() for text in cells[:3]][1:] == [expected["input"], expected["expected"]]
    page.locator(".examples tbody a").first.click()
    until(page, "document.querySelector('.output-panel output')")
    assert page.locator("#input").input_value() == expected["input"]
    assert page.locator("output").inner_text() == (expected["output"] or "(empty)")


def place_of(layout: Any, row: int) -> Any:
    return {"x": 30, "y": layout["top"] + (row + 0.5) * layout["cell"]["height"]}


def point(surface: Any, layout: Any, row: int) -> int:
    """Point at a query and return the selected one, counted from 1."""
    surface.hover(position=place_of(layout, row))
    return int(surface.get_attribute("aria-valuenow"))


@pytest.mark.slow
def test_pointing_selects_a_click_locks_and_escape_unlocks(new_page: Callable[..., Any]) -> None:
    page, root = new_page(400), Path(__file__).parents[2]
    page.route(
        "http://127.0.0.1:9/**",
        lambda route: route.fulfill(path=root / route.request.url.split("/", 3)[3]),
    )
    page.goto("http://127.0.0.1:9/tests/serve/attention_map.html")
    for name in ("map", "lines"):
        surface = page.locator(f"#{name} [role=slider]")
        surface.scroll_into_view_if_needed()
        layout = page.evaluate(f"maps.{name}.layout")
        rows = [point(surface, layout, row) for row in (4, 7)]
        surface.click(position=place_of(layout, 5))
        assert [*rows, point(surface, layout, 9)] == [5, 8, 6]
        page.keyboard.press("ArrowDown")
        assert surface.get_attribute("aria-valuenow") == "7"
        page.keyboard.press("Escape")
        assert point(surface, layout, 1) == 2
    page.locator("#text span", has_text="Beirut").hover()
    readout = page.locator("#text .attention-readout")
    assert readout.inner_text() == "‘Beirut’ attends most to ‘in’: 0.767 (10 → 9)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
