"""Interrupted, failed and changed runs: signals, locks, leftovers and provenance."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import harken.provenance
import harken.training.runtime
from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import Vocabulary
from harken.errors import Failure, UserError
from harken.formats.corpus import TextCorpus
from harken.pipeline import train
from harken.provenance import check_recipe
from harken.recipe import Recipe, load_recipe
from harken.run_folder import read_log, read_metrics
from harken.tasks.lm import LanguageModelPredictor, LanguageModelTask
from harken.training.loop import Event, StepDone
from harken.training.signals import Interrupted, run_interruptibly, stop_signals
from untrained import equal_weights

TEXT = "the cat sat on the mat and looked at the dog that sat on the log\n" * 40


def write_recipe(folder: Path) -> Path:
    """Write an `lm` recipe of eight steps that evaluates every four, next to its text."""
    (folder / "text.txt").write_text(TEXT)
    path = folder / "recipe.toml"
    path.write_text(
        'task = "lm"\nseed = 3\n[data]\ntrain = "text.txt"\n[model]\nlayers = 1\nwidth = 16\n'
        "max_length = 32\nattention.heads = 2\n[training]\nsteps = 8\nbatch_tokens = 64\n"
        "evaluate_every = 4\nsave_every = 3\n"
    )
    return path


@pytest.fixture
def text_recipe(tmp_path: Path) -> Path:
    return write_recipe(tmp_path)


@pytest.fixture(autouse=True)
def default_hangup() -> Iterator[None]:
    """Restore the default of SIGHUP, which is ignored if the tests are started by `nohup`."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, handler)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    return train(load_recipe(write_recipe(folder)), folder / "run").folder


def comparable_log(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in event.items() if key != "seconds"}
        for event in read_log(run / "log.jsonl")
    ]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def interrupt(
    recipe: Recipe, folder: Path, step: int, number: signal.Signals = signal.SIGTERM
) -> None:
    """Train until a signal arrives after this step."""

    def listener(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == step:
            signal.raise_signal(number)

    with pytest.raises(Interrupted, match=number.name):
        train(recipe, folder, listener=listener)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("step", [1, 4, 8])  # 4 and 8: an evaluation is due
def test_a_stopped_run_resumes_exactly(
    text_recipe: Path, whole_run: Path, tmp_path: Path, number: signal.Signals, step: int
) -> None:
    recipe = load_recipe(text_recipe)
    interrupt(recipe, tmp_path / "run", step, number)
    train(recipe, tmp_path / "run", resume=True)
    assert equal_weights(whole_run, tmp_path / "run")
    assert comparable_log(whole_run) == comparable_log(tmp_path / "run")
    names, expected = (
        {path.name for path in run.iterdir()} for run in (tmp_path / "run", whole_run)
    )
    assert names == expected


def test_a_signal_stops_an_evaluation_that_is_repeated(
    text_recipe: Path, whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(text_recipe)
    with monkeypatch.context() as patch:

        def stages(*arguments: Any) -> Any:
            (only,) = original(*arguments)
            return [replace(only, evaluate=lambda model: signal.raise_signal(signal.SIGTERM))]

        original = LanguageModelTask.stages
        patch.setattr(LanguageModelTask, "stages", stages)
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "run")
    (newest,) = list((tmp_path / "run" / "checkpoints").glob("*-step-0000004"))
    assert json.loads((newest / "progress.json").read_text())["evaluation_due"] is True
    # A resumed process that repeated the evaluation and was then killed leaves this line.
    with (tmp_path / "run" / "log.jsonl").open("a") as log:
        line = {"event": "evaluated", "stage": "text", "step": 4, "value": 1.0, "best": True}
        log.write(json.dumps(line) + "\n")
    train(recipe, tmp_path / "run", resume=True)
    assert equal_weights(whole_run, tmp_path / "run")
    assert comparable_log(whole_run) == comparable_log(tmp_path / "run")


@pytest.mark.parametrize("phase", ["read", "fit", "encode", "evaluate"])
def test_a_signal_outside_the_steps_stops_at_once(
    text_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """The signal arrives during a long call, here a sleep."""

    def slow(*arguments: object, **options: object) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(100):
            time.sleep(0.1)
        raise AssertionError("the signal was ignored")

    owners = {"encode": Vocabulary, "evaluate": LanguageModelPredictor, "read": TextCorpus}
    owner = owners.get(phase, LanguageModelTask)
    recipe, folder = load_recipe(text_recipe), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(owner, {"read": "size"}.get(phase, phase), slow)
        with pytest.raises(Interrupted):
            train(recipe, folder)
    assert folder.exists() == (phase != "read")
    train(recipe, folder, resume=phase != "read")


def test_fitting_a_tokenizer_does_not_delay_signals(tmp_path: Path) -> None:
    """`tokenizers` fits outside the interpreter, so it needs a second thread."""
    line = "".join(chr(97 + (at * at) % 26) for at in range(4000))
    config = BytePairConfig(vocab_size=5000)
    with stop_signals():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(Interrupted):
            run_interruptibly(
                lambda: [config.fit([line[at:] for at in range(99)]) for _ in range(9)]
            )


def test_handlers_of_errors_do_not_catch_a_signal() -> None:
    with pytest.raises(Interrupted), stop_signals():
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception as error:
            raise UserError("the tokenizer cannot be read", fix="") from error


def test_ignored_signals_stay_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under `nohup`
    try:
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.received is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize(
    "damage",
    [
        "training.runtime.device=cuda",  # not on this machine
        "data.train=missing.txt",
        "encode={kind='bpe',vocab_size=260}",  # see below: fitting fails
    ],
)
def test_a_failed_start_leaves_the_folder_free(
    text_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def fail(self: BytePairConfig, texts: object) -> Vocabulary:
        raise MemoryError

    monkeypatch.setattr(BytePairConfig, "fit", fail)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises((UserError, MemoryError)):
        train(load_recipe(text_recipe, [damage]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(load_recipe(text_recipe), tmp_path / "run")


def test_a_process_killed_while_it_claims_the_folder_leaves_it_free(
    text_recipe: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".lock", ".recipe.toml.unfinished", ".provenance.json.unfinished"):
        (folder / name).write_text("half")
    (folder / "provenance.json").write_text("{}")
    train(load_recipe(text_recipe), folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_leftovers_are_removed_on_resuming(text_recipe: Path, tmp_path: Path) -> None:
    recipe, folder = load_recipe(text_recipe), tmp_path / "run"
    train(recipe, folder)
    before = files_of(folder)
    (folder / "checkpoints" / ".stage-0-step-0000003.removed").mkdir()
    (folder / "checkpoints" / ".stage-0-step-0000003.removed" / "model.safetensors").touch()
    (folder / "tokens" / ".train.unfinished").touch()
    train(recipe, folder, resume=True)
    assert files_of(folder) == before
    assert not any(path.name.endswith(".removed") for path in folder.rglob("*"))


@pytest.fixture
def stopped_run(text_recipe: Path, tmp_path: Path) -> Path:
    interrupt(load_recipe(text_recipe), tmp_path / "run", step=5)
    return tmp_path / "run"


def test_changed_data_are_rejected(stopped_run: Path, text_recipe: Path) -> None:
    text = text_recipe.parent / "text.txt"
    text.write_text(TEXT.replace("dog", "cow", 1))
    before = files_of(stopped_run)
    with pytest.raises(UserError, match=r"the file of data\.train changed"):
        train(load_recipe(text_recipe), stopped_run, resume=True)
    assert files_of(stopped_run) == before
    text.write_text(TEXT)
    train(load_recipe(text_recipe), stopped_run, resume=True)


def test_a_changed_recipe_is_rejected(stopped_run: Path) -> None:
    stored = stopped_run / "recipe.toml"
    stored.write_text(stored.read_text().replace("steps = 8", "steps = 9"))
    with pytest.raises(UserError, match="expected 'steps = 8', got 'steps = 9'"):
        train(load_recipe(stored), stopped_run, resume=True)


def test_another_version_is_a_warning(
    stopped_run: Path, text_recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harken.provenance, "__version__", "9.9")
    with pytest.warns(UserWarning, match="Harken is 9.9, but the run was started with"):
        train(load_recipe(text_recipe), stopped_run, resume=True)


def test_another_reduction_causes_a_warning(stopped_run: Path, text_recipe: Path) -> None:
    changed = load_recipe(text_recipe, ["training.runtime.reduction=sharded"])
    with pytest.warns(UserWarning, match='started with reduction = "exact"'):
        check_recipe(stopped_run, changed)


def test_a_resumed_run_keeps_its_number_of_threads(stopped_run: Path, text_recipe: Path) -> None:
    assert torch.get_num_threads() == 1
    provenance = stopped_run / "provenance.json"
    provenance.write_text(provenance.read_text().replace('"threads": 1', '"threads": 3'))
    train(load_recipe(text_recipe), stopped_run, resume=True)
    assert torch.get_num_threads() == 3


def test_reordered_recordings_are_rejected(tmp_path: Path) -> None:
    """Cached features would be trained with the transcripts of other utterances."""
    import soundfile

    for number in range(8):
        soundfile.write(tmp_path / f"{number}.wav", [0.01 * number] * 8000, 8000)
    lines = [json.dumps({"audio": f"{n}.wav", "text": f"word {n}"}) for n in range(8)]
    manifest = tmp_path / "train.jsonl"
    manifest.write_text("\n".join(lines) + "\n")
    (tmp_path / "recipe.toml").write_text(
        'task = "transcribe"\n[data]\ntrain = "train.jsonl"\ndev = 0.3\n[model]\nwidth = 8\n'
        "frontend.channels = 2\nencoder.layers = 1\n"
        "[training.speech]\nsteps = 2\nbatch_frames = 300\n"
    )
    recipe = load_recipe(tmp_path / "recipe.toml")
    interrupt(recipe, tmp_path / "run", step=1)
    manifest.write_text("\n".join(reversed(lines)) + "\n")
    with pytest.raises(UserError, match=r"data\.train changed"):
        train(recipe, tmp_path / "run", resume=True)
    manifest.write_text("\n".join(lines) + "\n")
    shutil.copy(tmp_path / "0.wav", tmp_path / "kept.wav")
    soundfile.write(tmp_path / "0.wav", [0.5] * 9000, 8000)
    with pytest.raises(UserError, match="data refer to changed"):
        train(recipe, tmp_path / "run", resume=True)
    shutil.copy(tmp_path / "kept.wav", tmp_path / "0.wav")
    train(recipe, tmp_path / "run", resume=True)


def test_damaged_logs_and_metrics(text_recipe: Path, tmp_path: Path) -> None:
    recipe, folder = load_recipe(text_recipe), tmp_path / "run"
    train(recipe, folder)
    events = len(read_log(folder / "log.jsonl"))
    with (folder / "log.jsonl").open("ab") as log:
        log.write(b'{"event": "stepped", "stage": 3}\n[1, 2]\n\xff\xfe\n' + b"[" * 100_000 + b"\n")
    assert len(read_log(folder / "log.jsonl")) == events
    (folder / "metrics.json").write_text('{"task": "lm"')
    with pytest.raises(Failure, match=r"metrics\.json: cannot be read"):
        read_metrics(folder)
    (folder / "metrics.json").unlink()
    train(recipe, folder, resume=True)
    assert read_metrics(folder)["task"] == "lm"


FILL_A_DISK = """
import os, sys
from pathlib import Path
import numpy as np
from PIL import Image
from harken.formats.image_source import ImageFiles
from harken.errors import HarkenError
from harken.files import locked_folder
from harken.tasks.caption_data import CaptionExample, resize_once
disk, picture = Path(sys.argv[1]), Path(sys.argv[2])
Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(picture)
files = ImageFiles(columns=40, rows=40, channels=3)
examples = [CaptionExample(name="a", captions=("a",), image=picture, source=files)] * 40
os.chmod(disk, 0o555)
for attempt in (lambda: resize_once(examples, disk), lambda: locked_folder(disk / "x").__enter__()):
    try:
        attempt()
    except HarkenError as error:
        print(error)
    os.setuid(65534)
"""


def test_full_and_read_only_disks_are_failures(tiny_disk: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL_A_DISK, tiny_disk, tmp_path / "picture.png"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    full, denied = done.stdout.splitlines()
    assert "No space left on device" in full
    assert "Permission denied" in denied
    assert list(tiny_disk.iterdir()) == []
