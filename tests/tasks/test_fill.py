"""The fill task: what is asked, what is counted, and that it learns."""

import itertools
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
from untrained import batches, bound_run

TASK = FillTask()
NAMES = ["Ada", "Alan", "Bob", "Eve", "Ida"]
PLACES = ["Rome", "Leeds", "Oslo", "Bonn", "Cork"]
# The place decides the last word, six words away: too far for three words in a row.
ENDINGS = {"Rome": "south", "Leeds": "north", "Oslo": "north", "Bonn": "south", "Cork": "west"}
RNN = (
    "model.width=16",
    "model.dropout=0.0",
    "model.cell.hidden=16",
    "training.batch_tokens=256",
)
MASKED = (
    'model.kind="masked"',
    "model.width=16",
    "model.dropout=0.0",
    "model.encoder.dropout=0.0",
    "model.encoder.layers=1",
    "model.encoder.max_length=19",
    "model.encoder.attention.heads=2",
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
    every = itertools.product(NAMES, PLACES, range(1801, 1804))
    (folder / "text.txt").write_text("\n".join(sentence(*one) for one in every), encoding="utf-8")
    path = folder / "recipe.toml"
    path.write_text('task = "fill"\n[data]\ntrain = "text.txt"\ndev = 0.2\n', encoding="utf-8")
    return path


def recipe_of(path: Path, kind: str, *settings: str) -> FillRecipe:
    recipe = load_recipe(path, [*KINDS[kind], *settings])
    assert isinstance(recipe, FillRecipe)
    return recipe


def untrained(recipe: FillRecipe) -> Run:
    vocabulary = TASK.fit(recipe, TASK.read_splits(recipe)["train"])
    model = TASK.build(recipe, vocabulary.sizes)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # large enough that words differ
            parameter.normal_(std=0.4, generator=generator)
    return bound_run(recipe, vocabulary, model.eval())


def log_probabilities(model: ClozeModel, words: list[int], at: int) -> torch.Tensor:
    """Of one blank in a row of its own."""
    tokens = torch.tensor([words])
    blanks = torch.zeros_like(tokens).bool()
    blanks[0, at] = True
    return model(tokens, torch.ones_like(blanks), blanks)[0].log_softmax(dim=0)


@pytest.mark.parametrize("kind", ["rnn", "masked"])
def test_the_recipe_takes_either_kind_by_one_line(recipe_file: Path, kind: str) -> None:
    shipped = Path(__file__).parents[2] / "recipes" / "fill.toml"
    text = recipe_file.parent / "text.txt"
    recipe = load_recipe(shipped, [f'model.kind="{kind}"', f"data.train={text}"])
    assert isinstance(recipe, FillRecipe)
    vocabulary = TASK.fit(recipe, TASK.read_splits(recipe)["train"])
    assert TASK.build(recipe, vocabulary.sizes).embedding.weight.shape == (len(vocabulary), 192)


def test_dev_is_held_out_by_line(recipe_file: Path) -> None:
    splits = TASK.read_splits(recipe_of(recipe_file, "rnn"))
    assert (len(splits["train"]), len(splits["dev"])) == (60, 15)
    assert not set(splits["train"]) & set(splits["dev"])
    other = TASK.read_splits(recipe_of(recipe_file, "rnn", "seed=7"))
    assert other["dev"] != splits["dev"]


def test_dev_and_test_may_be_files(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("Ada was here\n\nand there\n", encoding="utf-8")
    path = tmp_path / "other.txt"
    recipe = recipe_of(recipe_file, "rnn", f"data.dev={path}", f"data.test={path}")
    splits = TASK.read_splits(recipe)
    assert splits["dev"] == splits["test"] == ["Ada was here", "and there"]
    assert len(splits["train"]) == 75
    assert TASK.read(recipe, [path]) == splits["dev"]


def test_words_that_never_meet_again_are_refused(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("a b c\nd e f\n", encoding="utf-8")
    recipe = recipe_of(recipe_file, "rnn", f"data.train={tmp_path / 'few.txt'}", "data.dev=0.5")
    with pytest.raises(UserError, match=r"few.txt: no word occurs 2 times") as raised:
        dict(TASK.read_splits(recipe))
    assert "encode.min_count = 1" in str(raised.value.fix)


@every_kind
def test_batches(recipe_file: Path, tmp_path: Path, kind: str) -> None:
    """Within the budget, a function of their number; every word, or a share, is to be learnt."""
    recipe = recipe_of(recipe_file, kind)
    splits = TASK.read_splits(recipe)
    vocabulary = TASK.fit(recipe, splits["train"])
    (stage,) = TASK.stages(recipe, splits, vocabulary, tmp_path)
    (resumed,) = TASK.stages(recipe, splits, vocabulary, tmp_path)
    for number in (5, 0, 3):
        (batch,), (again,) = batches(stage, number), batches(resumed, number)
        assert all(torch.equal(one, two) for one, two in zip(batch, again, strict=True))
        assert batch.tokens.numel() <= 256
        assert not (batch.tokens[batch.present] == PAD).any()
        assert torch.equal(batch.targets, batch.tokens[batch.blanks])
        assert not (batch.blanks & ~batch.present).any()
        share = batch.blanks.sum(dim=1) / batch.present.sum(dim=1)
        if kind == "rnn":
            assert torch.equal(batch.blanks, batch.present)
        else:
            assert ((share > 0.24) & (share < 0.36)).all()
    (first,), (second,) = batches(stage, 0), batches(stage, 8)
    assert not torch.equal(first.blanks, second.blanks) or not torch.equal(
        first.tokens, second.tokens
    )


def test_long_lines_are_met_in_pieces(recipe_file: Path, tmp_path: Path) -> None:
    recipe = recipe_of(recipe_file, "masked", "model.encoder.max_length=9")
    splits = TASK.read_splits(recipe)
    vocabulary = TASK.fit(recipe, splits["train"])
    (stage,) = TASK.stages(recipe, splits, vocabulary, tmp_path)
    for step in range(4):
        (batch,) = batches(stage, step)
        assert batch.tokens.shape[1] <= 7  # without the two ends
    trained = bound_run(recipe, vocabulary, TASK.build(recipe, vocabulary.sizes))
    evaluation = trained.predictor.evaluate(splits["dev"][:2])
    assert evaluation.n == sum(map(len, vocabulary.encode(splits["dev"][:2])))
    assert all(
        len(vocabulary.encode([prediction.input])[0]) < 12 for prediction in evaluation.predictions
    )
    (far,) = trained.predict(["Ada was " * 20 + "___ in Rome and ___"])
    assert len(far.output.split()) == 2


@every_kind
def test_the_loss_is_the_cross_entropy_of_the_blanks(
    recipe_file: Path, tmp_path: Path, kind: str
) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    splits = TASK.read_splits(trained.recipe)
    (stage,) = TASK.stages(trained.recipe, splits, trained.vocabulary, tmp_path)
    (batch,) = batches(stage, 2)
    scores = trained.model(batch.tokens, batch.present, batch.blanks)
    expected = nn.CrossEntropyLoss(reduction="sum")(scores, batch.tokens[batch.blanks])
    torch.testing.assert_close(cloze_loss(trained.model, batch), expected)
    assert batch.counted == int(batch.blanks.sum())


@every_kind
@torch.no_grad()
def test_every_word_is_blanked_alone(
    recipe_file: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a loop that asks for one word at a time; small batches must not matter."""
    monkeypatch.setattr(fill, "BATCH_WORDS", 31)
    monkeypatch.setattr(fill, "BATCH_LOGITS", 100)
    trained = untrained(recipe_of(recipe_file, kind))
    dev = [*TASK.read_splits(trained.recipe)["dev"][:3], "Zoë was (born", "in"]
    evaluation = trained.predictor.evaluate(dev)
    nats, right, five, shown = [], [], [], []
    for line in trained.vocabulary.encode(dev):
        for at, true in enumerate(line.tolist()):
            logs = log_probabilities(trained.model, line.tolist(), at)
            words = logs[len(SPECIAL) :].argsort(descending=True) + len(SPECIAL)
            nats.append(-logs[true].item())
            right.append(words[0].item() == true)
            five.append(true in words[:5])
            shown.append(trained.vocabulary.pieces([int(words[0])])[0])
    metrics = {name: one.value for name, one in evaluation.metrics.items()}
    assert next(iter(metrics)) == "accuracy"
    assert evaluation.n == len(nats)
    assert metrics["nats"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(np.exp(np.mean(nats)), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(np.mean(right))
    assert metrics["top5_accuracy"] == pytest.approx(np.mean(five))
    assert [prediction.output for prediction in evaluation.predictions] == shown
    pairs = zip(evaluation.expected, evaluation.predictions, strict=True)
    assert [word == one.output for word, one in pairs] == right
    assert evaluation.predictions[-1].input == "___"
    assert evaluation.predictions[-4].input == "Zoë ___ (born"
    assert "Zoë" in evaluation.expected


@every_kind
def test_what_is_shown_can_be_asked_again(recipe_file: Path, kind: str) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    evaluation = trained.predictor.evaluate(TASK.read_splits(trained.recipe)["dev"][:3])
    asked = [prediction.input for prediction in evaluation.predictions]
    again = list(trained.predict(asked))
    assert [one.output for one in again] == [
        prediction.output for prediction in evaluation.predictions
    ]
    np.testing.assert_allclose(
        [one.confidence for one in again],
        [prediction.confidence for prediction in evaluation.predictions],
        rtol=1e-4,
    )
    for one, word in zip(evaluation.predictions, evaluation.expected, strict=True):
        assert one.input.replace("___", word) in TASK.read_splits(trained.recipe)["dev"]


def test_large_files_are_measured_by_lot(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "MAX_BLANKS", 23)
    monkeypatch.setattr(fill, "MAX_KEPT", 11)
    trained = untrained(recipe_of(recipe_file, "rnn"))
    dev = TASK.read_splits(trained.recipe)["dev"]
    one, two = trained.predictor.evaluate(dev), trained.predictor.evaluate(dev)
    assert one.n == 23
    assert len(one.predictions) == len(one.expected) == 11
    assert one.notes["blanks"].startswith("23 of ")
    assert one.metrics == two.metrics
    assert [a.input for a in one.predictions] == [b.input for b in two.predictions]
    assert "blanks" not in trained.predictor.evaluate(dev[:1]).notes


def test_counts_are_of_the_training_lines_alone(recipe_file: Path) -> None:
    """A held-out word that training knows only elsewhere: `trigram` must not have seen it here."""
    trained = untrained(recipe_of(recipe_file, "rnn"))
    strange = ["Rome Rome Rome Rome Rome"] * 5
    metrics = trained.predictor.evaluate(strange).metrics
    usual = trained.predictor.evaluate(TASK.read_splits(trained.recipe)["dev"]).metrics
    assert metrics["trigram_perplexity"].value > 5 * usual["trigram_perplexity"].value
    assert usual["trigram_accuracy"].value > usual["unigram_accuracy"].value


@every_kind
def test_a_word_outside_the_vocabulary_is_never_right(recipe_file: Path, kind: str) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    with torch.no_grad():  # a model that would always say <unknown>
        trained.model.embedding.weight[UNKNOWN] *= 50
    evaluation = trained.predictor.evaluate(["żółw żółw żółw"])
    assert evaluation.metrics["accuracy"].value == 0.0
    assert evaluation.metrics["top5_accuracy"].value == 0.0
    assert "100.0% of the blanks" in evaluation.notes["accuracy"]
    outputs = {prediction.output for prediction in trained.predict(["Ada ___ ok", "__"], nbest=3)}
    assert outputs.isdisjoint({*SPECIAL, ""})


@every_kind
@torch.no_grad()
def test_nbest_are_the_likeliest_words(recipe_file: Path, kind: str) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    (line,) = trained.vocabulary.encode(["Ada was x in Rome"])
    logs = log_probabilities(trained.model, line.tolist(), 2)
    (found,) = trained.predict(["Ada was ____ in Rome"], nbest=4)
    best = logs[len(SPECIAL) :].topk(4)
    words = trained.vocabulary.pieces((best.indices + len(SPECIAL)).tolist())
    assert [one.output for one in found.nbest] == words
    np.testing.assert_allclose(
        [one.log_probability for one in found.nbest], best.values.tolist(), rtol=1e-5
    )
    assert found.output == words[0]
    assert found.confidence == pytest.approx(best.values[0].exp().item(), rel=1e-5)
    (every,) = trained.predict(["Ada was ____ in Rome"], nbest=10_000)
    assert len(every.nbest) == len(trained.vocabulary) - len(SPECIAL)


@every_kind
def test_several_blanks_in_a_line(recipe_file: Path, kind: str) -> None:
    """Each is filled with the others missing; the best lists are the best of all combinations."""
    trained = untrained(recipe_of(recipe_file, kind))
    (found,) = trained.predict(["___ was __ in Rome ____"], nbest=6)
    model = trained.model
    (line,) = trained.vocabulary.encode(["x was x in Rome x"])
    assert line[[0, 2, 5]].tolist() == [UNKNOWN] * 3
    if kind == "masked":  # which hides them anyhow
        line[[0, 2, 5]] = MASK
    logs = [log_probabilities(model, line.tolist(), at)[len(SPECIAL) :] for at in (0, 2, 5)]
    words = trained.vocabulary.pieces(range(len(SPECIAL), len(trained.vocabulary)))
    combined = [
        (sum(one[number].item() for one, number in zip(logs, numbers, strict=True)), numbers)
        for numbers in itertools.product(*(one.topk(6).indices.tolist() for one in logs))
    ]
    best = sorted(combined, reverse=True)[:6]
    outputs = [" ".join(words[number] for number in numbers) for _, numbers in best]
    assert [one.output for one in found.nbest] == outputs
    assert found.nbest[2].log_probability == pytest.approx(best[2][0], rel=1e-5)


def test_a_line_without_a_blank_is_refused(recipe_file: Path) -> None:
    trained = untrained(recipe_of(recipe_file, "rnn"))
    with pytest.raises(UserError, match="'Ada was_ born': the line has no blank") as raised:
        list(trained.predict(["___ fine", "Ada was_ born"]))
    assert "write ___" in str(raised.value.fix)


def test_blanks_are_read_wherever_they_stand(recipe_file: Path) -> None:
    recipe = recipe_of(recipe_file, "rnn")
    vocabulary: Vocabulary = TASK.fit(recipe, TASK.read_splits(recipe)["train"])
    lines, blanks = encode_blanks(["__Ada(___)", "_____"], vocabulary)
    (ada, opening, closing) = vocabulary.encode(["Ada ( )"])[0].tolist()
    assert lines.values.tolist() == [UNKNOWN, ada, opening, UNKNOWN, closing, UNKNOWN]
    assert lines.lengths.tolist() == [5, 1]
    assert blanks.tolist() == [0, 3, 5]


@every_kind
def test_predictions_keep_their_order_whatever_the_batch(
    recipe_file: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = untrained(recipe_of(recipe_file, kind))
    asked = [
        "___ was born",
        "Ada ___ born in ___ far",
        "in the ___",
        "__",
        "(in ___), far in ___ .",
    ]
    together = list(trained.predict(asked))
    monkeypatch.setattr(fill, "BATCH_LINES", 1)
    alone = list(trained.predict(asked))
    assert [one.output for one in together] == [one.output for one in alone]
    assert [one.input for one in together] == asked
    assert [len(one.output.split()) for one in together] == [1, 2, 1, 1, 2]
    assert list(trained.predict([])) == []


def test_only_attention_can_be_looked_at(recipe_file: Path) -> None:
    windows = load_recipe(
        recipe_file, ['model.kind="masked"', "model.width=16", 'model.encoder.kind="stride2"']
    )
    assert isinstance(windows, FillRecipe)
    for recipe in (windows, recipe_of(recipe_file, "rnn")):
        trained = untrained(recipe)
        evaluation = trained.predictor.evaluate(TASK.read_splits(recipe)["dev"][:2])
        assert trained.attention(evaluation.example) is None


def test_a_glimpse_shows_the_line_as_it_was_read(recipe_file: Path) -> None:
    trained = untrained(recipe_of(recipe_file, "masked"))
    evaluation = trained.predictor.evaluate(TASK.read_splits(trained.recipe)["dev"][:1])
    glimpse = trained.attention(evaluation.example)
    assert glimpse is not None
    (view,) = glimpse.views
    assert view.queries[0] == view.queries[-1] == SPECIAL[END]
    assert view.queries.count(SPECIAL[MASK]) == 1
    seen = []
    trained.model.encoder.register_forward_hook(lambda *call: seen.append(call[1][0].shape[1]))
    glimpse.run()
    assert seen == [len(view.queries)]


def test_any_line_with_a_blank_can_be_looked_at(recipe_file: Path) -> None:
    trained = untrained(recipe_of(recipe_file, "masked"))
    dev, asked = TASK.read_splits(trained.recipe)["dev"], trained.inputs(3)
    assert len(asked) == 3
    for line, blanked in zip(dev, asked, strict=False):
        before, after = blanked.split("___")
        assert line.startswith(before) and line.endswith(after) and len(blanked) != len(line) + 3
        glimpse = trained.attention(blanked)
        (said,) = trained.predict([blanked])
        assert glimpse is not None and glimpse.title == f"{blanked} → {said.output}"
    room = trained.recipe.model.max_length
    glimpse = trained.attention(f"{'in ' * 3 * room}___ {'far ' * room}")
    assert glimpse is not None
    (view,) = glimpse.views
    assert SPECIAL[MASK] in view.keys and len(view.keys) <= room + 2
    with pytest.raises(UserError, match="the line has no blank"):
        trained.attention("nothing is missing")


@every_kind
def test_a_run_learns_what_three_words_cannot_tell(
    recipe_file: Path, tmp_path: Path, kind: str
) -> None:
    """Through the pipeline, with its report; the ending depends on a word far away."""
    steps = ["training.steps=150", "training.optimizer.lr=0.015", "training.schedule.warmup=10"]
    sizes = ["model.width=32", "model.cell.hidden=32"] if kind == "rnn" else ["model.width=32"]
    recipe = recipe_of(recipe_file, kind, *steps, *sizes)
    run = train(recipe, tmp_path / kind)
    figures = run.evaluate().metrics
    assert figures["accuracy"].value > figures["trigram_accuracy"].value
    asked = [f"Ada was born in {place} (1802), far ___." for place in ("Rome", "Leeds", "Cork")]
    assert [prediction.output for prediction in run.predict(asked)] == ["south", "north", "west"]
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert ("Attention weights of every layer" in page) == (kind == "masked")
