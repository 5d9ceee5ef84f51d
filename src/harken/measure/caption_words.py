"""A caption to its words, as the COCO caption evaluation counts them, without its Java.

That evaluation cuts with Stanford's Penn Treebank tokenizer, in lower case, and then drops

    ''  '  ``  `  -LRB-  -RRB-  -LCB-  -RCB-  .  ?  !  ,  :  -  --  ...  ;

so that quotes, stops and dashes count nowhere. Brackets do: in lower case they are not in the list.
Here a word is letters and digits with - . / ' inside, or , : between digits; 's 're 've 'll 'd 'm
n't and the "not" of "cannot" are words of their own; so is every other sign that is not dropped.

Stanford's keeps the dot of an abbreviation ("mr.", "u.s."), reads &amp; as & and knows addresses of
the web; this does not. The two differ in 52 of the 72,474 captions of Flickr8k and Multi30k.
"""

import re
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]

WORD = re.compile(
    r"""
      can(?=not\b)
    | \w+?(?=n't\b) | n't\b
    | '(?:s|re|ve|ll|d|m)\b
    | \w+ (?: [-./]\w+ | (?<=\d)[,:]\d+ | '(?!(?:s|re|ve|ll|d|m|t)\b)\w+ )*
    | [^\w\s.?!,:;'"`‘’“”«»–—…-]
    """,
    re.VERBOSE,
)
NOTE = (
    "words in lower case, cut as by coco-caption (PTB: 's and n't apart, hyphens inside), "
    "without . ? ! , : ; dashes and quotes"
)


def words_of(caption: str) -> list[str]:
    """See the top of this file."""
    return WORD.findall(caption.lower().replace("’", "'"))


def sequences(words: Words, order: int) -> Counter[tuple[str, ...]]:
    """How often each `order` words stand in a row."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))
