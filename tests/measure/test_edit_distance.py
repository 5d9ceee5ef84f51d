"""Compare with jiwer on whole corpora, and with an exhaustive search for the fewest edits."""

import random
from functools import cache

import jiwer
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harken.measure.edit_distance import (
    STRICT,
    EditCounts,
    Leniency,
    Units,
    align_texts,
    count_edits,
    edits_by_speaker,
    error_rate,
    transcription_samples,
)

WORDS = ("one", "two", "won", "too", "One", "two,", "é", "犬", "don't")
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)
CORPORA = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6)
BOTH: tuple[Units, ...] = ("words", "characters")


def sides(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [written for written, _ in pairs], [output for _, output in pairs]


def edits_of(written: list[str], output: list[str], units: Units = "words") -> list[EditCounts]:
    return [count_edits(steps) for steps in align_texts(written, output, units=units)]


@given(CORPORA)
@example([("", "")])
@example([("one two", "")])
@example([("", "one two")])
@example([("one", ""), ("", "two"), ("", "")])
def test_values_are_those_of_jiwer(pairs: list[tuple[str, str]]) -> None:
    written, output = sides(pairs)
    samples, _ = transcription_samples(written, output)
    words = jiwer.process_words(output, written)
    assert samples["wer"].value == pytest.approx(words.wer)
    assert samples["cer"].value == pytest.approx(jiwer.process_characters(output, written).cer)
    count = max(words.hits + words.substitutions + words.deletions, 1)
    for kind in ("substitutions", "deletions", "insertions"):
        assert samples[kind].value == pytest.approx(getattr(words, kind) / count)


@pytest.mark.parametrize("units", BOTH)
@given(CORPORA)
def test_a_corpus_equals_its_sentences(units: Units, pairs: list[tuple[str, str]]) -> None:
    process = jiwer.process_words if units == "words" else jiwer.process_characters
    for (written, output), ours in zip(pairs, edits_of(*sides(pairs), units), strict=True):
        single = process(output, written)
        assert ours == (single.hits, single.substitutions, single.deletions, single.insertions)


@cache
def fewest(output: tuple[str, ...], written: tuple[str, ...]) -> int:
    """Return the edit distance by its recursive definition."""
    if not output or not written:
        return len(output) + len(written)
    return min(
        fewest(output[1:], written[1:]) + (output[0] != written[0]),
        fewest(output[1:], written) + 1,
        fewest(output, written[1:]) + 1,
    )


@pytest.mark.parametrize("units", BOTH)
@given(st.tuples(SENTENCES, SENTENCES))
@example(("two one two", "one two one"))
def test_edits_are_minimal(units: Units, pair: tuple[str, str]) -> None:
    written, said = pair
    ((*ops,),) = align_texts([written], [said], units=units)
    cut = str.split if units == "words" else list  # type: ignore[var-annotated]
    ours = count_edits(ops)
    assert ours.errors == fewest(tuple(cut(said)), tuple(cut(written)))
    assert [op.reference for op in ops if op.edit != "insert"] == cut(said)
    assert [op.hypothesis for op in ops if op.edit != "delete"] == cut(written)
    for reference, output, edit in ops:
        assert (reference == output) == (edit == "equal")
        assert (reference == "") == (edit == "insert")
        assert (output == "") == (edit == "delete")
    assert ours.reference_units == len(cut(said))
    assert ours.reference_units - ours.deletions + ours.insertions == len(cut(written))


def test_a_space_is_a_character_and_white_space_is_a_space() -> None:
    assert edits_of(["ab"], ["a b"], "characters") == [EditCounts(2, 0, 1, 0)]
    assert edits_of(["  a \t\n b "], ["a b"], "characters") == [EditCounts(3, 0, 0, 0)]
    assert edits_of([" a\u00a0\n b "], ["a b"]) == [EditCounts(2, 0, 0, 0)]
    assert edits_of(["   "], ["\n"], "characters") == [EditCounts()]
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


def test_strict_by_default() -> None:
    samples, notes = transcription_samples(["Yes, no"], ["yes no"])
    assert samples["wer"].value == 1 / 2
    assert "case compared, punctuation compared" in notes["wer"]
    samples, notes = transcription_samples(["Yes, no"], ["yes no"], LENIENT)
    assert samples["wer"].value == 0
    assert "case ignored, punctuation ignored" in notes["wer"]
    assert notes.keys() == samples.keys()


def spoken(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Return outputs of a poor recognizer, and references."""
    rng = random.Random(seed)
    output = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(count)]
    written = [
        " ".join(
            rng.choice(WORDS) if rng.random() < 0.2 else word
            for word in sentence.split()
            if rng.random() > 0.1
        )
        for sentence in output
    ]
    return written, output


def test_figures_of_resamples_equal_jiwer() -> None:
    written, output = spoken(23, seed=1)
    output[3], output[7] = "", ""
    samples, _ = transcription_samples(written, output)
    drawn = [*np.random.default_rng(7).integers(0, 23, size=(41, 23)), np.full(23, 3)]
    for name, process in (("wer", jiwer.wer), ("cer", jiwer.cer)):
        sums = np.stack([samples[name].counts[rows].sum(axis=0) for rows in drawn])
        expected = [
            process([output[at] for at in rows], [written[at] for at in rows]) for rows in drawn
        ]
        np.testing.assert_allclose(samples[name].metric(sums), expected, rtol=0, atol=1e-12)


def test_speakers_apart() -> None:
    counts = ((4, 1, 0, 1), (9, 0, 1, 0), (1, 1, 1, 0), (2, 0, 0, 0))
    edits = [EditCounts(*values) for values in counts]
    totals = edits_by_speaker(["ann", "bob", "ann", "cy"], edits)
    assert list(totals) == ["ann", "bob", "cy"]  # the highest rate first
    assert totals == {"ann": EditCounts(5, 2, 1, 1), "bob": edits[1], "cy": edits[3]}
    assert totals["ann"].rate == 4 / 8
    assert edits_by_speaker([], []) == {}
    with pytest.raises(ValueError, match="longer"):
        edits_by_speaker(["ann"], edits)


def test_unequal_numbers_of_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="match"):
        align_texts(["one", "two"], ["one"], units="words")
    assert align_texts([], [], units="words") == []


def test_no_floating_point_warning() -> None:
    with np.errstate(all="raise"):
        rate = error_rate([EditCounts()]).metric
        assert rate(np.array([[0.0, 0.0], [3.0, 0.0], [1.0, 4.0]])).tolist() == [0, 3, 0.25]
