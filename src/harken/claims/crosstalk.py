"""The problem set on positions, last part: what positions add to a head that compares contents.

    (k + e_τ)·(q + e_t) = k·q + k·e_t + e_τ·q + e_τ·e_t         with k = q

With independent uniform phases the last three have mean 0 and variances |k|²/2, |k|²/2 and d/4:

    elements ±1          mean d    variance 5d/4         k·q is the constant d
    elements Gaussian    mean d    variance 13d/4        k·q itself varies by 2d
    norm 1               mean 1    variance 1 + d/4      the source's |k| = 1

The source takes the norm of the third and the variance of the first. Real sinusoids are not random:
e_τ·e_t = Σ cos(w_i (τ - t)), which is large where τ is near t.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from harken.attention.positions import SinusoidConfig, interleave
from harken.attention.relative import PositionSizes
from harken.claims import formulas
from harken.claims.claim import NARROWER, Case, Claim, Setting
from harken.claims.drawn import normal

DRAWS, LENGTH = 20000, 128
SHARE = 0.06  # of a variance: six times its error over so many draws, and more for the mean

Content = Callable[[torch.Generator, int], Float[Tensor, "N J"]]


def signs(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Elements ±1."""
    return normal(generator, DRAWS, width).sign()


def gaussian(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Elements of mean 0 and variance 1."""
    return normal(generator, DRAWS, width)


def unit(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Norm 1."""
    return torch.nn.functional.normalize(gaussian(generator, width), dim=1)


def random_places(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Vectors of a place in which every pair of waves has a phase of its own."""
    phases = torch.rand(1, DRAWS, width // 2, generator=generator, dtype=torch.float64)
    phases = phases * 2 * torch.pi
    return interleave(phases.sin(), phases.cos(), width)[0]


def real_places(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Vectors of places drawn from a text, as a model adds them."""
    return place_vectors(torch.randint(LENGTH, (DRAWS,), generator=generator), width)


def place_vectors(places: Int[Tensor, "N"], width: int) -> Float[Tensor, "N J"]:
    """As the library adds them."""
    sizes = PositionSizes(width=width, key_width=width, heads=1, length=LENGTH)
    return SinusoidConfig().build(sizes).vectors(places[None, :, None])[0].double()


def scores(content: Content, places: Content, setting: Setting) -> Float[Tensor, "N"]:
    """Of a key with a query of the same content, positions added to both."""
    generator, width = setting.generator(), setting.width
    same = content(generator, width)
    key, query = (same + places(generator, width) for _ in range(2))
    return (key * query).sum(dim=1)


def crosstalk(setting: Setting) -> Sequence[Case]:
    """A6: the source's mixture, then each assumption by itself."""
    width = setting.width
    cases = [
        *moments("|k| = 1, as stated", unit, 1.0, 5 * width / 4, setting, stated=True),
        *moments("elements ±1", signs, float(width), 5 * width / 4, setting),
        *moments("Gaussian elements", gaussian, float(width), 13 * width / 4, setting),
        *moments("|k| = 1", unit, 1.0, 1 + width / 4, setting),
    ]
    found = scores(signs, real_places, setting)
    near = mean_product(width)
    tolerance = SHARE * float(found.std())
    for what, predicted, stated in (
        (f"real sinusoids, {LENGTH} places: mean d, as stated", float(width), True),
        (f"real sinusoids, {LENGTH} places: mean d + that of Σ cos", width + near, False),
    ):
        cases.append(
            Case(
                what=what,
                predicted=predicted,
                measured=float(found.mean()),
                tolerance=tolerance,
                stated=stated,
            )
        )
    return cases


def moments(
    what: str,
    content: Content,
    mean: float,
    variance: float,
    setting: Setting,
    *,
    stated: bool = False,
) -> list[Case]:
    """Two cases, of random phases."""
    found = scores(content, random_places, setting)
    return [
        Case(
            what=f"{what}: mean",
            predicted=mean,
            measured=float(found.mean()),
            tolerance=SHARE * variance**0.5,
            stated=stated,
        ),
        Case(
            what=f"{what}: variance",
            predicted=variance,
            measured=float(found.var()),
            tolerance=SHARE * variance,
            stated=stated,
        ),
    ]


def mean_product(width: int) -> float:
    """Of e_τ·e_t over all pairs of places in a text."""
    places = np.arange(LENGTH)
    apart = (places[:, None] - places).ravel()
    return float(np.cos(apart[:, None] * formulas.rates(width)).sum(axis=1).mean())


CLAIMS = (
    Claim(
        id="A6",
        source="problem set on positions",
        statement="With positions added, a key equal to its query scores 1 on average, with "
        "variance 5d/4.",
        formula="E = k·q, Var = d (0 + 1/2 + 1/2 + 1/4)",
        assumption="|k| = 1, phases of all waves independent and uniform",
        check=crosstalk,
        expected=NARROWER,
        remark="The variance 5d/4 is that of elements ±1, whose norm is sqrt(d) and whose k·q is "
        "constant (mean d). With |k| = 1 it is 1 + d/4, with Gaussian elements 13d/4. Real "
        "sinusoids are not random: slow waves agree at all places of a text, which raises every "
        "score, and near places most.",
    ),
)
