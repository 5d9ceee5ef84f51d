"""Classification of texts, sounds and images."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command_line import Cli
from harken import config
from harken.errors import UserError
from harken.formats.examples import LabeledExample
from harken.pipeline import train
from harken.recipe import TASKS, load_recipe, recipe_type
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.synthetic.sentences import SentencesConfig, write_sentences
from harken.synthetic.speech import SpeechConfig, write_speech
from harken.tasks.classify_results import label_evaluation
from harken.tasks.prediction import LabelProbability, Prediction
from harken.training.checkpoint import load_weights
from harken.training.loop import Event, StepDone
from small_files import error_of, write_lines
from untrained import initial_run, stages_of

WORDS = (
    "encode={kind='words'}",
    "model={kind='words',width=24,characters={width=8,embedding_width=6},encoder={kernels=[1,2],channels=16}}",
)
ATTENTION = (*WORDS, "model.encoder={kind='gru',direction='both'}", "model.pooling.kind=attention")
TOKENS = (
    "encode={kind='tokens',tokenizer={kind='words'}}",
    "model={kind='tokens',width=12,encoder={layers=1,max_length=9,attention={heads=2}}}",
)
SOUND = (
    "encode={kind='sound',filterbank={sample_rate=8000,mel_bins=23}}",
    "model={kind='sound',width=12,frontend={channels=3},encoder={layers=1,attention={heads=2}}}",
)
IMAGE = (
    "encode={kind='image',images={columns=32,rows=32}}",
    "model={kind='image',width=12,frontend={kind='patch'},encoder={layers=1,attention={heads=2}}}",
)
TEXT_DATA = "data={{input='text',train='{0}/train.tsv',dev='{0}/dev.tsv'}}"
SOUND_DATA = (
    "data={{input='sound',train='{0}/spoken/train.jsonl',dev=0.3,columns={{label='text'}}}}"
)
IMAGE_DATA = (
    "data={{input='image',train='{0}/drawn/train.jsonl',dev=0.3,columns={{label='caption'}}}}"
)
RECIPES = {
    "words": (TEXT_DATA, WORDS),
    "attention": (TEXT_DATA, ATTENTION),
    "tokens": (TEXT_DATA, TOKENS),
    "sound": (SOUND_DATA, SOUND),
    "image": (IMAGE_DATA, IMAGE),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labeled")
    write_sentences(SentencesConfig(sentences=400, words=40), folder)
    speech = SpeechConfig(utterances=20, min_words=1, max_words=1, speakers=4)
    write_speech(speech, folder / "spoken")
    write_scenes(ScenesConfig(scenes=30, size=32, min_shapes=1, max_shapes=1), folder / "drawn")
    return folder


def recipe_of(name: str, corpus: Path, *sets: str) -> Any:
    data, settings = RECIPES[name]
    overrides = ["task=classify", data.format(corpus), *settings, *sets]
    return config.loads(recipe_type(), "", base=corpus, overrides=overrides)


def test_a_small_model_learns_and_names_its_labels(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    steps = ("training.labels={steps=120,batch_size=32,optimizer={lr=0.02}}", "model.dropout=0.1")
    run = train(recipe_of("words", corpus, *steps), tmp_path / "run")
    evaluation = run.evaluate()
    assert list(evaluation.metrics) == [
        *("accuracy", "macro_f1", "majority_label", "calibration_error")
    ]
    assert evaluation.metrics["accuracy"].value > evaluation.metrics["majority_label"].value + 0.1
    matrix, scores, calibration = evaluation.tables
    assert matrix.header == ("expected", "compound", "question", "report", "statement")
    assert [row[0] for row in scores.rows] == list(matrix.header[1:])
    assert sum(row[-1] for row in calibration.rows) == evaluation.n
    lines = write_lines(tmp_path, "does the duck see a river ?", name="lines.txt")
    (record,) = cli.json("predict", tmp_path / "run", lines, "--nbest", "2")["predictions"]
    assert record["output"] == "question"
    probabilities = [label["probability"] for label in record["labels"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1)
    assert record["confidence"] == probabilities[0]
    assert [item["output"] for item in record["nbest"]] == [
        label["label"] for label in record["labels"][:2]
    ]
    printed = cli("predict", tmp_path / "run", lines, "--max-error", "0.5").out.splitlines()
    assert printed[0] in ("question", "?")


class Stop(Exception):
    """Interrupts training."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_resumed_run_has_equal_weights(name: str, corpus: Path, tmp_path: Path) -> None:
    def stop_early(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 4:
            raise Stop

    recipe = recipe_of(name, corpus, "training.labels={steps=6,save_every=3,batch_size=5}")
    train(recipe, tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe, tmp_path / "stopped", listener=stop_early)
    train(recipe, tmp_path / "stopped", resume=True)
    whole, resumed = (
        load_weights(tmp_path / run / "model.safetensors") for run in ("whole", "stopped")
    )
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


@pytest.mark.parametrize("name", RECIPES)
def test_batches_are_what_predict_reads(name: str, corpus: Path, tmp_path: Path) -> None:
    """Without augmentation, stored inputs equal those that are read again."""
    plain = {"sound": ["training.labels.speeds=[1.0]"], "image": []}
    recipe = recipe_of(name, corpus, *plain.get(name, ["training.labels.unk_dropout=0"]))
    run = initial_run(recipe)
    examples = run.splits["train"]
    (part,) = stages_of(run, tmp_path)[0].batch(0)
    inputs, targets = part.batch
    reader = recipe.reader(run.vocabulary)
    labels = [run.vocabulary.names[index] for index in targets]
    chosen = [example for example in examples if example.labels[0] in labels]
    with torch.inference_mode():
        logits = run.model(*inputs)
        alone = [run.model(*reader.read([example.input]).arguments)[0] for example in chosen]
    for row, label in zip(logits, labels, strict=True):
        distances = [float((other - row).abs().max()) for other in alone]
        assert min(distances) < 1e-5
        assert chosen[distances.index(min(distances))].labels == (label,)


def test_a_prediction_does_not_depend_on_the_batch(corpus: Path) -> None:
    for name in RECIPES:
        run = initial_run(recipe_of(name, corpus), std=0.3, all_weights=False)
        inputs = [example.input for example in run.splits["dev"]][:5]
        together = run.predict(inputs)
        for text, prediction in zip(inputs, together, strict=True):
            (alone,) = run.predict(text)
            assert alone.output == prediction.output
            assert alone.confidence == pytest.approx(prediction.confidence, rel=1e-4)


def test_attention_of_pooling_and_encoder_is_shown(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    recipe = recipe_of("attention", corpus, "training.labels.steps=2")
    run = train(recipe, tmp_path / "run")
    result = cli.json("inspect", tmp_path / "run", "a duck swims .", "--out", tmp_path / "out")
    (view,) = result["inputs"][0]["views"]
    assert view["keys"] == ["a", "duck", "swims", "."]
    assert view["queries"] == [run.predict("a duck swims .")[0].output]
    heads = [head["label"] for head in cli.json("heads", tmp_path / "run")["heads"]]
    assert heads == ["cross.L1.H1", "cross.L1.H2"]
    assert cli.json("ablate", tmp_path / "run", "--examples", "5")["parts"]
    for name, units in (("tokens", 9), ("sound", None), ("image", 16)):
        run = initial_run(recipe_of(name, corpus))
        example = run.attention(run.splits["dev"][0].input)
        assert all(view.keys for view in example.views)
        assert units is None or len(example.views[-1].keys) <= units
        assert (example.views[0].picture is not None) == (name == "image")
        assert (example.views[0].sound is not None) == (name == "sound")
    assert initial_run(recipe_of("words", corpus)).attention("a duck") is None


def test_several_labels(tmp_path: Path, cli: Cli) -> None:
    """Each label depends on one word; no label is possible."""
    words = {"war": "tanks", "love": "kisses", "sea": "waves"}
    generator, lines = np.random.default_rng(0), []
    for _ in range(150):
        labels = [label for label in words if generator.random() < 0.4]
        text = " ".join(["a film with", *generator.permutation([words[label] for label in labels])])
        lines.append({"text": text, "labels": labels})
    path = write_lines(tmp_path, *lines)
    cli("new", "classify", path, "--out", tmp_path / "recipe.toml")
    small = [*WORDS, "training.labels={steps=80,optimizer={lr=0.02},unk_dropout=0}"]
    recipe = load_recipe(tmp_path / "recipe.toml", small)
    assert recipe.data.labels == "multiple"
    run = train(recipe, tmp_path / "run")
    evaluation = run.evaluate()
    assert list(evaluation.metrics) == [
        *("exact_match", "macro_f1", "micro_f1", "majority_labels", "calibration_error")
    ]
    assert evaluation.metrics["exact_match"].value > 0.9
    texts = ["a film with kisses tanks", "a film with"]
    both, none = run.predict(texts)
    assert (both.output, none.output) == ("love, war", "")
    chances = {label.label: label.probability for label in both.labels}
    expected = chances["love"] * chances["war"] * (1 - chances["sea"])
    assert both.confidence == pytest.approx(expected)
    assert run.task.target(LabeledExample("a", ("love", "war"))) == "love, war"


def predicted(label: str, confidence: float) -> Prediction:
    labels = [LabelProbability(label, confidence)]
    return Prediction(input=label, output=label, confidence=confidence, labels=labels)


def test_labels_that_training_does_not_have_count_as_wrong() -> None:
    evaluation = label_evaluation(
        [predicted("cat", 0.9), predicted("cat", 0.6)],
        [["cat"], ["eel"]],
        known=["cat", "dog"],
        majority="dog",
        multiple=False,
    )
    values = {name: metric.value for name, metric in evaluation.metrics.items()}
    assert values["accuracy"] == 0.5 and values["majority_label"] == 0
    assert values["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)
    assert values["calibration_error"] == pytest.approx(((1 - 0.9) + 0.6) / 2)
    assert "eel" in evaluation.notes["unseen_labels"]
    assert evaluation.tables[0].header == ("expected", "cat", "dog", "eel")


def test_the_vocabulary_survives_a_file(corpus: Path, tmp_path: Path) -> None:
    for name in RECIPES:
        recipe = recipe_of(name, corpus)
        task = TASKS["classify"]
        vocabulary = task.fit(recipe, task.read_splits(recipe)["train"])
        path = tmp_path / "tokenizer.json"
        path.write_text(vocabulary.to_json(), encoding="utf-8")
        loaded = task.vocabulary_type.load(path)
        assert loaded.sizes == vocabulary.sizes and loaded.counts == vocabulary.counts
        assert loaded.to_json() == vocabulary.to_json()


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["model={kind='tokens'}"], "must be equal"),
        (["encode={kind='sound'}", "model={kind='sound'}"], "data.input = 'sound', not 'text'"),
        (["training.labels.speeds=[1.0]"], "for data.input = 'sound'"),
        (["model.width=8"], "more than characters.width"),
        (
            ["model.encoder={kind='gru'}", "model.pooling={kind='attention',attention={heads=5}}"],
            "",
        ),
    ],
)
def test_wrong_recipes(corpus: Path, sets: list[str], message: str) -> None:
    assert message in error_of(recipe_of, "words", corpus, *sets).message


def test_one_label_is_too_few(tmp_path: Path) -> None:
    path = write_lines(tmp_path, "a\tyes", "b\tyes", name="train.tsv")
    recipe = recipe_of("words", tmp_path, f"data={{input='text',train='{path}',dev=0.5}}")
    with pytest.raises(UserError, match="at least two labels"):
        list(TASKS["classify"].read_splits(recipe).values())


def test_a_long_text_is_truncated(corpus: Path) -> None:
    run = initial_run(recipe_of("tokens", corpus))
    short, long = run.predict(["a duck", "a duck swims " * 9])
    assert short.truncation is None
    assert long.truncation.kept == 7 < long.truncation.total
    assert run.attention("a duck swims " * 9).truncation == long.truncation
    words = initial_run(replace(recipe_of("words", corpus)))
    assert words.predict([" "])[0].output in words.vocabulary.names
    assert json.loads(words.vocabulary.to_json())["majority"] == "statement"
