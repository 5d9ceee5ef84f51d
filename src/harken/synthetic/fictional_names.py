"""Make fictional names: the first words of one person's name and the last word of another's.

Each part is as familiar to a model as a part of a real name. A model that is as confident on them
as on real names does not know which people it knows. The training texts are not searched, so a
name may occur in them by chance.
"""

from collections.abc import Iterable, Sequence

import numpy as np

ATTEMPTS = 20  # per name: most are new, unless nearly all combinations are real


def fictional_names(names: Sequence[str], taken: Iterable[str], count: int, seed: int) -> list[str]:
    """Return up to `count` different names, fewer if there are not so many combinations.

    None is one of `names` or of the `taken` ones. Names of one word have nothing to exchange.
    """
    parts = [name.rsplit(maxsplit=1) for name in dict.fromkeys(names)]
    firsts = list(dict.fromkeys(part[0] for part in parts if len(part) == 2))
    lasts = list(dict.fromkeys(part[1] for part in parts if len(part) == 2))
    known = {*names, *taken}
    pairs = len(firsts) * len(lasts)
    random = np.random.default_rng(seed)
    drawn = random.choice(pairs, size=min(pairs, ATTEMPTS * count), replace=False)
    made = (f"{firsts[pair // len(lasts)]} {lasts[pair % len(lasts)]}" for pair in drawn.tolist())
    return [name for name in made if name not in known][:count]
