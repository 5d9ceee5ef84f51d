"""Tag sentences with a trained tagger and measure how well."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

import numpy as np
import torch

from harken.batch.bucketing import Order
from harken.batch.ragged import places
from harken.batch.words import windows_over, word_batch, word_corpus
from harken.encode.vocabulary import PAD
from harken.encode.words import WordsAndCharacters
from harken.errors import OptionError
from harken.formats.examples import Sentence, TaggedToken
from harken.inspection.record import has_attention
from harken.measure.interval import Sample
from harken.measure.tagging import Tags, confusions, pair_counts, tag_accuracy, tag_scores
from harken.models.tagger import Tagger
from harken.tasks.attention_view import AttentionExample, self_view
from harken.tasks.prediction import Evaluation, Indices, Prediction, Table, truncation_of
from harken.tasks.task import Predictor

MAX_LENGTH = 1024  # words read at once by a model without a limit of its own
BATCH_SIZE = 1024  # sentences encoded at once
BATCH_WORDS = 8192  # words in a batch, padding included
MAX_CONFUSIONS = 20  # rows of the table


class TaggedSentence(NamedTuple):
    """The tag of each word of a sentence and its log-probability."""

    tags: Sequence[str]
    log_probabilities: Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class TagPredictor(Predictor[Sentence]):
    """A trained tagger."""

    vocabulary: WordsAndCharacters
    model: Tagger

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        if nbest > 1:
            raise OptionError(
                f"nbest: task 'tag' gives each word its one best tag (expected 1, got {nbest})",
                fix="leave nbest out",
            )
        sentences = [line.split() for line in inputs]
        yield from map(tag_prediction, inputs, sentences, self.tag(sentences))

    def evaluate(self, examples: Sequence[Sentence], condition: str | None = None) -> Evaluation:
        tagged = list(self.tag([sentence.words for sentence in examples]))
        predicted = [sentence.tags for sentence in tagged]
        return Evaluation(
            n=len(examples),
            samples=tag_samples(examples, predicted, self.vocabulary),
            notes=tag_notes(examples, self.vocabulary),
            predictions=[
                tag_prediction(" ".join(sentence.words), sentence.words, tags)
                for sentence, tags in zip(examples, tagged, strict=True)
            ],
            expected=[" ".join(sentence.tags) for sentence in examples],
            tables=tag_tables(examples, predicted),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Attention over as many words from the first on as the model reads at once."""
        model, all_words = self.model, text.split()
        words = all_words[: model.length]
        if not words or not has_attention(model):
            return None
        (tagged,) = self.tag([words])
        corpus = word_corpus(*self.vocabulary.encode([words]))
        windows = windows_over(corpus.lengths, len(words))
        batch = word_batch(corpus, windows, np.arange(1), PAD).to(self.device)
        return AttentionExample(
            title=f"{' '.join(words)} → {' '.join(tagged.tags)}",
            run=lambda: model(*batch[:-1]),
            views=[self_view("words", words)],
            truncation=truncation_of(len(words), len(all_words), "first", "words"),
        )

    def tag(self, sentences: Sequence[Sequence[str]]) -> Iterator[TaggedSentence]:
        """Tag each sentence, in order."""
        self.model.eval()
        for start in range(0, len(sentences), BATCH_SIZE):
            yield from self._tag_together(sentences[start : start + BATCH_SIZE])

    @torch.inference_mode()
    def _tag_together(self, sentences: Sequence[Sequence[str]]) -> list[TaggedSentence]:
        """Windows of similar length share a batch; each word is tagged in one window."""
        corpus = word_corpus(*self.vocabulary.encode(sentences))
        windows = windows_over(corpus.lengths, self.model.length or MAX_LENGTH)
        best = np.zeros(len(corpus.rows), dtype=np.int64)
        log_probabilities = np.zeros(len(corpus.rows))
        order = Order(windows.lengths, BATCH_WORDS, seed=0)
        for step in count():
            if order.epoch(step) >= 1:
                break
            chosen = order.batch(step)
            batch = word_batch(corpus, windows, chosen, PAD).to(self.device)
            if batch.present.any():
                logs, tags = self.model(*batch[:-1]).float().log_softmax(dim=-1).max(dim=-1)
                owner, place = places(windows.kept[chosen])
                at = (owner, windows.skipped[chosen][owner] + place)
                flat = windows.starts[chosen][owner] + at[1]
                best[flat] = tags.cpu().numpy()[at]
                log_probabilities[flat] = logs.cpu().numpy()[at]
        ends = np.cumsum(corpus.lengths)[:-1]
        return [
            TaggedSentence([self.vocabulary.tags[tag] for tag in tags], logs.tolist())
            for tags, logs in zip(
                np.split(best, ends), np.split(log_probabilities, ends), strict=True
            )
        ]


def tag_prediction(text: str, words: Sequence[str], tagged: TaggedSentence) -> Prediction:
    """Tags joined by spaces, and each word with its own tag and probability."""
    probabilities = map(math.exp, tagged.log_probabilities)
    return Prediction(
        input=text,
        output=" ".join(tagged.tags),
        confidence=math.exp(math.fsum(tagged.log_probabilities)),
        tokens=list(map(TaggedToken, words, tagged.tags, probabilities)),
    )


def tag_samples(
    examples: Sequence[Sentence], predicted: Tags, vocabulary: WordsAndCharacters
) -> dict[str, Sample]:
    """Accuracy of all words, of known and unknown ones (if there are any), and a baseline."""
    expected = [sentence.tags for sentence in examples]
    known = [[word in vocabulary.known for word in sentence.words] for sentence in examples]
    unknown = [[not is_known for is_known in flags] for flags in known]
    baseline = [[vocabulary.likely_tag(word) for word in sentence.words] for sentence in examples]
    samples = {"accuracy": tag_accuracy(expected, predicted)}
    for name, among in (("known_words", known), ("unknown_words", unknown)):
        if any(map(any, among)):
            samples[name] = tag_accuracy(expected, predicted, among)
    samples["commonest_tag"] = tag_accuracy(expected, baseline)
    return samples


def tag_notes(examples: Sequence[Sentence], vocabulary: WordsAndCharacters) -> dict[str, str]:
    """Explanations of the metrics."""
    notes = {
        "accuracy": "words with the expected tag; the interval is over sentences",
        "known_words": "words that the training data hold in this very form",
        "unknown_words": "words that they do not",
        "commonest_tag": "each word's commonest training tag, for unknown ones "
        f"{vocabulary.commonest_tag}",
    }
    unseen = Counter(
        tag for sentence in examples for tag in sentence.tags if tag not in vocabulary.tag_counts
    )
    if unseen:
        notes["unseen_tags"] = (
            f"{unseen.total()} words have tags never seen in training: "
            f"{', '.join(sorted(unseen))}; they count as wrong"
        )
    return notes


def tag_tables(examples: Sequence[Sentence], predicted: Tags) -> list[Table]:
    """Confusions, and precision and recall of each tag."""
    tags = chain.from_iterable(sentence.tags for sentence in examples)
    pairs = pair_counts(tags, chain.from_iterable(predicted))
    return [
        Table(
            title="Confusions",
            header=("expected", "predicted", "words", "of that tag"),
            rows=[(*row[:3], f"{row.share:.1%}") for row in confusions(pairs, MAX_CONFUSIONS)],
        ),
        Table(
            title="Scores by tag",
            header=("tag", "precision", "recall", "F1", "words"),
            rows=[
                (tag, *(f"{share:.1%}" for share in shares), words)
                for tag, *shares, words in tag_scores(pairs)
            ],
        ),
    ]
