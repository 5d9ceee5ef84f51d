"""Against what the Java of coco-caption itself makes of some lines, kept here as it gave it."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.captions import caption_words, word_ngrams

# Stanford's PTBTokenizer 3.4.1 in lower case, then the list of pycocoevalcap 1.2.
BY_STANFORD = {
    "A man's dog isn't near the 3.5-inch T-shirt, (really); \"two\" people -- one can't see...": (
        "a man 's dog is n't near the 3.5-inch t-shirt -lrb- really -rrb- two people one ca n't see"
    ),
    "We cannot see Ann's o'clock at 10:30, 1,000 metres from 50 % & it!": (
        "we can not see ann 's o'clock at 10:30 1,000 metres from 50 % & it"
    ),
    "they're there, I'd say; you'll see we've won: I'm sure?": (
        "they 're there i 'd say you 'll see we 've won i 'm sure"
    ),
    "don’t “look” – it's the dogs' ball … ‘now’": "do n't look it 's the dogs ball now",
    "a/b, café-bar #1 at [the] {end} of a_b": (
        "a/b café-bar # 1 at -lsb- the -rsb- -lcb- end -rcb- of a_b"
    ),
    "here.next word,two 3,5 a,b": "here.next word two 3,5 a b",
    "stop.": "stop",
    ". . .": "",
    "": "",
}
# Another name for a bracket is the same word wherever words are compared.
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


@pytest.mark.parametrize("line", BY_STANFORD)
def test_words_are_those_of_stanford(line: str) -> None:
    assert caption_words(line) == [BRACKETS.get(one, one) for one in BY_STANFORD[line].split()]


def test_what_stanford_would_do_otherwise() -> None:
    """The differences that the top of the file admits: there "mr.", "u.s." and "&"."""
    assert caption_words("Mr. Ash &amp; the U.S.") == ["mr", "ash", "&", "amp", "the", "u.s"]


@given(st.text(alphabet="ab3é犬A _-.,:;/'’\"`()&n\t\n…“", max_size=29))
def test_no_letter_is_lost_and_no_word_is_only_punctuation(text: str) -> None:
    words = caption_words(text)
    letters = re.compile(r"\w")
    assert letters.findall("".join(words)) == letters.findall(text.lower())
    assert all(letters.search(one) or one in {*"()&/"} for one in words)


@given(st.lists(st.sampled_from("abc"), max_size=11), st.integers(1, 5))
def test_ngrams_by_a_slow_loop(words: list[str], order: int) -> None:
    found = [tuple(words[at : at + order]) for at in range(len(words)) if at + order <= len(words)]
    assert word_ngrams(words, order) == Counter(found)
