"""Utterances that begin at any of their words: what is said first is then no habit to be learnt.

    "no yes no"  ->  "no yes no", "yes no", "no"          each from the start of its first word on

A corpus whose sentences all begin alike teaches that they do, to every model that can tell where a
sentence begins. Times of words come from the manifest, or from a recogniser (`predict --times`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harken.formats.examples import SpokenWord, Utterance


def from_every_word(one: Utterance) -> Iterator[Utterance]:
    """The utterance from each of its words on; one whose words have no times stays whole."""
    texts = one.text.split()
    if [word.word for word in one.words] != texts:
        yield one
        return
    yield one  # with what is heard before its first word
    for first in range(1, len(texts)):
        began = one.words[first].start
        yield replace(
            one,
            text=" ".join(texts[first:]),
            start=one.start + began,
            words=tuple(_later(word, began) for word in one.words[first:]),
        )


def timed_by(
    utterances: Sequence[Utterance], heard: Sequence[Sequence[SpokenWord]]
) -> list[Utterance]:
    """With times that somebody found, where the words are those that are said."""
    return [
        replace(one, words=tuple(words))
        if not one.words and [word.word for word in words] == one.text.split()
        else one
        for one, words in zip(utterances, heard, strict=True)
    ]


def _later(word: SpokenWord, began: float) -> SpokenWord:
    return SpokenWord(word.word, word.start - began, word.end - began)
