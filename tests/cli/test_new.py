"""`harken new`: a recipe for files, which trains as it is; files that will not do."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harken import config
from harken.cli.layouts import LAYOUTS
from harken.cli.main import main
from harken.data.spoken.recorded import write_wav
from harken.recipe import TASKS, Recipe, load_recipe
from harken.tasks.task import Task

New = Callable[..., Path]

WORDS = ("they", "duck", "and", "swim", "here")
TAGS = ("PRON", "VERB", "CCONJ", "VERB", "ADV")


def sentence(number: int) -> str:
    """Distinct and easily told apart."""
    return f"{' '.join(WORDS)} {number} times"


def conllu(numbers: range) -> str:
    rows = [
        f"{at}\t{word}\t_\t{tag}\t{tag[:2]}\t_\t_\t_\t_\t_\n"
        for at, (word, tag) in enumerate(zip(WORDS, TAGS, strict=True), start=1)
    ]
    last = len(rows) + 1
    return "".join(
        "".join(rows) + f"{last}\t{number}\t_\tNUM\tCD\t_\t_\t_\t_\t_\n\n" for number in numbers
    )


CAPTIONED = {"": 19, "dev-": 7, "test-": 3}
FILES = {
    "texts.txt": "".join(f"{sentence(n)}.\n" for n in range(23)),
    "text.txt": "".join(f"{sentence(n)}.\n" for n in range(29)),
    "train.txt": "".join(f"{sentence(n)}.\n" for n in range(29)),
    "dev.txt": "".join(f"{sentence(n)}.\n" for n in range(30, 37)),
    "test.txt": "".join(f"{sentence(n)}.\n" for n in range(40, 43)),
    "questions.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(20)),
    "train.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(20)),
    "dev.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(20, 27)),
    "test.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(30, 33)),
    "pairs.tsv": "".join(f"{sentence(n)}\t{sentence(n)[::-1]}\n" for n in range(31)),
    "train.en": "".join(f"{sentence(n)}\n" for n in range(31)),
    "train.de": "".join(f"{sentence(n)[::-1]}\n" for n in range(31)),
    "dev.en": "".join(f"{sentence(n)}\n" for n in range(40, 47)),
    "dev.de": "".join(f"{sentence(n)[::-1]}\n" for n in range(40, 47)),
    "test.en": "".join(f"{sentence(n)}\n" for n in range(50, 53)),
    "test.de": "".join(f"{sentence(n)[::-1]}\n" for n in range(50, 53)),
    "train.conllu": conllu(range(19)),
    "dev.conllu": conllu(range(20, 27)),
    "test.conllu": conllu(range(30, 33)),
    **{
        f"{part}.jsonl": "".join(
            f'{{"audio": "tone.wav", "text": "{sentence(n)}", "start": 0.{n:02}}}\n'
            for n in numbers
        )
        for part, numbers in (
            ("train", range(19)),
            ("dev", range(20, 27)),
            ("test", range(30, 33)),
        )
    },
    **{
        f"{part}captions.jsonl": "".join(f'{{"caption": "{sentence(n)}"}}\n' for n in range(count))
        for part, count in CAPTIONED.items()
    },
}
"""Every file that a call of `harken new --help` names, small."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, contents in FILES.items():
        (tmp_path / name).write_text(contents, encoding="utf-8")
    write_wav(tmp_path / "tone.wav", np.sin(np.arange(8000) / 5, dtype=np.float32) / 2, 8000)
    for part, count in CAPTIONED.items():
        scenes = np.zeros((count, 10, 14), dtype=np.uint8)
        np.savez_compressed(tmp_path / f"{part}captions.npz", images=scenes)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr; nothing was written."""
    assert main(["new", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert not Path("recipe.toml").exists()
    return line


CALLS = [(task, call) for task in LAYOUTS for call in LAYOUTS[task].calls]


def test_every_task_has_a_layout() -> None:
    assert set(TASKS) == set(LAYOUTS)


@pytest.mark.parametrize(("task", "call"), CALLS)
def test_every_call_of_the_help_gives_a_recipe(
    desk: Path, task: str, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It loads, reads its files with as many examples as it says, and is what was asked for."""
    assert main(["new", task, *call.split()]) == 0
    printed = capsys.readouterr()
    assert printed.out == "recipe.toml\n"
    assert printed.err == "next: harken train recipe.toml\n"
    text = (desk / "recipe.toml").read_text()
    recipe = load_recipe(Path("recipe.toml"))
    code: Task = TASKS[task]
    splits = code.read(recipe)
    layout = LAYOUTS[task]
    for name, examples in splits.items():
        assert re.search(rf"^{name}\b.*\b{layout.count(examples)} {layout.examples}", text, re.M)
    named = [key.split(".")[0] for key in layout.calls[call]]
    assert set(splits) == {*named, "dev"} - {"read"}
    for key, file in zip(layout.calls[call], call.split(), strict=True):
        value: object = recipe.data
        for part in key.split("."):
            value = getattr(value, part)
        assert value == desk / file


@pytest.mark.parametrize("task", ["tag", "fill", "lm", "transcribe", "translate"])
def test_what_is_shown_is_the_default(desk: Path, task: str) -> None:
    """Only the data are the user's: without the rest, the recipe is the same."""
    files = ["pairs.tsv"] if task == "translate" else [next(iter(LAYOUTS[task].calls))]
    assert main(["new", task, *files]) == 0
    text = (desk / "recipe.toml").read_text()
    shown = config.loads(Recipe, text, base=desk)
    bare = f'task = "{task}"\n[data]\ntrain = "{files[0]}"\n'
    assert shown == config.loads(Recipe, bare, base=desk)


def test_the_size_of_pictures_is_that_of_their_array(desk: Path) -> None:
    assert main(["new", "caption", "captions.jsonl"]) == 0
    pictures = load_recipe(Path("recipe.toml")).encode.pictures
    assert (pictures.columns, pictures.rows, pictures.channels) == (14, 10, 1)


def test_a_share_can_be_chosen(desk: Path) -> None:
    assert main(["new", "tag", "train.conllu", "--dev", "0.25", "--out", "sub/r.toml"]) == 0
    text = (desk / "sub" / "r.toml").read_text()
    assert 'train = "../train.conllu"    # 14 sentences kept\n' in text
    assert "dev = 0.25    # share held out: 5 sentences\n" in text


@pytest.mark.parametrize(
    ("names", "language"),
    [("a.en a.de", "de"), ("a.en a.fr.gz", "fr"), ("a.txt b.txt", "en"), ("en de", "en")],
)
def test_the_language_of_a_translation_is_in_its_name(
    desk: Path, names: str, language: str
) -> None:
    for name, side in zip(names.split(), ("train.en", "train.de"), strict=True):
        contents = FILES[side].encode()
        (desk / name).write_bytes(gzip.compress(contents) if name.endswith("gz") else contents)
    assert main(["new", "translate", *names.split()]) == 0
    assert f'target_language = "{language}" ' in (desk / "recipe.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            "answer texts.txt",
            "found 1 files, wanted 2 or 3 or 4; call `harken new answer texts.txt",
        ),
        ("tag train.conllu dev.conllu test.conllu text.txt", "found 4 files, wanted 1 or 2 or 3"),
        ("tag train.conllu --dev 1.5", "--dev 1.5: found no share, wanted a number between"),
        ("tag train.conllu --dev nan", "--dev nan: found no share"),
        ("tag train.conllu dev.conllu --dev 0.1", "found dev.conllu to measure on too"),
        ("lm -", "-: found stdin, wanted a file"),
        ("lm txet.txt", "txet.txt: file not found (expected a text file); did you mean"),
        ("tag text.txt", "text.txt:1: found 1 tab-separated column"),
        ("answer questions.tsv texts.txt", "texts.txt:1: found 0 tabs"),
        ("lm empty.txt", "empty.txt: found an empty file"),
        ("fill one.txt", "found 1 distinct"),
        ("lm text.txt test.conllu/x", "test.conllu/x"),
    ],
)
def test_files_that_will_not_do(
    desk: Path, arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "empty.txt").write_text("\n \n")
    (desk / "one.txt").write_text("one line\none line\n")
    assert told in refused(capsys, *arguments.split())


def test_a_bad_byte_far_down_is_found_before_training(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = FILES["texts.txt"].encode()
    (desk / "texts.txt").write_bytes(contents + b"caf\xe9\n")
    assert "texts.txt:24: found byte 0xe9" in refused(capsys, "answer", "texts.txt", "train.tsv")


def test_nothing_is_overwritten(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "mine.toml").write_text("mine")
    assert "found a file there already" in refused(capsys, "lm", "text.txt", "--out", "mine.toml")
    assert (desk / "mine.toml").read_text() == "mine"


SMALL = {
    "tag": (
        "model.width=24 model.characters.width=8 model.characters.letter=6 model.body.hidden=12 "
        "training.tags.steps=4 training.tags.batch_tokens=64"
    ),
    "fill": "model.width=16 training.steps=4 training.batch_tokens=64",
    "lm": (
        "model.width=16 model.layers=1 model.length=32 model.attention.heads=2 training.steps=4 "
        "training.batch_tokens=64 search.most=7"
    ),
    "translate": (
        "encode.size=300 model.decoder.width=16 model.decoder.layers=1 model.decoder.length=31 "
        "model.encoder.layers=1 model.encoder.attention.heads=2 model.decoder.attention.heads=2 "
        "training.pairs.steps=4 training.pairs.batch_tokens=512 search.most=7"
    ),
}
ASKED = {"tag": "they swim", "fill": "they ___ here", "lm": "they", "translate": "they swim"}
OTHER = {
    "tag": "--data test.conllu",
    "fill": "--data test.txt",
    "lm": "--data test.txt",
    "translate": "--source test.en --target test.de",
}


@pytest.mark.parametrize("task", SMALL)
def test_from_files_to_predictions(
    desk: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """new, train, evaluate, predict as a script calls them."""

    def told(*arguments: str) -> Any:
        assert main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    files = next(call for call in reversed(LAYOUTS[task].calls) if "test" not in call)
    assert main(["new", task, *files.split()]) == 0
    capsys.readouterr()
    sets = [part for one in SMALL[task].split() for part in ("--set", one)]
    trained = told("train", "recipe.toml", *sets, "--run", "run")
    assert trained["task"] == task
    assert trained["n"] > 0
    for figure in trained["metrics"].values():
        assert figure["low"] <= figure["value"] <= figure["high"]
    assert told("evaluate", "run", "--split", "dev") == trained
    assert (
        told("evaluate", "run", *OTHER[task].split())["metrics"].keys() == trained["metrics"].keys()
    )
    assert main(["evaluate", "run"]) == 0
    printed = capsys.readouterr().out
    for name in trained["metrics"]:
        assert f" {name.replace('_', ' ')}" in printed

    (desk / "asked.txt").write_text(f"{ASKED[task]}\n\n{ASKED[task]}\n")
    predictions = told("predict", "run", "asked.txt")["predictions"]
    assert [one["input"] for one in predictions] == [ASKED[task], "", ASKED[task]]
    assert 0 < predictions[0]["confidence"] <= 1
    assert main(["predict", "run", "asked.txt"]) == 0
    assert len(capsys.readouterr().out.split("\n")) == 4
    if task == "tag":
        assert len(predictions[0]["output"].split()) == 2
        assert "gives each word its one best tag" in refused_predict(capsys, "--nbest", "2")
    else:
        ranked = () if task == "fill" else ("--length-penalty", "0")  # by probability alone
        several = told("predict", "run", "asked.txt", "--nbest", "3", *ranked)
        first, nothing, _ = several["predictions"]
        logs = [one["log_probability"] for one in first["nbest"]]
        assert len(logs) == 3
        assert logs == sorted(logs, reverse=True)
        assert nothing["nbest"] == []
    if task in ("tag", "fill"):
        said = refused_predict(capsys, "--beam", "2")
        assert said == f"harken: --beam: task {task!r} does not search; leave out --beam"
    else:
        assert main(["predict", "run", "asked.txt", "--beam", "3", "--most", "5"]) == 0
        capsys.readouterr()
        again = [
            told("predict", "run", "asked.txt", "--temperature", "2", "--seed", seed)
            for seed in ("1", "1", "2")
        ]
        assert again[0] == again[1] != again[2]


def refused_predict(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["predict", "run", "asked.txt", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line
