"""Words of displayed tokens."""

import re
from collections.abc import Sequence

_SPECIAL = re.compile(r"<[a-z_ ]+>|\[(CLS|SEP|PAD|MASK|UNK)\]|<\|[a-z]+\|>|</?s>")
CONTINUATION = "##"  # of a word piece of BERT


def is_special(token: str) -> bool:
    """Whether the text is that of a special token, such as <end> or [SEP]."""
    return _SPECIAL.fullmatch(token) is not None


def word_indices(tokens: Sequence[str]) -> list[int]:
    """Return the index of the word of each token; a special token is a word of its own.

    If some tokens begin with a space, the others continue a word; if some begin with ##, only these
    do; otherwise every token is a word.
    """
    has_spaces = any(token[:1].isspace() for token in tokens)
    has_pieces = any(token.startswith(CONTINUATION) for token in tokens)
    indices: list[int] = []
    is_new = True  # whether the previous token ends a word
    for token in tokens:
        if is_special(token):
            starts = is_new = True
        elif has_pieces:
            starts, is_new = is_new or not token.startswith(CONTINUATION), False
        elif has_spaces:
            starts, is_new = is_new or token[:1].isspace(), False
        else:
            starts = True
        indices.append((indices[-1] if indices else -1) + (starts or not indices))
    return indices
