"""`harken inspect` on every task and kind of model: attention, or the reason for none."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from harken.cli import inspect
from harken.decode.stepper import TokenHypothesis
from harken.tasks import caption, seq2seq, transcribe_predictor
from untrained import task_recipe, untrained_run

HEADS = "attention={heads=2}"
WRITER = f"model.decoder={{kind='transformer',layers=1,width=12,max_length=31,{HEADS}}}"
LOOKER = "model.decoder={kind='rnn',width=12,hidden=12,max_length=31}"
CONFORMER = "model.encoder={kind='conformer',layers=1,kernel=3,attention={heads=2}}"
LSTM = "model.encoder={kind='lstm',hidden=12}"
# The views of each model, by the attention that they show; none is a model without attention.
MODELS: dict[str, tuple[str, tuple[str, ...], list[str]]] = {
    "transcribe ctc": ("transcribe", (CONFORMER,), ["encoder"]),
    "transcribe ctc lstm": ("transcribe", (LSTM,), []),
    "transcribe both": ("transcribe", (CONFORMER, WRITER), ["cross", "encoder", "decoder"]),
    "transcribe rnn": ("transcribe", (LSTM, LOOKER, "model.ctc=false"), ["cross"]),
    "translate": (
        "translate",
        (WRITER, f"model.encoder={{layers=1,{HEADS}}}"),
        ["cross", "encoder", "decoder"],
    ),
    "translate rnn": (
        "translate",
        (LOOKER, "model.encoder={kind='gru',direction='both'}"),
        ["cross"],
    ),
    "caption": (
        "caption",
        (WRITER, f"model.encoder={{layers=1,{HEADS}}}"),
        ["cross", "encoder", "decoder"],
    ),
    "caption rnn": ("caption", (LOOKER,), ["cross"]),
    "answer": ("answer", ("model.layers=1", f"model.{HEADS}"), ["self"]),
    "lm gpt": ("lm", ("model.layers=1", f"model.{HEADS}"), ["self"]),
    "lm rnn": ("lm", ("model.kind=rnn",), []),
    "lm cnn": ("lm", ("model.kind=cnn",), []),
    "fill": ("fill", ("model.kind=masked",), ["self"]),
    "fill rnn": ("fill", ("model.kind=rnn",), []),
    "tag": ("tag", (f"model.encoder={{kind='transformer',layers=1,{HEADS}}}",), ["self"]),
    "tag rnn": ("tag", (), []),
}
INPUTS = {
    "fill": "they ___ here",
    "answer": "who is 3?",
    "transcribe": "tone.wav",
    "caption": "captions.npz#0",
}
EMPTY = TokenHypothesis([], 0.0)


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a model with its initial weights."""
    folder = tmp_path_factory.mktemp("data")

    @cache
    def run(name: str) -> Path:
        task, overrides, _ = MODELS[name]
        narrow = ("model.width=12",) if task in ("caption", "transcribe") else ()
        recipe = task_recipe(task, folder, [*narrow, *overrides])
        return untrained_run(recipe, folder / name)

    return run


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_shows_its_attention_or_says_why_not(
    name: str,
    writes: bool,
    run_of: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    """Also where a model writes nothing at all."""
    task, _, kinds = MODELS[name]
    if not writes:
        if task not in ("transcribe", "translate", "caption", "answer"):
            pytest.skip("the task always writes something")
        for module, search in (
            (transcribe_predictor, "search_speech"),
            (seq2seq, "generate"),
            (caption, "generate"),
        ):
            monkeypatch.setattr(module, search, lambda *_, **__: [[EMPTY]])
    monkeypatch.setattr(inspect, "attention_files", lambda viewed, title: {"svg": title.encode()})
    run, out = run_of(name), tmp_path / "out"
    monkeypatch.chdir(run.parent)
    command = ("inspect", run, INPUTS.get(task, "they swim"), "--out", out)
    if not kinds:
        assert "the model has no attention" in cli.error(*command)
        assert not out.exists()
        return
    printed = cli(*command, "--json")
    assert printed.err == ""
    (result,) = json.loads(printed.out)["inputs"]
    assert [view["attentions"][0]["attention"] for view in result["views"]] == kinds
    for view in result["views"]:
        assert len(view["queries"]) == view["attentions"][0]["shape"][1] > 0
        if task == "transcribe" and "encoder" in view["attentions"][0]["label"]:
            assert all(key.endswith(" s") for key in (*view["queries"], *view["keys"]))
    page = Path(result["files"][0]).read_text(encoding="utf-8")
    if not writes:
        assert "(empty output)" in page


@pytest.mark.parametrize("name", ["translate", "tag", "lm gpt"])
def test_an_empty_input_is_named(name: str, run_of: Any, tmp_path: Path, cli: Cli) -> None:
    printed = cli("inspect", run_of(name), "", "--out", tmp_path, "--json")
    (result,) = json.loads(printed.out)["inputs"]
    if name == "lm gpt":  # a language model also continues an empty text
        assert result["views"]
        return
    assert result["views"] == [] and result["files"] == []
    assert result["reason"] == "the input has no tokens" and result["reason"] in printed.err
