"""Every block of the README and docs is run: Python, shell and recipes, on small data."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harken import config
from harken.cli.main import main
from harken.recipe import TASKS, Recipe, load_recipe
from harken.synthetic.people import PeopleFiles
from huggingface_folder import save_gpt2
from small_recipe import SMALL_OF

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [
        text
        for page in PAGES
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if kind == language
    ]


def test_every_block_has_a_language_that_is_run() -> None:
    kinds = {kind for page in PAGES for kind, _ in BLOCK.findall(page.read_text(encoding="utf-8"))}
    assert kinds == {"python", "sh", "toml"}


@pytest.fixture
def desk(
    small_run: Path, people: PeopleFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with the files that the pages speak of."""
    shutil.copy(people.read, tmp_path / "texts.txt")
    shutil.copy(people.train, tmp_path / "questions.tsv")
    asked = [line.split("\t")[0] for line in people.test.read_text().splitlines()]
    (tmp_path / "more-questions.txt").write_text("\n".join(asked))
    shutil.copytree(small_run, tmp_path / "runs" / "demo")
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    save_gpt2(tmp_path / "models" / "gpt2")
    made = tmp_path / "sentences"
    made.mkdir()
    (made / "blanks.txt").write_text("the ___ walks .\n")
    (made / "prompts.txt").write_text("the old duck\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_blocks_run_in_order(desk: Path) -> None:
    """In a process of their own, as a reader would: the tests' type checks know no new score."""
    (desk / "pages.py").write_text("\n".join([*blocks("python"), "assert len(records) == 2"]))
    done = subprocess.run([sys.executable, "pages.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(blocks("python")) >= 4


def test_shell_blocks_run_in_order(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the sizes are ours, and a folder for `train` where the page names none."""
    ran = 0
    for number, line in enumerate(one for block in blocks("sh") for one in block.splitlines()):
        words = shlex.split(line, comments=True)
        if not words or words[0] == "make":
            continue
        if words[0].startswith("python"):
            assert (ROOT / words[1]).is_file(), line
            continue
        assert words[0] == "harken", line
        command, arguments = words[1], words[2:]
        if command == "demo":
            continue  # `make demo` itself; tests/demo/ runs it small
        if words[1:3] == ["data", "sentences"]:
            arguments = [*arguments, "--sentences", "150"]  # the last one counts
        if words[1:3] == ["data", "spoken"]:
            arguments = [*arguments, "--utterances", "30", "--most", "2"]
        if command == "train":
            task = tomllib.loads(Path(arguments[0]).read_text())["task"]
            small = [part for one in SMALL_OF[task] for part in ("--set", one)]
            where = [] if "--run" in arguments else ["--run", f"runs/{number}"]
            arguments = [arguments[0], *small, *arguments[1:], *where]
        assert main([command, *arguments]) == 0, line
        ran += 1
    assert ran >= 18


@pytest.mark.parametrize("text", blocks("toml"))
def test_recipes_in_the_docs_are_legal(text: str, tmp_path: Path) -> None:
    assert config.loads(Recipe, text, base=tmp_path).task in SMALL_OF


def test_every_task_has_a_recipe_that_is_legal() -> None:
    for task in TASKS:
        assert load_recipe(ROOT / "recipes" / f"{task}.toml").task == task


def test_the_set_up_of_the_sources_is_legal_either_way() -> None:
    recipe = ROOT / "recipes" / "answer_sources.toml"
    for score in ("scaled", "synthesizer"):
        loaded = load_recipe(recipe, [f"model.attention.score.kind={score}"])
        assert loaded.task == "answer"
        assert loaded.model.attention.score.kind == score


def test_make_targets_in_the_docs_exist() -> None:
    rules = (ROOT / "Makefile").read_text()
    for block in blocks("sh"):
        for target in re.findall(r"^make (\w+)", block, re.MULTILINE):
            assert re.search(rf"^{target}:", rules, re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
