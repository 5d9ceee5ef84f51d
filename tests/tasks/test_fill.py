"""The fill task: batches, evaluation, predictions and training."""

import itertools
import math
from itertools import starmap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from harken.encode.vocabulary import END, MASK, PAD, SPECIAL, UNKNOWN, Vocabulary
from harken.errors import UserError
from harken.models.cloze import ClozeModel
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.run import Run
from harken.tasks import fill
from harken.tasks.fill import FillRecipe, FillTask, cloze_loss, encode_blanks
from untrained import batches, initial_run, stages_of

TASK = FillTask()
NAMES = ["Ada", "Alan", "Bob", "Eve", "Ida"]
PLACES = ["Rome", "Leeds", "Oslo", "Bonn", "Cork"]
# The place determines the last word, six words away: too far for trigrams.
ENDINGS = {"Rome": "south", "Leeds": "north", "Oslo": "north", "Bonn": "south", "Cork": "west"}
RNN = ("model.width=16", "model.dropout=0.0", "model.cell.hidden=16", "training.batch_tokens=256")
MASKED = (
    'model.kind="masked"',
    "model.width=16",
    "model.dropout=0.0",
    "model.encoder={layers=1,max_length=19,dropout=0.0,attention={heads=2}}",
    "training.batch_tokens=256",
    "training.mask_ratio=0.3",
)
KINDS = {"rnn": RNN, "masked": MASKED}
every_kind = pytest.mark.parametrize("kind", KINDS)


def sentence(name: str, place: str, year: int) -> str:
    return f"{name} was born in {place} ({year}), far {ENDINGS[place]}."


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    facts = itertools.product(NAMES, PLACES, range(1801, 1804))
    (folder / "text.txt").write_text("\n".join(starmap(sentence, facts)), encoding="utf-8")
    path = folder / "recipe.toml"
    path.write_text('task = "fill"\n[data]\ntrain = "text.txt"\ndev = 0.2\n', encoding="utf-8")
    return path


def recipe_of(path: Path, kind: str, *settings: str) -> FillRecipe:
    return load_recipe(path, [*KINDS[kind], *settings])


def untrained(recipe: FillRecipe) -> Run:
    """Return a run with weights that are large enough that words differ."""
    return initial_run(recipe, std=0.4)


def log_probabilities(model: ClozeModel, words: list[int], at: int) -> torch.Tensor:
    """Return the log-probabilities of one blank in a row."""
    tokens = torch.tensor([words])
    blanks = torch.zeros_like(tokens).bool()
    blanks[0, at] = True
    return model(tokens, torch.ones_like(blanks), blanks)[0].log_softmax(dim=0)


def test_dev_is_a_share_or_a_file(recipe_file: Path, tmp_path: Path) -> None:
    splits = TASK.read_splits(recipe_of(recipe_file, "rnn"))
    assert (len(splits["train"]), len(splits["dev"])) == (60, 15)
    assert not set(splits["train"]) & set(splits["dev"])
    other = TASK.read_splits(recipe_of(recipe_file, "rnn", "seed=7"))
    assert other["dev"] != splits["dev"]
    path = tmp_path / "other.txt"
    path.write_text("Ada was here\n\nand there\n", encoding="utf-8")
    recipe = recipe_of(recipe_file, "rnn", f"data.dev={path}", f"data.test={path}")
    splits = TASK.read_splits(recipe)
    assert splits["dev"] == splits["test"] == ["Ada was here", "and there"]
    assert len(splits["train"]) == 75
    assert TASK.read(recipe, [path]) == splits["dev"]
    (tmp_path / "few.txt").write_text("a b c\nd e f\n", encoding="utf-8")
    recipe = recipe_of(recipe_file, "rnn", f"data.train={tmp_path / 'few.txt'}", "data.dev=0.5")
    with pytest.raises(UserError, match=r"few.txt: no word occurs 2 times") as raised:
        dict(TASK.read_splits(recipe))
    assert "encode.min_count = 1" in str(raised.value.fix)


@every_kind
def test_batches(recipe_file: Path, tmp_path: Path, kind: str) -> None:
    """Batches fit the budget and depend on their index; all words, or a share, are targets."""
    run = untrained(recipe_of(recipe_file, kind))
    (stage,), (resumed,) = stages_of(run, tmp_path), stages_of(run, tmp_path)
    for number in (5, 0, 3):
        (batch,), (again,) = batches(stage, number), batches(resumed, number)
        assert all(map(torch.equal, batch, again))
        assert batch.tokens.numel() <= 256
        assert not (batch.tokens[batch.present] == PAD).any()
        assert torch.equal(batch.targets, batch.tokens[batch.blanks])
        assert not (batch.blanks & ~batch.present).any()
        share = batch.blanks.sum(dim=1) / batch.present.sum(dim=1)
        if kind == "rnn":
            assert torch.equal(batch.blanks, batch.present)
        else:
            assert ((share > 0.24) & (share < 0.36)).all()
        scores = run.model(batch.tokens, batch.present, batch.blanks)
        expected = nn.CrossEntropyLoss(reduction="sum")(scores, batch.targets)
        torch.testing.assert_close(cloze_loss(run.model, batch), expected)
        assert batch.num_targets == int(batch.blanks.sum())
    (first,), (second,) = batches(stage, 0), batches(stage, 8)
    assert not all(map(torch.equal, first, second))


def test_long_lines_are_cut(recipe_file: Path, tmp_path: Path) -> None:
    trained = initial_run(recipe_of(recipe_file, "masked", "model.encoder.max_length=9"))
    (stage,), dev = stages_of(trained, tmp_path), trained.splits["dev"][:2]
    vocabulary = trained.vocabulary
    for step in range(4):
        (batch,) = batches(stage, step)
        assert batch.tokens.shape[1] <= 7  # without the two ends
    evaluation = trained.predictor.evaluate(dev)
    assert evaluation.n == sum(map(len, vocabulary.encode(dev)))
    assert all(
        len(vocabulary.encode([prediction.input])[0]) < 12 for prediction in evaluation.predictions
    )
    (far,) = trained.predict(["Ada was " * 20 + "___ in Rome and ___"])
    assert len(far.output.split()) == 2


@every_kind
@torch.no_grad()
def test_evaluation_equals_a_loop_over_words(
    recipe_file: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "BATCH_WORDS", 31)
    monkeypatch.setattr(fill, "BATCH_LOGITS", 100)
    trained = untrained(recipe_of(recipe_file, kind))
    dev = [*trained.splits["dev"][:3], "Zoë was (born", "in"]
    evaluation = trained.predictor.evaluate(dev)
    nats, correct, top5, outputs = [], [], [], []
    for line in trained.vocabulary.encode(dev):
        for at, true in enumerate(line.tolist()):
            logs = log_probabilities(trained.model, line.tolist(), at)
            words = logs[len(SPECIAL) :].argsort(descending=True) + len(SPECIAL)
            nats.append(-logs[true].item())
            correct.append(words[0].item() == true)
            top5.append(true in words[:5])
            outputs.append(trained.vocabulary.token_texts([int(words[0])])[0])
    metrics = {name: estimate.value for name, estimate in evaluation.metrics.items()}
    assert next(iter(metrics)) == "accuracy"
    assert evaluation.n == len(nats)
    assert metrics["nats"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(np.exp(np.mean(nats)), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(np.mean(correct))
    assert metrics["top5_accuracy"] == pytest.approx(np.mean(top5))
    assert [prediction.output for prediction in evaluation.predictions] == outputs
    pairs = zip(evaluation.expected, evaluation.predictions, strict=True)
    assert [word == prediction.output for word, prediction in pairs] == correct
    assert evaluation.predictions[-1].input == "___"
    assert evaluation.predictions[-4].input == "Zoë ___ (born"
    assert "Zoë" in evaluation.expected


@every_kind
def test_reported_inputs_give_the_same_predictions(recipe_file: Path, kind: str) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    evaluation = trained.predictor.evaluate(trained.splits["dev"][:3])
    again = trained.predict([prediction.input for prediction in evaluation.predictions])
    for prediction, expected in zip(again, evaluation.predictions, strict=True):
        assert prediction.output == expected.output
        assert prediction.confidence == pytest.approx(expected.confidence, rel=1e-4)
    for prediction, word in zip(evaluation.predictions, evaluation.expected, strict=True):
        assert prediction.input.replace("___", word) in trained.splits["dev"]


def test_large_files_are_sampled(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "MAX_BLANKS", 23)
    monkeypatch.setattr(fill, "MAX_PREDICTIONS", 11)
    trained = untrained(recipe_of(recipe_file, "rnn"))
    dev = trained.splits["dev"]
    evaluation, again = trained.predictor.evaluate(dev), trained.predictor.evaluate(dev)
    assert evaluation.n == 23
    assert len(evaluation.predictions) == len(evaluation.expected) == 11
    assert evaluation.notes["blanks"].startswith("23 of ")
    assert evaluation.metrics == again.metrics
    assert evaluation.predictions == again.predictions
    assert "blanks" not in trained.predictor.evaluate(dev[:1]).notes


def test_baselines_count_training_lines_only(recipe_file: Path) -> None:
    trained = untrained(recipe_of(recipe_file, "rnn"))
    strange = ["Rome Rome Rome Rome Rome"] * 5
    metrics = trained.predictor.evaluate(strange).metrics
    usual = trained.predictor.evaluate(trained.splits["dev"]).metrics
    assert metrics["trigram_perplexity"].value > 5 * usual["trigram_perplexity"].value
    assert usual["trigram_accuracy"].value > usual["unigram_accuracy"].value


@every_kind
def test_an_unknown_word_is_never_predicted(recipe_file: Path, kind: str) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    with torch.no_grad():  # a model that prefers <unknown>
        trained.model.embedding.weight[UNKNOWN] *= 50
    evaluation = trained.predictor.evaluate(["żółw żółw żółw"])
    assert evaluation.metrics["accuracy"].value == 0.0
    assert evaluation.metrics["top5_accuracy"].value == 0.0
    assert "100.0% of the words" in evaluation.notes["accuracy"]
    outputs = {prediction.output for prediction in trained.predict(["Ada ___ ok", "__"], nbest=3)}
    assert outputs.isdisjoint({*SPECIAL, ""})


@every_kind
def test_several_blanks_in_a_line(recipe_file: Path, kind: str) -> None:
    """Each is filled without the others; the best outputs are the best combinations."""
    trained = untrained(recipe_of(recipe_file, kind))
    (prediction,) = trained.predict(["___ was __ in Rome ____"], nbest=6)
    model = trained.model
    (line,) = trained.vocabulary.encode(["x was x in Rome x"])
    assert line[[0, 2, 5]].tolist() == [UNKNOWN] * 3
    if kind == "masked":
        line[[0, 2, 5]] = MASK
    logs = [log_probabilities(model, line.tolist(), at)[len(SPECIAL) :] for at in (0, 2, 5)]
    words = trained.vocabulary.token_texts(range(len(SPECIAL), len(trained.vocabulary)))
    combined = [
        (sum(blank[number].item() for blank, number in zip(logs, numbers, strict=True)), numbers)
        for numbers in itertools.product(*(blank.topk(6).indices.tolist() for blank in logs))
    ]
    best = sorted(combined, reverse=True)[:6]
    outputs = [" ".join(words[number] for number in numbers) for _, numbers in best]
    assert [hypothesis.output for hypothesis in prediction.nbest] == outputs
    logs = [hypothesis.log_probability for hypothesis in prediction.nbest]
    assert logs == pytest.approx([total for total, _ in best], rel=1e-5)
    assert prediction.output == outputs[0]
    assert prediction.confidence == pytest.approx(math.exp(best[0][0]), rel=1e-4)
    (full,) = trained.predict(["Ada was ____ in Rome"], nbest=10_000)
    assert len(full.nbest) == len(trained.vocabulary) - len(SPECIAL)


def test_a_line_without_a_blank_is_rejected(recipe_file: Path) -> None:
    trained = untrained(recipe_of(recipe_file, "rnn"))
    with pytest.raises(UserError, match="'Ada was_ born': the line has no blank") as raised:
        list(trained.predict(["___ fine", "Ada was_ born"]))
    assert "write ___" in str(raised.value.fix)


def test_blanks_without_spaces(recipe_file: Path) -> None:
    recipe = recipe_of(recipe_file, "rnn")
    vocabulary: Vocabulary = TASK.fit(recipe, TASK.read_splits(recipe)["train"])
    lines, blanks = encode_blanks(["__Ada(___)", "_____"], vocabulary)
    (ada, opening, closing) = vocabulary.encode(["Ada ( )"])[0].tolist()
    assert lines.values.tolist() == [UNKNOWN, ada, opening, UNKNOWN, closing, UNKNOWN]
    assert lines.lengths.tolist() == [5, 1]
    assert blanks.tolist() == [0, 3, 5]


def test_models_without_attention(recipe_file: Path) -> None:
    convolution = ['model.kind="masked"', "model.width=16", 'model.encoder.kind="stride2"']
    for recipe in (load_recipe(recipe_file, convolution), recipe_of(recipe_file, "rnn")):
        trained = initial_run(recipe)
        evaluation = trained.predictor.evaluate(TASK.read_splits(recipe)["dev"][:2])
        assert trained.attention(evaluation.example) is None


def test_attention_of_the_line_that_was_read(recipe_file: Path) -> None:
    trained = untrained(recipe_of(recipe_file, "masked"))
    evaluation = trained.predictor.evaluate(trained.splits["dev"][:1])
    example = trained.attention(evaluation.example)
    (view,) = example.views
    assert view.queries[0] == view.queries[-1] == SPECIAL[END]
    assert view.queries.count(SPECIAL[MASK]) == 1
    seen = []
    trained.model.backbone.register_forward_hook(lambda *call: seen.append(call[1][0].shape[1]))
    example.run()
    assert seen == [len(view.queries)]
    dev, inputs = trained.splits["dev"], trained.inputs(3)
    assert len(inputs) == 3
    for line, blanked in zip(dev, inputs, strict=False):
        before, after = blanked.split("___")
        assert line.startswith(before) and line.endswith(after) and len(blanked) != len(line) + 3
        example = trained.attention(blanked)
        (prediction,) = trained.predict([blanked])
        assert example is not None and example.title == f"{blanked} → {prediction.output}"
    limit = trained.recipe.model.max_length
    example = trained.attention(f"{'in ' * 3 * limit}___ {'far ' * limit}")
    (view,) = example.views
    assert SPECIAL[MASK] in view.keys and len(view.keys) <= limit + 2
    with pytest.raises(UserError, match="the line has no blank"):
        trained.attention("nothing is missing")


@pytest.mark.slow
@every_kind
def test_a_run_learns_more_than_trigrams(recipe_file: Path, tmp_path: Path, kind: str) -> None:
    steps = ["training.steps=150", "training.optimizer.lr=0.015", "training.schedule.warmup=10"]
    sizes = ["model.width=32", "model.cell.hidden=32"] if kind == "rnn" else ["model.width=32"]
    recipe = recipe_of(recipe_file, kind, *steps, *sizes)
    run = train(recipe, tmp_path / kind)
    metrics = run.evaluate().metrics
    assert metrics["accuracy"].value > metrics["trigram_accuracy"].value
    lines = [f"Ada was born in {place} (1802), far ___." for place in ("Rome", "Leeds", "Cork")]
    assert [prediction.output for prediction in run.predict(lines)] == ["south", "north", "west"]
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert ("Attention weights of every layer" in page) == (kind == "masked")
