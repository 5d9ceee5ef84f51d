"""Against jiwer's own figures of whole corpora, and the fewest edits found by trying them all."""

import random
from collections import Counter
from functools import cache

import jiwer
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harken.measure.edit_distance import (
    STRICT,
    EditCounts,
    EditOp,
    Leniency,
    Units,
    add_edits,
    align_texts,
    confusion_counts,
    count_edits,
    edits_by_speaker,
    over_said,
    transcription_samples,
)
from harken.measure.interval import SHARES
from harken.measure.paired import comparable
from harken.measure.tagging import Confusion, confusions

WORDS = ("one", "two", "won", "too", "One", "two,", "é", "犬", "don't")
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)
CORPORA = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6)
BOTH: tuple[Units, ...] = ("words", "characters")


def sides(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [one for one, _ in pairs], [other for _, other in pairs]


def edits_of(written: list[str], said: list[str], units: Units = "words") -> list[EditCounts]:
    return [count_edits(steps) for steps in align_texts(written, said, units=units)]


@given(CORPORA)
@example([("", "")])
@example([("one two", "")])
@example([("", "one two")])
@example([("one", ""), ("", "two"), ("", "")])
def test_values_are_those_of_jiwer(pairs: list[tuple[str, str]]) -> None:
    written, said = sides(pairs)
    samples, _ = transcription_samples(written, said)
    words, characters = jiwer.process_words(said, written), jiwer.process_characters(said, written)
    assert samples["wer"].value == pytest.approx(words.wer)
    assert samples["cer"].value == pytest.approx(characters.cer)
    count = max(words.hits + words.substitutions + words.deletions, 1)
    for kind in ("substitutions", "deletions", "insertions"):
        assert samples[kind].value == pytest.approx(getattr(words, kind) / count)


@pytest.mark.parametrize("units", BOTH)
@given(CORPORA)
def test_each_sentence_is_one_of_its_own(units: Units, pairs: list[tuple[str, str]]) -> None:
    """Many at once equal one at a time, by jiwer."""
    process = jiwer.process_words if units == "words" else jiwer.process_characters
    for (written, said), ours in zip(pairs, edits_of(*sides(pairs), units), strict=True):
        one = process(said, written)
        assert ours == (one.hits, one.substitutions, one.deletions, one.insertions)


@cache
def fewest(said: tuple[str, ...], written: tuple[str, ...]) -> int:
    """Every way to begin, by the definition."""
    if not said or not written:
        return len(said) + len(written)
    return min(
        fewest(said[1:], written[1:]) + (said[0] != written[0]),
        fewest(said[1:], written) + 1,
        fewest(said, written[1:]) + 1,
    )


@pytest.mark.parametrize("units", BOTH)
@given(st.tuples(SENTENCES, SENTENCES))
@example(("two one two", "one two one"))
def test_no_fewer_edits_would_do(units: Units, pair: tuple[str, str]) -> None:
    written, said = pair
    ((*steps,),) = align_texts([written], [said], units=units)
    cut = str.split if units == "words" else list  # type: ignore[var-annotated]
    ours = count_edits(steps)
    assert ours.errors == fewest(tuple(cut(said)), tuple(cut(written)))
    # The steps tell both texts, and each is what it says it is.
    assert [step.said for step in steps if step.edit != "insert"] == cut(said)
    assert [step.written for step in steps if step.edit != "delete"] == cut(written)
    for said_one, written_one, edit in steps:
        assert (said_one == written_one) == (edit == "equal")
        assert (said_one == "") == (edit == "insert")
        assert (written_one == "") == (edit == "delete")
    assert ours.said == len(cut(said))
    assert ours.said - ours.deletions + ours.insertions == len(cut(written))


def test_by_hand() -> None:
    said, written = ["the cat sat on the mat", "yes"], ["a cat so sat on mat", "yes"]
    first, second = align_texts(written, said, units="words")
    assert first == [
        EditOp("the", "a", "substitute"),
        EditOp("cat", "cat", "equal"),
        EditOp("", "so", "insert"),
        EditOp("sat", "sat", "equal"),
        EditOp("on", "on", "equal"),
        EditOp("the", "", "delete"),
        EditOp("mat", "mat", "equal"),
    ]
    assert second == [EditOp("yes", "yes", "equal")]
    edits = [count_edits(first), count_edits(second)]
    assert edits == [EditCounts(4, 1, 1, 1), EditCounts(1, 0, 0, 0)]
    assert add_edits(edits) == EditCounts(5, 1, 1, 1)
    assert add_edits(edits).rate == 3 / 7  # not the mean of 3/6 and 0
    samples, _ = transcription_samples(written, said)
    assert samples["wer"].counts.tolist() == [[3, 6], [0, 1]]
    assert samples["wer"].value == 3 / 7


def test_a_space_is_a_character_and_white_space_is_a_space() -> None:
    assert edits_of(["ab"], ["a b"], "characters") == [EditCounts(2, 0, 1, 0)]
    assert edits_of(["  a \t\n b "], ["a b"], "characters") == [EditCounts(3, 0, 0, 0)]
    assert edits_of([" a\u00a0\n b "], ["a b"]) == [EditCounts(2, 0, 0, 0)]
    assert edits_of(["   "], ["\n"], "characters") == [EditCounts()]


def test_words_that_were_not_there_are_insertions() -> None:
    """Silence in which words were heard: an error of its own, though nothing was said."""
    samples, _ = transcription_samples(["oh no", "yes"], ["", "yes"])
    assert samples["wer"].value == 2.0
    assert samples["insertions"].value == 2.0
    silence, _ = transcription_samples(["oh no", ""], ["", ""])
    assert silence["wer"].value == 2.0  # of none said: their number
    quiet, _ = transcription_samples([""], [""])
    assert quiet["wer"].value == quiet["cer"].value == 0.0
    assert EditCounts(0, 0, 0, 2).rate == 2.0 and EditCounts().rate == 0.0


LENIENT = Leniency(case=True, punctuation=True)


@pytest.mark.parametrize(
    ("leniency", "text", "compared"),
    [
        (STRICT, "“Yes,” it's  3.5—No!", "“Yes,” it's 3.5—No!"),
        (Leniency(case=True), "Yes, ÄRA", "yes, ära"),
        (Leniency(punctuation=True), "“Yes,” it's  3.5—No!", "Yes it's 3 5 No"),
        (
            Leniency(punctuation=True),
            "'tis the dogs' well-known ' ’’ l’été",
            "tis the dogs well known l’été",
        ),
        (Leniency(punctuation=True), "cafe\u0301 + 5 € ¿qué?", "cafe\u0301 + 5 € qué"),
        (LENIENT, "Don't. Stop", "don't stop"),
        (LENIENT, "...", ""),
    ],
)
def test_leniency(leniency: Leniency, text: str, compared: str) -> None:
    assert leniency.apply(text) == compared
    samples, _ = transcription_samples([text], [compared], leniency)
    assert samples["wer"].value == samples["cer"].value == 0.0


def test_nothing_is_forgiven_unless_the_caller_says_so() -> None:
    samples, notes = transcription_samples(["Yes, no"], ["yes no"])
    assert samples["wer"].value == 1 / 2
    assert "case compared, punctuation compared" in notes["wer"]
    samples, notes = transcription_samples(["Yes, no"], ["yes no"], LENIENT)
    assert samples["wer"].value == 0
    assert "case ignored, punctuation ignored" in notes["wer"]
    assert notes.keys() == samples.keys()


def spoken(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences, and what a poor recognizer makes of them."""
    chance = random.Random(seed)
    said = [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]
    written = [
        " ".join(
            chance.choice(WORDS) if chance.random() < 0.2 else word
            for word in one.split()
            if chance.random() > 0.1
        )
        for one in said
    ]
    return written, said


def test_resamples_are_corpora_of_their_own() -> None:
    written, said = spoken(23, seed=1)
    said[3], said[7] = "", ""
    samples, _ = transcription_samples(written, said)
    drawn = [*np.random.default_rng(7).integers(0, 23, size=(41, 23)), np.full(23, 3)]
    for name, process in (("wer", jiwer.wer), ("cer", jiwer.cer)):
        sums = np.stack([samples[name].counts[one].sum(axis=0) for one in drawn])
        wanted = [process([said[at] for at in one], [written[at] for at in one]) for one in drawn]
        np.testing.assert_allclose(samples[name].figure(sums), wanted, rtol=0, atol=1e-12)


def test_an_interval_is_that_of_drawing_sentences() -> None:
    written, said = spoken(61, seed=2)
    samples, _ = transcription_samples(written, said)
    chance = np.random.default_rng(3)
    rates = []
    for _ in range(200):
        one = chance.integers(0, 61, size=61)
        rates.append(jiwer.wer([said[at] for at in one], [written[at] for at in one]))
    low, high = np.quantile(rates, (0.025, 0.975))
    ours = samples["wer"].estimate()
    assert ours.low < ours.value < ours.high and ours.unit == "error" and ours.unit in SHARES
    assert ours.high - ours.low == pytest.approx(high - low, rel=0.2)
    assert (ours.low + ours.high) / 2 == pytest.approx((low + high) / 2, abs=0.01)


def test_two_runs_on_the_same_sentences_can_be_compared() -> None:
    written, said = spoken(29, seed=4)
    other, _ = spoken(29, seed=5)
    first, second = (transcription_samples(one, said)[0] for one in (written, other))
    assert all(comparable(first[name], second[name]) for name in first)


def test_speakers_apart() -> None:
    edits = [
        EditCounts(4, 1, 0, 1),
        EditCounts(9, 0, 1, 0),
        EditCounts(1, 1, 1, 0),
        EditCounts(2, 0, 0, 0),
    ]
    found = edits_by_speaker(["ann", "bob", "ann", "cy"], edits)
    assert list(found) == ["ann", "bob", "cy"]  # the worst understood first
    assert found == {
        "ann": EditCounts(5, 2, 1, 1),
        "bob": EditCounts(9, 0, 1, 0),
        "cy": EditCounts(2, 0, 0, 0),
    }
    assert found["ann"].rate == 4 / 8
    assert add_edits(found.values()) == add_edits(edits)
    assert edits_by_speaker([], []) == {}
    with pytest.raises(ValueError, match="longer"):
        edits_by_speaker(["ann"], edits)


def test_the_commonest_confusions() -> None:
    said = ["one two", "one two", "one one", "two"]
    written = ["won two", "won too", "one one one", ""]
    pairs = confusion_counts(align_texts(written, said, units="words"))
    assert pairs == Counter(
        {("one", "won"): 2, ("one", "one"): 2, ("two", "two"): 1, ("two", "too"): 1}
        | {("", "one"): 1, ("two", ""): 1}
    )
    assert confusions(pairs, limit=2) == [
        Confusion("one", "won", 2, 2 / 4),
        Confusion("", "one", 1, 1.0),
    ]


def test_sides_of_unlike_length_are_refused_and_none_is_none() -> None:
    with pytest.raises(ValueError, match="match"):
        align_texts(["one", "two"], ["one"], units="words")
    assert align_texts([], [], units="words") == []


def test_no_floating_point_warning() -> None:
    with np.errstate(all="raise"):
        assert over_said(np.array([[0.0, 0.0], [3.0, 0.0], [1.0, 4.0]])).tolist() == [0, 3, 0.25]
