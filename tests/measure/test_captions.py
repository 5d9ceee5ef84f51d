"""Compare with sacrebleu with several references, and with coco-caption."""

import re
from itertools import zip_longest
from math import exp

import numpy as np
import pytest
from coco_captions import IMAGES, POINTS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from harken.measure.captions import (
    CiderScores,
    caption_bleu,
    caption_bleu_counts,
    caption_samples,
    caption_words,
    cider_scores,
)

# Few words, so that some sequences of four match; none that the tokenizer would cut.
LINES = st.lists(st.sampled_from(("a", "dog", "runs", "in", "t-shirt", "雪")), max_size=11).map(
    " ".join
)
CORPORA = st.lists(
    st.tuples(LINES, st.lists(LINES, min_size=1, max_size=3)), min_size=1, max_size=7
)
ORDERS = (1, 2, 3, 4)
WRITTEN = [caption for caption, _ in IMAGES]
REFERENCES = [own for _, own in IMAGES]


def by_sacrebleu(captions: list[str], references: list[list[str]]) -> dict[str, float]:
    # Stream n has the n-th reference of every image, or None.
    streams = [list(stream) for stream in zip_longest(*references)]
    return {
        f"bleu_{order}": BLEU(
            lowercase=True, tokenize="none", smooth_method="none", max_ngram_order=order, force=True
        )
        .corpus_score(captions, streams)
        .score
        for order in ORDERS
    }


def values(captions: list[str], references: list[list[str]]) -> dict[str, float]:
    samples, _ = caption_samples(captions, references)
    return {name: sample.value for name, sample in samples.items()}


@settings(max_examples=50)  # sacrebleu is asked four times for each
@given(CORPORA)
@example([("", [""])])
@example([("", ["dog", ""])])
@example([("dog", [""])])
@example([("a dog runs in", ["in runs dog a"])])  # words match, longer orders do not
@example([("a dog", ["a", "a dog runs"])])  # as close: the shorter, so nothing is lost
@example([("dog dog", ["dog", "a dog dog"]), ("a a a", ["a", "a a"])])  # as often as in one of them
def test_bleu_is_that_of_sacrebleu(pairs: list[tuple[str, list[str]]]) -> None:
    captions, references = [caption for caption, _ in pairs], [texts for _, texts in pairs]
    result = values(captions, references)
    for name, expected in by_sacrebleu(captions, references).items():
        assert result[name] == pytest.approx(expected, abs=1e-9)


def test_metrics_are_those_of_coco_caption() -> None:
    """From raw text, with one to five references."""
    result = values(WRITTEN, REFERENCES)
    for name, expected in POINTS.items():
        assert result[name] == pytest.approx(expected, abs=1e-6)  # it adds small constants


def test_exact_matches_are_with_any_reference_and_as_written() -> None:
    references = [["A dog.", "A cat."]] * 4
    samples, _ = caption_samples(["A dog.", " A cat.\n", "a cat.", "A dog"], references)
    assert samples["exact_match"].counts[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert samples["exact_match"].unit == "share"


def test_every_metric_has_a_note_that_says_how_many_references() -> None:
    samples, notes = caption_samples(WRITTEN, REFERENCES)
    assert notes.keys() == samples.keys()
    assert "references per image: 1 to 5" in notes["bleu_1"]
    _, notes = caption_samples(["one"], [["one", "two"]])
    assert "references per image: 2," in notes["bleu_1"]


def test_sides_of_unlike_length_and_images_without_references_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        caption_samples(["one", "two"], [["one"]])
    with pytest.raises(AssertionError, match="without a reference"):
        caption_samples(["one"], [[]])


def test_no_floating_point_warning() -> None:
    with np.errstate(all="raise"):
        assert caption_bleu(np.zeros((3, 10))).tolist() == [0.0] * 3
        assert caption_bleu(caption_bleu_counts([["a"]], [[[]]])).tolist() == [0.0]


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
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


@pytest.mark.parametrize("line", BY_STANFORD)
def test_words_are_those_of_stanford(line: str) -> None:
    assert caption_words(line) == [BRACKETS.get(word, word) for word in BY_STANFORD[line].split()]


def test_differences_from_stanford() -> None:
    """Stanford has "mr.", "u.s." and "&"."""
    assert caption_words("Mr. Ash &amp; the U.S.") == ["mr", "ash", "&", "amp", "the", "u.s"]


@given(st.text(alphabet="ab3é犬A _-.,:;/'’\"`()&n\t\n…“", max_size=29))
def test_no_letter_is_lost_and_no_word_is_only_punctuation(text: str) -> None:
    words = caption_words(text)
    letters = re.compile(r"\w")
    assert letters.findall("".join(words)) == letters.findall(text.lower())
    assert all(letters.search(word) or word in {*"()&/"} for word in words)


Words = list[str]
CAPTIONS = st.lists(st.sampled_from("abcd"), max_size=7)
WORD_CORPORA = st.lists(
    st.tuples(CAPTIONS, st.lists(CAPTIONS, min_size=1, max_size=3)), min_size=1, max_size=5
)


def by_dense_vectors(captions: list[Words], references: list[list[Words]]) -> list[CiderScores]:
    """Equations 1 to 4 of arXiv 1411.5726 over vectors of every sequence that occurs anywhere."""

    def pieces(words: Words, order: int) -> list[str]:
        return ["".join(words[at : at + order]) for at in range(len(words) - order + 1)]

    totals = np.zeros((len(captions), 2))
    for order in range(1, 5):
        everyone = [*captions, *(text for texts in references for text in texts)]
        axes = sorted({piece for words in everyone for piece in pieces(words, order)})

        def vector(words: Words, order: int = order, axes: list[str] = axes) -> np.ndarray:
            return np.array([float(pieces(words, order).count(axis)) for axis in axes])

        having = sum(np.max([vector(text) > 0 for text in texts], axis=0) for texts in references)
        rarity = np.log(len(captions) / np.maximum(having, 1.0))
        for total, caption, texts in zip(totals, captions, references, strict=True):
            for reference in texts:
                a, b = vector(caption) * rarity, vector(reference) * rarity
                below = np.linalg.norm(a) * np.linalg.norm(b)
                if below > 0:
                    near = exp(-((len(caption) - len(reference)) ** 2) / 72)
                    parts = (a @ b, near * (np.minimum(a, b) @ b))
                    total += 10 / 4 * np.array(parts) / below / len(texts)
    return [CiderScores(*total) for total in totals.tolist()]


@given(WORD_CORPORA)
@example([([], [[]])])
@example([(["a"], [["a"]]), ([], [["b"], []])])
def test_values_are_those_of_the_formula(pairs: list[tuple[Words, list[Words]]]) -> None:
    captions, references = [caption for caption, _ in pairs], [texts for _, texts in pairs]
    reference = by_dense_vectors(captions, references)
    for result, expected in zip(cider_scores(captions, references), reference, strict=True):
        assert result == pytest.approx(expected, abs=1e-9)
