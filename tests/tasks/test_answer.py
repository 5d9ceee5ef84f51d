"""The answer task: sequences, batches, and that reading really teaches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from harken.batch.padding import IGNORE
from harken.data.examples import Question
from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary
from harken.recipe import load_recipe
from harken.tasks.answer import AnswerTask, encode_questions, loss, prompts_of
from harken.tasks.task import Trained
from small_recipe import SMALL

TASK = AnswerTask()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return BytePairConfig(size=300).fit(["Where was Ada born? London", "Alan of Leeds"])


def test_a_question_is_a_text_with_a_hole(vocabulary: Vocabulary) -> None:
    asked = encode_questions([Question("Where was Ada born?", "London")], vocabulary, length=96)
    (question,), (answer,) = (
        vocabulary.encode(["Where was Ada born?"]),
        vocabulary.encode(["London"]),
    )
    assert asked.sequences.values.tolist() == [*question, MASK, *answer, END]
    assert asked.first_targets.tolist() == [len(question) + 1]


def test_a_long_question_keeps_its_end(vocabulary: Vocabulary) -> None:
    (prompt,) = prompts_of(["Ada " * 50 + "born?"], vocabulary, most=7)
    assert len(prompt) == 7
    assert prompt[-1] == MASK
    assert vocabulary.decode([prompt[:-1].tolist()])[0].endswith("born?")


@pytest.mark.parametrize("pack", ["false", "true"])
def test_reading_batches(recipe_file: Path, tmp_path: Path, pack: str) -> None:
    """Every batch fits its budget, counts no padding, and is a function of its number."""
    recipe = load_recipe(recipe_file, [*SMALL, f"training.pretrain.pack={pack}"])
    splits = TASK.read(recipe)
    vocabulary = TASK.fit(recipe, splits)
    reading, questions = TASK.stages(recipe, splits, vocabulary, tmp_path)
    assert (reading.name, questions.name) == ("reading", "questions")
    masks = 0
    for number in (3, 0, 3):
        for batch in reading.batch(number):
            assert batch.inputs.shape[1] <= recipe.model.length
            counted = batch.targets != IGNORE
            assert not (batch.targets[counted] == PAD).any()
            assert (batch.targets[counted] == END).any()
            masks += int((batch.inputs == MASK).sum())
    assert masks > 0
    resumed = TASK.stages(recipe, splits, vocabulary, tmp_path)[0]
    for again, before in zip(resumed.batch(3), reading.batch(3), strict=True):
        assert torch.equal(again.inputs, before.inputs)
        assert torch.equal(again.targets, before.targets)


def test_only_answers_are_learnt_from_questions(recipe_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file, SMALL)
    splits = TASK.read(recipe)
    vocabulary = TASK.fit(recipe, splits)
    (batch,) = TASK.stages(recipe, splits, vocabulary, tmp_path)[1].batch(0)
    answers = {question.question: question.answer for question in splits["train"]}
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        learnt = targets[targets != IGNORE].tolist()
        assert learnt[-1] == END
        asked = inputs[: int((inputs == MASK).nonzero()[0])].tolist()
        (question,), (answer,) = vocabulary.decode([asked]), vocabulary.decode([learnt[:-1]])
        assert answers[question] == answer


def test_packed_and_padded_batches_have_the_same_loss(recipe_file: Path, tmp_path: Path) -> None:
    losses = []
    for pack in ("false", "true"):
        recipe = load_recipe(recipe_file, [*SMALL, f"training.pretrain.pack={pack}"])
        splits = TASK.read(recipe)
        vocabulary = TASK.fit(recipe, splits)
        model = TASK.build(recipe, vocabulary)
        parts = TASK.stages(recipe, splits, vocabulary, tmp_path)[0].batch(1)
        total = sum(loss(model, part).item() for part in parts)
        losses.append((total, sum(part.counted for part in parts)))
    assert losses[0][1] == losses[1][1]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)


def test_the_loss_is_the_cross_entropy_of_counted_targets(
    recipe_file: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(recipe_file, SMALL)
    splits = TASK.read(recipe)
    vocabulary = TASK.fit(recipe, splits)
    model = TASK.build(recipe, vocabulary)
    (batch,) = TASK.stages(recipe, splits, vocabulary, tmp_path)[1].batch(0)
    scores = model.scores(model(batch.inputs))
    expected = nn.CrossEntropyLoss(reduction="sum", ignore_index=IGNORE)(
        scores.flatten(0, 1), batch.targets.flatten()
    )
    torch.testing.assert_close(loss(model, batch), expected, rtol=1e-5, atol=1e-4)


def test_dev_is_held_out_by_question(recipe_file: Path) -> None:
    recipe = load_recipe(recipe_file, [*SMALL, "data.dev=0.3"])
    splits = TASK.read(recipe)
    train, dev = ({one.question for one in splits[name]} for name in ("train", "dev"))
    assert not train & dev
    assert len(dev) == 6


def test_predictions_keep_their_order_whatever_the_batch(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(recipe_file, SMALL)
    splits = TASK.read(recipe)
    vocabulary = TASK.fit(recipe, splits)
    model = TASK.build(recipe, vocabulary)
    asked = [question.question * (1 + number % 3) for number, question in enumerate(splits["dev"])]
    trained = Trained(recipe=recipe, fitted=vocabulary, model=model)
    together = list(TASK.predict(trained, asked))
    monkeypatch.setattr("harken.tasks.answer.ASKED_TOGETHER", 1)
    alone = list(TASK.predict(trained, asked))
    assert [one.output for one in together] == [one.output for one in alone]
    np.testing.assert_allclose(
        [one.confidence for one in together], [one.confidence for one in alone], rtol=1e-4
    )
    assert [one.input for one in together] == asked
