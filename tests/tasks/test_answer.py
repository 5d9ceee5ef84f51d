"""The answer task: sequences, batches, honesty and attention."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harken.batch.padding import IGNORE_INDEX, pad
from harken.batch.ragged import ragged
from harken.batch.views import ViewsConfig
from harken.decode.stepper import LMStepper
from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary
from harken.errors import DataWarning
from harken.formats.examples import LabeledExample, Question, Sentence, Utterance
from harken.inspection.record import record
from harken.recipe import TASKS, load_recipe
from harken.run import Run
from harken.synthetic.people import PeopleFiles
from harken.tasks.answer import (
    AnswerPredictor,
    AnswerTask,
    PretrainConfig,
    answer_loss,
    encode_prompts,
    encode_questions,
)
from harken.tasks.prediction import Prediction
from harken.tasks.task import Task
from small_recipe import SMALL
from untrained import batches, initial_run, stages_of

TASK = AnswerTask()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return BytePairConfig(vocab_size=300).fit(["Where was Ada born? London", "Alan of Leeds"])


def test_a_question_is_a_text_with_a_missing_span(vocabulary: Vocabulary) -> None:
    encoded = encode_questions([Question("Where was Ada born?", "London")], vocabulary, 96)
    question, answer = vocabulary.encode(["Where was Ada born?", "London"])
    assert encoded.sequences.values.tolist() == [*question, MASK, *answer, END]
    assert encoded.first_targets.tolist() == [len(question) + 1]


def test_long_questions_are_truncated_and_counted(vocabulary: Vocabulary) -> None:
    long = [Question("Ada " * 50, "Leeds"), Question("a", "b " * 50)]
    with pytest.warns(DataWarning, match="2 of 3 questions do not fit the model and are truncated"):
        encode_questions([Question("Where?", "London"), *long], vocabulary, max_length=32)
    (prompt,) = encode_prompts(["Ada " * 50 + "born?"], vocabulary, max_length=7)
    assert len(prompt.tokens) == 7 and prompt.tokens[-1] == MASK
    assert vocabulary.decode([prompt.tokens[:-1].tolist()])[0].endswith("born?")


@pytest.mark.parametrize("pack", ["false", "true"])
def test_pretraining_batches(recipe_file: Path, tmp_path: Path, pack: str) -> None:
    """A batch fits its budget, counts no padding, and depends only on its index."""
    run = initial_run(load_recipe(recipe_file, [*SMALL, f"training.pretrain.pack={pack}"]))
    pretrain, finetune = stages_of(run, tmp_path)
    assert (pretrain.name, finetune.name) == ("pretrain", "finetune")
    masks = 0
    for number in (3, 0, 3):
        for batch in batches(pretrain, number):
            assert batch.inputs.shape[1] <= run.recipe.model.max_length
            counted = batch.targets != IGNORE_INDEX
            assert not (batch.targets[counted] == PAD).any()
            assert (batch.targets[counted] == END).any()
            masks += int((batch.inputs == MASK).sum())
    assert masks > 0
    resumed = stages_of(run, tmp_path)[0]
    for again, before in zip(batches(resumed, 3), batches(pretrain, 3), strict=True):
        assert torch.equal(again.inputs, before.inputs)
        assert torch.equal(again.targets, before.targets)


def test_only_answers_are_targets(untrained: Run, tmp_path: Path) -> None:
    (batch,) = batches(stages_of(untrained, tmp_path)[1], 0)
    answers = {question.question: question.answer for question in untrained.splits["train"]}
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        counted = targets[targets != IGNORE_INDEX].tolist()
        assert counted[-1] == END
        prompt = inputs[: int((inputs == MASK).nonzero()[0])].tolist()
        question, answer = untrained.vocabulary.decode([prompt, counted[:-1]])
        assert answers[question] == answer
    expected = nn.CrossEntropyLoss(reduction="sum", ignore_index=IGNORE_INDEX)(
        untrained.model(batch.inputs).flatten(0, 1), batch.targets.flatten()
    )
    torch.testing.assert_close(answer_loss(untrained.model, batch), expected, rtol=1e-5, atol=1e-4)


def test_packed_and_padded_batches_have_the_same_loss(recipe_file: Path, tmp_path: Path) -> None:
    losses = []
    for pack in ("false", "true"):
        run = initial_run(load_recipe(recipe_file, [*SMALL, f"training.pretrain.pack={pack}"]))
        parts = batches(stages_of(run, tmp_path)[0], 1)
        total = sum(answer_loss(run.model, part).item() for part in parts)
        losses.append((total, sum(part.num_targets for part in parts)))
    assert losses[0][1] == losses[1][1]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)


def test_dev_is_held_out_by_question(recipe_file: Path) -> None:
    recipe = load_recipe(recipe_file, [*SMALL, "data.dev=0.3"])
    splits = TASK.read_splits(recipe)
    train, dev = ({item.question for item in splits[name]} for name in ("train", "dev"))
    assert not train & dev
    assert len(dev) == 6


@pytest.fixture(scope="module")
def untrained(recipe_file: Path) -> Run:
    return initial_run(load_recipe(recipe_file, [*SMALL, "search.max_tokens=5"]))


def outputs_of(trained: Run, questions: list[str]) -> list[str]:
    return [prediction.output for prediction in trained.predict(questions)]


def test_states_give_the_logits_of_the_first_answer_token(
    untrained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = ["Where was Ada King born?", "Who?", "Where was " + "Ada " * 60 + "born?"]
    prompts = encode_prompts(questions, untrained.vocabulary, untrained.model.max_length - 5)
    tokens, present = pad(ragged([prompt.tokens for prompt in prompts]), PAD)
    with torch.inference_mode():
        expected, _ = LMStepper(untrained.model.eval()).prefill(tokens, present)
    states = untrained.predictor.states(questions)
    assert states.shape == (3, 24)
    logits = untrained.model.logits(torch.from_numpy(states))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("harken.tasks.answer.BATCH_SIZE", 2)
    np.testing.assert_allclose(untrained.predictor.states(questions), states, rtol=1e-4, atol=1e-5)
    assert untrained.predictor.states([]).shape == (0, 24)


def test_honesty_of_an_evaluation(untrained: Run) -> None:
    examples = untrained.splits["dev"]
    evaluation = untrained.predictor.evaluate(examples)
    assert list(evaluation.samples)[:3] == ["exact_match", "majority_answer", "calibration_error"]
    assert evaluation.samples.keys() == evaluation.notes.keys()
    honesty = evaluation.honesty
    assert honesty.template == "Where was … born?"
    assert len(honesty.fictional.answers) == len(examples) == 20
    real = {item.question for split in untrained.splits.values() for item in split}
    invented = [f"Where was {answer.name} born?" for answer in honesty.fictional.answers]
    assert not real & set(invented)
    fictional = [answer.answer for answer in honesty.fictional.answers]
    assert fictional == outputs_of(untrained, invented)
    scored = untrained.scored_answers()
    confidences = [prediction.confidence for prediction in evaluation.predictions]
    np.testing.assert_allclose(scored.confidences, confidences, rtol=1e-6)
    assert scored.correct.mean() == evaluation.metrics["exact_match"].value


def test_no_more_fictional_names_than_examples(
    untrained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = untrained.splits["dev"]
    monkeypatch.setattr("harken.tasks.answer.MAX_FICTIONAL", 7)
    for some, count in ((examples, 7), (examples[:3], 3)):
        honesty = untrained.predictor.evaluate(some).honesty
        assert len(honesty.fictional.answers) == count


@pytest.mark.parametrize(
    "questions",
    [
        ["Where was Nobody born?"],
        ["Where was Nobody born?", "Where was Nobody born?"],  # with two answers
        ["愛因斯坦在哪裡出生?", "אבא", "Ça va", "x" * 300],  # none fits the template
    ],
)
@pytest.mark.parametrize("right", [True, False])
def test_unusual_examples(untrained: Run, questions: list[str], right: bool) -> None:
    answers = outputs_of(untrained, questions)
    examples = [
        Question(question, answer if right else f"not {answer} {at}")
        for at, (question, answer) in enumerate(zip(questions, answers, strict=True))
    ]
    evaluation = untrained.predictor.evaluate(examples)
    assert evaluation.metrics["exact_match"].value == right
    assert evaluation.metrics["accuracy_at_50"].value == right
    assert evaluation.honesty.kinds["right"].value == right
    assert bool(evaluation.honesty.guarantees) == (len(set(questions)) > 1)


def test_questions_without_a_common_template(
    recipe_file: Path, tmp_path: Path, people: PeopleFiles
) -> None:
    lines = people.train.read_text(encoding="utf-8").splitlines()
    mixed = tmp_path / "mixed.tsv"
    mixed.write_text("\n".join([*lines, "Who made it?\tAda", "Ada?\tLondon"]), encoding="utf-8")
    recipe = load_recipe(recipe_file, [*SMALL, f"data.train={str(mixed)!r}", "search.max_tokens=5"])
    run = initial_run(recipe)
    honesty = run.predictor.evaluate(run.splits["dev"]).honesty
    assert honesty.template == "…"
    assert honesty.fictional is not None


def test_answers_of_the_nearest_name_are_counted(
    untrained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that gives the answer of the nearest known name."""
    splits = untrained.splits
    examples = [*splits["dev"], Question("Birthplace of  Ada King", "Leeds")]  # another template
    asked = [example.question for example in examples]
    known = {item.question: item.answer for item in splits["train"]}
    states, others = untrained.predictor.states(asked), untrained.predictor.states(list(known))
    cosines = np.array(
        [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in others] for a in states]
    )
    answers = {
        question: list(known.values())[int(row.argmax())]
        for question, row in zip(asked, cosines, strict=True)
    }

    def borrow(
        self: AnswerPredictor, inputs: list[str], nbest: int = 1, indices: Any = None
    ) -> list[Prediction]:
        return [
            Prediction(input=text, output=answers.get(text, "nowhere"), confidence=0.5)
            for text in inputs
        ]

    monkeypatch.setattr(AnswerPredictor, "predict", borrow)
    metrics = untrained.predictor.evaluate(examples).metrics
    borrowed = metrics["nearest_name_embedding"].value
    assert borrowed == pytest.approx(1 - metrics["exact_match"].value)
    assert metrics["nearest_name_string"].value < borrowed
    assert metrics["unknown_answers"].value == 0.0


def test_attention_of_a_question_and_its_answer(untrained: Run) -> None:
    questions, dev = untrained.inputs(2), untrained.splits["dev"]
    assert questions == [item.question for item in dev[:2]]
    for question, prediction in zip(questions, untrained.predict(questions), strict=True):
        example = untrained.attention(question)
        assert example.title == f"{question} → {prediction.output}"
        (view,) = example.views
        assert list(view.queries[:-1]) == list(view.keys[1:])
        mask = view.keys.index("<mask>")
        assert "".join(view.keys[:mask]).strip() == question
        special = ("<end>", "<mask>", "<pad>")
        answer = [token for token in view.queries[mask:] if token not in special]
        assert "".join(answer).strip() == prediction.output
        with torch.inference_mode(), record(untrained.model) as calls:
            example.run()
        assert {call.weights.shape[2:] for call in calls} == {(len(view.queries), len(view.keys))}


def test_tasks_with_a_single_correct_output() -> None:
    examples = {
        "answer": Question("who?", "Ada"),
        "classify": LabeledExample("who?", ("HUM",)),
        "fill": "Ada was born",
        "tag": Sentence(("a", "dog"), ("DET", "NOUN")),
        "transcribe": Utterance(Path("a.wav"), "yes no"),
    }
    targets = {name: TASKS[name].target(example) for name, example in examples.items()}
    assert targets == {
        "answer": "Ada",
        "classify": "HUM",
        "fill": "was",
        "tag": "DET NOUN",
        "transcribe": "yes no",
    }
    others = {"caption", "lm", "translate"}
    assert {name for name, task in TASKS.items() if type(task).target is Task.target} == others


def test_packed_rows_have_no_masked_inputs() -> None:
    views = ViewsConfig(masked=0.3)
    assert not PretrainConfig(views=views).pack
    with pytest.raises(ValueError, match="set pack = false"):
        PretrainConfig(views=views, pack=True)
