"""Closed-book question answering: pretrain a language model on texts, finetune it on questions.

    pretrain    texts, augmented for example by span corruption:   prefix ? suffix ? span .
    finetune    questions, in the format of a corrupted text:      question ? answer .

`?` is <mask> and `.` is <end>. The vocabulary is fitted on the texts and on the questions
and answers of the training split.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import IGNORE_INDEX, TokenBatch, next_token_batch, pad
from harken.batch.pretraining import PretrainingBatches, PromptedSequences, SpecialTokens
from harken.batch.ragged import IntArray, ragged
from harken.batch.shards import TokenShards, write_shards
from harken.batch.views import ViewsConfig
from harken.config import MAX_BATCH, MAX_SEED, bounded
from harken.decode.search import SearchConfig
from harken.decode.stepper import LMStepper, NonEmptyStepper, TokenHypothesis
from harken.encode.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig
from harken.encode.stream import CorpusSample
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import Vocabulary, VocabularySizes
from harken.formats.corpus import Files, TextCorpus, find_files
from harken.formats.examples import Question
from harken.formats.question_template import question_template, title_of
from harken.formats.table import read_table
from harken.layers.losses import cross_entropy_
from harken.measure.honesty import measure_honesty
from harken.measure.interval import share
from harken.measure.nearest_name_errors import known_answers
from harken.measure.scored_answers import Answer, exact_matches, majority_answer
from harken.models.gpt import GPT, GPTConfig
from harken.synthetic.fictional_names import fictional_names
from harken.tasks.attention_view import AttentionExample, causal_example, output_title
from harken.tasks.columns import AnswerColumns
from harken.tasks.dummy_batches import DummySizes, random_text_batch, token_sizes
from harken.tasks.prediction import Evaluation, Prediction, beam_prediction, truncation_of
from harken.tasks.seq2seq import Prompt, scored_output, search_tokens
from harken.tasks.task import Keys, Layout, Predictor, Splits, Task, require_share, warn_unfit
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

BATCH_TEXTS = 1024  # texts encoded at once
MAX_ANSWER_TOKENS = 32
BATCH_SIZE = 64  # questions in a search
MAX_FICTIONAL = 200  # fictional names in an evaluation
TEMPLATE = """
[encode]
kind = "words"    # or "bpe", "unigram", "characters"
vocab_size = 20000    # large, so that a name is one or two tokens; leave out with "characters"

[model]
layers = {model.layers}
width = {model.width}
max_length = {model.max_length}    # tokens; longer texts are cut
position.kind = "rotary"    # or "learned", "sinusoid", "none"
attention.heads = 4
attention.score.kind = "{model.attention.score.kind}"    # or "dot", "synthesizer" (not with rotary)

[training.pretrain]
steps = 1000
batch_tokens = 2048
question_ratio = 0.02    # share of the tokens of a batch that belong to training questions
views.corrupted = 0.0    # share of texts with span corruption
views.rotated = 1.0    # share of texts that are rotated after their title
views.masked = 0.5    # share of inputs after the title that are masked
optimizer.lr = 0.01
optimizer.fallback.lr = 0.003
evaluate_every = 70    # steps; keeps the best weights; 0: never

[training.finetune]
steps = 0    # on questions only, after pretraining
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerData:
    """Texts for pretraining, and questions with answers."""

    pretrain: Files  # texts, one per line: path, list of paths or glob
    train: Path  # training questions: lines `question<TAB>answer`, or a table
    dev: Path | float = 0.15  # validation questions, or a share of `train` to hold out
    test: Path | None = None  # questions that are not used in training
    columns: AnswerColumns = AnswerColumns()  # columns of tables
    # characters of `pretrain` that the tokenizer is fitted on, spread evenly
    tokenizer_sample: int = bounded(2**26, at_least=1, at_most=2**40)

    def __post_init__(self) -> None:
        require_share(self.dev)

    def corpus(self) -> TextCorpus:
        """Return the pretraining texts."""
        files = find_files(self.pretrain)
        return TextCorpus(files=files, documents="lines", column=self.columns.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig(StageConfig):
    """Pretraining on texts and training questions."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)  # tokens per batch
    views: ViewsConfig = field(default_factory=ViewsConfig)  # augmentation of the texts
    # share of the tokens of a batch that belong to training questions
    question_ratio: float = bounded(0.0, at_least=0.0, below=1.0)
    pack: bool = False  # put several texts into each row: less padding, but a slower mask

    def __post_init__(self) -> None:
        StageConfig.__post_init__(self)  # super() fails in a dataclass with slots
        if self.pack and self.views.masked:
            raise ValueError("views.masked needs one text per row; set pack = false")


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneConfig(StageConfig):
    """Finetuning on questions; only the answers are targets."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)  # tokens per batch


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTraining:
    """The stages of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)  # first stage; 0 steps skip it
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)  # second stage


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecipe:
    """Recipe of the task `answer`."""

    task: Literal["answer"] = "answer"  # closed-book question answering
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: AnswerData  # paths of the files
    # tokenizer, or that of `model.start_from`
    encode: TokenizerConfig | PretrainedTokenizerConfig = field(default_factory=BytePairConfig)
    model: GPTConfig = field(default_factory=GPTConfig)  # architecture
    training: AnswerTraining = field(default_factory=AnswerTraining)  # training stages
    search: SearchConfig = SearchConfig()  # beam search or sampling


class AnswerPredictor(Predictor[AnswerRecipe, Question, Vocabulary, GPT]):
    """A trained question answering model."""

    batch_size = BATCH_SIZE

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        for question, (prompt, beam) in zip(inputs, self._search(inputs, nbest, keys), strict=True):
            yield beam_prediction(question, beam, self.vocabulary, nbest, prompt.truncation)

    def evaluate(self, examples: Sequence[Question], condition: str | None = None) -> Evaluation:
        train_questions, train_answers = unzip_questions(self.splits["train"])
        questions, expected = unzip_questions(examples)
        template, majority = question_template(train_questions), majority_answer(train_answers)
        known = known_answers(list(map(template.name, train_questions)), train_answers)

        def to_answer(prediction: Prediction) -> Answer:
            name = template.name(prediction.input)
            return Answer(name, prediction.output, prediction.confidence)

        predictions = list(self.predict(questions))
        answers = [to_answer(prediction) for prediction in predictions]
        correct = exact_matches([answer.answer for answer in answers], expected)
        count, seed = min(MAX_FICTIONAL, len(examples)), self.recipe.seed
        names = fictional_names(known.names, [answer.name for answer in answers], count, seed)
        # The index seeds the sampling, so these indices must differ from those of the examples.
        indices = range(len(examples), len(examples) + len(names))
        fictional = self.predict([template.ask(name) for name in names], indices=indices)
        all_questions = (*train_questions, *questions)
        by_name = {template.name(question): question for question in all_questions}
        samples, notes, honesty = measure_honesty(
            answers,
            expected,
            known,
            template=str(template),
            embed=lambda names: self.states([by_name[name] for name in names]),
            fictional=list(map(to_answer, fictional)),
            seed=seed,
        )
        return Evaluation(
            n=len(examples),
            samples={
                "exact_match": share(correct),
                "majority_answer": share(exact_matches([majority] * len(expected), expected)),
                **samples,
            },
            notes={
                "exact_match": "answers equal to the expected one, except for surrounding spaces",
                "majority_answer": f"baseline: always {majority!r}, the most frequent answer",
                **notes,
            },
            predictions=predictions,
            expected=expected,
            honesty=honesty,
        )

    def attention(self, text: str, output: str | None = None) -> AttentionExample:
        """Return the attention over a question, <mask> and the predicted answer with <end>."""
        ((prompt, (best, *_)),) = self._search([text])
        answer = scored_output(best.tokens, output, self.vocabulary, self.max_answer_tokens)
        title, tokens = f"{text} → {output_title(answer.text)}", prompt.tokens.tolist()
        return causal_example(self.model, tokens, answer, title, prompt.truncation)

    @torch.inference_mode()
    def states(self, questions: Sequence[str]) -> Float[np.ndarray, "N J"]:
        """Return the last hidden state at the <mask> after each question."""
        model = self.model.eval()
        prompts = [prompt.tokens for prompt in self._prompts(questions)]
        states = np.zeros((len(prompts), model.position.width), dtype=np.float32)
        by_length = np.argsort(list(map(len, prompts)), kind="stable")  # less padding
        for start in range(0, len(prompts), BATCH_SIZE):
            rows = by_length[start : start + BATCH_SIZE]
            padding = self.vocabulary.special.pad
            tokens, present = pad(ragged([prompts[row] for row in rows]), padding)
            last = present.sum(dim=1) - 1
            at_mask = model.states(tokens.to(self.device))[torch.arange(len(rows)), last]
            states[rows] = at_mask.float().cpu().numpy()
        return states

    @property
    def max_answer_tokens(self) -> int:
        return min(self.recipe.search.max_tokens or MAX_ANSWER_TOKENS, self.model.max_length // 2)

    def _prompts(self, questions: Sequence[str]) -> list[Prompt]:
        max_prompt = self.model.max_length - self.max_answer_tokens
        return encode_prompts(questions, self.vocabulary, max_prompt)

    def _search(
        self, questions: Sequence[str], nbest: int = 1, keys: Keys | None = None
    ) -> list[tuple[Prompt, list[TokenHypothesis]]]:
        """Return the prompt of each question with its best answers, searched in one batch."""
        special = self.vocabulary.special
        stepper = NonEmptyStepper(LMStepper(self.model.eval()), special.end)
        prompts, search = self._prompts(questions), self.recipe.search
        rows, limit = [prompt.tokens for prompt in prompts], self.max_answer_tokens
        beams = search_tokens(stepper, rows, self.device, search, limit, nbest, keys, special)
        return list(zip(prompts, beams, strict=True))


def encode_prompts(
    questions: Sequence[str], vocabulary: Vocabulary, max_length: int
) -> list[Prompt]:
    """Return `question <mask>`; a long question keeps its last tokens, up to `max_length`."""
    limit, mask = max_length - 1, vocabulary.special.mask
    encoded = vocabulary.encode([question.strip() for question in questions])
    lengths = ((min(limit, len(row)), len(row)) for row in encoded)
    truncations = (truncation_of(kept, total, "last") for kept, total in lengths)
    return list(map(Prompt, (np.append(row[-limit:], mask) for row in encoded), truncations))


def unzip_questions(examples: Sequence[Question]) -> tuple[list[str], list[str]]:
    """Return the texts of the questions, and the answers."""
    return [example.question for example in examples], [example.answer for example in examples]


class AnswerTask(Task[AnswerRecipe, Question, Vocabulary, GPT]):
    """Closed-book question answering."""

    recipe_type = AnswerRecipe
    vocabulary_type = Vocabulary
    predictor_type = AnswerPredictor
    layout = Layout[AnswerRecipe, Question](
        calls={
            "texts.txt questions.tsv": ("pretrain", "train"),
            "texts.txt train.tsv dev.tsv": ("pretrain", "train", "dev"),
            "texts.txt train.tsv dev.tsv test.tsv": ("pretrain", "train", "dev", "test"),
        },
        template=TEMPLATE,
        examples="questions",
    )

    def read_file(self, recipe: AnswerRecipe, path: Path) -> list[Question]:
        rows = read_table(path, recipe.data.columns.of("train"))
        return [Question(*map(str.strip, row.texts.values())) for row in rows]

    def read_splits(self, recipe: AnswerRecipe) -> Splits[Question]:
        def read_train(path: Path) -> list[Question]:
            next(recipe.data.corpus().blocks(), None)  # fail early if a file is missing or empty
            return self.read_file(recipe, path)

        read, seed, key = partial(self.read_file, recipe), recipe.seed, self.input
        return Splits(recipe.data, read, seed=seed, key=key, read_train=read_train)

    def input(self, example: Question) -> str:
        return example.question

    def target(self, example: Question) -> str:
        return example.answer

    def fit(self, recipe: AnswerRecipe, train: Sequence[Question]) -> Vocabulary:
        questions = chain.from_iterable((example.question, example.answer) for example in train)
        corpus = recipe.data.corpus()
        texts = CorpusSample(corpus, corpus.size().characters, recipe.data.tokenizer_sample)
        return recipe.encode.fit(chain(texts, questions))

    def fit_pretrained(
        self, recipe: AnswerRecipe, train: Sequence[Question], tokenizer: PretrainedTokenizer
    ) -> Vocabulary:
        return tokenizer.vocabulary(mask=True)

    def build(self, recipe: AnswerRecipe, sizes: VocabularySizes) -> GPT:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: AnswerRecipe, splits: Splits[Question], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[GPT]]:
        pretrain, finetune = recipe.training.pretrain, recipe.training.finetune
        special = vocabulary.special
        train_questions = encode_questions(splits["train"], vocabulary, recipe.model.max_length)
        lengths = train_questions.sequences.lengths
        sampler = BucketSampler(lengths, finetune.batch_tokens, recipe.seed)
        questions, answers = unzip_questions(splits["dev"])

        def question_batch(step: int) -> list[TokenBatch]:
            return [next_token_batch(*train_questions.take(sampler.batch(step)), special.pad)]

        def dev_accuracy(model: GPT) -> float:
            predictor = AnswerPredictor(recipe, splits, vocabulary, model)
            outputs = [prediction.output for prediction in predictor.predict(questions)]
            return float(np.mean(exact_matches(outputs, answers)))

        stages = [stage("finetune", finetune, question_batch, answer_loss, dev_accuracy)]
        if pretrain.steps > 0:
            text_shards, title_shards = cache / "texts", cache / "titles"
            encoded = partial(encode_texts, recipe.data.corpus(), vocabulary)
            write_shards(text_shards, encoded, len(vocabulary))
            write_shards(title_shards, partial(encoded, change=title_of), len(vocabulary))
            pretraining = PretrainingBatches(
                shards=TokenShards(text_shards),
                titles=TokenShards(title_shards),
                questions=train_questions,
                views=pretrain.views,
                special=SpecialTokens(pad=special.pad, mask=special.mask, end=special.end),
                max_length=recipe.model.max_length,
                batch_tokens=pretrain.batch_tokens,
                question_ratio=pretrain.question_ratio,
                pack=pretrain.pack,
                seed=recipe.seed,
            )
            first = stage("pretrain", pretrain, pretraining.batch, answer_loss, dev_accuracy)
            stages.insert(0, first)
        return stages

    def dummy_sizes(self, recipe: AnswerRecipe, rows: int | None, length: int | None) -> DummySizes:
        config, tokens = recipe.training.pretrain, length or recipe.model.max_length
        return token_sizes(config, rows, tokens, config.batch_tokens)

    def dummy_batch(
        self, recipe: AnswerRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[GPT]:
        batch = random_text_batch(sizes["B"], sizes["T"], vocabulary.entries)
        return micro_batch(batch, answer_loss)


def encode_questions(
    questions: Sequence[Question], vocabulary: Vocabulary, max_length: int
) -> PromptedSequences:
    """Return sequences `question <mask> answer <end>`; `answer <end>` are the targets."""
    half, (texts, answers) = max_length // 2, unzip_questions(questions)
    prompts = encode_prompts(texts, vocabulary, half)
    pairs = list(zip(prompts, vocabulary.encode(answers), strict=True))
    unfit = sum(prompt.truncation is not None or len(answer) >= half for prompt, answer in pairs)
    warn_unfit(unfit, len(questions), "questions", "truncated")
    end = vocabulary.special.end
    sequences = [np.append(prompt.tokens, [*answer, end][:half]) for prompt, answer in pairs]
    first_targets = np.array([len(prompt.tokens) for prompt in prompts])
    return PromptedSequences(ragged(sequences), first_targets)


def encode_texts(
    corpus: TextCorpus, vocabulary: Vocabulary, done: int, change: Callable[[str], str] = str
) -> Iterator[list[IntArray]]:
    """Yield the tokens of the texts after the first `done`, several at a time."""
    texts = (change(block.text) for block in islice(corpus.blocks(), done, None))
    while batch := list(islice(texts, BATCH_TEXTS)):
        yield vocabulary.encode(batch)


def answer_loss(model: GPT, batch: TokenBatch) -> Tensor:
    """Return the summed cross-entropy of the targets that are not IGNORE_INDEX."""
    counted = batch.targets != IGNORE_INDEX
    packing = {"positions": batch.positions, "documents": batch.documents}
    return cross_entropy_(model(batch.inputs, **packing, at=counted), batch.targets[counted]).sum()
