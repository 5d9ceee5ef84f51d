"""The log-probability of an output equals the confidence of the prediction, for every task."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from harken.errors import UserError
from harken.run import Run
from small_files import SMALL
from untrained import initial_run, task_recipe

OVERRIDES: dict[str, Sequence[str]] = {
    "answer": (),
    "classify": ("model.pooling.kind=attention",),
    "tag": ("model.encoder={kind='transformer',layers=1}", "decode.constrained=false"),
    "fill": ("model.kind=masked",),
    "translate": (),
    "transcribe": ("search.mode=ctc",),
}
INPUTS = {"fill": "they ___ and swim ___ 3 times", "answer": "who is 3?"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scored")


def make_run(task: str, data: Path) -> Run:
    """Return a run whose weights are large enough for probabilities that differ."""
    settings = [item for item in SMALL[task] if not item.startswith("model.encoder.")]
    kept = SMALL[task] if task in ("translate", "transcribe", "answer") else settings
    return initial_run(task_recipe(task, data, [*kept, *OVERRIDES[task]]), std=0.2)


def log_probability(run: Run, text: str, output: str | None = None) -> float:
    example = run.attention(text, output)
    assert example is not None and example.output is not None
    with torch.inference_mode():
        log_probs = example.run()
    assert isinstance(log_probs, torch.Tensor)
    assert output is None or example.output.text == output
    return float(log_probs.double()[range(len(log_probs)), list(example.output.targets)].sum())


@pytest.mark.parametrize("task", OVERRIDES)
def test_confidences(task: str, data: Path) -> None:
    run = make_run(task, data)
    text = INPUTS.get(task, "they duck and swim here")
    if run.input_form == "sounds":
        text = run.task.input(run.examples("dev")[0])
    (prediction,) = run.predict([text])
    assert log_probability(run, text) == pytest.approx(math.log(prediction.confidence), abs=1e-4)


def test_forced_outputs(data: Path) -> None:
    text = "they duck and swim here"
    classifier = make_run("classify", data)
    (prediction,) = classifier.predict([text])
    for label in prediction.labels[:3]:
        expected = math.log(label.probability)
        assert log_probability(classifier, text, label.label) == pytest.approx(expected, abs=1e-5)
    filler, blanked = make_run("fill", data), "they ___ and"
    (prediction,) = filler.predict([blanked], nbest=3)
    for ranked in prediction.nbest:
        value = log_probability(filler, blanked, ranked.output)
        assert value == pytest.approx(ranked.log_probability, abs=1e-5)
    with pytest.raises(UserError, match="output: expected 5 of the names"):
        make_run("tag", data).attention(text, "VERB")
