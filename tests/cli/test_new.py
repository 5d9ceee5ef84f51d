"""`harken new`: recipes for files, and errors for wrong files."""

import gzip
import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import Cli, sets
from harken import config
from harken.cli.main import main
from harken.measure.interval import metric_name
from harken.recipe import TASKS, load_recipe, recipe_type
from harken.synthetic.recordings import write_wav
from harken.tasks.transcribe_predictor import TranscribeRecipe
from small_files import FILES, SMALL, sentence, write_files


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


CALLS = [(task, call) for task in TASKS for call in TASKS[task].layout.calls]


@pytest.mark.parametrize(("task", "call"), CALLS)
def test_every_call_of_the_help_writes_a_recipe(desk: Path, task: str, call: str, cli: Cli) -> None:
    """The recipe names the files, and its comments have the numbers of examples."""
    printed = cli("new", task, *call.split())
    assert printed.out == "recipe.toml\n"
    assert printed.err == "next: harken train recipe.toml\n"
    text = (desk / "recipe.toml").read_text()
    recipe = load_recipe(Path("recipe.toml"))
    splits = TASKS[task].read_splits(recipe)
    layout = TASKS[task].layout
    for name, examples in splits.items():
        assert re.search(rf"^{name}\b.*\b{layout.count(examples)} {layout.examples}", text, re.M)
    named = [key.split(".")[0] for key in layout.calls[call]]
    assert set(splits) == {*named, "dev"} - {"pretrain"}
    for key, file in zip(layout.calls[call], call.split(), strict=True):
        value: object = recipe.data
        for part in key.split("."):
            value = getattr(value, part)
        assert value == desk / file


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The values of a recipe by dotted key."""
    if not is_dataclass(value):
        return {path: value}
    return {
        key: inner
        for field in fields(value)
        for key, inner in flat(getattr(value, field.name), f"{path}.{field.name}").items()
    }


@pytest.mark.parametrize(
    ("task", "chosen"),
    [
        ("tag", set()),
        ("classify", {".training.labels.steps"}),
        ("fill", set()),
        ("lm", {".model.dropout"}),
        (
            "transcribe",
            {
                ".encode.filterbank.sample_rate",
                ".encode.filterbank.mel_bins",
                ".encode.filterbank.normalize",
                ".encode.tokenizer.kind",
                ".encode.tokenizer.vocab_size",
                ".model.width",
                ".model.frontend.channels",
                ".model.encoder.layers",
                ".training.speech.spec_augment.time_masks",
                ".training.speech.spec_augment.frequency_masks",
            },
        ),
        ("translate", {".encode.vocab_size"}),
    ],
)
def test_a_recipe_differs_from_the_defaults_only_where_the_data_decide(
    desk: Path, task: str, chosen: set[str]
) -> None:
    files = ["pairs.tsv"] if task == "translate" else [next(iter(TASKS[task].layout.calls))]
    assert main(["new", task, *files]) == 0
    recipe = flat(load_recipe(desk / "recipe.toml"))
    bare = f'task = "{task}"\n[data]\ntrain = "{files[0]}"\n'
    bare += 'input = "text"\n' if task == "classify" else ""
    default = flat(config.loads(recipe_type(), bare, base=desk))
    differing = {key for key, value in recipe.items() if default.get(key) != value}
    assert {key for key in differing if not key.endswith("evaluate_every")} <= chosen
    assert any(key.endswith("evaluate_every") for key in differing)


@pytest.mark.parametrize("task", TASKS)
def test_a_new_recipe_evaluates_ten_to_twenty_times(desk: Path, task: str) -> None:
    assert main(["new", task, *next(iter(TASKS[task].layout.calls)).split()]) == 0
    recipe = flat(load_recipe(desk / "recipe.toml"))
    stages = [key.removesuffix(".steps") for key in recipe if key.endswith(".steps")]
    evaluations = [
        recipe[f"{stage}.steps"] / recipe[f"{stage}.evaluate_every"]
        for stage in stages
        if recipe[f"{stage}.steps"]
    ]
    assert len(evaluations) == 1
    assert 10 <= evaluations[0] <= 20


@pytest.mark.parametrize(
    ("rate", "seconds", "chosen"),
    [(8000, 0.5, (8000, 40, 0)), (11025, 3.0, (11025, 80, 2)), (44100, 0.5, (16000, 80, 0))],
)
def test_a_recognizer_suits_its_recordings(
    desk: Path, rate: int, seconds: float, chosen: tuple[int, int, int]
) -> None:
    sound = np.sin(np.arange(int(rate * seconds)) / 5, dtype=np.float32) / 2
    lines = []
    for number in range(30):
        write_wav(desk / f"{number}.wav", sound, rate)
        text = ("yes", "no")[number % 2]
        lines.append(json.dumps({"audio": f"{number}.wav", "text": text}))
    (desk / "train.jsonl").write_text("\n".join(lines))
    assert main(["new", "transcribe", "train.jsonl"]) == 0
    recipe = load_recipe(desk / "recipe.toml")
    assert isinstance(recipe, TranscribeRecipe)
    filterbank, masks = recipe.encode.filterbank, recipe.training.speech.spec_augment
    assert (filterbank.sample_rate, filterbank.mel_bins, masks.time_masks) == chosen
    assert masks.frequency_masks == masks.time_masks
    assert recipe.encode.tokenizer.kind == "words"


def test_the_size_of_pictures_is_that_of_their_array(desk: Path) -> None:
    assert main(["new", "caption", "captions.jsonl"]) == 0
    pictures = load_recipe(Path("recipe.toml")).encode.images
    assert (pictures.columns, pictures.rows, pictures.channels) == (14, 10, 1)


def test_the_share_of_the_dev_split(desk: Path) -> None:
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
    ("arguments", "shown"),
    [
        ("answer texts.txt", "expected 2, 3 or 4 files, got 1; run `harken new answer texts"),
        ("tag", " or ".join(f"`harken new tag {call}`" for call in TASKS["tag"].layout.calls)),
        ("answer bad-byte.txt train.tsv", "bad-byte.txt:24: invalid byte 0xe9"),
        ("lm text.txt --out mine.toml", "the file exists already"),
        ("tag train.conllu dev.conllu test.conllu text.txt", "expected 1, 2 or 3 files, got 4"),
        ("tag train.conllu dev.conllu --dev 0.1", "got both (dev.conllu)"),
        ("lm -", "-: expected a file, got stdin"),
        ("lm txet.txt", "txet.txt: file not found (expected a text file); did you mean"),
        ("tag text.txt", "text.txt:1: expected 10 tab-separated columns"),
        ("answer questions.tsv texts.txt", "questions.tsv:1: expected text, got 2 columns"),
        ("lm empty.txt", "empty.txt: the file has no text"),
        ("fill one.txt", "got 1; add examples"),
        ("lm text.txt test.conllu/x", "test.conllu/x"),
        (
            "tag labels.tsv",
            "labels.tsv: expected one word per line, got texts such as 'they duck and",
        ),
        ("tag labels.tsv labels.tsv", "labels.tsv: expected one word per line"),
        ("tag words.tsv", "words.tsv: no blank lines between sentences"),
        ("tag train.conllu words.tsv", "the file is one sentence of 600 words"),
        ("translate labels.tsv", "labels.tsv: expected translations, got labels (2 "),
        ("translate train.en labels.txt", "labels.txt: expected translations, got labels (2 "),
    ],
)
def test_wrong_files_and_options(desk: Path, arguments: str, shown: str, cli: Cli) -> None:
    (desk / "mine.toml").write_text("mine")
    (desk / "bad-byte.txt").write_bytes(FILES["texts.txt"].encode() + b"caf\xe9\n")
    (desk / "empty.txt").write_text("\n \n")
    (desk / "one.txt").write_text("one line\none line\n")
    labels = [("good", "bad")[number % 2] for number in range(31)]
    rows = (f"{sentence(number)}\t{label}\n" for number, label in enumerate(labels))
    (desk / "labels.tsv").write_text("".join(rows))
    (desk / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    (desk / "words.tsv").write_text("swim\tVERB\n" * 600)
    assert shown in cli.error("new", *arguments.split())
    assert not (desk / "recipe.toml").exists() and (desk / "mine.toml").read_text() == "mine"


def test_translations_too_short_for_bleu_are_mentioned(desk: Path, cli: Cli) -> None:
    pairs = (f"who is {number}?\tnumber {number}\n" for number in range(30))
    (desk / "answers.tsv").write_text("".join(pairs))
    note, following = cli("new", "translate", "answers.tsv").err.splitlines()
    assert "100% of the translations in answers.tsv have fewer than 4 words" in note
    assert following == "next: harken train recipe.toml"


ASKED = {"tag": "they swim", "fill": "they ___ here", "lm": "they", "translate": "they swim"}
OTHER = {
    "tag": "--data test.conllu",
    "fill": "--data test.txt",
    "lm": "--data test.txt",
    "translate": "--source test.en --target test.de",
}


@pytest.mark.parametrize("task", ["tag", "fill", "lm", "translate"])
def test_new_train_evaluate_and_predict(desk: Path, task: str, cli: Cli) -> None:
    files = next(call for call in reversed(TASKS[task].layout.calls) if "test" not in call)
    cli("new", task, *files.split())
    trained = cli.json("train", "recipe.toml", *sets(SMALL[task]), "--run", "run")
    assert trained["task"] == task and trained["n"] > 0
    for figure in trained["metrics"].values():
        if figure["low"] is not None:
            assert figure["low"] <= figure["value"] <= figure["high"]
    assert cli.json("evaluate", "run", "--split", "dev") == trained
    other = cli.json("evaluate", "run", *OTHER[task].split())
    assert other["metrics"].keys() == trained["metrics"].keys()
    printed = cli("evaluate", "run").out
    for name in trained["metrics"]:
        assert f" {metric_name(name)}" in printed

    (desk / "asked.txt").write_text(f"{ASKED[task]}\n\n{ASKED[task]}\n")
    predict = ("predict", "run", "asked.txt")
    predictions = cli.json(*predict)["predictions"]
    assert [item["input"] for item in predictions] == [ASKED[task], "", ASKED[task]]
    assert 0 < predictions[0]["confidence"] <= 1
    assert len(cli(*predict).out.split("\n")) == 4
    if task == "tag":
        tags = predictions[0]["output"].split()
        tokens = predictions[0]["tokens"]
        assert [token["token"] for token in tokens] == ["they", "swim"]
        assert [token["tag"] for token in tokens] == tags
        product = tokens[0]["score"] * tokens[1]["score"]
        assert product == pytest.approx(predictions[0]["confidence"])
        assert "predicts one tag per word" in cli.error(*predict, "--nbest", 2)
    else:
        ranked = () if task == "fill" else ("--length-penalty", "0")  # by probability alone
        first, blank, _ = cli.json(*predict, "--nbest", 3, *ranked)["predictions"]
        logs = [item["log_probability"] for item in first["nbest"]]
        assert len(logs) == 3 and logs == sorted(logs, reverse=True)
        assert blank["nbest"] == []
    if task in ("tag", "fill"):
        message = cli.error(*predict, "--beam", 2)
        assert message == f"harken: --beam: task {task!r} does not search; leave out --beam"
    else:
        cli(*predict, "--beam", 3, "--max-tokens", 5)
        again = [cli.json(*predict, "--temperature", 2, "--seed", seed) for seed in (1, 1, 2)]
        assert again[0] == again[1] != again[2]


def test_columns_of_tables_are_guessed_and_shown(desk: Path, cli: Cli) -> None:
    rows = "".join(f'{n % 2};"who; is {n}?";number {n};x\n' for n in range(9))
    (desk / "asked.csv").write_text(f"n;The question;reply;note\n{rows}")
    (desk / "texts.csv").write_text("id,body\n" + "".join(f"{n},text {n}\n" for n in range(9)))
    note, *lines = cli("new", "answer", "texts.csv", "asked.csv").err.splitlines()
    assert "texts.csv: columns text = 'body' (guessed); change them with --set data.columns" in note
    assert lines[:5] == [f"  {n + 2}: text 'text {n}'" for n in range(5)]
    assert "question = 'The question' (guessed), answer = 'reply' (guessed);" in lines[5]
    assert lines[6] == "  2: question 'who; is 0?', answer 'number 0'"
    assert len(lines) == 12
    columns = load_recipe(Path("recipe.toml")).data.columns
    assert (columns.text, columns.question, columns.answer) == ("body", "The question", "reply")
    sets = ("--set", "data.columns.answer=note", "--out", "other.toml")
    printed = cli("new", "answer", "texts.csv", "asked.csv", *sets).err
    assert "question = 'The question' (guessed), answer = 'note';" in printed
    assert load_recipe(Path("other.toml")).data.columns.answer == "note"
    for wrong, message in (
        ("model.width=3", "--set model.width=3: expected data.columns.FIELD=NAME"),
        ("data.columns.answr=note", "unknown key 'answr' in [data.columns]; did you mean 'answer'"),
        ("data.columns.text=x", "texts.csv:1: the header has no column 'x'"),
        ("data.columns.answer=nte", "no column 'nte' (expected one of n, The question, reply"),
    ):
        arguments = ("new", "answer", "texts.csv", "asked.csv", "--out", "no.toml", "--set", wrong)
        assert message in cli.error(*arguments)
    (desk / "sätze.tsv").write_text("satz\turteil\n" + "a b c\tx\n" * 9 + "c d\ty\n")
    cli("new", "fill", "sätze.tsv", "--set", "data.columns.text=satz", "--out", "satz.toml")
    assert load_recipe(Path("satz.toml")).data.columns.text == "satz"
    message = cli.error("new", "fill", "sätze.tsv", "--set", "data.columns.text=Wort", "--out", "x")
    assert "sätze.tsv:1: the header has no column 'Wort' (expected one of satz, urteil)" in message
    message = cli.error("new", "fill", "text.txt", "--set", "data.columns.text=x", "--out", "x")
    assert "--set data.columns.text: expected a table, got text.txt" in message
