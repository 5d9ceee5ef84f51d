"""The tagging task: batches, long sentences, figures by hand, and that it learns from endings."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from harken.batch.padding import IGNORE_INDEX
from harken.batch.words import windows_over, word_batch, word_corpus
from harken.encode.vocabulary import PAD, UNKNOWN
from harken.errors import UserError
from harken.formats.examples import Sentence
from harken.inspection.record import record
from harken.models.tagger import Tagger
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.run import Run
from harken.tasks.tag import (
    BATCH_WORDS,
    MAX_LENGTH,
    TaggedSentence,
    TagPredictor,
    TagRecipe,
    TagTask,
    neighbors_loss,
    tags_loss,
)
from untrained import batches, bound_run

TASK = TagTask()
SMALL = (
    "model.width=24",
    "model.characters.width=8",
    "model.characters.embedding_width=6",
    "model.encoder.hidden=12",
    "training.tags.steps=8",
    "training.tags.batch_tokens=256",
    "training.tags.schedule.warmup=2",
)
BODIES = {
    "tanh": ("model.encoder.kind=tanh",),
    "gru": ("model.encoder.kind=gru", "model.encoder.direction=both"),
    "lstm": (),
    "stride2": ("model.encoder.kind=stride2",),
    "gated": ("model.encoder.kind=gated",),
    "transformer": (
        "model.encoder.kind=transformer",
        "model.encoder.max_length=16",
        "model.encoder.layers=2",
        "model.encoder.attention.heads=2",
    ),
}
LETTERS = "bdfgklmnprstv"


def invented(count: int, seed: int) -> list[Sentence]:
    """Words of chance with endings that tell: -a names, -is does, -um describes what follows."""
    random = np.random.default_rng(seed)

    def word(ending: str) -> str:
        letters = random.choice(list(LETTERS), size=random.integers(2, 5))
        return "".join(letters) + ending

    sentences = []
    for _ in range(count):
        words, tags = ["lo"], ["DET"]
        if random.random() < 0.5:
            words.append(word("um"))
            tags.append("ADJ")
        words += [word("a"), word("is"), "."]
        tags += ["NOUN", "VERB", "PUNCT"]
        sentences.append(Sentence(tuple(words), tuple(tags)))
    return sentences


def as_conllu(sentences: list[Sentence]) -> str:
    """The same tags as UPOS; as XPOS, their first letters."""
    return "".join(
        "".join(
            f"{number}\t{word}\t_\t{tag}\t{tag[0]}\t_\t_\t_\t_\t_\n"
            for number, (word, tag) in enumerate(
                zip(sentence.words, sentence.tags, strict=True), start=1
            )
        )
        + "\n"
        for sentence in sentences
    )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tag")
    for name, count, seed in (("train", 120, 1), ("dev", 20, 2), ("test", 7, 3)):
        (folder / f"{name}.conllu").write_text(as_conllu(invented(count, seed)), encoding="utf-8")
    (folder / "recipe.toml").write_text(
        'task = "tag"\nseed = 5\n\n[data]\ntrain = "train.conllu"\ndev = "dev.conllu"\n'
        'test = "test.conllu"\n',
        encoding="utf-8",
    )
    return folder


def recipe_of(desk: Path, *changes: str) -> TagRecipe:
    recipe = load_recipe(desk / "recipe.toml", [*SMALL, *changes])
    assert isinstance(recipe, TagRecipe)
    return recipe


def small_changes(body: str) -> tuple[str, ...]:
    """Sizes that only the LSTM has would be unknown to other kinds."""
    return (
        tuple(one for one in SMALL if body == "lstm" or not one.startswith("model.encoder"))
        + BODIES[body]
    )


def untrained(desk: Path, body: str = "lstm") -> Run:
    recipe = load_recipe(desk / "recipe.toml", small_changes(body))
    fitted = TASK.fit(recipe, TASK.read_splits(recipe)["train"])
    model = TASK.build(recipe, fitted.sizes).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return bound_run(recipe, fitted, model)


def whole_sentence(run: Run, words: list[str]) -> torch.Tensor:
    """Scores of a sentence that the model reads at once."""
    corpus = word_corpus(*run.vocabulary.encode([words]))
    batch = word_batch(corpus, windows_over(corpus.lengths, len(words)), np.arange(1), PAD)
    return run.model(*batch[:-1])[0]


VARIANT = re.compile(r"^#   body = \{.*?\}", re.MULTILINE)


def test_the_recipe_and_each_variant_in_its_comments_are_legal() -> None:
    path = Path(__file__).parents[2] / "recipes" / "tag.toml"
    assert load_recipe(path).data.train == path.parent / "train.conllu"
    kinds = []
    for line in VARIANT.findall(path.read_text(encoding="utf-8")):
        recipe = load_recipe(
            path, [f"model.{line.removeprefix('#').strip().replace(' = ', '=', 1)}"]
        )
        kinds.append(recipe.model.encoder.kind)
    assert kinds == ["tanh", "gated", "stride2", "transformer"]


def test_splits(desk: Path) -> None:
    splits = TASK.read_splits(recipe_of(desk))
    assert {name: len(found) for name, found in splits.items()} == {
        "train": 120,
        "dev": 20,
        "test": 7,
    }
    assert splits["dev"] == invented(20, 2)
    assert TASK.read(recipe_of(desk), [desk / "test.conllu"]) == splits["test"]


def test_the_other_column(desk: Path) -> None:
    recipe = recipe_of(desk, "data.column=xpos")
    assert TASK.fit(recipe, TASK.read_splits(recipe)["train"]).tags == ("A", "D", "N", "P", "V")
    (first, *_) = TASK.read(recipe, [desk / "dev.conllu"])
    assert first.tags[0] == "D"


def test_a_share_keeps_equal_sentences_on_one_side(desk: Path, tmp_path: Path) -> None:
    (tmp_path / "twice.conllu").write_text(as_conllu(invented(10, 1) * 2), encoding="utf-8")
    recipe = recipe_of(desk, f"data.train={tmp_path / 'twice.conllu'}", "data.dev=0.3")
    splits = TASK.read_splits(recipe)
    assert (len(splits["train"]), len(splits["dev"])) == (14, 6)
    assert not set(splits["train"]) & set(splits["dev"])


def test_batches_are_a_function_of_their_number(desk: Path, tmp_path: Path) -> None:
    recipe = recipe_of(desk, "training.vectors.steps=1", "training.tags.unk_dropout=1.0")
    splits = TASK.read_splits(recipe)
    fitted = TASK.fit(recipe, splits["train"])
    first = TASK.stages(recipe, splits, fitted, tmp_path)
    again = TASK.stages(recipe, splits, fitted, tmp_path)
    assert [stage.name for stage in first] == ["vectors", "tags"]
    for one, other in zip(first, again, strict=True):
        far, near, same = batches(one, 7)[0], batches(one, 0)[0], batches(other, 7)[0]
        assert not torch.equal(far[0], near[0])
        for mine, theirs in zip(far, same, strict=True):
            assert mine is theirs is None or torch.equal(mine, theirs)
    batch = batches(first[1], 7)[0]
    assert (batch.rows == UNKNOWN).any()
    assert batch.rows.numel() <= 256


def test_training_and_prediction_cut_alike(desk: Path, tmp_path: Path) -> None:
    """A sentence of 50 words is learnt in windows of 16, each word once."""
    long = [Sentence(("lo",) * 50, ("DET",) * 50)]
    (tmp_path / "long.conllu").write_text(as_conllu(long), encoding="utf-8")
    changes = (*small_changes("transformer"), f"data.train={tmp_path / 'long.conllu'}")
    recipe = load_recipe(desk / "recipe.toml", changes)
    splits = TASK.read_splits(recipe)
    fitted = TASK.fit(recipe, splits["train"])
    (stage,) = TASK.stages(recipe, splits, fitted, tmp_path)
    (part,) = stage.batch(0)
    assert part.counted == 50
    loss = part.loss(TASK.build(recipe, fitted.sizes), torch.device("cpu"))
    assert loss.isfinite()


def test_the_loss_is_the_cross_entropy_of_the_tags(desk: Path, tmp_path: Path) -> None:
    trained = untrained(desk)
    splits = TASK.read_splits(trained.recipe)
    (stage,) = TASK.stages(trained.recipe, splits, trained.vocabulary, tmp_path)
    batch = batches(stage, 3)[0]
    scores = trained.model(*batch[:-1])
    wanted = nn.CrossEntropyLoss(reduction="sum", ignore_index=IGNORE_INDEX)(
        scores.flatten(0, 1), batch.tags.flatten()
    )
    torch.testing.assert_close(tags_loss(trained.model, batch), wanted, rtol=1e-5, atol=1e-4)
    assert batch.counted == int(batch.present.sum())


def test_words_alone_in_their_sentence_are_not_foretold(desk: Path, tmp_path: Path) -> None:
    train_sentences = [Sentence(("lo",), ("DET",)), Sentence(("lo", "ba", "dis"), ("D", "N", "V"))]
    (tmp_path / "few.conllu").write_text(as_conllu(train_sentences), encoding="utf-8")
    recipe = recipe_of(desk, f"data.train={tmp_path / 'few.conllu'}", "training.vectors.steps=1")
    splits = TASK.read_splits(recipe)
    fitted = TASK.fit(recipe, splits["train"])
    model = TASK.build(recipe, fitted.sizes)
    assert model.neighbors is not None
    batch = batches(TASK.stages(recipe, splits, fitted, tmp_path)[0], 0)[0]
    assert batch.counted == 3
    (rows,) = fitted.encode([["lo", "ba", "dis"]]).rows
    vectors = model.words.weight[torch.from_numpy(rows)]
    means = torch.stack([vectors[[1, 2]].mean(0), vectors[[0, 2]].mean(0), vectors[:2].mean(0)])
    wanted = nn.functional.cross_entropy(
        means @ model.neighbors.lm_head.weight.T, torch.from_numpy(rows), reduction="sum"
    )
    torch.testing.assert_close(neighbors_loss(model, batch), wanted)


@pytest.mark.parametrize("body", BODIES)
def test_predictions_keep_their_order_whatever_the_batch(
    desk: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = untrained(desk, body)
    lines = [" ".join(one.words * (1 + number % 7)) for number, one in enumerate(invented(30, 9))]
    together = list(trained.predict(lines))
    assert [one.input for one in together] == lines
    assert [len(one.output.split()) for one in together] == [len(line.split()) for line in lines]
    assert len({one.output for one in together}) > 5
    monkeypatch.setattr("harken.tasks.tag.BATCH_SIZE", 4)
    monkeypatch.setattr("harken.tasks.tag.BATCH_WORDS", 1)
    alone = list(trained.predict(lines))
    assert [one.output for one in together] == [one.output for one in alone]
    np.testing.assert_allclose(
        [one.confidence for one in together], [one.confidence for one in alone], rtol=1e-3
    )


@torch.inference_mode()
def test_the_confidence_is_the_product_of_the_probabilities(desk: Path) -> None:
    trained = untrained(desk)
    (said,) = trained.predict(["lo bum  ba\tdis ."])
    scores = whole_sentence(trained, ["lo", "bum", "ba", "dis", "."])
    best = scores.softmax(dim=-1).max(dim=-1)
    assert said.confidence == pytest.approx(best.values.prod().item(), rel=1e-4)
    assert said.output == " ".join(trained.vocabulary.tags[one] for one in best.indices)
    assert said.input == "lo bum  ba\tdis ."


def test_no_words_have_no_tags(desk: Path) -> None:
    trained = untrained(desk)
    outputs = [prediction.output for prediction in trained.predict(["", "lo .", " \t "])]
    assert outputs[0] == outputs[2] == ""
    assert len(outputs[1].split()) == 2
    assert list(trained.predict([])) == []
    assert [prediction.confidence for prediction in trained.predict([""])] == [1.0]


def test_a_prediction_gives_every_word_its_tag_and_probability(desk: Path) -> None:
    text = "lo  ran .\u00a0 lo"
    (prediction,) = untrained(desk).predict([text])
    assert [token.token for token in prediction.tokens] == text.split()
    assert [token.tag for token in prediction.tokens] == prediction.output.split()
    scores = [token.score for token in prediction.tokens]
    assert all(0 < score <= 1 for score in scores)
    assert math.prod(scores) == pytest.approx(prediction.confidence)
    assert len(repr(prediction)) < 200


def test_there_is_one_best_tag(desk: Path) -> None:
    with pytest.raises(UserError, match="expected 1"):
        list(untrained(desk).predict(["lo ."], nbest=3))


@torch.inference_mode()
def test_a_long_sentence_is_the_kept_parts_of_its_windows(desk: Path) -> None:
    """25 words in windows of 16 at 0, 8 and 9: turns at 12 and 16."""
    trained = untrained(desk, "transformer")
    words = [word for one in invented(9, 9) for word in one.words][:25]
    (found,) = trained.predictor.tag([words])
    wanted: list[str] = []
    total = 0.0
    for start, first, last in ((0, 0, 12), (8, 12, 16), (9, 16, 25)):
        scores = whole_sentence(trained, words[start : start + 16])
        best = scores.log_softmax(dim=-1)[first - start : last - start].max(dim=-1)
        wanted += [trained.vocabulary.tags[one] for one in best.indices]
        total += best.values.sum().item()
    assert found.tags == wanted
    assert sum(found.log_probabilities) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("body", BODIES)
def test_ten_thousand_words_in_bounded_batches(desk: Path, body: str) -> None:
    trained = untrained(desk, body)
    seen: list[torch.Size] = []
    trained.model.encoder.register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0].shape)
    )
    words = [f"{LETTERS[number % 13]}{number}a" for number in range(10_000)]
    (said,) = trained.predict([" ".join(words)])
    assert len(said.output.split()) == 10_000
    assert sum(rows * time for rows, time, _ in seen) >= 10_000
    for rows, time, _ in seen:
        assert time <= (16 if body == "transformer" else MAX_LENGTH)
        assert rows * time <= BATCH_WORDS


def test_figures_by_hand(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training knows `lo` (DET) and `.` (PUNCT); the most common tag of all is DET or PUNCT."""
    trained = untrained(desk)
    sentences = [
        Sentence(("lo", "Ba", "."), ("DET", "NOUN", "PUNCT")),
        Sentence(("Lo", "lo", "so far"), ("DET", "VERB", "X")),
    ]
    said = [
        TaggedSentence(["DET", "VERB", "PUNCT"], [-1.0] * 3),
        TaggedSentence(["DET"] * 3, [-2.0] * 3),
    ]
    monkeypatch.setattr(TagPredictor, "tag", lambda self, words: iter(said))
    found = trained.predictor.evaluate(sentences)
    assert found.n == 2
    assert {name: one.value for name, one in found.metrics.items()} == {
        "accuracy": 3 / 6,  # lo, ".", Lo
        "known_words": 2 / 3,  # lo, ".", not the second lo
        "unknown_words": 1 / 3,  # Lo, not Ba, not so far
        "majority_tag": 3 / 6,  # DET for what is unknown
    }
    assert next(iter(found.metrics)) == "accuracy"
    assert found.samples["accuracy"].counts.tolist() == [[2, 3], [1, 3]]
    assert found.notes["unseen_tags"] == (
        "1 words have tags never seen in training: X; they count as wrong"
    )
    assert [prediction.input for prediction in found.predictions] == ["lo Ba .", "Lo lo so far"]
    assert [prediction.output for prediction in found.predictions] == [
        "DET VERB PUNCT",
        "DET DET DET",
    ]
    assert found.predictions[1].confidence == pytest.approx(math.exp(-6.0))
    assert found.expected == ["DET NOUN PUNCT", "DET VERB X"]
    mistakes, each = found.tables
    assert [tuple(row) for row in mistakes.rows] == [
        ("NOUN", "VERB", 1, "100.0%"),
        ("VERB", "DET", 1, "100.0%"),
        ("X", "DET", 1, "100.0%"),
    ]
    assert ("DET", "50.0%", "100.0%", "66.7%", 2) in [tuple(row) for row in each.rows]


def test_figures_of_words_that_are_not_there_are_left_out(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged = TaggedSentence(["DET"], [-1.0])
    monkeypatch.setattr(TagPredictor, "tag", lambda self, words: iter([tagged]))
    trained = untrained(desk)
    known = trained.predictor.evaluate([Sentence(("lo",), ("DET",))])
    assert "unknown_words" not in known.metrics
    assert "unseen_tags" not in known.notes
    unknown = trained.predictor.evaluate([Sentence(("Lo",), ("DET",))])
    assert "known_words" not in unknown.metrics


def test_a_example_of_attention_over_the_words(desk: Path) -> None:
    assert untrained(desk).attention("lo ba") is None
    trained = untrained(desk, "transformer")
    evaluation = trained.predictor.evaluate([Sentence(("lo", "ba") * 20, ("DET", "NOUN") * 20)])
    example = trained.attention(evaluation.example)
    assert example is not None
    (view,) = example.views
    assert list(view.queries) == list(view.keys) == ["lo", "ba"] * 8
    with torch.inference_mode(), record(trained.model) as seen:
        example.run()
    matching = [one for one in seen if view.matches(one.name)]
    assert [tuple(one.weights.shape) for one in matching] == [(1, 2, 16, 16)] * 2


def test_any_sentence_can_be_looked_at(desk: Path) -> None:
    trained = untrained(desk, "transformer")
    asked = trained.inputs(3)
    dev = TASK.read_splits(trained.recipe)["dev"]
    assert asked == [" ".join(one.words) for one in dev[:3]]
    for sentence in (*asked, "words never seen"):
        example = trained.attention(sentence)
        assert example is not None
        assert list(example.views[0].keys) == sentence.split()
        (said,) = trained.predict([sentence])
        assert example.title == f"{sentence} → {said.output}"
    assert trained.attention("  ") is None


@pytest.mark.parametrize("view", ["cnn", "lstm"])
def test_it_learns_from_endings(desk: Path, tmp_path: Path, view: str) -> None:
    """Nearly all names are new, so a model without spellings could not tell them apart."""
    recipe = recipe_of(
        desk,
        f"model.characters.kind={view}",
        "training.tags.steps=60",
        "training.tags.evaluate_every=20",
        "training.tags.optimizer.lr=0.02",
        "training.vectors.steps=3",
        "model.dropout=0.1",
    )
    run = train(recipe, tmp_path / "run")
    found = run.evaluate("test").metrics
    assert found["unknown_words"].value > 0.95
    assert found["accuracy"].value > found["majority_tag"].value + 0.2
    assert isinstance(run.model, Tagger)
    (said,) = run.predict(["lo zzum zza zzis ."])
    assert said.output == "DET ADJ NOUN VERB PUNCT"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Confusions" in page
