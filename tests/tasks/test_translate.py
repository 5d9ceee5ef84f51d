"""Translation: batches, long sources, attention, and training on a synthetic language."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import compress
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch

from command_line import Cli
from harken import config
from harken.batch.bucketing import BucketSampler
from harken.batch.padding import pad, shift_targets
from harken.batch.ragged import ragged
from harken.cli.main import main
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper
from harken.encode import stream as stream_module
from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.errors import DataWarning, UserError
from harken.formats.examples import Pair
from harken.formats.pairs import PairSample, find_pairs
from harken.formats.split import hold_out
from harken.inspection.record import record
from harken.pipeline import train
from harken.provenance import provenance
from harken.recipe import load_recipe, recipe_type
from harken.report.viewed_attention import view_attention
from harken.run import Run, load
from harken.synthetic.sentences import SentencesConfig, SentencesFiles, write_sentences
from harken.tasks.seq2seq import cross_entropy_loss
from harken.tasks.translate import (
    TranslateRecipe,
    TranslateTask,
    count_pairs,
    cut_between_words,
    encode_pairs,
    suggest_vocab_size,
)
from untrained import batches, equal_weights, initial_run, stages_of

TASK = TranslateTask()
RECIPE = Path(__file__).parents[2] / "recipes" / "translate.toml"
SMALL = (
    "encode.vocab_size=300",
    "model.encoder={layers=1,max_length=40,attention={heads=2}}",
    "model.decoder={layers=1,width=24,max_length=50,attention={heads=2}}",
    "training.pairs.batch_tokens=600",
    "search.beam=2",
)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> SentencesFiles:
    return write_sentences(SentencesConfig(sentences=250), tmp_path_factory.mktemp("sentences"))


def files(sentences: SentencesFiles) -> list[str]:
    return [
        f"data.{split}.{side}={getattr(sentences, f'{split}_{side}')}"
        for split in ("train", "dev", "test")
        for side in ("source", "target")
    ]


def recipe_of(sentences: SentencesFiles, *sets: str) -> TranslateRecipe:
    return load_recipe(RECIPE, [*files(sentences), *SMALL, *sets])


@pytest.fixture(scope="module")
def run(sentences: SentencesFiles, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A translator that was trained with the command."""
    folder = tmp_path_factory.mktemp("runs") / "translate"
    sets = [*files(sentences), *SMALL, "training.pairs.steps=30"]
    arguments = [part for setting in sets for part in ("--set", setting)]
    assert main(["train", str(RECIPE), "--run", str(folder), *arguments]) == 0
    return load(folder)


def test_the_commands_of_a_translator(
    run: Run, sentences: SentencesFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    named = cli.json("evaluate", run.folder, "--split", "test")
    assert named["metrics"].keys() == {"bleu", "chrf", "bleu_moses"}
    pair = ["--source", sentences.test_source, "--target", sentences.test_target]
    assert cli.json("evaluate", run.folder, *pair) == named
    outputs = cli("predict", run.folder, sentences.test_source).out.splitlines()
    expected = sentences.test_target.read_text().splitlines()
    assert len(outputs) == len(expected)
    theirs = sacrebleu.corpus_bleu(outputs, [expected]).score
    assert named["metrics"]["bleu"]["value"] == pytest.approx(theirs, abs=1e-9)
    page = (run.folder / "report.html").read_text()
    assert "Cross-attention: target tokens to source tokens" in page


def test_nbest_is_sorted(run: Run) -> None:
    search = SearchConfig(beam=4, length_penalty=0.0)
    sources = ["the duck swims .", "they see a river ."]
    for prediction in run.with_search(search).predict(sources, nbest=4):
        scores = [each.log_probability for each in prediction.nbest]
        assert len(scores) == 4 and scores == sorted(scores, reverse=True)
        assert prediction.output == prediction.nbest[0].output
        assert prediction.confidence == pytest.approx(np.exp(scores[0]))


def test_a_long_source_is_cut_before_words() -> None:
    vocabulary = BytePairConfig(vocab_size=300).fit(["one two three four five six seven"] * 9)
    (tokens,) = vocabulary.encode(["one two three four five six seven " * 20])
    chunks = cut_between_words(tokens, 17, vocabulary)
    assert np.concatenate(chunks).tolist() == tokens.tolist()
    assert all(0 < len(chunk) <= 17 for chunk in chunks)
    texts = vocabulary.decode([chunk.tolist() for chunk in chunks])
    assert set(" ".join(texts).split()) == {"one", "two", "three", "four", "five", "six", "seven"}
    unbroken = np.full(50, vocabulary.encode(["one"])[0][-1])
    assert sum(map(len, cut_between_words(unbroken, 17, vocabulary))) == 50


def training_lines(sentences: SentencesFiles) -> list[list[str]]:
    paths = sentences.train_source, sentences.train_target
    return [path.read_text().splitlines() for path in paths]


def sample_of(path: Path, *pairs: tuple[str, str]) -> PairSample:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return PairSample(find_pairs(path), 10**6)


def test_pairs_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    vocabulary = BytePairConfig(vocab_size=300).fit(["a b c d"])
    pairs = [("a " * 90, "c"), ("a b", "c"), ("a", "c " * 90)]
    sample = sample_of(tmp_path / "pairs.tsv", *pairs)
    with pytest.warns(DataWarning, match="2 of 3 pairs do not fit the model"):
        assert len(encode_pairs(sample, vocabulary, 20, 20, tmp_path / "some")) == 1
    sample = sample_of(tmp_path / "long.tsv", pairs[0], pairs[2])
    with pytest.raises(UserError, match="no training pair has at most 20 source and 19"):
        encode_pairs(sample, vocabulary, 20, 20, tmp_path / "none")


@pytest.mark.parametrize("dev", ["0.2", None])
def test_batches_are_those_of_encoding_in_memory(
    sentences: SentencesFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dev: str | None
) -> None:
    monkeypatch.setattr(stream_module, "PIECE_SIZE", 1000)
    sets = ["model.encoder.max_length=19", "data.tokenizer_sample=2000"]
    untrained = initial_run(recipe_of(sentences, *sets, *([f"data.dev={dev}"] if dev else [])))
    with pytest.warns(DataWarning, match="pairs do not fit the model"):
        (stage,) = stages_of(untrained, tmp_path)
    lines = (
        path.read_text().splitlines() for path in (sentences.train_source, sentences.train_target)
    )
    pairs = [Pair(*pair) for pair in zip(*lines, strict=True)]
    if dev:
        pairs = hold_out(pairs, 0.2, untrained.recipe.seed, key=lambda pair: pair.source)[0]
    train, vocabulary = untrained.splits["train"], untrained.vocabulary
    assert count_pairs(train) == len(pairs) > 2 * len(train)
    assert suggest_vocab_size(TranslateRecipe(data=untrained.recipe.data), untrained.splits) == {
        "encode.vocab_size": 500
    }
    sources, targets = (
        vocabulary.encode([getattr(pair, side) for pair in pairs]) for side in ("source", "target")
    )
    fits = [0 < len(s) <= 19 and len(t) < 50 for s, t in zip(sources, targets, strict=True)]
    source, target = ragged(list(compress(sources, fits))), ragged(list(compress(targets, fits)))
    sampler = BucketSampler(np.maximum(source.lengths, target.lengths + 1), 600, 0)
    for step in (0, 5, 17):
        (batch,) = batches(stage, step)
        chosen = sampler.batch(step)
        expected = pad(source.take(chosen), PAD), shift_targets(target.take(chosen), END, END, PAD)
        for tensor, other in zip(batch, (*expected[0], *expected[1]), strict=True):
            assert torch.equal(tensor, other)


def test_the_formats_of_pairs_train_equal_models(sentences: SentencesFiles, tmp_path: Path) -> None:
    lines = [
        path.read_text().splitlines() for path in (sentences.train_source, sentences.train_target)
    ]
    pairs = list(zip(*lines, strict=True))
    records = [json.dumps({"en": source, "xx": target}) for source, target in pairs]
    (tmp_path / "a.jsonl").write_text("\n".join(records[:97]))
    (tmp_path / "b.tsv").write_text(
        "\n".join("\t".join(pair) for pair in (("en", "xx"), *pairs[97:]))
    )
    for side, texts in zip(("en", "xx"), lines, strict=True):
        (tmp_path / f"1.{side}").write_text("\n".join(texts[:53]))
        (tmp_path / f"2.{side}").write_text("\n".join(texts[53:]))
    few = ["training.pairs.steps=2", "training.pairs.evaluate_every=0"]
    table = f"{{train=['{tmp_path}/*.jsonl','{tmp_path}/b.tsv'],dev=0.1"
    globs = f"{{train={{source='{tmp_path}/*.en',target='{tmp_path}/*.xx'}},dev=0.1}}"
    for name, data in {
        "table": f"{table},columns={{source='en',target='xx'}}}}",
        "globs": globs,
    }.items():
        recipe = load_recipe(RECIPE, [*SMALL, *few, f"data={data}"])
        train(recipe, tmp_path / name)
    assert equal_weights(tmp_path / "table", tmp_path / "globs")
    (tmp_path / "2.xx").write_text("changed")
    after = provenance(recipe, {})["data"]
    started = json.loads((tmp_path / "globs" / "provenance.json").read_text())["data"]
    assert [key for key in after if after[key] != started[key]] == [
        f"data.train.target ({tmp_path / '2.xx'})"
    ]


def test_sides_of_different_length_are_rejected(
    sentences: SentencesFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for sets, problem in (
        (f"data.train.target={sentences.dev_target}", "expected as many lines in"),
        (f"data.train.source={tmp_path}/*.none", "no file matches this glob"),
    ):
        arguments = [part for each in (*files(sentences), sets) for part in ("--set", each)]
        assert main(["train", str(RECIPE), "--run", str(tmp_path / "run"), *arguments]) == 2
        assert problem in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


KILLED = """
import os, signal, sys
from harken.batch import shards
from harken.encode import stream
from harken.pipeline import train
from harken.recipe import load_recipe

stream.PIECE_SIZE, append, calls = 1000, shards._append, []

def killing(*arguments, **options):
    calls.append(append(*arguments, **options))
    if len(calls) == int(sys.argv[3]):
        with open(arguments[0], "ab") as file:
            file.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return calls[-1]

shards._append = killing
train(load_recipe(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize("appends", [3, pytest.param(13, marks=pytest.mark.slow)])
def test_a_run_killed_while_encoding_continues(
    sentences: SentencesFiles, tmp_path: Path, appends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 3 appends in the sources, and with 13 in the targets."""
    monkeypatch.setattr(stream_module, "PIECE_SIZE", 1000)
    recipe = recipe_of(sentences, "training.pairs.steps=1", "data.dev=0.2")
    path, killed, whole = tmp_path / "recipe.toml", tmp_path / "killed", tmp_path / "whole"
    path.write_text(config.dumps(recipe))
    encoded: list[str] = []
    original = Vocabulary.encode
    monkeypatch.setattr(
        Vocabulary, "encode", lambda self, texts: encoded.extend(texts) or original(self, texts)
    )
    train(recipe, whole)
    all_encoded, tokens = len(encoded), killed / "tokens"
    command = [sys.executable, "-c", KILLED, str(path), str(killed), str(appends)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    finished = (tokens / "source" / "shards.json").exists(), (tokens / "target").exists()
    assert finished == (appends > 10, appends > 10)
    stored = sum(file.stat().st_size // 8 for file in tokens.glob("*/ends.bin"))
    encoded.clear()
    train(recipe, killed, resume=True)
    assert len(encoded) == all_encoded - stored < all_encoded
    for name in ("tokens.bin", "ends.bin", "shards.json"):
        for folder in ("source", "target"):
            file = Path("tokens") / folder / name
            assert (killed / file).read_bytes() == (whole / file).read_bytes()
    assert equal_weights(killed, whole)


def test_the_loss_equals_pytorch(sentences: SentencesFiles, tmp_path: Path) -> None:
    untrained = initial_run(recipe_of(sentences))
    model, (stage,) = untrained.model, stages_of(untrained, tmp_path)
    (batch,) = batches(stage, 2)
    assert batch.source.numel() <= 600 and batch.inputs.numel() <= 600
    theirs = torch.nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum")
    scores = model(batch.source, batch.present, batch.inputs)
    expected = theirs(scores.transpose(1, 2), batch.targets)
    assert cross_entropy_loss(0.1)(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.equal(batches(stage, 2)[0].source, batch.source)


def test_a_share_for_dev_is_split_by_source(sentences: SentencesFiles, tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("a\tx\na\ty\nb\tz\nc\tw\n\nd\tv\n")
    recipe = recipe_of(sentences)
    recipe = replace(recipe, data=replace(recipe.data, train=table, dev=0.5))
    splits = TASK.read_splits(recipe)
    sides = [{pair.source for pair in splits[name]} for name in ("train", "dev")]
    assert len(sides[0]) == len(sides[1]) == 2 and not sides[0] & sides[1]


def test_attention_of_the_best_hypothesis(run: Run) -> None:
    (source,) = run.inputs(1)
    assert source == TASK.read_splits(run.recipe)["dev"][0].source
    (prediction,) = run.predict([source])
    example = run.attention(source)
    assert example is not None and example.title == f"{source} → {prediction.output}"
    views = view_attention(run.model, example)
    cross, encoder, decoder = views
    assert "".join(encoder.view.keys).strip() == source
    assert encoder.view.queries == encoder.view.keys == cross.view.keys
    assert cross.view.queries == decoder.view.queries
    assert list(decoder.view.keys) == ["<end>", *decoder.view.queries[:-1]]
    tokens = [token for token in decoder.view.queries if token != "<end>"]
    assert "".join(tokens).strip() == prediction.output
    for value in views:
        for weights in (layer.weights for layer in value.layers):
            assert weights.shape == (2, len(value.view.queries), len(value.view.keys))
            np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
    assert not any(np.triu(layer.weights[0], 1).any() for layer in decoder.layers)


def test_attention_equals_that_of_single_steps(run: Run) -> None:
    example = run.attention("the duck swims .")
    cross = view_attention(run.model, example)[0]
    assert isinstance(run.vocabulary, Vocabulary)
    (source,) = run.vocabulary.encode(["the duck swims ."])
    inputs = torch.tensor([source.tolist()]), torch.ones(1, len(source)).bool()
    stepper, limit = Seq2SeqStepper(run.model, END), run.model.max_target
    search = run.recipe.search
    ((best,),) = generate(stepper, *inputs, search=search, end=END, max_tokens=limit)
    present = torch.ones(1, 1, dtype=torch.bool)
    rows = []
    with torch.inference_mode():
        state = run.model.init_state(*inputs)
        for token in [END, *best.tokens][: len(cross.view.queries)]:
            with record(run.model) as calls:
                _, state = run.model.step(torch.tensor([[token]]), present, state)
            rows += [call.weights[0, :, 0] for call in calls if call.name.endswith("cross")]
    np.testing.assert_allclose(cross.layers[0].weights, torch.stack(rows, dim=1).numpy(), atol=1e-5)


def test_unknown_long_and_empty_inputs(run: Run) -> None:
    inputs = ["the duck . " * 400, "שלום עולם", "é" * 300, "\U0001f986", "x"]
    assert len(run.predict(inputs)) == len(inputs)
    example = run.attention(inputs[0])
    cross, *_ = view_attention(run.model, example)
    assert len(cross.view.keys) <= 40 and len(cross.view.queries) <= 50
    assert run.attention("") is None
    evaluation = run.predictor.evaluate([Pair(" ", "nothing")])
    assert evaluation.example is not None and run.attention(evaluation.example) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    ["{encoder={kind='gru'},decoder={kind='rnn',hidden=24,width=24}}", "{encoder={kind='gated'}}"],
)
def test_other_encoders_and_decoders_learn(
    model: str, sentences: SentencesFiles, tmp_path: Path
) -> None:
    small = [setting for setting in SMALL if not setting.startswith("model.")]
    sets = ["task=translate", *files(sentences), *small, f"model={model}"]
    recipe = config.loads(recipe_type(), "", base=tmp_path, overrides=sets)
    untrained = initial_run(recipe)
    model, (stage,) = untrained.model.train(), stages_of(untrained, tmp_path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(15):
        (batch,) = stage.batch(step)
        loss = batch.loss(model, torch.device("cpu")) / batch.num_targets
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    (prediction,) = untrained.predict(["the duck swims ."])
    assert prediction.output and 0 <= prediction.confidence < 1
