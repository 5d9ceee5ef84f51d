"""Against sacrebleu with several references, and against coco-caption's own figures."""

from itertools import zip_longest

import numpy as np
import pytest
from coco_captions import PICTURES, POINTS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from harken.measure.captions import caption_bleu, caption_bleu_counts, caption_samples
from harken.measure.paired import difference

# Few words, so that some sequences of four match; none that the tokenizer would cut.
LINES = st.lists(st.sampled_from(("a", "dog", "runs", "in", "t-shirt", "雪")), max_size=11).map(
    " ".join
)
CORPORA = st.lists(
    st.tuples(LINES, st.lists(LINES, min_size=1, max_size=3)), min_size=1, max_size=7
)
ORDERS = (1, 2, 3, 4)
WRITTEN = [caption for caption, _ in PICTURES]
REFERENCES = [own for _, own in PICTURES]
PLAIN = ["a man rides in a car", "a man in a car in the snow", "", "a man rides a horse"]


def by_sacrebleu(captions: list[str], references: list[list[str]]) -> dict[str, float]:
    # Streams: the first reference of every picture, the second of every picture, … None if it has
    # no such.
    streams = [list(one) for one in zip_longest(*references)]
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
    captions, references = [one for one, _ in pairs], [own for _, own in pairs]
    found = values(captions, references)
    for name, wanted in by_sacrebleu(captions, references).items():
        assert found[name] == pytest.approx(wanted, abs=1e-9)


def test_figures_are_those_of_coco_caption() -> None:
    """From raw text: cut into words, counted, set against references of which some have one."""
    found = values(WRITTEN, REFERENCES)
    for name, wanted in POINTS.items():
        assert found[name] == pytest.approx(wanted, abs=1e-6)  # for what it adds to every count


def test_nothing_is_smoothed() -> None:
    found = values(["a dog runs"], [["a dog sits"]])
    assert found["bleu_1"] == pytest.approx(100 * 2 / 3)
    assert found["bleu_2"] == pytest.approx(100 * (2 / 3 * 1 / 2) ** 0.5)
    assert found["bleu_3"] == found["bleu_4"] == 0.0


def test_resamples_are_corpora_of_their_own() -> None:
    """Many sums at once, as an interval asks for them."""
    captions = ["a dog runs in snow", *PLAIN]
    references = [["a dog runs in the snow", "a dog"], *([one, "a man"] for one in reversed(PLAIN))]
    random = np.random.default_rng(7)
    drawn = [*random.integers(0, len(captions), size=(61, 3)), np.full(3, 3)]
    samples, _ = caption_samples(captions, references)
    for order in ORDERS:
        sample = samples[f"bleu_{order}"]
        sums = np.stack([sample.counts[one].sum(axis=0) for one in drawn])
        wanted = [
            by_sacrebleu([captions[at] for at in one], [references[at] for at in one])[
                f"bleu_{order}"
            ]
            for one in drawn
        ]
        np.testing.assert_allclose(sample.figure(sums), wanted, rtol=0, atol=1e-9)
        assert len(set(wanted)) > 7


def test_the_interval_of_cider_is_that_of_a_mean_over_pictures() -> None:
    samples, _ = caption_samples(WRITTEN * 17, REFERENCES * 17)
    each = samples["cider_d"].counts[:, 0]
    estimate = samples["cider_d"].estimate()
    width = 2 * 1.96 * each.std() / len(each) ** 0.5
    assert estimate.value == pytest.approx(each.mean())
    assert estimate.high - estimate.low == pytest.approx(width, rel=0.1)
    assert estimate.unit == "points"


def test_two_runs_have_a_paired_test_of_every_figure() -> None:
    worse = ["a thing" if at % 2 else one for at, one in enumerate(WRITTEN * 17)]
    first, _ = caption_samples(worse, REFERENCES * 17)
    second, _ = caption_samples(WRITTEN * 17, REFERENCES * 17)
    assert first.keys() == second.keys()
    for name, sample in first.items():
        found = difference(sample, second[name])
        assert found.value == pytest.approx(second[name].value - sample.value)
        assert found.improves is True or name == "exact_match"


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


def test_sides_of_unlike_length_and_pictures_without_references_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        caption_samples(["one", "two"], [["one"]])
    with pytest.raises(AssertionError, match="without a reference"):
        caption_samples(["one"], [[]])


def test_no_floating_point_warning() -> None:
    with np.errstate(all="raise"):
        assert caption_bleu(np.zeros((3, 10))).tolist() == [0.0] * 3
        assert caption_bleu(caption_bleu_counts([["a"]], [[[]]])).tolist() == [0.0]
