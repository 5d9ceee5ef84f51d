"""One tag per word: part-of-speech tagging and other sequence labeling.

    vectors   optional: CBOW on the training words initializes the word embeddings
    tags      cross-entropy of the tag of each word, with word dropout

Tags are conditionally independent given the encoder states. If they mark entities (B-person,
I-person, O), the most probable valid sequence is predicted; the probability of a tag is then given
the tags before it, among valid sequences. The confidence of a prediction is the product of the
probabilities of its tags. A sentence that is longer than the model's limit is tagged in overlapping
windows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harken.batch import tagging
from harken.batch.bucketing import BucketSampler, rng
from harken.batch.padding import IGNORE_INDEX, TokenBatch
from harken.batch.ragged import ragged_indices
from harken.batch.tagging import (
    SentenceWindows,
    TaggedBatch,
    WordCorpus,
    piece_windows,
    sentence_windows,
    tagged_batch,
    word_corpus,
)
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, as_plain, bounded
from harken.encode.pretrained import (
    MAX_PIECES,
    PretrainedTokenizer,
    PretrainedTokenizerConfig,
    WordPieces,
)
from harken.encode.vocabulary import PAD, UNKNOWN, VocabularySizes
from harken.encode.words import WordVocabulary, WordVocabularyConfig
from harken.errors import OptionError, UserError
from harken.formats.conllu import read_conllu
from harken.formats.examples import Sentence, TaggedToken
from harken.inspection.record import has_multihead
from harken.layers.losses import cross_entropy_
from harken.models.encoders import TextEncoderConfig
from harken.models.piece_tagger import END_PIECES, PieceTagger, PieceTaggerConfig
from harken.models.tagger import CBOWConfig, Tagger, TaggerConfig
from harken.tasks.attention_view import AttentionExample, named_output, self_attention_view
from harken.tasks.columns import TagColumns
from harken.tasks.dummy_batches import DummySizes, random_tokens, token_sizes
from harken.tasks.prediction import Evaluation, Prediction, truncation_of
from harken.tasks.tag_decoding import TagDecodingConfig, TaggedSentence, decode_tags
from harken.tasks.tag_metrics import main_tag_metric, tag_notes, tag_samples, tag_tables
from harken.tasks.task import Keys, Layout, Predictor, SplitPaths, Splits, Task, file_calls
from harken.training.distributed import map_batches
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.optimizer import AdamWConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

AnyTaggerConfig = TaggerConfig | PieceTaggerConfig
AnyTagger = Tagger | PieceTagger
MAX_SENTENCE = 500  # words; if the only sentence of a file is longer, blank lines are missing
DUMMY_CHARACTERS = 12  # per word of a dummy batch
MAX_LENGTH = 1024  # words per window, for a model without a limit
BATCH_SIZE = 1024  # sentences encoded at once
BATCH_TOKENS = 8192  # words or word pieces in a batch, padding included
TEMPLATE = """\
column = "{data.column}"    # of CoNLL-U; or "xpos", language-specific tags

[model]
width = {model.width}
encoder.kind = "{model.encoder.kind}"    # or "stride2", "gated", "transformer", or
# "gru", "tanh" with encoder.direction = "both"
dropout = {model.dropout}

[training.tags]
steps = {training.tags.steps}
batch_tokens = {training.tags.batch_tokens}    # words per batch
evaluate_every = {training.tags.evaluate_every}    # steps; keeps the best weights; 0: never
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TagData(SplitPaths):
    """Tagged words. If `dev` is a share of `train`, equal sentences stay in the same split."""

    column: Literal["upos", "xpos"] = "upos"  # column with the tags, in CoNLL-U files
    columns: TagColumns = TagColumns()  # keys of JSON lines, or columns of Parquet


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorsConfig(StageConfig):
    """Pretraining of the word embeddings by CBOW; skipped if `steps` is 0."""

    steps: int = bounded(0, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    optimizer: OptimizerConfig = AdamWConfig(lr=5e-3, weight_decay=0.0)  # optimizer, learning rate
    batch_tokens: int = bounded(1024, at_least=1, at_most=MAX_BATCH)  # words per batch
    cbow: CBOWConfig = CBOWConfig()  # context of each word


@dataclass(frozen=True, kw_only=True, slots=True)
class TagsConfig(StageConfig):
    """Training of the tagger."""

    steps: int = bounded(1600, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    optimizer: OptimizerConfig = AdamWConfig(lr=2e-3, weight_decay=0.01)  # optimizer, learning rate
    # words per batch, or word pieces of a pretrained tokenizer, padding included
    batch_tokens: int = bounded(2048, at_least=1, at_most=MAX_BATCH)
    # word dropout a: a word with count c becomes unknown with probability a / (a + c)
    unk_dropout: float = bounded(1.0, at_least=0.0, at_most=1e6)


@dataclass(frozen=True, kw_only=True, slots=True)
class TagTraining:
    """The stages of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
    vectors: VectorsConfig = field(default_factory=VectorsConfig)  # first stage; 0 steps skip it
    tags: TagsConfig = field(default_factory=TagsConfig)  # second stage


@dataclass(frozen=True, kw_only=True, slots=True)
class TagRecipe:
    """Recipe of the task `tag`."""

    task: Literal["tag"] = "tag"  # sequence labeling
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: TagData  # paths of the files
    # vocabulary, or the tokenizer of `model.start_from`
    encode: WordVocabularyConfig | PretrainedTokenizerConfig = WordVocabularyConfig()
    model: AnyTaggerConfig = TaggerConfig()  # architecture
    training: TagTraining = field(default_factory=TagTraining)  # training stages
    decode: TagDecodingConfig = TagDecodingConfig()  # choice of tags


def check_sentences(recipe: TagRecipe, files: Sequence[Path]) -> list[str]:
    """Reject a file without blank lines, which would be read as one sentence."""
    for file in files:
        sentences = TagTask().read_file(recipe, file)
        words = len(sentences[0].words)
        if len(sentences) == 1 and words > MAX_SENTENCE:
            raise UserError(
                f"{file}: no blank lines between sentences (the file is one sentence of {words:,} "
                "words)",
                fix="put a blank line after the last word of each sentence",
            )
    return []


def require_known_tags(
    recipe: TagRecipe, train: Sequence[Sentence], vocabulary: WordVocabulary
) -> None:
    """Raise an error for a tag that the run in `model.start_from` does not have."""
    tags = set(chain.from_iterable(sentence.tags for sentence in train))
    if unknown := sorted(tags - set(vocabulary.tags)):
        raise UserError(
            f"{recipe.data.train}: the tag {unknown[0]!r} is not among the {len(vocabulary.tags)} "
            "tags of the run in model.start_from",
            fix="start from a Hugging Face folder, or train from random weights",
        )


def limited_windows(corpus: WordCorpus, model: AnyTaggerConfig) -> SentenceWindows:
    """Return windows that the model can read."""
    if model.max_pieces is not None:
        return piece_windows(corpus, model.max_pieces, END_PIECES)
    return sentence_windows(corpus.lengths, model.max_length or MAX_LENGTH)


class TagPredictor(Predictor[TagRecipe, Sentence, WordVocabulary, AnyTagger]):
    """A trained tagger."""

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        if nbest > 1:
            problem = f"nbest: task 'tag' predicts one tag per word (expected 1, got {nbest})"
            raise OptionError(problem, fix="leave nbest out")
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
            tables=tag_tables(examples, predicted, self.vocabulary),
        )

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention over the first words, up to the model's limit."""
        model, all_words = self.model, text.split()
        if not all_words or not has_multihead(model):
            return None
        corpus = word_corpus(*self.vocabulary.encode([all_words]))
        words = all_words[: limited_windows(corpus, self.recipe.model).lengths[0]]
        forced, (tagged,) = output.split() if output else None, self.tag([words])
        tags = named_output(tagged.tags, forced, self.vocabulary.tags)
        corpus = word_corpus(*self.vocabulary.encode([words]))
        windows = sentence_windows(corpus.lengths, len(words))
        batch = tagged_batch(corpus, windows, np.arange(1), PAD).to(self.device)
        return AttentionExample(
            title=f"{' '.join(words)} → {tags.text}",
            run=lambda: model(*batch[:-1])[0, : len(words)].float().log_softmax(dim=-1),
            output=tags,
            views=[self_attention_view(*self._labels(words))],
            truncation=truncation_of(len(words), len(all_words), "first", "words"),
        )

    def _labels(self, words: Sequence[str]) -> tuple[str, Sequence[str]]:
        """Return the unit that the model reads, words or word pieces, and the text of each."""
        pieces = self.vocabulary.pieces
        if pieces is None:
            return "words", words
        ids = np.concatenate([[pieces.cls], *pieces.encode(words), [pieces.sep]])
        return "word pieces", pieces.token_texts(ids.tolist())

    def tag(self, sentences: Sequence[Sequence[str]]) -> Iterator[TaggedSentence]:
        """Tag each sentence, in order."""
        starts = range(0, len(sentences), BATCH_SIZE)
        batches = (sentences[start : start + BATCH_SIZE] for start in starts)
        yield from chain.from_iterable(map_batches(self._tag_batch, batches))

    @torch.inference_mode()
    def _tag_batch(self, sentences: Sequence[Sequence[str]]) -> list[TaggedSentence]:
        model = self.model.eval()
        corpus = word_corpus(*self.vocabulary.encode(sentences))
        windows = limited_windows(corpus, self.recipe.model)
        log_probs = np.zeros((len(corpus.words), len(self.vocabulary.tags)), dtype=np.float32)
        sampler = BucketSampler(windows.sizes, BATCH_TOKENS, seed=0)
        for step in takewhile(lambda step: sampler.epoch(step) < 1, count()):
            chosen = sampler.batch(step)
            batch = tagged_batch(corpus, windows, chosen, PAD).to(self.device)
            if batch.present.any():
                scores = model(*batch[:-1]).float().log_softmax(dim=-1).cpu().numpy()
                row, index = ragged_indices(windows.kept[chosen])
                column = windows.skipped[chosen][row] + index
                word = windows.starts[chosen][row] + column
                log_probs[word] = scores[row, column]
        constrained = self.recipe.decode.constrained
        return decode_tags(log_probs, corpus.lengths, self.vocabulary, constrained=constrained)


def tag_prediction(text: str, words: Sequence[str], tagged: TaggedSentence) -> Prediction:
    """Return the tags joined by spaces, and each word with its tag and probability."""
    probabilities = map(math.exp, tagged.log_probabilities)
    return Prediction(
        input=text,
        output=" ".join(tagged.tags),
        confidence=math.exp(math.fsum(tagged.log_probabilities)),
        tokens=list(map(TaggedToken, words, tagged.tags, probabilities)),
    )


class TagTask(Task[TagRecipe, Sentence, WordVocabulary, AnyTagger]):
    """Sequence labeling."""

    recipe_type = TagRecipe
    vocabulary_type = WordVocabulary
    predictor_type = TagPredictor
    layout = Layout[TagRecipe, Sentence](
        calls=file_calls("train.conllu", "train.conllu", "dev.conllu", "test.conllu"),
        template=TEMPLATE,
        examples="sentences",
        stage="training.tags",
        check=check_sentences,
    )

    def read_file(self, recipe: TagRecipe, path: Path) -> list[Sentence]:
        return read_conllu(path, recipe.data.column, recipe.data.columns.of("train"))

    def read_splits(self, recipe: TagRecipe) -> Splits[Sentence]:
        read, key = partial(self.read_file, recipe), lambda sentence: "\t".join(sentence.words)
        return Splits(recipe.data, read, seed=recipe.seed, key=key)

    def input(self, example: Sentence) -> str:
        return " ".join(example.words)

    def target(self, example: Sentence) -> str:
        return " ".join(example.tags)

    def fit(self, recipe: TagRecipe, train: Sequence[Sentence]) -> WordVocabulary:
        return recipe.encode.fit(train)

    def fit_pretrained(
        self, recipe: TagRecipe, train: Sequence[Sentence], tokenizer: PretrainedTokenizer
    ) -> WordVocabulary:
        limit = recipe.model.max_pieces
        if limit is not None and limit < MAX_PIECES:
            raise UserError(
                f"model.start_from: the encoder reads {limit} word pieces (expected at least "
                f"{MAX_PIECES}, the maximum per word)",
                fix="start from an encoder with more positions",
            )
        return WordVocabularyConfig().fit(train, WordPieces.of(tokenizer))

    def start_keys(self, model: object) -> Mapping[str, object] | None:
        if isinstance(model, TextEncoderConfig):
            encoder = {key: value for key, value in as_plain(model).items() if key != "dropout"}
            return {"kind": PieceTaggerConfig().kind, "encoder": encoder}
        return super().start_keys(model)

    def build(self, recipe: TagRecipe, sizes: VocabularySizes) -> AnyTagger:
        vectors = recipe.training.vectors
        return recipe.model.build(
            words=sizes.entries,
            characters=sizes.characters,
            tags=sizes.tags,
            seed=recipe.seed,
            cbow=vectors.cbow if vectors.steps > 0 else None,
            cls=sizes.cls,
            sep=sizes.sep,
        )

    def stages(
        self, recipe: TagRecipe, splits: Splits[Sentence], vocabulary: WordVocabulary, cache: Path
    ) -> list[Stage[AnyTagger]]:
        train, ids = splits["train"], {tag: index for index, tag in enumerate(vocabulary.tags)}
        require_known_tags(recipe, train, vocabulary)
        tags = [np.array([ids[tag] for tag in example.tags], dtype=np.int64) for example in train]
        corpus = word_corpus(*vocabulary.encode([example.words for example in train]), tags)
        config, vectors, seed = recipe.training.tags, recipe.training.vectors, recipe.seed
        windows = limited_windows(corpus, recipe.model)
        sampler = BucketSampler(windows.sizes, config.batch_tokens, seed)
        words = [sentence.words for sentence in splits["dev"]]
        expected = [sentence.tags for sentence in splits["dev"]]

        def batch(step: int) -> list[TaggedBatch]:
            tagged = tagged_batch(corpus, windows, sampler.batch(step), PAD)
            counts, rate = vocabulary.row_counts, config.unk_dropout
            return [tagging.unk_dropout(tagged, counts, rate, UNKNOWN, rng(seed, step))]

        def dev_score(model: AnyTagger) -> float:
            tagged = TagPredictor(recipe, splits, vocabulary, model).tag(words)
            predicted = [sentence.tags for sentence in tagged]
            return main_tag_metric(expected, predicted, vocabulary).value

        stages = [stage("tags", config, batch, tags_loss, dev_score)]
        if vectors.steps > 0:
            long_windows = sentence_windows(corpus.lengths, MAX_LENGTH)
            long_sampler = BucketSampler(long_windows.lengths, vectors.batch_tokens, seed)

            def cbow_batch(step: int) -> list[TokenBatch]:
                tagged = tagged_batch(corpus, long_windows, long_sampler.batch(step), PAD)
                return [tagging.neighbor_batch(tagged)]

            stages.insert(0, stage("vectors", vectors, cbow_batch, cbow_loss))
        return stages

    def dummy_sizes(self, recipe: TagRecipe, rows: int | None, length: int | None) -> DummySizes:
        config = recipe.training.tags
        dummy = token_sizes(config, rows, length, config.batch_tokens)
        if recipe.model.max_pieces is not None:
            assumed = (*dummy.assumed, "each word is one piece")
            return dummy._replace(sizes={**dummy.sizes, "W": 1}, assumed=assumed)
        assumed, sizes = dummy.assumed, {**dummy.sizes, "W": DUMMY_CHARACTERS}
        if recipe.model.characters.width:
            assumed += (f"all words are different and have {DUMMY_CHARACTERS} characters",)
        return dummy._replace(sizes=sizes, assumed=assumed)

    def dummy_batch(
        self, recipe: TagRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[AnyTagger]:
        generator, shape = torch.Generator().manual_seed(0), (sizes["B"], sizes["T"])
        forms = torch.arange(sizes["B"] * sizes["T"]).view(shape)
        spellings = random_tokens(generator, vocabulary.characters, forms.numel(), sizes["W"])
        tags = random_tokens(generator, vocabulary.tags, *shape)
        words = random_tokens(generator, vocabulary.entries, *shape)
        spellings_present = torch.ones(spellings.shape, dtype=torch.bool)
        present = torch.ones(shape, dtype=torch.bool)
        batch = TaggedBatch(words, forms, spellings, spellings_present, present, tags)
        return micro_batch(batch, tags_loss)


def tags_loss(model: AnyTagger, batch: TaggedBatch) -> Tensor:
    """Return the summed cross-entropy of the tags."""
    logits: Tensor = model(*batch[:-1])
    counted = batch.tags != IGNORE_INDEX
    return F.cross_entropy(logits[counted].float(), batch.tags[counted], reduction="sum")


def cbow_loss(model: AnyTagger, batch: TokenBatch) -> Tensor:
    """Return the summed cross-entropy of CBOW, over the words that have neighbors."""
    counted = batch.targets != IGNORE_INDEX
    return cross_entropy_(model(batch.inputs, words_at=counted), batch.targets[counted]).sum()
