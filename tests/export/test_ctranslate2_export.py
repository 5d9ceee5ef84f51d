"""CTranslate2 as an engine: n-best lists, confidences, metrics and lower precisions."""

from pathlib import Path

import pytest

from exportable import small_run
from harken.decode.search import SearchConfig
from harken.export.engine import export_folder, with_engine
from harken.export.folder import export_run
from harken.export.synthetic_lines import synthetic_lines


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("name", ["answer llama", "lm gpt2 biases", "translate rotary"])
@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_equal_hypotheses_with_equal_probabilities(name: str, penalty: float, runs: Path) -> None:
    """Empty answers are excluded without changing the other probabilities."""
    search = SearchConfig(beam=4, length_penalty=penalty, max_tokens=6)
    run = small_run(name, runs).with_search(search)
    inputs = synthetic_lines(run, 40)
    expected, actual = (
        list(each.predict(inputs, nbest=3)) for each in (run, with_engine(run, "ctranslate2"))
    )
    pairs = [
        (first, second)
        for predictions in zip(expected, actual, strict=True)
        for first, second in zip(*(each.nbest for each in predictions), strict=True)
    ]
    assert len(pairs) == 3 * len(inputs)
    equal = [pair for pair in pairs if pair[0].output == pair[1].output]
    assert len(equal) >= 0.99 * len(pairs)
    for first, second in equal:
        assert first.log_probability == pytest.approx(second.log_probability, abs=2e-4)


def test_samples_are_those_of_pytorch(runs: Path) -> None:
    run = small_run("lm gpt2 biases", runs)
    run = run.with_search(SearchConfig(temperature=0.9, max_tokens=5, seed=4))
    inputs = synthetic_lines(run, 5)
    engine = with_engine(run, "ctranslate2")
    assert run.predict(inputs) == engine.predict(inputs)


def test_metrics_are_equal(runs: Path) -> None:
    for name in ("answer llama", "lm gpt2 biases"):
        run = small_run(name, runs)
        expected = run.evaluate().metrics
        actual = with_engine(run, "ctranslate2").evaluate().metrics
        for metric, estimate in expected.items():
            assert actual[metric].value == pytest.approx(estimate.value, rel=1e-4), metric


@pytest.mark.parametrize(("precision", "size"), [("int8", 0.45), ("float16", 0.6)])
def test_lower_precisions_are_smaller_and_measured(precision: str, size: float, runs: Path) -> None:
    run = small_run("translate rotary", runs)
    parity = export_run(run, "ctranslate2", runs / precision, precision)
    whole = export_folder(run.folder, "ctranslate2", "float32")
    with_engine(run, "ctranslate2")
    sizes = [(folder / "model.bin").stat().st_size for folder in (runs / precision, whole)]
    assert sizes[0] < size * sizes[1]
    assert 1e-4 < parity.max_logit_difference < 2
