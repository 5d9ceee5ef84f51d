"""Metrics, notes and tables of the task `tag`.

The main metric is the accuracy, or the F1 of entities if the tags mark entities.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from harken.encode.words import WordVocabulary
from harken.formats.examples import Sentence
from harken.measure.entities import entity_samples, entity_sets, of_type
from harken.measure.interval import Sample, format_interval, format_value
from harken.measure.tagging import Tags, confusions, tag_accuracy, tag_scores
from harken.tasks.prediction import Table

MAX_CONFUSIONS = 20  # rows of the table
SCORES = ("precision", "recall", "f1")


def tag_samples(
    examples: Sequence[Sentence], predicted: Tags, vocabulary: WordVocabulary
) -> dict[str, Sample]:
    """Return entity scores, the accuracy on all, known and unknown words, and of the baseline."""
    expected = [example.tags for example in examples]
    words = [example.words for example in examples]
    samples = {}
    if vocabulary.scheme:
        scores = entity_samples(entity_sets(expected), entity_sets(predicted))
        samples = {f"entity_{name}": sample for name, sample in scores.items()}
    samples["accuracy"] = tag_accuracy(expected, predicted)
    for name, known in (("known_words", True), ("unknown_words", False)):
        counted = [
            [(word in vocabulary.statistics) == known for word in sentence] for sentence in words
        ]
        if any(map(any, counted)):
            samples[name] = tag_accuracy(expected, predicted, counted)
    baseline = [[vocabulary.likely_tag(word) for word in sentence] for sentence in words]
    samples["majority_tag"] = tag_accuracy(expected, baseline)
    return samples


def main_tag_metric(expected: Tags, predicted: Tags, vocabulary: WordVocabulary) -> Sample:
    """Return the metric that selects the best weights: the first one of `tag_samples`."""
    if vocabulary.scheme:
        return entity_samples(entity_sets(expected), entity_sets(predicted))["f1"]
    return tag_accuracy(expected, predicted)


def tag_notes(examples: Sequence[Sentence], vocabulary: WordVocabulary) -> dict[str, str]:
    """Return explanations of the metrics."""
    notes = {
        "accuracy": "words with the expected tag; the interval is over sentences",
        "known_words": "words that occur in the training data",
        "unknown_words": "words that do not occur in the training data",
        "majority_tag": "baseline: each word's most frequent training tag; unknown words get "
        f"{vocabulary.majority_tag}",
    }
    if vocabulary.scheme:
        notes["entity_f1"] = (
            "entities with the expected words and type, as conlleval counts them; the interval is "
            "over sentences"
        )
    tags = Counter(tag for sentence in examples for tag in sentence.tags)
    if unseen := Counter({tag: tags[tag] for tag in tags if tag not in vocabulary.tag_counts}):
        notes["unseen_tags"] = (
            f"{unseen.total()} words have tags that do not occur in training: "
            f"{', '.join(sorted(unseen))}; they count as wrong"
        )
    return notes


def tag_tables(
    examples: Sequence[Sentence], predicted: Tags, vocabulary: WordVocabulary
) -> list[Table]:
    """Return the scores of each entity type or tag, and the most frequent confusions."""
    expected = [sentence.tags for sentence in examples]
    pairs = Counter(zip(chain.from_iterable(expected), chain.from_iterable(predicted), strict=True))
    wrong = [(*row[:3], f"{row.share:.1%}") for row in confusions(pairs, MAX_CONFUSIONS)]
    wrong_header = ("expected", "predicted", "words", "share of expected")
    confused = Table(title="Confusions", header=wrong_header, rows=wrong)
    if vocabulary.scheme:
        return [entity_table(expected, predicted), confused]
    rows = tag_scores(pairs)
    scores = [(tag, *(f"{share:.1%}" for share in shares), words) for tag, *shares, words in rows]
    header = ("tag", "precision", "recall", "F1", "words")
    return [confused, Table(title="Scores by tag", header=header, rows=scores)]


def entity_table(expected: Tags, predicted: Tags) -> Table:
    """Return precision, recall and F1 of each entity type, with intervals over sentences."""
    true, found = entity_sets(expected), entity_sets(predicted)
    rows = []
    for entity_type in sorted({entity.type for entity in chain(*true, *found)}):
        samples = entity_samples(of_type(true, entity_type), of_type(found, entity_type))
        estimates = [samples[name].estimate() for name in SCORES]
        values = [
            f"{format_value(estimate.value, estimate.unit)} ({format_interval(estimate)})"
            for estimate in estimates
        ]
        rows.append((entity_type, *values, samples["recall"].estimate().n))
    header = ("entity", "precision", "recall", "F1", "expected")
    return Table(title="Scores by entity type (95 % intervals)", header=header, rows=rows)
