"""Language modeling: splits, windows, metrics against slow loops, continuations."""

import json
import math
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from harken import config
from harken.batch.shards import TokenShards
from harken.decode.search import SearchConfig
from harken.encode import stream as stream_module
from harken.encode.stream import StreamEncoder, split_chunks
from harken.encode.vocabulary import END
from harken.errors import Failure, UserError
from harken.inspection.record import record
from harken.pipeline import train
from harken.provenance import provenance
from harken.recipe import load_recipe
from harken.run import Run
from harken.tasks import lm
from harken.tasks.lm import (
    LanguageModelRecipe,
    LanguageModelTask,
    chunk_losses,
    token_nats,
    train_size,
)
from untrained import batches, equal_weights, initial_run, stages_of

TASK = LanguageModelTask()
WORDS = ["to", "be,", "or", "not", "the", "question", "king", "crown", "sleep", "dream"]
LENGTH = 11
GPT = (
    "model={layers=1,width=12,attention={heads=2},tie_embeddings=false}",
    f"model.max_length={LENGTH}",
)
RNN = ("model.kind=rnn", "model.cell.kind=gru", "model.width=13", f"training.window={LENGTH}")
CNN = ("model.kind=cnn", "model.width=13", f"training.window={LENGTH}")
FAST = ("training.batch_tokens=88", "training.steps=4", "search.max_tokens=5")
LINES = ("data.documents=lines",)
every_model = pytest.mark.parametrize("sets", [GPT, RNN, CNN], ids=["gpt", "rnn", "cnn"])
both_documents = pytest.mark.parametrize("documents", ["file", "lines"])


@pytest.fixture(scope="module")
def text() -> str:
    drawn = random.Random(7)
    return "\n".join(" ".join(drawn.choices(WORDS, k=drawn.randint(3, 9))) for _ in range(60))


@pytest.fixture(scope="module")
def recipe_path(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    (folder / "text.txt").write_text(text, encoding="utf-8")
    path = folder / "lm.toml"
    path.write_text('task = "lm"\nseed = 3\n\n[data]\ntrain = "text.txt"\ndev = 0.1\n')
    return path


def recipe_of(path: Path, *sets: str) -> LanguageModelRecipe:
    return load_recipe(path, [*FAST, *sets])


def trained_of(recipe: LanguageModelRecipe) -> Run:
    """Return a run with large initial weights, so that the context matters."""
    return initial_run(recipe, std=0.3, all_weights=False)


def test_a_share_is_the_end_of_the_text(recipe_path: Path, text: str) -> None:
    splits = TASK.read_splits(recipe_of(recipe_path))
    count = int(0.9 * len(text))  # as nanoGPT splits
    assert (" ".join(splits["train"]), " ".join(splits["dev"])) == (text[:count], text[count:])
    assert set(splits) == {"train", "dev"}
    # tinyshakespeare, as nanoGPT splits it.
    assert train_size(1_115_394, 0.1, Path("input.txt"), "characters") == 1_003_854
    splits, lines = TASK.read_splits(recipe_of(recipe_path, *LINES)), text.split("\n")
    assert (splits["train"], splits["dev"]) == (lines[:54], lines[54:])


@both_documents
def test_dev_and_test_files(recipe_path: Path, text: str, documents: str, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("not in the text\nsleep", encoding="utf-8")
    recipe = recipe_of(
        recipe_path, f"data.documents={documents}", f"data.dev={other}", f"data.test={other}"
    )
    splits = TASK.read_splits(recipe)
    joined = "\n" if documents == "lines" else " "
    assert joined.join(splits["train"]) == text
    assert joined.join(splits["dev"]) == joined.join(splits["test"]) == "not in the text\nsleep"
    assert TASK.read(recipe, [other]) == splits["dev"]


@both_documents
def test_a_text_too_short_to_split_is_rejected(
    recipe_path: Path, documents: str, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("x", encoding="utf-8")
    recipe = recipe_of(recipe_path, f"data.train={short}", f"data.documents={documents}")
    with pytest.raises(UserError, match=r"short.txt: 1 \w+ are too few to hold out"):
        dict(TASK.read_splits(recipe))


def test_a_window_longer_than_the_model_is_rejected(recipe_path: Path) -> None:
    with pytest.raises(UserError, match=r"is more than model\.max_length"):
        recipe_of(recipe_path, *GPT, "training.window=12")
    assert recipe_of(recipe_path, *GPT, "training.window=7").window == 7
    assert recipe_of(recipe_path, *GPT).window == LENGTH
    assert recipe_of(recipe_path, *RNN, "training.window=999").window == 999


@every_model
@both_documents
def test_batches_are_windows_of_the_training_text(
    recipe_path: Path, tmp_path: Path, sets: tuple[str, ...], documents: str
) -> None:
    run = initial_run(recipe_of(recipe_path, *sets, f"data.documents={documents}"))
    (stage,), stream = stages_of(run, tmp_path), StreamEncoder(run.vocabulary, documents)
    whole = stream.join(stream.encode(run.splits["train"])).tolist()
    windows = {tuple(whole[at : at + LENGTH + 1]) for at in range(len(whole) - LENGTH)}
    unread = {**run.splits, "train": ["unread"]}
    (resumed,) = TASK.stages(run.recipe, unread, run.vocabulary, tmp_path)
    for step in (5, 0):
        (batch,) = batches(stage, step)
        assert batch.inputs.shape == (88 // LENGTH, LENGTH)
        rows = torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1).tolist()
        assert {tuple(row) for row in rows} <= windows
        (again,) = batches(resumed, step)
        assert torch.equal(again.inputs, batch.inputs)
    assert (END in whole) == (documents == "lines")


def test_the_loss_and_its_value_on_the_dev_split(recipe_path: Path, tmp_path: Path) -> None:
    """Cross-entropy over all targets; evaluation during training uses disjoint windows."""
    trained = trained_of(recipe_of(recipe_path, *GPT))
    (stage,) = stages_of(trained, tmp_path)
    (batch,) = batches(stage, 0)
    scores = trained.model(batch.inputs)
    expected = F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), reduction="sum")
    loss = stage.batch(0)[0].loss(trained.model, torch.device("cpu"))
    torch.testing.assert_close(loss, expected)
    alone = trained.predictor.evaluate(trained.splits["dev"]).metrics["nats_disjoint"]
    assert stage.evaluate(trained.model) == pytest.approx(-alone.value, rel=1e-6)


def test_damaged_tokens_are_reported(recipe_path: Path, tmp_path: Path) -> None:
    run = initial_run(recipe_of(recipe_path, *GPT))
    stages_of(run, tmp_path)
    stored = tmp_path / "train" / "tokens.bin"
    for size in (stored.stat().st_size - 1, 20, 0):
        stored.write_bytes(stored.read_bytes()[:size])
        with pytest.raises(Failure, match="cannot be read"):
            stages_of(run, tmp_path)


@torch.no_grad()
def slow_nats(trained: Run, tokens: list[int], window: int, stride: int) -> list[float]:
    """Compute each target alone, from the window that counts it."""
    nats = []
    for target in range(1, len(tokens)):
        start = 0
        while start + window < target:
            start += stride
        scores = trained.model(torch.tensor([tokens[start:target]]))
        nats.append(-scores[0, -1].log_softmax(dim=-1)[tokens[target]].item())
    return nats


@every_model
@both_documents
def test_every_held_out_token_is_predicted_once(
    recipe_path: Path, sets: tuple[str, ...], documents: str
) -> None:
    trained = trained_of(recipe_of(recipe_path, *sets, f"data.documents={documents}"))
    dev = [piece[:50] for piece in trained.splits["dev"][:2]]
    stream = StreamEncoder(trained.vocabulary, documents)
    tokens = stream.join(stream.encode(dev)).tolist()
    evaluation = trained.predictor.evaluate(dev)
    metrics = evaluation.metrics
    overlapping, alone = (
        slow_nats(trained, tokens, LENGTH, stride) for stride in (LENGTH - LENGTH // 2, LENGTH)
    )
    assert metrics["nats"].value == pytest.approx(np.mean(overlapping), rel=1e-5)
    assert metrics["nats_disjoint"].value == pytest.approx(np.mean(alone), rel=1e-5)
    assert metrics["perplexity"].value == pytest.approx(math.exp(np.mean(overlapping)), rel=1e-4)
    assert evaluation.n == len(dev)
    assert abs(np.mean(overlapping) - np.mean(alone)) > 1e-4  # the two differ
    text = "\n".join([*dev, ""]) if documents == "lines" else " ".join(dev)
    total, words, characters = sum(overlapping), len(text.split()), len(text)
    assert metrics["perplexity_per_word"].value == pytest.approx(math.exp(total / words), rel=1e-4)
    bits = total / characters / math.log(2)
    assert metrics["bits_per_character"].value == pytest.approx(bits, rel=1e-5)
    assert metrics["bits"].value == pytest.approx(bits, rel=1e-5)  # tokens are characters
    assert metrics["perplexity_per_character"].value == pytest.approx(2**bits, rel=1e-5)
    assert next(iter(metrics)) == "nats"


def test_long_chunks_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm, "MAX_CHUNK", 4)
    nats = np.arange(1.0, 14.0)
    chunks = [np.zeros(3, dtype=np.int64), np.zeros(10, dtype=np.int64)]
    summed = chunk_losses(nats, chunks, np.array([[3.0, 6.0], [1.0, 20.0]]))
    assert summed.nats.tolist() == [6, 22, 38, 25]
    assert summed.tokens.tolist() == [3, 4, 4, 2]
    np.testing.assert_allclose(summed.words, [3, 0.4, 0.4, 0.2])
    np.testing.assert_allclose(summed.characters, [6, 8, 8, 4])


@both_documents
def test_the_report_continues_held_out_text(recipe_path: Path, documents: str) -> None:
    trained = trained_of(recipe_of(recipe_path, *GPT, f"data.documents={documents}"))
    dev = trained.splits["dev"]
    evaluation = trained.predictor.evaluate(dev)
    assert set(evaluation.notes) == set(evaluation.metrics)
    assert "windows of 11 that overlap by half" in evaluation.notes["nats"]
    (table,) = evaluation.tables
    assert all(any(piece.startswith(row[0]) for piece in dev) for row in table.rows)
    assert len(table.rows) == (3 if documents == "lines" else 1)  # a short file is one chunk
    assert all(row[1] for row in table.rows)
    (again,) = trained.predictor.evaluate(dev).tables
    assert again.rows == table.rows


@every_model
@both_documents
@torch.no_grad()
def test_greedy_continuations_equal_a_loop(
    recipe_path: Path, sets: tuple[str, ...], documents: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long prompt is truncated at its start if the model has a limit."""
    trained = trained_of(recipe_of(recipe_path, *sets, f"data.documents={documents}"))
    greedy = replace(trained, recipe=replace(trained.recipe, search=SearchConfig(max_tokens=5)))
    monkeypatch.setattr(lm.LanguageModelPredictor, "batch_size", 3)
    prompts = ["to be", "", "the question of the crown", "☃ is no", "sleep "]
    predictions = list(greedy.predict(prompts))
    assert [prediction.input for prediction in predictions] == prompts
    stream, model = StreamEncoder(trained.vocabulary, documents), trained.model
    for prediction in predictions:
        tokens = [stream.start, *stream.encode_prompt(prediction.input)[1:].tolist()]
        if model.max_length is not None:
            tokens = tokens[-(LENGTH - 5) :]
        written: list[int] = []
        total = 0.0
        while len(written) < 5:
            scores = model(torch.tensor([tokens + written]))[0, -1]
            total += scores.log_softmax(dim=-1).max().item()
            if scores.argmax() == END:
                break
            written.append(int(scores.argmax()))
        assert prediction.confidence == pytest.approx(math.exp(total), rel=1e-4)
        whole, prompt = trained.vocabulary.decode([[*tokens, *written], tokens])
        assert prediction.output == whole[len(prompt) :]


def test_continuations_fit_the_context(recipe_path: Path) -> None:
    trained = trained_of(recipe_of(recipe_path, *GPT, "search.max_tokens=1000"))
    lengths = [len(prediction.output) for prediction in trained.predict(["to be or not to be", ""])]
    assert max(lengths) <= LENGTH - LENGTH // 4
    recurrent = trained_of(recipe_of(recipe_path, *RNN, "search.max_tokens=300"))
    assert len(next(iter(recurrent.predict(["to be or not to be"]))).output) > LENGTH


def test_attention_of_the_held_out_text(recipe_path: Path) -> None:
    trained = trained_of(recipe_of(recipe_path, *GPT))
    dev = trained.splits["dev"]
    evaluation = trained.predictor.evaluate(dev)
    example = trained.attention(evaluation.example)
    (view,) = example.views
    text, _, after = example.title.rpartition(" → ")
    assert dev[0].startswith(text)
    assert "".join(view.keys) in text
    # A row is labeled with the token that it predicts, the last with the most probable one.
    assert list(view.queries[:-1]) == list(view.keys[1:])
    tokens = torch.tensor([trained.vocabulary.encode(["".join(view.keys)])[0][-LENGTH:].tolist()])
    scores = trained.model(tokens)[0, -1]
    assert trained.vocabulary.token_texts([int(scores.argmax())]) == [view.queries[-1]]
    assert repr(view.queries[-1]) == after
    with torch.inference_mode(), record(trained.model) as calls:
        example.run()
    assert len(calls) == 1
    assert calls[0].weights.shape == (1, 2, len(view.queries), len(view.keys))
    assert view.matches(calls[0].name)


@every_model
def test_attention_of_any_text(recipe_path: Path, sets: tuple[str, ...]) -> None:
    trained = trained_of(recipe_of(recipe_path, *sets))
    inputs = trained.inputs(2)
    assert inputs == trained.splits["dev"][:2]
    for text in (*inputs, ""):
        example = trained.attention(text)
        if sets is not GPT:
            assert example is None
        else:
            assert example is not None and 0 < len(example.views[0].keys) <= LENGTH


@every_model
def test_a_run_learns_and_is_loaded_again(
    recipe_path: Path, tmp_path: Path, sets: tuple[str, ...]
) -> None:
    quick = ("training.optimizer.lr=0.03", "training.optimizer.fallback.lr=0.03")
    often = ("training.steps=60", "training.schedule.warmup=5", "training.evaluate_every=30")
    recipe = recipe_of(recipe_path, *sets, *quick, *often, "training.batch_tokens=352")
    run = train(recipe, tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    again = run.evaluate().metrics["nats"]
    assert again.value == pytest.approx(metrics["nats"]["value"], rel=1e-6)
    dev = TASK.read_splits(recipe)["dev"]
    stream = StreamEncoder(run.vocabulary, "file")
    tokens = stream.join(stream.encode(dev))
    assert token_nats(run.model, tokens, LENGTH, 6).mean() == pytest.approx(again.value, rel=1e-6)
    # Better than the entropy of single characters, about 2.6 nats.
    counts = np.bincount(tokens[1:])
    shares = counts[counts > 0] / counts.sum()
    assert again.value < -(shares * np.log(shares)).sum() - 0.1
    assert (tmp_path / "run" / "report.html").exists()


# --- corpora of many files


@pytest.fixture
def corpus_recipe(recipe_path: Path, tmp_path: Path) -> LanguageModelRecipe:
    """Files of 100 short lines each, of which a tenth of the text fits the tokenizer."""
    folder, drawn = tmp_path / "corpus", random.Random(5)
    folder.mkdir()
    for number in range(3):
        lines = [" ".join(drawn.choices(WORDS, k=20)) for _ in range(100)]
        (folder / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    return recipe_of(
        recipe_path,
        *GPT,
        f"data.train={folder}/*.txt",
        "data.tokenizer_sample=3000",
        "data.dev=0.2",
    )


@both_documents
def test_files_of_a_glob_are_one_stream(
    corpus_recipe: LanguageModelRecipe, documents: str, tmp_path: Path
) -> None:
    recipe = replace(corpus_recipe, data=replace(corpus_recipe.data, documents=documents))
    texts = [path.read_text() for path in sorted((tmp_path / "corpus").iterdir())]
    run = initial_run(recipe)
    stages_of(run, tmp_path / "tokens")
    tokens = TokenShards(tmp_path / "tokens" / "train").numbers.tolist()
    stream, dev = StreamEncoder(run.vocabulary, documents), run.splits["dev"]
    if documents == "lines":
        lines = "\n".join(texts).split("\n")
        assert dev == lines[240:]
        assert tokens == stream.join(stream.encode(lines[:240])).tolist()
    else:
        cut = len("".join(texts)) - int(0.8 * len("".join(texts)))
        assert " ".join(dev) == texts[2][-cut:]
        parts = [*texts[:2], texts[2][:-cut]]
        joined = [stream.join(stream.encode(split_chunks(part))) for part in parts]
        assert tokens == np.concatenate(joined).tolist()
        assert lm.count_characters(run.splits["train"]) == sum(map(len, parts))
    assert sum(map(len, run.splits["train"])) < 0.5 * len("".join(texts))


def test_a_large_share_is_reduced(
    corpus_recipe: LanguageModelRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm, "MAX_HELD_OUT", {"file": 17, "lines": 3})
    assert len(" ".join(TASK.read_splits(corpus_recipe)["dev"])) == 17
    lines = replace(corpus_recipe, data=replace(corpus_recipe.data, documents="lines"))
    assert len(TASK.read_splits(lines)["dev"]) == 3


def test_a_glob_without_a_match_is_rejected(recipe_path: Path, tmp_path: Path) -> None:
    recipe = recipe_of(recipe_path, f"data.train={tmp_path}/none-*.txt")
    with pytest.raises(UserError, match=r"none-\*\.txt: no file matches this glob") as caught:
        train(recipe, tmp_path / "run")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_a_changed_file_of_a_glob_is_noticed(
    corpus_recipe: LanguageModelRecipe, tmp_path: Path
) -> None:
    before = provenance(corpus_recipe, {})["data"]
    assert len(before) == 3
    (tmp_path / "corpus" / "1.txt").write_text("changed")
    (tmp_path / "corpus" / "9.txt").write_text("new")
    after = provenance(corpus_recipe, {})["data"]
    changed = {key for key in after if after[key] != before.get(key)}
    assert {Path(key.rstrip(")")).name for key in changed} == {"1.txt", "9.txt"}


KILLED = """
import os, signal, sys
from harken.batch import shards
from harken.encode import stream
from harken.pipeline import train
from harken.provenance import provenance
from harken.recipe import load_recipe

stream.PIECE_SIZE, append, calls = 1000, shards._append, []

def killing(*arguments, **options):
    calls.append(append(*arguments, **options))
    if len(calls) == 7:
        with open(arguments[0], "ab") as file:
            file.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return calls[-1]

shards._append = killing
train(load_recipe(sys.argv[1]), sys.argv[2])
"""


def test_a_run_killed_while_encoding_continues(
    corpus_recipe: LanguageModelRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "PIECE_SIZE", 1000)
    path = tmp_path / "recipe.toml"
    path.write_text(config.dumps(corpus_recipe))
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-c", KILLED, str(path), str(killed)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    tokens = killed / "tokens" / "train"
    assert len((tokens / "ends.bin").read_bytes()) == 7 * 8
    assert not (tokens / "shards.json").exists()
    encoded: list[int] = []
    original = StreamEncoder.encode_piece
    monkeypatch.setattr(
        StreamEncoder,
        "encode_piece",
        lambda self, chunks: encoded.append(1) or original(self, chunks),
    )
    train(corpus_recipe, killed, resume=True)
    resumed = len(encoded)
    train(corpus_recipe, whole)
    assert resumed == len(encoded) - resumed - 7 > 0
    for name in ("tokens.bin", "ends.bin", "shards.json"):
        assert (tokens / name).read_bytes() == (whole / "tokens" / "train" / name).read_bytes()
    assert equal_weights(killed, whole)
