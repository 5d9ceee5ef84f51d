"""Random streams by key: what is drawn for one thing does not depend on what was drawn before.

NumPy keeps the bits of a stream for ever, but not how it makes normal numbers of them. So what is
drawn here is the same on every machine with the same NumPy, but for the last bit of a logarithm.
"""

import numpy as np

from harken.synthetic.people import Dice


def stream(*key: int | str) -> np.random.Generator:
    """The stream of this key; any whole numbers and words will do."""
    return np.random.Generator(np.random.Philox(key=Dice(*key).below(1 << 128)))
