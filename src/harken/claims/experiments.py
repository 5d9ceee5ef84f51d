"""Claims that are better seen than read: lines over whole numbers, predicted beside measured.

Each function carries one experiment out and gives its data; drawing is in `report/claims.py`. The
distance at which a Synthesizer fails takes training, and is in `benchmarks/`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes

import torch

from harken.attention.masks import CAUSAL
from harken.claims import crosstalk, formulas, fragility, truncation
from harken.claims.claim import Setting
from harken.claims.drawn import normal
from harken.claims.layer import row_context
from harken.design.band import BandPlan, band_shape
from harken.design.waves import Waves
from harken.layers.recurrent import LSTMConfig, TanhConfig
from harken.layers.stack import Stack
from harken.layers.transformer import TransformerConfig
from harken.models.initialize import initialize
from harken.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """Lines over the same places; `seen` says what to look for."""

    id: str  # of the claim
    title: str
    seen: str
    x_label: str
    y_label: str
    places: Sequence[int]
    lines: dict[str, Sequence[float]]
    log_y: bool = False


def band_widths(setting: Setting) -> Experiment:
    """A5: where attention is half of its peak, for bands of many widths."""
    bands = range(2, 65, 2)

    def measured(sharpness: float) -> list[float]:
        plans = (
            BandPlan(
                waves=Waves(width=setting.width),
                offset=100,
                band=float(band),
                sharpness=sharpness,
                length=256,
            )
            for band in bands
        )
        return [band_shape(plan).half_width or float("nan") for plan in plans]

    return Experiment(
        id="A5",
        title="Half-width of a band head",
        seen="The width grows with B in steps, one for each pair of waves zeroed. It is about B/2 "
        "at one sharpness only: a sharper head has a narrower band.",
        x_label="band B, steps",
        y_label="steps from T to half of the largest attention",
        places=bands,
        lines={
            "B/2, as stated": [band / 2 for band in bands],
            "sharpness 1": measured(1.0),
            "sharpness 4": measured(4.0),
            "sharpness 16": measured(16.0),
        },
    )


def score_variance(setting: Setting) -> Experiment:
    """A6: the variance of the score of equal contents, by their kind."""
    widths = range(8, 129, 24)
    lines: dict[str, Sequence[float]] = {"5d/4, as stated for norm 1": [5 * d / 4 for d in widths]}
    for name, content, places, predicted in (
        ("elements ±1", crosstalk.signs, crosstalk.random_places, None),
        ("Gaussian elements", crosstalk.gaussian, crosstalk.random_places, "13d/4"),
        ("norm 1", crosstalk.unit, crosstalk.random_places, "1 + d/4"),
        ("elements ±1, real sinusoids", crosstalk.signs, crosstalk.real_places, None),
    ):
        if predicted is not None:
            slope, constant = (13, 0) if predicted == "13d/4" else (1, 1)
            lines[predicted] = [constant + slope * d / 4 for d in widths]
        settings = (with_changes(setting, width=width) for width in widths)
        lines[name] = [float(crosstalk.scores(content, places, one).var()) for one in settings]
    return Experiment(
        id="A6",
        title="Variance of a content's score with positions added",
        seen="Sampled lines lie on the formula of their own assumption: 5d/4 is that of elements "
        "±1, and the norm of 1 that the source assumes gives 1 + d/4.",
        x_label="width d",
        y_label="variance of (k + e)·(q + e) for k = q",
        places=widths,
        lines=lines,
    )


def losing(setting: Setting) -> Experiment:
    """A6: how often a wrong key scores above the right one."""
    shares = range(10, 201, 10)
    position = (setting.width / 2) ** 0.5
    norms = [share / 100 * position for share in shares]

    generator, width = setting.generator(), setting.width
    right, wrong = crosstalk.unit(generator, width), crosstalk.unit(generator, width)

    def sampled(
        asking: torch.Tensor, right_place: torch.Tensor, wrong_place: torch.Tensor
    ) -> list[float]:
        found = []
        for norm in norms:
            query = norm * right + asking
            better = query * (norm * (wrong - right) + wrong_place - right_place)
            found.append(float((better.sum(dim=1) > 0).double().mean()))
        return found

    random, real = (
        [places(generator, width) for _ in range(3)]
        for places in (crosstalk.random_places, crosstalk.real_places)
    )
    at = torch.randint(1, crosstalk.LENGTH, (crosstalk.DRAWS,), generator=generator)
    here, before = (crosstalk.place_vectors(one, width) for one in (at, at - 1))

    def predicted(norm: float) -> float:
        own = norm**2 + setting.width / 2  # of the query with its position, squared
        variance = norm**2 / 2 + own + own * norm**2 / setting.width
        return formulas.below(-(norm**2) / variance**0.5)

    return Experiment(
        id="A6",
        title="How often the right key loses",
        seen="Contents as long as positions are nearly safe against one other key, contents of a "
        "tenth of that are guessed. Real sinusoids favour a neighbour: beside the query a wrong "
        "key wins more often than not until contents are two thirds as long as positions.",
        x_label="length of contents, per cent of the length of positions",
        y_label="share of draws in which another key scores higher",
        places=shares,
        lines={
            "predicted, random phases": [predicted(norm) for norm in norms],
            "sampled, random phases": sampled(*random),
            "real sinusoids, keys anywhere": sampled(*real),
            "real sinusoids, wrong key beside the query": sampled(here, real[1], before),
        },
    )


def fragile_average(setting: Setting) -> list[Experiment]:
    """B11: one head that averages m values, and m heads that have one each."""
    counts = range(2, 8)
    made = []
    for heads, predicted in (("one head", fragility.one_head), ("m heads", fragility.many_heads)):
        lines: dict[str, Sequence[float]] = {}
        for name in ("one key noisy", "all keys noisy"):
            noisy = [1 if name == "one key noisy" else count for count in counts]
            lines[f"{name}, predicted"] = [
                predicted(count, some) for count, some in zip(counts, noisy, strict=True)
            ]
            lines[f"{name}, sampled"] = [
                fragility.spread(
                    fragility.averaged(
                        1 if heads == "one head" else count, count, some, setting, 8000
                    )
                )
                for count, some in zip(counts, noisy, strict=True)
            ]
        made.append(
            Experiment(
                id="B11",
                title=f"Variance of an average by {heads}",
                seen="One head swings more the more keys are noisy; each of m heads misses with "
                "7.9 %, alone, and weighs 1/m: mind the scale of the second figure.",
                x_label="values averaged, m",
                y_label="variance of c",
                places=counts,
                lines=lines,
            )
        )
    return made


def gradient_reach(setting: Setting) -> Experiment:
    """C2: how large the gradient of the last state is at each input before it."""
    time, width, rows = 64, 32, 8
    generator = setting.generator()
    inputs = normal(generator, rows, time, width).requires_grad_()
    probe = normal(generator, rows, width)
    block = TransformerConfig()
    models: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    for name, module in (
        ("tanh RNN", TanhConfig().build(width)),
        ("LSTM", LSTMConfig().build(width)),
        ("Transformer, two causal layers", Stack(block, 2, width, time)),
    ):
        initialize(module, 2, setting.seed)
        module.double()
        told = (row_context(time, time, CAUSAL),) if isinstance(module, Stack) else ()
        models[name] = lambda x, module=module, told=told: module(x, *told)[0]  # type: ignore[misc]
    lines = {}
    for name, run in models.items():
        (gradient,) = torch.autograd.grad((run(inputs)[:, -1] * probe).sum(), inputs)
        sizes = gradient.norm(dim=-1).mean(dim=0).flip(0)
        lines[name] = (sizes / sizes[1]).tolist()[1:]
    return Experiment(
        id="C2",
        title="Gradient against distance",
        seen="Each step back multiplies a recurrent gradient by a matrix and the slope of tanh: it "
        "falls by powers of ten. Attention reaches every place in one step. All before training.",
        x_label="steps before the last",
        y_label="size of the gradient, that of one step back = 1",
        places=range(1, time),
        lines=lines,
        log_y=True,
    )


def rank_truncation(setting: Setting, run: Run | None = None) -> Experiment:
    """B8: attention of a model whose merged matrices keep only their largest directions."""
    watched = truncation.of_copier(setting) if run is None else truncation.of_run(run)
    width = truncation.key_width(next(iter(watched.values())).model)
    ranks = sorted({*range(1, width, max(1, width // 16)), width})
    return Experiment(
        id="B8",
        title="Attention when W~ keeps few directions",
        seen="With all directions the attention is the same. A trained head needs few of them: its "
        "error falls faster than that of random weights, which here are scaled to the same size."
        if run is None
        else "With all directions the attention is the same. The other line is the same model with "
        "random weights, scaled to the size of the trained ones.",
        x_label="directions kept of W~",
        y_label="attention moved, share of the mass",
        places=ranks,
        lines={name: truncation.moved(one, ranks) for name, one in watched.items()},
    )


def experiments(names: Sequence[str], setting: Setting, run: Run | None = None) -> list[Experiment]:
    """Those that belong to these claims; B8 looks at the run, where there is one."""
    found: list[Experiment] = []
    if "A5" in names:
        found.append(band_widths(setting))
    if "A6" in names:
        found += [score_variance(setting), losing(setting)]
    if "B8" in names:
        found.append(rank_truncation(setting, run))
    if "B11" in names:
        found += fragile_average(setting)
    if "C2" in names:
        found.append(gradient_reach(setting))
    return found
