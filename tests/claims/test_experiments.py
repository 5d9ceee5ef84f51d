"""Sampled lines agree with their formulas, and the ends that must be exact are."""

import math
from itertools import pairwise

import pytest
import torch

from harken.claims import ece537_problem_set9, experiments, nlp_assignment5, truncation
from harken.claims.claim import Setting, select_claims
from harken.report.claims_page import claims_page

SMALL = Setting(width=16, seed=1)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ece537_problem_set9, "DRAWS", 4000)
    monkeypatch.setattr(truncation, "STEPS", 3)


def test_a_sharper_band_is_narrower() -> None:
    lines = experiments.band_widths(SMALL).lines
    for soft, sharp in pairwise(("sharpness 1", "sharpness 4", "sharpness 16")):
        pairs = zip(lines[soft], lines[sharp], strict=True)
        assert all(math.isnan(wide) or narrow < wide for wide, narrow in pairs)


def test_variances_lie_on_their_formulas() -> None:
    lines = experiments.score_variance(SMALL).lines
    for sampled, predicted in (
        ("elements ±1", "5d/4, as stated for norm 1"),
        ("Gaussian elements", "13d/4"),
        ("norm 1", "1 + d/4"),
    ):
        assert lines[sampled] == pytest.approx(lines[predicted], rel=0.15)
    assert lines["norm 1"] != pytest.approx(lines["5d/4, as stated for norm 1"], rel=0.5)


def test_the_right_key_loses_to_a_neighbor() -> None:
    lines = experiments.wrong_key_rate(Setting(width=64)).lines
    assert lines["sampled, random phases"] == pytest.approx(
        lines["predicted, random phases"], abs=0.03
    )
    assert lines["real sinusoids, wrong key next to the query"][0] > 0.9


def test_averages_vary_as_predicted() -> None:
    for single in (True, False):
        figure = experiments.noisy_averages(SMALL, single=single)
        for name in ("one key noisy", "all keys noisy"):
            sampled, predicted = (
                figure.lines[f"{name}, {how}"] for how in ("sampled", "predicted")
            )
            assert sampled == pytest.approx(predicted, rel=0.2)


def test_miss_rate_by_hand() -> None:
    """Two values, two heads: one draw of ε decides all."""
    contexts = nlp_assignment5.noisy_average(2, 2, 1, SMALL, draws=997)
    others = (contexts[:, 2:] > 0.01).all(dim=1)  # the mean of all but the noisy one
    assert torch.equal(others, contexts[:, 0] < 0.25)
    assert 0.04 < float(others.double().mean()) < 0.12


def test_recurrent_gradients_fall_and_attention_does_not() -> None:
    lines = experiments.gradient_by_distance(SMALL).lines
    assert lines["tanh RNN"][-1] < 1e-6 > lines["LSTM"][-1]
    assert min(lines["Transformer, two causal layers"]) > 0.3


def test_full_rank_changes_nothing_and_weights_are_restored() -> None:
    initial, _ = truncation.copy_models(SMALL).values()
    (before, *_) = initial.attention()
    change = truncation.attention_change(initial, [1, truncation.KEY_WIDTH])
    assert change[0] > 1e-4 and change[1] < 1e-5
    assert torch.equal(initial.attention()[0], before)


def test_the_page_has_every_figure_and_verdict() -> None:
    results = [claim.evaluate(SMALL) for claim in select_claims(["A5", "B11", "C2"])]
    figures = experiments.run_experiments([result.claim.id for result in results], SMALL)
    assert [figure.id for figure in figures] == ["A5", "B11", "B11", "C2"]
    page = claims_page(results, figures, SMALL)
    assert page.count('<svg class="plot"') == 4
    assert page.count("<strong>Holds") == 3
    assert all(figure.title in page for figure in figures)
