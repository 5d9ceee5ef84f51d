"""Experiments for claims, as predicted and measured lines that `report/claims_page.py` draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.attention.masks import CAUSAL
from harken.attention.positions import SinusoidConfig
from harken.attention.sinusoids import Sinusoids
from harken.claims import ece537_problem_set9 as problem_set
from harken.claims import formulas, truncation
from harken.claims import nlp_assignment5 as assignment
from harken.claims.claim import Setting
from harken.claims.random_layers import normal, position_vectors, sequence_context
from harken.design.band import BandPlan, band_shape
from harken.inspection.record import attention_layers
from harken.layers.recurrent import LSTMConfig, TanhConfig
from harken.layers.transformer import Stack, TransformerConfig
from harken.models.initialize import initialize
from harken.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A figure of a claim: lines over the same x values."""

    id: str  # of the claim
    title: str
    summary: str
    x_label: str
    y_label: str
    x: Sequence[int]
    lines: dict[str, Sequence[float]]
    log_y: bool = False


def band_widths(setting: Setting) -> Experiment:
    """Measure the distance at which attention is half of its peak (A5)."""
    bands, basis = range(2, 65, 2), Sinusoids(width=setting.width)
    lines: dict[str, Sequence[float]] = {"B/2, as stated": [band / 2 for band in bands]}
    for sharpness in (1.0, 4.0, 16.0):
        plans = [
            BandPlan(basis=basis, offset=100, band=float(band), sharpness=sharpness, length=256)
            for band in bands
        ]
        widths = [band_shape(plan).half_width or float("nan") for plan in plans]
        lines[f"sharpness {sharpness:g}"] = widths
    return Experiment(
        id="A5",
        title="Half-width of a band head",
        summary="The width jumps whenever a larger B leaves out another pair. It is about "
        "B/2 for only one sharpness: a sharper head has a narrower band.",
        x_label="band B, tokens",
        y_label="tokens from the offset to half of the largest attention",
        x=bands,
        lines=lines,
    )


def score_variance(setting: Setting) -> Experiment:
    """Measure the variance of the score if key and query have equal contents (A6)."""
    widths = range(8, 129, 24)

    def sample_variances(
        transform: Callable[[Tensor], Tensor],
        positions: problem_set.Sampler = problem_set.random_positions,
    ) -> list[float]:
        settings = [replace(setting, width=width) for width in widths]
        scores = (problem_set.content_scores(transform, positions, sized) for sized in settings)
        return [float(values.var()) for values in scores]

    return Experiment(
        id="A6",
        title="Variance of the score of equal contents with positions added",
        summary="Each sampled line agrees with the formula for its assumption. The stated 5d/4 "
        "is correct for elements ±1; the norm of 1 that the document assumes gives 1 + d/4.",
        x_label="width d",
        y_label="variance of (k + e)·(q + e) for k = q",
        x=widths,
        lines={
            "5d/4, as stated for norm 1": [5 * d / 4 for d in widths],
            "elements ±1": sample_variances(torch.sign),
            "13d/4": [13 * d / 4 for d in widths],
            "Gaussian elements": sample_variances(torch.positive),  # unchanged
            "1 + d/4": [1 + d / 4 for d in widths],
            "norm 1": sample_variances(F.normalize),
            "elements ±1, real sinusoids": sample_variances(torch.sign, problem_set.real_positions),
        },
    )


def wrong_key_rate(setting: Setting) -> Experiment:
    """Measure how often a wrong key has a higher score than the right key (A6)."""
    percents = range(10, 201, 10)
    generator, width = setting.generator(), setting.width
    norms = [percent / 100 * (width / 2) ** 0.5 for percent in percents]
    draws = problem_set.DRAWS
    right, wrong = (F.normalize(normal(generator, draws, width)) for _ in range(2))

    def sample_rates(
        query_position: Tensor, right_position: Tensor, wrong_position: Tensor
    ) -> list[float]:
        rates = []
        for norm in norms:
            query = norm * right + query_position
            margin = query * (norm * (wrong - right) + wrong_position - right_position)
            rates.append(float((margin.sum(dim=1) > 0).double().mean()))
        return rates

    def predict_rate(norm: float) -> float:
        """Approximate the margin by a normal variable with mean -norm²."""
        squared = norm**2 + width / 2  # squared norm of the query with its position
        # Elements of positions have variance 1/2, elements of unit vectors 1/width. The terms are
        # the query's position times the right content, the query times both keys' positions, and
        # the query times the wrong content.
        variance = norm**2 / 2 + squared + squared * norm**2 / width
        return formulas.normal_cdf(-(norm**2) / variance**0.5)

    random, real = (
        [positions(generator, width) for _ in range(3)]
        for positions in (problem_set.random_positions, problem_set.real_positions)
    )
    indices = torch.randint(1, problem_set.POSITIONS, (draws,), generator=generator)
    current, previous = (
        position_vectors(SinusoidConfig(), positions, width).double()
        for positions in (indices, indices - 1)
    )
    return Experiment(
        id="A6",
        title="Rate at which a wrong key has the higher score",
        summary="If contents and positions have equal norms, the right key almost always has the "
        "higher score; if contents have a tenth of that norm, either key is about equally likely. "
        "With real sinusoids, a wrong key next to the query usually has the higher score, unless "
        "the norm of contents is at least two thirds of that of positions.",
        x_label="norm of contents, percent of the norm of positions",
        y_label="share of draws in which the wrong key has the higher score",
        x=percents,
        lines={
            "predicted, random phases": [predict_rate(norm) for norm in norms],
            "sampled, random phases": sample_rates(*random),
            "real sinusoids, keys anywhere": sample_rates(*real),
            "real sinusoids, wrong key next to the query": sample_rates(current, real[1], previous),
        },
    )


def noisy_averages(setting: Setting, *, single: bool) -> Experiment:
    """Measure the variance if one head averages m values, or m heads one value each (B11)."""
    counts, lines = range(2, 8), dict[str, Sequence[float]]()
    for noise in ("one key noisy", "all keys noisy"):
        sizes = [
            {
                "heads": 1 if single else count,
                "averaged": count,
                "noisy": 1 if noise == "one key noisy" else count,
            }
            for count in counts
        ]
        lines[f"{noise}, predicted"] = [assignment.predicted_variance(**size) for size in sizes]
        contexts = (assignment.noisy_average(**size, setting=setting, draws=8000) for size in sizes)
        lines[f"{noise}, sampled"] = [float(draws.var(dim=0).sum()) for draws in contexts]
    return Experiment(
        id="B11",
        title=f"Variance of an average by {'one head' if single else 'm heads'}",
        summary="With one head, more noisy keys increase the variance. With m heads, each head "
        "whose key is noisy gives it no attention with probability 7.9 %, independently of the "
        "others, and contributes 1/m of c. The two figures have different y axes.",
        x_label="values averaged, m",
        y_label="variance of c",
        x=counts,
        lines=lines,
    )


def gradient_by_distance(setting: Setting) -> Experiment:
    """Measure the gradient of the last state with respect to each earlier input (C2)."""
    time, width, rows, layers = 64, 32, 8, 2
    generator = setting.generator()
    inputs = normal(generator, rows, time, width).requires_grad_()
    direction = normal(generator, rows, width)
    lines = {}
    for name, module in (
        ("tanh RNN", TanhConfig().build(width)),
        ("LSTM", LSTMConfig().build(width)),
        ("Transformer, two causal layers", Stack(TransformerConfig(), layers, width, time)),
    ):
        initialize(module, layers, setting.seed)
        context = [sequence_context(time, time, CAUSAL)] if isinstance(module, Stack) else []
        states = module.double()(inputs, *context)[0]
        (gradient,) = torch.autograd.grad((states[:, -1] * direction).sum(), inputs)
        sizes = gradient.norm(dim=-1).mean(dim=0).flip(0)
        lines[name] = (sizes / sizes[1]).tolist()[1:]
    return Experiment(
        id="C2",
        title="Gradient by distance",
        summary="Each step back multiplies a recurrent gradient by a matrix and the derivative of "
        "tanh, so it falls by orders of magnitude. Attention reaches every position in one step. "
        "All models are untrained.",
        x_label="steps before the last",
        y_label="norm of the gradient, relative to one step back",
        x=range(1, time),
        lines=lines,
        log_y=True,
    )


def rank_truncation(setting: Setting, run: Run | None = None) -> Experiment:
    """Measure the change of attention if W~ is truncated to a lower rank (B8)."""
    models = truncation.copy_models(setting) if run is None else truncation.run_models(run)
    layers = attention_layers(next(iter(models.values())).model).values()
    width = max(layer.score.key_width or 0 for layer in layers)
    ranks = sorted({*range(1, width, max(1, width // 16)), width})
    comparison = (
        "The error of trained heads falls faster than that of random weights, which are scaled to "
        "the same norm."
        if run is None
        else "The other line is the same model with random weights, scaled to the norm of the "
        "trained ones."
    )
    return Experiment(
        id="B8",
        title="Attention if W~ is truncated to a lower rank",
        summary=f"At full rank, the attention does not change. {comparison}",
        x_label="rank of W~",
        y_label="change of attention (total variation distance)",
        x=ranks,
        lines={name: truncation.attention_change(model, ranks) for name, model in models.items()},
    )


def run_experiments(
    ids: Sequence[str], setting: Setting, run: Run | None = None
) -> list[Experiment]:
    """Run the experiments of these claims; B8 uses the model of `run` if there is one."""
    experiments: tuple[tuple[str, Callable[[Setting], Experiment]], ...] = (
        ("A5", band_widths),
        ("A6", score_variance),
        ("A6", wrong_key_rate),
        ("B8", partial(rank_truncation, run=run)),
        ("B11", partial(noisy_averages, single=True)),
        ("B11", partial(noisy_averages, single=False)),
        ("C2", gradient_by_distance),
    )
    return [experiment(setting) for name, experiment in experiments if name in ids]
