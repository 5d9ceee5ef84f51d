"""`harken inspect` on every task and kind of model: attention, or the reason for none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harken import config
from harken.cli import inspect
from harken.cli.main import main
from harken.decode.stepper import TokenHypothesis
from harken.recipe import Recipe
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.synthetic.sentences import SentencesConfig, write_sentences
from harken.synthetic.speech import SpeechConfig, write_speech
from harken.tasks import caption, seq2seq, transcribe_predictor
from untrained import untrained_run

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
WIDTHS = {
    "caption": ("model.width=12", "encode.images={columns=32,rows=32}"),
    "transcribe": (
        "model.width=12",
        "encode.filterbank.sample_rate=8000",
        "encode.filterbank.mel_bins=23",
    ),
}
INPUTS = {"fill": "the ___ walks .", "answer": "Where was Ada born?"}
EMPTY = TokenHypothesis([], 0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, people: Any) -> Path:
    """Files for every task in one folder."""
    folder = tmp_path_factory.mktemp("data")
    write_sentences(SentencesConfig(sentences=60), folder)
    write_speech(
        SpeechConfig(utterances=20, min_words=1, max_words=2, speakers=5), folder / "speech"
    )
    write_scenes(
        ScenesConfig(scenes=30, size=32, min_shapes=1, max_shapes=2, seed=3), folder / "pictures"
    )
    return folder


@pytest.fixture(scope="module")
def run_of(
    data: Path, people: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, str]]:
    """The run of a model with first weights, and an input for it."""
    tables = {
        "transcribe": f'train="{data}/speech/train.jsonl"\ndev="{data}/speech/dev.jsonl"',
        "caption": f'train="{data}/pictures/train.jsonl"\ndev="{data}/pictures/dev.jsonl"',
        "translate": "\n".join(
            f'{split}.{side}="{data}/{split}.{name}"'
            for split in ("train", "dev")
            for side, name in (("source", "en"), ("target", "xx"))
        ),
        "answer": f'pretrain="{people.texts}"\ntrain="{people.train}"\ndev="{people.test}"',
        "lm": f'train="{data}/text.txt"\ndev=0.2',
        "fill": f'train="{data}/text.txt"\ndev=0.2',
        "tag": f'train="{data}/train.conllu"\ndev="{data}/dev.conllu"',
    }
    sound = json.loads((data / "speech" / "dev.jsonl").read_text().splitlines()[0])["audio"]
    inputs = {
        "transcribe": str(data / "speech" / sound),
        "caption": f"{data}/pictures/dev.npz#0",
        **INPUTS,
    }
    made: dict[str, Path] = {}

    def run(name: str) -> tuple[Path, str]:
        task, sets, _ = MODELS[name]
        if name not in made:
            recipe = config.loads(
                Recipe,
                f'task="{task}"\n[data]\n{tables[task]}\n',
                base=data,
                overrides=[*WIDTHS.get(task, ()), *sets],
            )
            made[name] = untrained_run(recipe, tmp_path_factory.mktemp("runs") / "run")
        return made[name], inputs.get(task, "the old duck walks .")

    return run


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_shows_its_attention_or_says_why_not(
    name: str,
    writes: bool,
    run_of: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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
    run, text = run_of(name)
    code = main(["inspect", str(run), text, "--out", str(tmp_path / "out"), "--json"])
    printed = capsys.readouterr()
    if not kinds:
        assert code == 2 and "the model has no attention" in printed.err
        assert not (tmp_path / "out").exists()
        return
    assert code == 0 and printed.err == ""
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
def test_an_empty_input_is_named(
    name: str, run_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_of(name)
    code = main(["inspect", str(run), "", "--out", str(tmp_path), "--json"])
    printed = capsys.readouterr()
    (result,) = json.loads(printed.out)["inputs"]
    if name == "lm gpt":  # a language model also continues an empty text
        assert code == 0 and result["views"]
        return
    assert code == 0 and result["views"] == [] and result["files"] == []
    assert result["reason"] == "the input has no tokens" and result["reason"] in printed.err
