"""The letters of shape strings, one meaning in every file.

Public functions annotate tensors as `Float[Tensor, "B T J"]`; `tests/test_architecture.py` refuses
a letter that is not listed here.
"""

LETTERS = {
    "B": "batch",
    "T": "time of queries",
    "S": "time of keys",
    "k": "heads",
    "J": "width read and written",
    "I": "width of a head's values",
    "U": "width of a head's queries and keys",
    "V": "vocabulary",
    "F": "features",
    "X": "columns of an image",
    "Y": "rows of an image",
    "K": "channels of an image",
    "H": "width of a recurrent state",
    "M": "places of a memory",
    "N": "a flat count, where order has no meaning",
}
