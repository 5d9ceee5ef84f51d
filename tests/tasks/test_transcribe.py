"""Speech recognition: every encoder and decoding mode, times, conditions, long sounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command_line import Cli
from harken import config
from harken.decode.stepper import TokenHypothesis
from harken.errors import DataWarning, UserError
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.manifest import read_utterances, write_manifest
from harken.models.recognizer import BLANK
from harken.pipeline import train
from harken.recipe import TASKS, recipe_type
from harken.report.viewed_attention import view_attention
from harken.run import Run, load
from harken.synthetic.recordings import write_wav
from harken.synthetic.speech import SpeechConfig, write_speech
from harken.tasks.chunks import Transcript, cut_at_silence, join_transcripts
from harken.tasks.transcribe import fitting_utterances
from untrained import batches, initial_run, stages_of, trained_once

SMALL = (
    "encode.filterbank.sample_rate=8000",
    "encode.filterbank.mel_bins=23",
    "encode.tokenizer.kind=words",
    "model.width=24",
    "model.frontend.channels=5",
    "training.speech.steps=3",
    "training.speech.batch_frames=700",
)
CONFORMER = (
    "model.encoder={kind='conformer',layers=1,kernel=3,"
    "attention={heads=2,score={kind='transformer_xl'}}}"
)
TRANSFORMER = "model.encoder={kind='transformer',layers=1,max_length=400,attention={heads=2}}"
LSTM = "model.encoder={kind='lstm',hidden=12,direction='both'}"
TRANSFORMER_DECODER = (
    "model.decoder={kind='transformer',layers=1,width=24,max_length=31,attention={heads=2}}"
)
RNN_DECODER = "model.decoder={kind='rnn',width=24,hidden=24,max_length=31}"
MODELS = {
    "conformer, ctc": (CONFORMER,),
    "conformer, both": (CONFORMER, TRANSFORMER_DECODER),
    "transformer, attention": (TRANSFORMER, TRANSFORMER_DECODER, "model.ctc=false"),
    "rnn with a short memory, both": (LSTM, RNN_DECODER, "model.attention_window_ms=400"),
}


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoken")
    write_speech(SpeechConfig(utterances=40, min_words=1, max_words=2, speakers=7, seed=3), folder)
    return folder


def recipe(spoken: Path, *sets: str) -> Any:
    text = f'task="transcribe"\n[data]\ntrain="{spoken}/train.jsonl"\ndev="{spoken}/dev.jsonl"\n'
    return config.loads(recipe_type(), text, base=spoken, overrides=[*SMALL, *sets])


@pytest.fixture(scope="session")
def run_of(spoken: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of each model, trained once."""
    return trained_once(recipe, MODELS, spoken, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_is_measured(name: str, run_of: Any, spoken: Path) -> None:
    run = run_of(name)
    evaluation = run.evaluate("dev")
    assert evaluation.n == 4
    metrics = evaluation.metrics
    assert list(metrics)[:2] == ["wer", "cer"]
    assert metrics["wer"].value == pytest.approx(
        metrics["substitutions"].value + metrics["deletions"].value + metrics["insertions"].value
    )
    assert ("attention_in_word" in metrics) == ("ctc" not in name.split(", ")[1:])
    again = load(run.folder)
    assert again.evaluate("dev").metrics == metrics and again.recipe == run.recipe
    page = (run.folder / "report.html").read_text()
    assert ("Cross-attention: target tokens to sound" in page) == ("attention_in_word" in metrics)
    assert "Attention weights of every layer" in page  # also where nothing is written


@pytest.mark.parametrize("name", MODELS)
def test_predictions_do_not_depend_on_the_batch(name: str, run_of: Any, spoken: Path) -> None:
    run = run_of(name)
    names = [str(path) for path in sorted((spoken / "spoken" / "dev").glob("*.wav"))]
    for name, prediction in zip(names, run.predict(names), strict=True):
        (expected,) = run.predict([name])
        assert prediction.output == expected.output
        assert prediction.confidence == pytest.approx(expected.confidence, rel=1e-3)


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A recognizer of two words."""
    folder = tmp_path_factory.mktemp("taught")
    words = ("yes", "no")
    made = SpeechConfig(utterances=60, min_words=1, max_words=2, words=words, speakers=3, seed=1)
    manifest, *_ = write_speech(made, folder)
    sets = (
        CONFORMER,
        "training.speech.steps=220",
        "training.speech.batch_frames=1500",
        "training.speech.optimizer.lr=0.01",
        "training.speech.optimizer.fallback.lr=0.005",
        "training.speech.speeds=[1.0]",
        "training.speech.spec_augment={time_masks=0,frequency_masks=0}",
        f"data.dev={manifest}",
    )
    return train(recipe(folder, *sets), folder / "run")


def test_a_model_learns_two_words(taught: Run) -> None:
    metrics = taught.evaluate("dev").metrics
    assert metrics["wer"].value < 0.2
    assert metrics["word_time_error"].value < 0.3


def test_the_command_line_prints_words_and_times(
    taught: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    sounds = sorted((taught.folder.parent / "spoken" / "train").glob("*.wav"))[:5]
    names = list(map(str, sounds))
    lines = [prediction.output for prediction in taught.predict(names)]
    printed = [line.split("\t") for line in cli("predict", taught.folder, *names).out.splitlines()]
    assert printed == [[name, line] for name, line in zip(names, lines, strict=True)]
    assert set(" ".join(lines).split()) == {"yes", "no"}
    predictions = cli.json("predict", taught.folder, *names, "--times")["predictions"]
    assert [prediction["input"] for prediction in predictions] == names
    for prediction in predictions:
        words = [word["word"] for word in prediction["words"]]
        assert words == prediction["output"].split()
    rows = cli("predict", taught.folder, names[0], "--times").out.splitlines()
    assert [row.split("\t")[3] for row in rows] == lines[0].split()


def test_times_are_in_order(run_of: Any, spoken: Path) -> None:
    sounds = [str(path) for path in sorted((spoken / "spoken" / "dev").glob("*.wav"))]
    for name in MODELS:
        for prediction in run_of(name).predict(sounds, times=True):
            assert {word.word for word in prediction.words} <= set(prediction.output.split())
            times = [time for word in prediction.words for time in (word.start, word.end)]
            assert times == sorted(times) and all(time >= 0 for time in times)


def test_decoding_modes(run_of: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli, folder = Cli(capsys), run_of("conformer, both").folder
    for mode in ("ctc", "attention", "both"):
        assert cli.json("evaluate", folder, "--mode", mode, "--beam", "3")["n"] == 4
    error = cli.error("evaluate", run_of("conformer, ctc").folder, "--mode", "attention")
    assert "search.mode: the model does not support it" in error
    error = cli("evaluate", folder, "--mode", "ear", code=2).err
    assert "--mode: unknown value 'ear'" in error


def test_conditions_next_to_the_clean_sound(
    run_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, folder = Cli(capsys), run_of("conformer, ctc").folder
    conditions = ["noise:10", "references:0.5"]
    sets = [part for condition in conditions for part in ("--condition", condition)]
    printed = cli.json("evaluate", folder, *sets)
    assert list(printed["conditions"]) == conditions
    assert printed["conditions"]["noise:10"].keys() == printed["metrics"].keys()
    table = cli("evaluate", folder, *sets).out
    assert all(name in table for name in ("clean", *conditions))
    assert "did you mean 'noise'" in cli("evaluate", folder, "--condition", "nose:10", code=2).err


def test_runs_make_a_table_of_corpora_and_models(
    run_of: Any, spoken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, runs = Cli(capsys), [run_of("conformer, ctc"), run_of("transformer, attention")]
    folders = [run.folder for run in runs]
    keys = ["--rows", "data.train", "--columns", "model.encoder.kind"]
    table = cli.json("compare", *folders, *keys)
    assert table["metric"] == "wer"
    assert [(cell["row"], cell["column"], cell["n"]) for cell in table["cells"]] == [
        (spoken.name, kind, 4) for kind in ("conformer", "transformer")
    ]
    values = [cell["figure"]["value"] for cell in table["cells"]]
    assert values == [run.evaluate("dev").metrics["wer"].value for run in runs]
    printed = cli("compare", *folders, *keys, "--metric", "cer").out
    assert all(word in printed for word in (spoken.name, "conformer", "transformer"))
    for wrong, sentence in (
        (["--rows", "data.train"], "expected both --rows and --columns"),
        ([*keys, "--metric", "bleu"], "expected a metric of wer, cer"),
        (["--rows", "seed", "--columns", "data.trian"], "no key 'data.trian'"),
        (["--rows", "seed", "--columns", "task"], "already has the run"),
    ):
        assert sentence in cli("compare", *folders, *wrong, code=2).err


def test_inspect_writes_pages_and_images(
    run_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("conformer, both")
    sounds = run.inputs(2)
    names = [Path(prediction.input).stem for prediction in run.predict(sounds) if prediction.output]
    assert names, "the output is empty"
    printed = Cli(capsys)("inspect", run.folder, *sounds, "--out", tmp_path / "new").out.split()
    pages = [path for path in printed if path.endswith(".html")]
    stems = [Path(path).stem.rpartition("-")[0] for path in pages]
    assert stems == [name.lower().replace("_", "-") for name in names]
    views = [f"-view-{number}.{kind}" for number in (1, 2, 3) for kind in ("svg", "png")]
    assert printed[:7] == [pages[0], *(pages[0].replace(".html", view) for view in views)]
    assert Path(printed[2]).read_bytes().startswith(b"\x89PNG")
    assert "seconds" in Path(printed[1]).read_text()
    titles = [view.title for view in run.attention(sounds[0]).views]
    assert [title in Path(pages[0]).read_text() for title in titles] == [True] * 3


def test_attention_without_a_decoder(run_of: Any, spoken: Path) -> None:
    """A recognizer with CTC shows the self-attention of its encoder."""
    run = load(run_of("conformer, ctc").folder)
    (name,) = run.inputs(1)
    with torch.no_grad():  # so that the output is not empty
        run.model.ctc.ctc_head.bias[BLANK] = -100.0
    example = run.attention(name)
    (viewed,) = view_attention(run.model, example)
    assert viewed.view.title == "Encoder self-attention: time in seconds"
    sizes = (len(viewed.view.queries), len(viewed.view.keys))
    assert viewed.layers[0].weights.shape[1:] == sizes
    recurrent = TASKS["transcribe"].build(recipe(spoken, LSTM), run.vocabulary.sizes)
    assert replace(run, model=recurrent).attention(name) is None


def test_suffixes_need_word_times(
    run_of: Any, spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, whole, out = Cli(capsys), read_utterances(spoken / "train.jsonl"), tmp_path / "cut"
    cli("data", "suffixes", spoken / "train.jsonl", "--out", out)
    cut = read_utterances(out / "train.jsonl")
    assert len(cut) == sum(len(prediction.words) for prediction in whole) > len(whole)
    bare = tmp_path / "bare.jsonl"
    write_manifest([replace(prediction, words=()) for prediction in whole], bare)
    assert "have no word times" in cli("data", "suffixes", bare, "--out", out, code=2).err
    run = run_of("conformer, both")
    outputs = [prediction.output for prediction in run.predict([str(item.audio) for item in whole])]
    correct = [output == item.text for output, item in zip(outputs, whole, strict=True)]
    code = 0 if any(correct) else 2
    cli("data", "suffixes", bare, "--run", run.folder, "--out", out, code=code)


def test_attention_of_a_part_of_a_sound(run_of: Any, spoken: Path) -> None:
    run = run_of("conformer, both")
    sound = next((spoken / "spoken" / "dev").glob("*.wav"))
    whole, part = (run.attention(f"{sound}{interval}") for interval in ("", "#t=0.1,0.6"))
    frames = [len(example.views[0].sound.spectrogram) for example in (whole, part)]
    assert frames[1] == 48 < frames[0]  # windows of 25 ms, every 10 ms, that fit in half a second


def test_times_and_conditions_need_a_recognizer(
    small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [name for name, task in TASKS.items() if task.recognizes_speech] == ["transcribe"]
    for command in ("predict --times", "evaluate --condition quiet", "evaluate --mode ctc"):
        name, *options = command.split()
        assert "speech recognizer, got" in Cli(capsys)(name, small_run, *options, code=2).err


def test_a_resumed_run_sees_the_same_batches(spoken: Path, tmp_path: Path) -> None:
    run = initial_run(recipe(spoken, CONFORMER))
    (stage,) = stages_of(run, tmp_path)
    (again,) = stages_of(run, tmp_path)  # from the stored frames
    stage.batch(0)
    assert all(map(torch.equal, batches(stage, 5)[0], batches(again, 5)[0]))
    assert not torch.equal(batches(stage, 5)[0].source, batches(stage, 6)[0].source)


def test_utterances_that_do_not_fit_are_left_out(spoken: Path) -> None:
    made = recipe(spoken, CONFORMER, "model.encoder.max_length=10")
    texts = [np.array([5, 5, 6]), np.array([5]), np.array([5]), np.array([], dtype=np.int64)]
    # Three tokens of which two are equal need 4 states; too long; no frame; an empty text.
    with pytest.warns(DataWarning, match="2 of 4 utterances do not fit"):
        indices = fitting_utterances(made, np.array([13, 41, 0, 9]), texts)
    assert indices.tolist() == [0, 3]
    with pytest.raises(UserError, match="subsampling = 2"):
        fitting_utterances(made, np.array([4]), [np.array([5, 6])])


def test_a_long_sound_is_cut_where_it_is_quiet() -> None:
    frames = torch.ones(100, 3)
    frames[33:45] = -5.0
    chunks = cut_at_silence(frames, 50)
    assert [chunk.first for chunk in chunks][:2] == [0, 38]
    assert torch.equal(torch.cat([chunk.frames for chunk in chunks]), frames)
    assert all(len(chunk.frames) <= 50 for chunk in chunks)
    assert [chunk.first for chunk in cut_at_silence(frames, None)] == [0]
    words = [SpokenWord("a", 0.0, 1.0)], [SpokenWord("b", 2.0, 3.0)]
    parts = [
        Transcript(beam=[TokenHypothesis([7], -1.0), TokenHypothesis([8], -2.0)], words=words[0]),
        Transcript(beam=[TokenHypothesis([9], -0.5)], words=words[1]),
    ]
    whole = join_transcripts(parts)
    (hypothesis,) = whole.beam
    assert (hypothesis.tokens, hypothesis.log_probability) == ([7, 9], -1.5)
    assert [word.word for word in whole.words] == ["a", "b"]


def test_a_long_sound_is_transcribed_in_chunks(run_of: Any, tmp_path: Path) -> None:
    run = run_of("transformer, attention")  # 400 encoder states: 16 seconds
    random = np.random.default_rng(0)
    write_wav(tmp_path / "long.wav", random.normal(0, 0.1, 8000 * 40).astype(np.float32), 8000)
    (prediction,) = run.predict([str(tmp_path / "long.wav")], times=True)
    assert {word.word for word in prediction.words} <= set(prediction.output.split())


@pytest.mark.parametrize("samples", [1, 7, 199, 200])
def test_very_short_sounds(samples: int, run_of: Any, tmp_path: Path) -> None:
    write_wav(tmp_path / "short.wav", np.full(samples, 0.1, dtype=np.float32), 8000)
    for name in MODELS:
        (prediction,) = run_of(name).predict([str(tmp_path / "short.wav")])
        assert np.isfinite(prediction.confidence)


def test_bad_input_is_one_sentence(
    run_of: Any, spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    whole = next((spoken / "spoken" / "dev").glob("*.wav"))
    (tmp_path / "half.wav").write_bytes(whole.read_bytes()[:1000])
    line = cli.error("predict", run_of("conformer, ctc").folder, tmp_path / "half.wav")
    assert "half.wav" in line and "truncated" in line
    write_manifest([Utterance(audio=whole, text="one")], tmp_path / "one.jsonl")
    text = f'task="transcribe"\n[data]\ntrain="{tmp_path}/one.jsonl"\n'
    (tmp_path / "recipe.toml").write_text(text)
    error = cli("train", tmp_path / "recipe.toml", "--run", tmp_path / "run", code=2).err
    assert "expected at least 2" in error
    assert not (tmp_path / "run").exists()
