"""Logits and outputs of every exportable model in every format, compared with the run."""

from pathlib import Path

import pytest
import torch

from exportable import SUPPORTED, small_run
from harken.export.format import FormatName, export_format
from harken.export.parity import MAX_DIFFERENCE, compare_outputs, logit_difference, split_batches
from harken.export.synthetic_lines import synthetic_lines

CASES = [(name, case) for name, cases in SUPPORTED.items() for case in cases]
FAST = {"lm gpt2 biases", "answer llama", "classify bert"}
MIN_DISTINCT = 4  # outputs, so that equal outputs are no coincidence


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(*pair, id=" ".join(pair), marks=[] if pair[1] in FAST else pytest.mark.slow)
        for pair in CASES
    ],
)
def test_equal_logits_and_outputs(
    name: FormatName, case: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, chosen = small_run(case, runs), export_format(name)
    folder = runs / f"{name} {case}"
    folder.mkdir()
    chosen.check(run, "float32")
    chosen.write(run, folder, "float32")
    exported = chosen.load(folder, run)
    inputs = synthetic_lines(run, 68 if case in FAST else 200)
    ranked = sorted(inputs, key=len)
    # The shortest and the longest inputs: one word, and more tokens than the model reads.
    for batch in (ranked[:1], ranked[31:34], [*ranked[:32], *ranked[-31:], ranked[-1] * 9]):
        assert logit_difference(run, exported, batch) <= MAX_DIFFERENCE
    agreements = compare_outputs(run, exported, split_batches(inputs))
    assert agreements.keys() == ({"predict"} if run.search is None else {"greedy", "beam 5"})
    for agreement in agreements.values():
        assert agreement.inputs == len(inputs)
        assert agreement.share >= 0.99
    assert len({prediction.output for prediction in run.predict(inputs)}) >= MIN_DISTINCT


def test_a_difference_is_found(runs: Path) -> None:
    """The comparison must see a change of one weight in the last layer."""
    run, other = (small_run("answer llama", runs) for _ in range(2))
    with torch.no_grad():
        other.model.stack.norm.weight[3] += 1e-3
    inputs = synthetic_lines(run, 3)
    assert logit_difference(run, run.model, inputs) == 0
    assert 1e-4 < logit_difference(run, other.model, inputs) < 1
