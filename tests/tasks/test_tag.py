"""Tagging: batches, long sentences, metrics by hand, and learning from suffixes."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from harken.batch.padding import IGNORE_INDEX
from harken.batch.tagging import sentence_windows, tagged_batch, word_corpus
from harken.encode.vocabulary import PAD, UNKNOWN
from harken.errors import UserError
from harken.formats.entity_tags import can_follow
from harken.formats.examples import Sentence
from harken.inspection.record import record
from harken.models.tagger import Tagger
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.run import Run
from harken.tasks.tag import (
    BATCH_TOKENS,
    MAX_LENGTH,
    TagPredictor,
    TagRecipe,
    TagTask,
    cbow_loss,
    tags_loss,
)
from harken.tasks.tag_decoding import TagDecodingConfig, TaggedSentence
from untrained import batches, initial_run, stages_of

TASK = TagTask()
SMALL = (
    "model.width=24",
    "model.characters={width=8,embedding_width=6}",
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
        "model.encoder={kind='transformer',layers=2,max_length=16,attention={heads=2}}",
    ),
}
LETTERS = "bdfgklmnprstv"


def invented(count: int, seed: int) -> list[Sentence]:
    """Random words whose suffixes determine the tag: -a noun, -is verb, -um adjective."""
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
    lines = []
    for sentence in sentences:
        pairs = zip(sentence.words, sentence.tags, strict=True)
        columns = (f"{word}\t_\t{tag}\t{tag[0]}" for word, tag in pairs)
        lines += [f"{row}\t{text}\t_\t_\t_\t_\t_" for row, text in enumerate(columns, 1)] + [""]
    return "\n".join([*lines, ""])


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
    return load_recipe(desk / "recipe.toml", [*SMALL, *changes])


def small_changes(body: str) -> tuple[str, ...]:
    """Return settings without those that only the LSTM has."""
    shared = [name for name in SMALL if body == "lstm" or not name.startswith("model.encoder")]
    return (*shared, *BODIES[body])


def untrained(desk: Path, body: str = "lstm") -> Run:
    return initial_run(load_recipe(desk / "recipe.toml", small_changes(body)), std=0.5)


def whole_sentence(run: Run, words: list[str]) -> torch.Tensor:
    """Return the logits of a sentence."""
    corpus = word_corpus(*run.vocabulary.encode([words]))
    batch = tagged_batch(corpus, sentence_windows(corpus.lengths, len(words)), np.arange(1), PAD)
    return run.model(*batch[:-1])[0]


def test_the_shipped_recipe_names_files_next_to_it() -> None:
    path = Path(__file__).parents[2] / "recipes" / "tag.toml"
    assert load_recipe(path).data.train == path.parent / "train.conllu"


def test_splits(desk: Path) -> None:
    splits = TASK.read_splits(recipe_of(desk))
    assert [len(splits[name]) for name in ("train", "dev", "test")] == [120, 20, 7]
    assert splits["dev"] == invented(20, 2)
    assert TASK.read(recipe_of(desk), [desk / "test.conllu"]) == splits["test"]
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


def test_a_batch_depends_on_its_index_only(desk: Path, tmp_path: Path) -> None:
    recipe = recipe_of(desk, "training.vectors.steps=1", "training.tags.unk_dropout=1.0")
    run = initial_run(recipe)
    first, again = stages_of(run, tmp_path), stages_of(run, tmp_path)
    assert [stage.name for stage in first] == ["vectors", "tags"]
    for stage, resumed in zip(first, again, strict=True):
        batch, other, same = batches(stage, 7)[0], batches(stage, 0)[0], batches(resumed, 7)[0]
        assert not torch.equal(batch[0], other[0])
        for part, expected in zip(batch, same, strict=True):
            assert part is expected is None or torch.equal(part, expected)
    batch = batches(first[1], 7)[0]
    assert (batch.words == UNKNOWN).any()
    assert batch.words.numel() <= 256


def test_long_training_sentences_are_cut(desk: Path, tmp_path: Path) -> None:
    """A sentence of 50 words is cut into windows of 16; each word counts once."""
    long = [Sentence(("lo",) * 50, ("DET",) * 50)]
    (tmp_path / "long.conllu").write_text(as_conllu(long), encoding="utf-8")
    changes = (*small_changes("transformer"), f"data.train={tmp_path / 'long.conllu'}")
    run = initial_run(load_recipe(desk / "recipe.toml", changes))
    (stage,) = stages_of(run, tmp_path)
    (part,) = stage.batch(0)
    assert part.num_targets == 50
    assert part.loss(run.model, torch.device("cpu")).isfinite()


def test_the_loss_is_the_cross_entropy_of_the_tags(desk: Path, tmp_path: Path) -> None:
    trained = untrained(desk)
    (stage,) = stages_of(trained, tmp_path)
    batch = batches(stage, 3)[0]
    scores = trained.model(*batch[:-1])
    expected = nn.CrossEntropyLoss(reduction="sum", ignore_index=IGNORE_INDEX)(
        scores.flatten(0, 1), batch.tags.flatten()
    )
    torch.testing.assert_close(tags_loss(trained.model, batch), expected, rtol=1e-5, atol=1e-4)
    assert batch.num_targets == int(batch.present.sum())


def test_words_without_neighbors_are_not_targets(desk: Path, tmp_path: Path) -> None:
    train_sentences = [Sentence(("lo",), ("DET",)), Sentence(("lo", "ba", "dis"), ("D", "N", "V"))]
    (tmp_path / "few.conllu").write_text(as_conllu(train_sentences), encoding="utf-8")
    recipe = recipe_of(desk, f"data.train={tmp_path / 'few.conllu'}", "training.vectors.steps=1")
    run = initial_run(recipe)
    model = run.model
    batch = batches(stages_of(run, tmp_path)[0], 0)[0]
    assert batch.num_targets == 3
    (rows,) = run.vocabulary.encode([["lo", "ba", "dis"]]).rows
    vectors = model.words.weight[torch.from_numpy(rows)]
    means = torch.stack([vectors[[1, 2]].mean(0), vectors[[0, 2]].mean(0), vectors[:2].mean(0)])
    expected = nn.functional.cross_entropy(
        means @ model.neighbors.lm_head.weight.T, torch.from_numpy(rows), reduction="sum"
    )
    torch.testing.assert_close(cbow_loss(model, batch), expected)


@pytest.mark.parametrize("body", BODIES)
def test_predictions_do_not_depend_on_the_batch_size(
    desk: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = untrained(desk, body)
    sentences = enumerate(invented(30, 9))
    lines = [" ".join(sentence.words * (1 + number % 7)) for number, sentence in sentences]
    together = trained.predict(lines)
    assert [prediction.input for prediction in together] == lines
    assert len({prediction.output for prediction in together}) > 5
    monkeypatch.setattr("harken.tasks.tag.BATCH_SIZE", 4)
    monkeypatch.setattr("harken.tasks.tag.BATCH_TOKENS", 1)
    for prediction, expected in zip(together, trained.predict(lines), strict=True):
        assert len(prediction.output.split()) == len(prediction.input.split())
        assert prediction.output == expected.output
        assert prediction.confidence == pytest.approx(expected.confidence, rel=1e-3)


@torch.inference_mode()
def test_a_prediction_has_the_tag_and_probability_of_each_word(desk: Path) -> None:
    trained, text = untrained(desk), "lo bum  ba\tdis .\u00a0 lo"
    (prediction,) = trained.predict([text])
    best = whole_sentence(trained, text.split()).softmax(dim=-1).max(dim=-1)
    assert prediction.confidence == pytest.approx(best.values.prod().item(), rel=1e-4)
    assert prediction.output == " ".join(trained.vocabulary.tags[tag] for tag in best.indices)
    assert prediction.input == text
    assert [token.token for token in prediction.tokens] == text.split()
    assert [token.tag for token in prediction.tokens] == prediction.output.split()
    scores = [token.score for token in prediction.tokens]
    assert scores == pytest.approx(best.values.tolist(), rel=1e-4)
    assert len(repr(prediction)) < 200
    with pytest.raises(UserError, match="expected 1"):
        trained.predict([text], nbest=3)


@torch.inference_mode()
def test_a_long_sentence_is_tagged_in_windows(desk: Path) -> None:
    """25 words in windows of 16 at 0, 8 and 9 change windows at 12 and 16."""
    trained = untrained(desk, "transformer")
    words = [word for sentence in invented(9, 9) for word in sentence.words][:25]
    (tagged,) = trained.predictor.tag([words])
    expected: list[str] = []
    total = 0.0
    for start, first, last in ((0, 0, 12), (8, 12, 16), (9, 16, 25)):
        scores = whole_sentence(trained, words[start : start + 16])
        best = scores.log_softmax(dim=-1)[first - start : last - start].max(dim=-1)
        expected += [trained.vocabulary.tags[tag] for tag in best.indices]
        total += best.values.sum().item()
    assert tagged.tags == expected
    assert sum(tagged.log_probabilities) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("body", BODIES)
def test_batches_of_a_long_sentence_are_bounded(desk: Path, body: str) -> None:
    trained = untrained(desk, body)
    shapes: list[torch.Size] = []
    trained.model.backbone.register_forward_pre_hook(
        lambda module, inputs: shapes.append(inputs[0].shape)
    )
    words = [f"{LETTERS[number % 13]}{number}a" for number in range(3_000)]
    (prediction,) = trained.predict([" ".join(words)])
    assert len(prediction.output.split()) == 3_000
    assert sum(rows * time for rows, time, _ in shapes) >= 3_000
    for rows, time, _ in shapes:
        assert time <= (16 if body == "transformer" else MAX_LENGTH)
        assert rows * time <= BATCH_TOKENS


def test_metrics_by_hand(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training has `lo` (DET) and `.` (PUNCT); the most frequent tag is DET."""
    trained = untrained(desk)
    sentences = [
        Sentence(("lo", "Ba", "."), ("DET", "NOUN", "PUNCT")),
        Sentence(("Lo", "lo", "so far"), ("DET", "VERB", "X")),
    ]
    tagged = [
        TaggedSentence(["DET", "VERB", "PUNCT"], [-1.0] * 3),
        TaggedSentence(["DET"] * 3, [-2.0] * 3),
    ]
    monkeypatch.setattr(TagPredictor, "tag", lambda self, words: iter(tagged))
    evaluation = trained.predictor.evaluate(sentences)
    assert evaluation.n == 2
    assert {name: estimate.value for name, estimate in evaluation.metrics.items()} == {
        "accuracy": 3 / 6,  # lo, ".", Lo
        "known_words": 2 / 3,  # lo, ".", not the second lo
        "unknown_words": 1 / 3,  # Lo, not Ba, not so far
        "majority_tag": 3 / 6,  # DET for unknown words
    }
    assert next(iter(evaluation.metrics)) == "accuracy"
    assert evaluation.samples["accuracy"].counts.tolist() == [[2, 3], [1, 3]]
    assert evaluation.notes["unseen_tags"] == (
        "1 words have tags that do not occur in training: X; they count as wrong"
    )
    pairs = [(prediction.input, prediction.output) for prediction in evaluation.predictions]
    assert pairs == [("lo Ba .", "DET VERB PUNCT"), ("Lo lo so far", "DET DET DET")]
    assert evaluation.predictions[1].confidence == pytest.approx(math.exp(-6.0))
    assert evaluation.expected == ["DET NOUN PUNCT", "DET VERB X"]
    mistakes, each = evaluation.tables
    assert [tuple(row) for row in mistakes.rows] == [
        ("NOUN", "VERB", 1, "100.0%"),
        ("VERB", "DET", 1, "100.0%"),
        ("X", "DET", 1, "100.0%"),
    ]
    assert ("DET", "50.0%", "100.0%", "66.7%", 2) in [tuple(row) for row in each.rows]


ENTITIES = [
    Sentence(("Ada", "Byron", "met", "Lo"), ("B-person", "I-person", "O", "B-person")),
    Sentence(("in", "New", "Lo"), ("O", "B-place", "I-place")),
]


@pytest.fixture
def entity_run(desk: Path, tmp_path: Path) -> Run:
    rows = ["\n".join(map("{}\t{}".format, row.words, row.tags)) for row in ENTITIES]
    (tmp_path / "train.conll").write_text("\n\n".join(rows), encoding="utf-8")
    paths = [f"data.{name}={tmp_path / 'train.conll'}" for name in ("train", "dev")]
    recipe = load_recipe(desk / "recipe.toml", [*small_changes("lstm"), *paths])
    return initial_run(recipe, std=3.0)


def test_entity_metrics(entity_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first metric, which also selects the best weights, is the F1 of entities."""
    tagged = [
        TaggedSentence(["B-person", "I-person", "O", "B-place"], [-1.0] * 4),
        TaggedSentence(["O"] * 3, [-1.0] * 3),
    ]
    monkeypatch.setattr(TagPredictor, "tag", lambda self, words: iter(tagged))
    evaluation = entity_run.evaluate()
    values = {name: estimate.value for name, estimate in evaluation.metrics.items()}
    assert list(values)[:4] == ["entity_f1", "entity_precision", "entity_recall", "accuracy"]
    assert [*values.values()][:4] == [2 / 5, 1 / 2, 1 / 3, 4 / 7]
    (stage,) = stages_of(entity_run, tmp_path)
    assert stage.evaluate(entity_run.model) == values["entity_f1"]
    table = evaluation.tables[0]
    assert [
        (row[0], *(cell.split(" (")[0] for cell in row[1:4]), row[4]) for row in table.rows
    ] == [
        ("person", "100.0 %", "50.0 %", "66.7 %", 2),
        ("place", "0.0 %", "0.0 %", "0.0 %", 1),
    ]


def test_predicted_entity_tags_are_valid(entity_run: Run) -> None:
    """Of sentences of different lengths; with `decode.constrained = false`, some are not."""
    free = replace(entity_run.recipe, decode=TagDecodingConfig(constrained=False))
    random, words = np.random.default_rng(0), ["Ada", "Byron", "met", "Lo", "in", "New"]
    lines = [" ".join(random.choice(words, size=random.integers(9))) for _ in range(60)]
    valid = []
    for run in (entity_run, replace(entity_run, recipe=free)):
        predictions = run.predict(lines)
        pairs = [
            list(pairwise(["O", *prediction.output.split(), "O"])) for prediction in predictions
        ]
        valid.append([all(can_follow("iob2", tag, last) for last, tag in row) for row in pairs])
        for prediction in predictions:
            product = math.prod(token.score for token in prediction.tokens)
            assert prediction.confidence == pytest.approx(product)
    assert all(valid[0])
    assert not all(valid[1])


def test_metrics_without_words_are_left_out(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = TaggedSentence(["DET"], [-1.0])
    monkeypatch.setattr(TagPredictor, "tag", lambda self, words: iter([tagged]))
    trained = untrained(desk)
    known = trained.predictor.evaluate([Sentence(("lo",), ("DET",))])
    assert "unknown_words" not in known.metrics
    assert "unseen_tags" not in known.notes
    unknown = trained.predictor.evaluate([Sentence(("Lo",), ("DET",))])
    assert "known_words" not in unknown.metrics


def test_attention_over_the_words(desk: Path) -> None:
    assert untrained(desk).attention("lo ba") is None
    trained = untrained(desk, "transformer")
    assert trained.attention("  ") is None
    evaluation = trained.predictor.evaluate([Sentence(("lo", "ba") * 20, ("DET", "NOUN") * 20)])
    example = trained.attention(evaluation.example)
    (view,) = example.views
    assert list(view.queries) == list(view.keys) == ["lo", "ba"] * 8
    with torch.inference_mode(), record(trained.model) as calls:
        example.run()
    shapes = [tuple(call.weights.shape) for call in calls if view.matches(call.name)]
    assert shapes == [(1, 2, 16, 16)] * 2
    inputs = trained.inputs(3)
    assert inputs == [" ".join(sentence.words) for sentence in trained.splits["dev"][:3]]
    for sentence in (*inputs, "new words"):
        example = trained.attention(sentence)
        assert list(example.views[0].keys) == sentence.split()
        (prediction,) = trained.predict([sentence])
        assert example.title == f"{sentence} → {prediction.output}"


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
def test_it_learns_from_suffixes(desk: Path, tmp_path: Path, kind: str) -> None:
    """Nearly all words are new, so the model must use their characters."""
    recipe = recipe_of(
        desk,
        f"model.characters.kind={kind}",
        "training.tags.steps=60",
        "training.tags.evaluate_every=20",
        "training.tags.optimizer.lr=0.02",
        "training.vectors.steps=3",
        "model.dropout=0.1",
    )
    run = train(recipe, tmp_path / "run")
    metrics = run.evaluate("test").metrics
    assert metrics["unknown_words"].value > 0.95
    assert metrics["accuracy"].value > metrics["majority_tag"].value + 0.2
    assert isinstance(run.model, Tagger)
    (prediction,) = run.predict(["lo zzum zza zzis ."])
    assert prediction.output == "DET ADJ NOUN VERB PUNCT"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Confusions" in page
