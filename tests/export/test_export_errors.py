"""Exports that are refused, damaged or made by another version."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import Cli
from exportable import small_run
from harken.errors import UserError
from harken.export import format as formats
from harken.export.ctranslate2 import CTranslate2Format
from harken.export.engine import export_folder, with_engine
from harken.export.folder import export_run
from harken.export.format import FormatName, export_format
from harken.version import __version__
from untrained import initial_run, task_recipe


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


ENCODER = "model.encoder={kind='transformer',embedding_norm=true,norm={place='post'}}"
REFUSED: list[tuple[FormatName, str, Sequence[str], str]] = [
    ("hf", "lm", ["model.position={kind='alibi'}"], "model.position.kind = 'alibi'"),
    ("hf", "lm", ["model.mask='strictly_causal'"], "model.mask = 'strictly_causal'"),
    ("hf", "lm", ["model.window=5"], "model.window = 5"),
    ("hf", "lm", ["model.norm.kind='rms'"], "model.norm.kind = 'rms' in GPT-2"),
    ("hf", "lm", ["model.norm.place='post'"], "model.norm.place = 'post' in GPT-2"),
    (
        "hf",
        "lm",
        ["model.position={kind='rotary'}", "model.norm.kind='rms'"],
        "model.feedforward.activation = 'gelu_tanh' in Llama",
    ),
    (
        "hf",
        "lm",
        ["model.position={kind='rotary'}", "model.feedforward.activation='swiglu'"],
        "model.feedforward.activation = 'swiglu' in GPT-NeoX",
    ),
    ("hf", "lm", ["model.attention.kv_heads=1"], "model.attention.kv_heads = 1"),
    ("hf", "lm", ["model.attention.score={kind='dot'}"], "model.attention.score.kind = 'dot'"),
    ("hf", "lm", ["model={kind='rnn'}"], "task = 'lm' with model.kind = 'rnn'"),
    ("hf", "translate", [], "model.encoder.position.kind = 'rotary'"),
    ("hf", "tag", [], "task = 'tag' with model.kind = 'tagger'"),
    ("hf", "fill", ["model={kind='masked'}"], "model.encoder.norm.place = 'pre' in BERT"),
    (
        "hf",
        "classify",
        ["encode={kind='tokens'}", "model={kind='tokens',pooling={kind='mean'}}", ENCODER],
        "model.pooling.kind = 'mean' in BERT",
    ),
    ("ctranslate2", "lm", ["model.window=5"], "model.window = 5"),
    ("ctranslate2", "lm", ["model.position={kind='relative'}"], "model.position.kind = 'relative'"),
    ("ctranslate2", "translate", ["model.decoder={kind='rnn'}"], "model.decoder.kind = 'rnn'"),
    ("ctranslate2", "fill", [], "task = 'fill' with model.kind"),
]


@pytest.mark.parametrize(("name", "task", "overrides", "choice"), REFUSED)
def test_refused_with_the_offending_choice(
    name: FormatName, task: str, overrides: Sequence[str], choice: str, runs: Path
) -> None:
    run = initial_run(task_recipe(task, runs, overrides))
    with pytest.raises(UserError) as caught:
        export_format(name).check(run, "float32")
    assert str(caught.value).startswith(f"format {name}: it cannot represent {choice}")
    assert "format onnx" in caught.value.fix


def test_an_export_that_disagrees_leaves_nothing_behind(
    runs: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run("answer llama", runs)
    load = CTranslate2Format.load

    def changed(self: CTranslate2Format, folder: Path, loaded: Any) -> Any:
        model: Any = load(self, folder, loaded)
        forward = model.forward
        model.forward = lambda tokens: forward(tokens) + 2e-4 * torch.eye(1)
        return model

    monkeypatch.setattr(CTranslate2Format, "load", changed)
    before = sorted(path.name for path in runs.iterdir())
    out = runs / "new"
    error = cli.error("export", run.folder, "--to", "ctranslate2", "--out", out, code=1)
    assert "expected logits within 0.0001" in error and "got 0.0002" in error
    assert sorted(path.name for path in runs.iterdir()) == before


def test_existing_folders_are_kept_unless_they_are_exports(runs: Path, cli: Cli) -> None:
    run = small_run("answer llama", runs)
    out = runs / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("precious")
    error = cli.error("export", run.folder, "--to", "ctranslate2", "--out", out)
    assert "already exists and is not an export" in error
    assert (out / "thesis.txt").read_text() == "precious"
    shutil.rmtree(out)
    for precision in ("float32", "int8"):
        record = cli.json(
            "export", run.folder, "--to", "ctranslate2", "--out", out, "--precision", precision
        )
        stored = json.loads((out / "parity.json").read_text("utf-8"))
        assert record["precision"] == stored["precision"] == precision
    assert sorted(path.name for path in out.iterdir()) == [
        *("README.md", "config.json", "manifest.json", "model.bin", "parity.json"),
        *("tokenizer.json", "tokenizer_config.json", "vocabulary.json"),
    ]


def test_missing_packages_and_precisions(
    runs: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run("answer llama", runs)
    error = cli.error("export", run.folder, "--to", "hf", "--precision", "int8")
    assert "format hf does not support 'int8' (expected float32 or float16)" in error
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    for arguments in (
        ("export", run.folder, "--to", "ctranslate2"),
        ("predict", run.folder, runs / "texts.txt", "--engine", "ctranslate2"),
    ):
        error = cli.error(*arguments)
        assert "Python package 'ctranslate2' is not installed" in error
        assert 'pip install "harken[ctranslate2]"' in error


def test_a_damaged_export_is_reported(runs: Path, cli: Cli) -> None:
    run = small_run("lm gpt2 biases", runs)
    with_engine(run, "ctranslate2")
    folder = export_folder(run.folder, "ctranslate2", "float32")
    predict = ("predict", run.folder, runs / "text.txt", "--engine", "ctranslate2", "--beam", 1)
    cli(*predict)
    for file in ("model.bin", "parity.json", "manifest.json"):
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[:-9] + b"\0" * 9)
        error = cli.error(*predict, code=1)
        assert error.startswith("harken: damaged export: ") and file in error
        assert f"delete {folder}" in error
        (folder / file).unlink()
        assert file in cli.error(*predict, code=1)
        (folder / file).write_bytes(content)
    cli(*predict)


def test_an_export_of_other_weights_or_of_another_version_is_made_again(
    runs: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run("answer gpt2", runs)
    predict = ("predict", run.folder, runs / "questions.tsv", "--engine", "ctranslate2")
    assert "exporting the run" in cli(*predict).err
    assert cli(*predict).err == ""
    monkeypatch.setattr("harken.export.parity.__version__", "9.9")
    other = export_folder(run.folder, "ctranslate2", "float32")
    export_run(run, "ctranslate2", other, "float32")
    assert "exporting the run" in cli(*predict).err


def test_a_run_of_another_version_is_exported_with_a_note(runs: Path, cli: Cli) -> None:
    run = small_run("answer llama", runs)
    stored = {"harken": "0.0.1", "torch": "2.9", "recipe": "", "data": {}, "referenced": {}}
    (run.folder / "provenance.json").write_text(json.dumps({**stored, "threads": 1}))
    out = runs / "other"
    printed = cli("export", run.folder, "--to", "ctranslate2", "--out", out)
    assert printed.err == f"{run.folder}: the run was made by Harken 0.0.1, not {__version__}\n"
    assert "100.0%" in printed.out and str(out) in printed.out
    (run.folder / "provenance.json").unlink()


def test_engines_run_in_one_process_on_the_cpu(runs: Path, cli: Cli) -> None:
    run = small_run("answer llama", runs)
    predict = ("predict", run.folder, runs / "texts.txt", "--engine", "ctranslate2")
    assert "expected --device cpu" in cli.error(*predict, "--device", "cuda")
