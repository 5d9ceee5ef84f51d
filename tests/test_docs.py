"""Execute the Markdown blocks of README and docs on small data, and check recipes and links."""

import re
import runpy
import shlex
import shutil
import tomllib
from operator import attrgetter
from pathlib import Path

import jaxtyping
import pytest

from harken import config
from harken.cli.main import main
from harken.recipe import TASKS, load_recipe, recipe_type
from harken.synthetic.people import PeopleFiles
from huggingface_folder import save_gpt2
from small_recipe import SMALL_OF

ROOT = Path(__file__).parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SMALL_DATA = {
    "people": ("--people", "40", "--places", "8", "--biographies", "2"),
    "sentences": ("--sentences", "150"),
    "speech": ("--utterances", "30", "--max-words", "2"),
    "scenes": ("--scenes", "40"),
}
SMALL_MODEL = SMALL_OF | {"lm": (*SMALL_OF["lm"], "model.width=32", "model.layers=2")}
# Convolutions are traced faster than an unrolled LSTM or attention.
SMALL_COST = {"tag": "model.encoder.kind=gated", "lm": "model.kind=cnn"}


def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(PAGES[page]) if kind == language]


def pages_with(*languages: str) -> list[str]:
    return [page for page in PAGES if any(blocks(page, language) for language in languages)]


def test_every_block_is_executed_or_parsed() -> None:
    kinds = {kind for text in PAGES.values() for kind, _ in BLOCK.findall(text)}
    assert kinds == {"python", "sh", "toml"}
    assert len(pages_with("python")) >= 3 and len(pages_with("sh")) >= 12


def write_inputs(folder: Path, people: PeopleFiles) -> None:
    """Write the user's files that the pages mention."""
    shutil.copy(people.texts, folder / "texts.txt")
    shutil.copy(people.train, folder / "questions.tsv")
    questions = [line.split("\t")[0] for line in people.test.read_text().splitlines()]
    (folder / "more-questions.txt").write_text("\n".join(questions[:4]))
    reviews = (f'{number % 2},"good, {number} times"\n' for number in range(30))
    (folder / "reviews.csv").write_text("stars,review\n" + "".join(reviews))
    (folder / "blanks.txt").write_text("the ___ walks .\n")
    (folder / "prompts.txt").write_text("the old duck\n")
    shutil.copytree(ROOT / "recipes", folder / "recipes")


def run_command(line: str, run: str) -> None:
    """Run one line of a shell block with small sizes; `run` is the folder if `train` has none."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "make":
        rules = (ROOT / "Makefile").read_text()
        assert re.search(rf"^{words[1]}:", rules, re.MULTILINE), line
        return
    if words[0] == "python":
        assert (ROOT / words[1]).is_file(), line
        return
    if words[0] in ("torchrun", "srun"):
        words = words[words.index("--") + 1 :]  # in this process alone
    assert words[0] == "harken", line
    command, *arguments = words[1:]
    if command == "demo":
        return  # tests/test_demo.py runs it
    if command == "data" and arguments[0] in SMALL_DATA:
        arguments += SMALL_DATA[arguments[0]]  # the last value of an option wins
    if command in ("train", "cost"):
        task = tomllib.loads(Path(arguments[0]).read_text())["task"]
    if command == "cost":
        arguments += ["--set", SMALL_COST[task]]
    if command == "train":
        small = [part for value in SMALL_MODEL[task] for part in ("--set", value)]
        folder = [] if "--run" in arguments else ["--run", run]
        page = [re.sub(r"steps=\d+$", "steps=5", part) for part in arguments[1:]]
        arguments = [arguments[0], *small, *page, *folder]
    assert main([command, *arguments]) == 0, line


@pytest.mark.parametrize("page", pages_with("sh", "python"))
def test_blocks_run_in_order(
    page: str,
    people: PeopleFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, people)
    code = blocks(page, "python")
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    commands = text.splitlines()
    if "runs/demo" in "\n".join(code + commands):
        shutil.copytree(request.getfixturevalue("small_run"), tmp_path / "runs" / "demo")
    if "models/gpt2" in "\n".join(code):
        save_gpt2(tmp_path / "models" / "gpt2")
    for number, line in enumerate(commands):
        run_command(line, run=f"runs/{number}")
    if code:
        (tmp_path / "page.py").write_text("\n".join(code), encoding="utf-8")
        # The example of a new score is not in the union that the type checks know.
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        runpy.run_path("page.py", run_name="page")


@pytest.mark.parametrize("page", pages_with("toml"))
def test_recipes_of_the_docs_are_valid(page: str, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        assert config.loads(recipe_type(), text, base=tmp_path).task in SMALL_OF


def test_every_task_has_a_page_and_a_valid_recipe() -> None:
    for task in TASKS:
        assert f"docs/tasks/{task}.md" in PAGES
        assert load_recipe(ROOT / "recipes" / f"{task}.toml").task == task


@pytest.mark.parametrize("task", ["lm", "tag", "translate"])
def test_commented_alternatives_of_a_recipe_are_valid(task: str, tmp_path: Path) -> None:
    text = (ROOT / "recipes" / f"{task}.toml").read_text(encoding="utf-8")
    alternatives = re.findall(r"lines? of \[([\w.]+)\](.*?)(?=^# For|^task)", text, re.M | re.S)
    count = 0
    for table, comments in alternatives:
        for lines in re.findall(r"(?:^#   .*\n)+", comments, re.M):
            body = re.sub("^#   ", "", lines, flags=re.M)
            changed = re.sub(rf"(^\[{table}\]\n)[^\[]*", rf"\1{body}\n", text, flags=re.M)
            recipe = config.loads(recipe_type(), changed, base=tmp_path)
            kind = tomllib.loads(body)["kind"]
            assert kind == attrgetter(table)(recipe).kind
            count += 1
    assert count >= 2


@pytest.mark.parametrize("score", ["scaled", "synthesizer"])
def test_the_recipe_of_the_assignment_is_valid(score: str) -> None:
    recipe = load_recipe(
        ROOT / "recipes" / "answer_cs224n.toml", [f"model.attention.score.kind={score}"]
    )
    assert recipe.task == "answer"
    assert recipe.model.attention.score.kind == score


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = BLOCK.sub("", PAGES[page])
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors_of_headings() -> None:
    assert {"conll-u", "parallel-text", "exit-codes"} <= anchors("docs/formats.md")
    assert "results-on-cs224ns-wikitxt" in anchors("docs/tasks/fill.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_have_targets(page: str) -> None:
    for target in LINK.findall(PAGES[page]):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(str(file.relative_to(ROOT))), f"{page}: {target}"


def test_sections_named_by_error_messages_exist() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    targets = set(re.findall(r"(docs/[\w/-]+\.md)#([\w-]+)", source))
    assert ("docs/formats.md", "speech") in targets
    for page, anchor in targets:
        assert anchor in anchors(page), f"{page}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_short(page: str) -> None:
    assert len(PAGES[page].splitlines()) <= (150 if page == "README.md" else 250)
