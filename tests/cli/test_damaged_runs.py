"""Every file of a run folder, damaged: each command ends with a result or with one message."""

import shutil
from pathlib import Path

import pytest

from harken.cli.main import main
from harken.training.checkpoint import write_digests

SIGNED = ("recipe.toml", "tokenizer.json", "model.safetensors")
FILES = (*SIGNED, "manifest.json", "log.jsonl", "metrics.json", "provenance.json")
DAMAGES = {
    "empty": b"",
    "garbage": b"\xff\xfe\0 garbage",
    "other JSON": b'{"sha256": [], "metrics": {"a": 1}, "event": {}, "n": {}, "model": {}}',
    "deep": b"[" * 60_000,
}
# Damage to these does not concern a command other than `train`, which reads all but the log.
UNUSED = {"log.jsonl", "metrics.json", "provenance.json"}


@pytest.fixture(scope="module")
def copy(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(small_run, folder, ignore=shutil.ignore_patterns("checkpoints", "tokens"))
    return folder


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_message(
    copy: Path, small_run: Path, name: str, signed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """`signed`: the manifest fits the damaged file, as its author would see to."""
    question = copy.parent / "question.txt"
    question.write_text("Where was Ada born?\n")
    commands = {
        "evaluate": ["evaluate", copy],
        "predict": ["predict", copy, question],
        "report": ["report", copy, "--out", copy.parent / "page.html"],
        "compare": ["compare", small_run, copy],
        "inspect": ["inspect", copy, "Where?", "--out", copy.parent],
        "train": ["train", copy / "recipe.toml", "--run", copy, "--resume"],
    }
    whole, manifest = (copy / name).read_bytes(), (copy / "manifest.json").read_bytes()
    try:
        for damage in DAMAGES.values():
            (copy / name).write_bytes(damage)
            if signed and name != "manifest.json":
                write_digests(copy, {item: item for item in SIGNED})
            for command, words in commands.items():
                unused = name == "log.jsonl" if command == "train" else name in UNUSED
                if unused and command not in ("report", "train"):
                    continue
                if unused and (signed or damage != DAMAGES["other JSON"]):
                    continue  # once is enough for what takes a second
                code = main([str(word) for word in words])
                messages = capsys.readouterr().err
                lines = [line for line in messages.splitlines() if line.startswith("harken: ")]
                assert "Traceback" not in messages
                if unused:
                    assert code == 0, messages
                else:
                    assert code in (1, 2) and len(lines) == 1, (command, messages)
    finally:
        (copy / name).write_bytes(whole)
        (copy / "manifest.json").write_bytes(manifest)


def test_damaged_checkpoints_are_one_message(
    copy: Path, capsys: pytest.CaptureFixture[str], small_run: Path
) -> None:
    run = copy.parent / "unfinished"
    shutil.copytree(small_run, run)
    for name in ("model.safetensors", "metrics.json", "report.html"):
        (run / name).unlink()
    checkpoints = sorted((run / "checkpoints").iterdir())
    command = ["train", str(run / "recipe.toml"), "--run", str(run), "--resume"]
    for name in ("progress.json", "optimizer.safetensors", "model.safetensors", "manifest.json"):
        for damage in DAMAGES.values():
            contents = [(folder / name).read_bytes() for folder in checkpoints]
            for folder in checkpoints:
                (folder / name).write_bytes(damage)
                if name != "manifest.json":
                    names = [path.name for path in folder.iterdir() if path.name != "manifest.json"]
                    write_digests(folder, {item: item for item in names})
            assert main(command) in (1, 2)
            messages = capsys.readouterr().err
            assert sum(line.startswith("harken: ") for line in messages.splitlines()) == 1, messages
            for folder, content in zip(checkpoints, contents, strict=True):
                (folder / name).write_bytes(content)
    shutil.rmtree(run)
