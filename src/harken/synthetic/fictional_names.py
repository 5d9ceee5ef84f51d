"""Names that nobody bears: the first words of one person's name and the last word of another's.

Each part is as familiar to a model as a part of a real name; only the whole was never asked about.
So a model that is as sure of them as of real ones does not know which people it knows. (The texts
that it read are not searched: now and then one of the names may occur there.)
"""

from collections.abc import Iterable, Sequence

import numpy as np

TRIED = 20  # for each name wanted: most are new, unless nearly all combinations are real


def invent_names(names: Sequence[str], taken: Iterable[str], count: int, seed: int) -> list[str]:
    """Up to `count` different new names; fewer where not so many combinations are left.

    Names of one word have nothing to exchange. None of the `taken` names is made, nor any of those
    that the parts come from, so the two parts of a new name are of two different people.
    """
    parted = [name.rsplit(maxsplit=1) for name in dict.fromkeys(names)]
    firsts = list(dict.fromkeys(one[0] for one in parted if len(one) == 2))
    lasts = list(dict.fromkeys(one[1] for one in parted if len(one) == 2))
    known = {*names, *taken}
    pairs = len(firsts) * len(lasts)
    random = np.random.default_rng(seed)
    drawn = random.choice(pairs, size=min(pairs, TRIED * count), replace=False)
    made = (f"{firsts[one // len(lasts)]} {lasts[one % len(lasts)]}" for one in drawn.tolist())
    return [name for name in made if name not in known][:count]
