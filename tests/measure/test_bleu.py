"""Against sacrebleu itself, which knows only whole corpora."""

import logging

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from harken.measure.bleu import bleu, chrf
from harken.measure.translations import moses_tokens, translation_samples

# Few words, so that some sequences of four match; some are cut by the tokenizers, or are no words.
WORDS = (
    *["der", "Hund", "läuft", "läuft,", "über", "3,5", "z.B.", "&amp;", "(", "犬"],
    "\u00a0",
    "\t",
)
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=11).map(" ".join)
CORPORA = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=7)

REFERENCES = [
    "Ein Mann schläft in einem grünen Raum auf einem Sofa.",
    "Der Junge, der einen Hut trägt, läuft über das Gras.",
    "Drei Hunde spielen im Schnee.",
    "Eine Frau spielt ein Lied auf ihrer Geige.",
    "Leute sitzen in einem Zug und lesen Zeitung.",
]
HYPOTHESES = [
    "Ein Mann schläft in einem Raum auf einem grünen Sofa.",
    "Der Junge mit dem Hut läuft über das Gras.",
    "",
    "Eine Frau spielt ein Lied auf ihrer Geige.",
    "Personen sitzen im Zug, lesen Zeitung und reden und reden.",
]


def by_sacrebleu(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    lower = [moses_tokens(side, "de") for side in (hypotheses, references)]
    return {
        "bleu": BLEU(tokenize="13a").corpus_score(hypotheses, [references]).score,
        "chrf": CHRF().corpus_score(hypotheses, [references]).score,
        "bleu_moses": BLEU(tokenize="none").corpus_score(lower[0], [lower[1]]).score,
    }


@given(CORPORA)
@example([("", "")])
@example([("", "Hund")])
@example([("Hund", "")])
@example([("Hund", "Hund")])  # too short for sequences of two
@example([("der Hund läuft über", "über läuft Hund der")])  # words match, longer orders do not
@example([("Hund", "der Hund läuft über"), ("", "der Hund"), ("der", "")])
def test_values_are_those_of_sacrebleu(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = map(list, zip(*pairs, strict=True))
    samples, _ = translation_samples(hypotheses, references, "de")
    result = {name: sample.value for name, sample in samples.items()}
    assert result == pytest.approx(by_sacrebleu(hypotheses, references), abs=1e-9)


def test_resamples_are_corpora_of_their_own() -> None:
    """Many sums at once, as an interval asks for them; with smoothing in some, not in others."""
    samples, _ = translation_samples(HYPOTHESES, REFERENCES, "de")
    random = np.random.default_rng(7)
    drawn = [*random.integers(0, 5, size=(61, 5)), np.full(5, 2)]  # the last: only the empty one
    reference = [
        by_sacrebleu([HYPOTHESES[at] for at in rows], [REFERENCES[at] for at in rows])
        for rows in drawn
    ]
    for name, sample in samples.items():
        sums = np.stack([sample.counts[rows].sum(axis=0) for rows in drawn])
        expected = [scores[name] for scores in reference]
        np.testing.assert_allclose(sample.metric(sums), expected, rtol=0, atol=1e-9)
        assert len(set(expected)) > 30
    smoothed = samples["bleu"].counts[[1, 4]]
    assert (smoothed[:, 5] == 0).any()


def test_intervals_are_those_of_sacrebleu() -> None:
    references = [f"{text} {number}" for number in range(17) for text in REFERENCES]
    hypotheses = [
        text.replace("ein", "kein") if at % 3 else text for at, text in enumerate(references)
    ]
    samples, _ = translation_samples(hypotheses, references, "de")
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        ours = samples[name].estimate()
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, rel=0.1)
        assert ours.low < theirs._mean < ours.high
        assert ours.unit == "points"


def test_signatures_name_what_was_computed() -> None:
    _, notes = translation_samples(HYPOTHESES, REFERENCES, "de")
    metrics = {
        "bleu": BLEU(tokenize="13a"),
        "chrf": CHRF(),
        "bleu_moses": BLEU(tokenize="none", lowercase=True),
    }
    assert notes.keys() == metrics.keys()
    for name, metric in metrics.items():
        metric.corpus_score(HYPOTHESES, [REFERENCES])
        assert str(metric.get_signature()) in notes[name]
    assert "'de'" in notes["bleu_moses"]


def test_moses_by_hand() -> None:
    """As Multi30k's files were made: lower-cased first, no escapes, one kind of quotes."""
    lines = ["„Hallo“, sagt sie: 3,5 km – z.B. hier.", "Das T-Shirt & die Nummer 10.", "", "  "]
    assert moses_tokens(lines, "de") == [
        '" hallo " , sagt sie : 3,5 km - z.b. hier .',
        "das t-shirt & die nummer 10.",  # so in Multi30k too: in German, 10. is an ordinal
        "",
        "",
    ]
    assert moses_tokens(["It's the dog's."], "en") == ["it 's the dog 's ."]
    assert moses_tokens(["Der Hund."], "tlh") == ["der hund ."]  # a language that it does not know


def test_sides_of_unlike_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        translation_samples(["one", "two"], ["one"], "en")


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Not even about tokenized text, which the metric of Moses is given on purpose."""
    caplog.set_level(logging.DEBUG)
    translation_samples(["der Hund ."] * 127, ["der Hund ."] * 127, "de")
    assert caplog.records == []


def test_no_floating_point_warning() -> None:
    with np.errstate(all="raise"):
        assert bleu(np.zeros((3, 10))).tolist() == [0.0] * 3
        assert chrf(np.zeros((3, 18))).tolist() == [0.0] * 3
