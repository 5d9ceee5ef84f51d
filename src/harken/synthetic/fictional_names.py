"""Combine the first words of one name with the last word of another into fictional names.

The words of fictional names are as familiar to a model as those of real names. So fictional names
test whether the confidence of the model reveals which people it has seen. A fictional name may
occur in the training texts by chance.
"""

from collections.abc import Iterable, Sequence

import numpy as np

ATTEMPTS = 20  # combinations drawn per name, of which those that exist are discarded


def fictional_names(names: Sequence[str], taken: Iterable[str], count: int, seed: int) -> list[str]:
    """Return up to `count` new names, not in `names` or `taken`; names of one word are skipped."""
    parts = [name.rsplit(maxsplit=1) for name in dict.fromkeys(names)]
    firsts = list(dict.fromkeys(part[0] for part in parts if len(part) == 2))
    lasts = list(dict.fromkeys(part[1] for part in parts if len(part) == 2))
    known = {*names, *taken}
    pairs = len(firsts) * len(lasts)
    rng = np.random.default_rng(seed)
    drawn = rng.choice(pairs, size=min(pairs, ATTEMPTS * count), replace=False).tolist()
    combined = (f"{firsts[pair // len(lasts)]} {lasts[pair % len(lasts)]}" for pair in drawn)
    return [name for name in combined if name not in known][:count]
