"""Closed-book question answering: a language model reads texts, then learns to answer questions.

    reading     each text whole, or with a span moved behind it:  prefix ? suffix ? span .
    questions   a question is a text whose span is missing:       question ? answer .

`?` is <mask> and `.` is <end>. The answer is never in the input; the vocabulary is fitted once on
the texts and the training questions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harken.batch.bucketing import Order
from harken.batch.padding import IGNORE, TokenBatch, next_token_batch
from harken.batch.ragged import Numbers, ragged
from harken.batch.reading import Reading, ReadingSizes, Symbols, Targeted
from harken.batch.shards import TokenShards, write_shards
from harken.batch.views import ViewsConfig
from harken.config import MAX_BATCH, MAX_SEED, bounded
from harken.decode.search import SearchConfig
from harken.encode.subwords import BytePairConfig, UnitsConfig
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary, VocabularySizes
from harken.formats.examples import Question
from harken.formats.text import read_lines
from harken.formats.titles import title_of
from harken.formats.tsv import read_questions
from harken.layers.losses import cross_entropy_
from harken.measure.accuracy import exact_matches
from harken.models.gpt import GPT, GPTConfig
from harken.tasks.answer_predictor import AnswerPredictor, encode_prompts
from harken.tasks.prediction import warn_unfit
from harken.tasks.task import (
    Layout,
    ProbeSizes,
    Splits,
    Task,
    random_tokens,
    require_one_file,
    require_share,
    token_sizes,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.machine import MachineConfig

BATCH_TEXTS = 1024  # encoded at once
TEMPLATE = """
[encode]
kind = "words"    # or "bpe", "unigram", "characters"
size = 20000    # so many that a name is a token or two; leave out with "characters"

[model]
layers = {model.layers}
width = {model.width}
length = {model.length}    # tokens of a text that the model sees at once
position.kind = "rotary"    # or "learned", "sinusoid", "none"
attention.heads = 4
attention.score.kind = "{model.attention.score.kind}"    # or "dot", "synthesizer" (not with rotary)

[training.pretrain]
steps = 1000
batch_tokens = 2048
questions = 0.02    # share of each batch that is training questions
views.corrupted = 0.0    # share of texts with a hole to fill
views.turned = 1.0    # of those that start anywhere behind their head
views.hidden = 0.5    # of the tokens behind the head that are hidden
optimiser.rate = 0.01
optimiser.rest.rate = 0.003
evaluate_every = 70    # steps; the best on dev is kept; 0: the last

[training.finetune]
steps = 0    # on questions alone, after the reading
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerData:
    """A text to read, one document per line, and questions; a share for `dev` is by person."""

    read: Path
    train: Path
    dev: Path | float = 0.15
    test: Path | None = None

    def __post_init__(self) -> None:
        require_share(self.dev)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingConfig(StageConfig):
    """Pretraining: how texts are shown, and what share of the batch is training questions."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)
    views: ViewsConfig = field(default_factory=ViewsConfig)
    questions: float = bounded(0.0, at_least=0.0, below=1.0)
    pack: bool = False  # several texts per row: less padding, a slower mask

    def __post_init__(self) -> None:
        if self.pack and self.views.hidden:
            raise ValueError("views.hidden counts from the head of a row; set pack = false")


@dataclass(frozen=True, kw_only=True, slots=True)
class AskingConfig(StageConfig):
    """Finetuning on questions; only the answers are targets."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTraining:
    """Two stages; `pretrain.steps = 0` leaves the first out."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    pretrain: ReadingConfig = field(default_factory=ReadingConfig)
    finetune: AskingConfig = field(default_factory=AskingConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecipe:
    """The recipe of a run."""

    task: Literal["answer"] = "answer"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: AnswerData
    encode: UnitsConfig = field(default_factory=BytePairConfig)
    model: GPTConfig = field(default_factory=GPTConfig)
    training: AnswerTraining = field(default_factory=AnswerTraining)
    search: SearchConfig = SearchConfig()


class AnswerTask(Task[AnswerRecipe, Question, Vocabulary, GPT]):
    """Closed-book question answering."""

    recipe_type = AnswerRecipe
    vocabulary_type = Vocabulary
    layout = Layout[AnswerRecipe, Question](
        calls={
            "texts.txt questions.tsv": ("read", "train"),
            "texts.txt train.tsv dev.tsv": ("read", "train", "dev"),
            "texts.txt train.tsv dev.tsv test.tsv": ("read", "train", "dev", "test"),
        },
        template=TEMPLATE,
        examples="questions",
    )

    def read(self, recipe: AnswerRecipe, paths: Sequence[Path]) -> list[Question]:
        return read_questions(require_one_file(paths, "questions"))

    def read_splits(self, recipe: AnswerRecipe) -> Splits[Question]:
        def read_train(path: Path) -> list[Question]:
            next(read_lines(recipe.data.read))  # report a missing or empty text before training
            return read_questions(path)

        return Splits(
            recipe.data,
            read_questions,
            seed=recipe.seed,
            key=lambda question: question.question,
            read_train=read_train,
        )

    def input(self, example: Question) -> str:
        return example.question

    def target(self, example: Question) -> str:
        return example.answer

    def fit(self, recipe: AnswerRecipe, train: Sequence[Question]) -> Vocabulary:
        questions = ((question.question, question.answer) for question in train)
        texts = read_texts(recipe.data.read)
        return recipe.encode.fit(chain(texts, chain.from_iterable(questions)))

    def build(self, recipe: AnswerRecipe, sizes: VocabularySizes) -> GPT:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: AnswerRecipe, splits: Splits[Question], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[GPT]]:
        pretrain, finetune = recipe.training.pretrain, recipe.training.finetune
        training = encode_questions(splits["train"], vocabulary, recipe.model.length)
        order = Order(training.sequences.lengths, finetune.batch_tokens, recipe.seed)
        questions = [question.question for question in splits["dev"]]
        answers = [question.answer for question in splits["dev"]]

        def question_batch(step: int) -> list[TokenBatch]:
            chosen, first = training.take(order.batch(step))
            return [next_token_batch(chosen, first, PAD)]

        def dev_accuracy(model: GPT) -> float:
            predictor = self.bind(recipe, splits, vocabulary, model)
            outputs = [prediction.output for prediction in predictor.predict(questions)]
            return float(np.mean(exact_matches(outputs, answers)))

        stages = [stage("questions", finetune, question_batch, answer_loss, dev_accuracy)]
        if pretrain.steps > 0:
            shards = cache / "read"
            if not shards.is_dir():
                encoded = encode_all(read_texts(recipe.data.read), vocabulary)
                write_shards(shards, encoded, len(vocabulary))
            reading = Reading(
                TokenShards(shards),
                count_titles(read_texts(recipe.data.read), vocabulary),
                training,
                ReadingSizes(
                    length=recipe.model.length,
                    batch_tokens=pretrain.batch_tokens,
                    questions=pretrain.questions,
                    pack=pretrain.pack,
                ),
                pretrain.views,
                Symbols(pad=PAD, mask=MASK, end=END),
                recipe.seed,
            )
            stages.insert(0, stage("reading", pretrain, reading.batch, answer_loss, dev_accuracy))
        return stages

    def bind(
        self, recipe: AnswerRecipe, splits: Splits[Question], vocabulary: Vocabulary, model: GPT
    ) -> AnswerPredictor:
        return AnswerPredictor(
            splits=splits,
            vocabulary=vocabulary,
            model=model,
            search=recipe.search,
            seed=recipe.seed,
        )

    def probe_sizes(self, recipe: AnswerRecipe, rows: int | None, length: int | None) -> ProbeSizes:
        stage = recipe.training.pretrain
        return token_sizes(stage, rows, length, stage.batch_tokens, recipe.model.length)

    def probe(
        self, recipe: AnswerRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[GPT]:
        generator, shape = torch.Generator().manual_seed(0), (letters["B"], letters["T"])
        inputs, targets = (random_tokens(generator, vocabulary.entries, *shape) for _ in range(2))
        return micro_batch(TokenBatch(inputs, targets), answer_loss)


def encode_questions(
    questions: Sequence[Question], vocabulary: Vocabulary, length: int
) -> Targeted:
    """Sequences `question <mask> answer <end>`, of which the answers are targets."""
    half = length // 2
    encoded = vocabulary.encode([question.answer for question in questions])
    answers = [np.append(answer, END)[:half] for answer in encoded]
    prompts = encode_prompts([question.question for question in questions], vocabulary, half)
    pairs = zip(prompts, encoded, strict=True)
    unfit = sum(prompt.truncation is not None or len(answer) >= half for prompt, answer in pairs)
    warn_unfit(unfit, len(questions), "questions", "truncated")
    sequences = [
        np.append(prompt.tokens, answer) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    return Targeted(ragged(sequences), np.array([len(prompt.tokens) for prompt in prompts]))


def read_texts(path: Path) -> Iterator[str]:
    """The texts to read, one per line."""
    return (line.text for line in read_lines(path))


def encode_all(texts: Iterable[str], vocabulary: Vocabulary) -> Iterator[Numbers]:
    """Every text's tokens, without all texts in memory."""
    pending = iter(texts)
    while batch := list(islice(pending, BATCH_TEXTS)):
        yield from vocabulary.encode(batch)


def count_titles(texts: Iterable[str], vocabulary: Vocabulary) -> Numbers:
    """The number of tokens of each text's title."""
    titles = encode_all(map(title_of, texts), vocabulary)
    return np.fromiter((len(title) for title in titles), dtype=np.int64)


def answer_loss(model: GPT, batch: TokenBatch) -> Tensor:
    """Cross-entropy, summed over the counted targets."""
    counted = batch.targets != IGNORE
    packing = {"positions": batch.positions, "documents": batch.documents}
    return cross_entropy_(model(batch.inputs, **packing, at=counted), batch.targets[counted]).sum()
