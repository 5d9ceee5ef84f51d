"""Closed-book question answering: pretrain a language model on texts, finetune it on questions.

    reading     views of each text, such as span corruption:      prefix ? suffix ? span .
    questions   a question is a text whose span is missing:       question ? answer .

`?` is <mask> and `.` is <end>. The vocabulary is fitted on the texts and the training questions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary, VocabularySizes
from harken.formats.examples import Question
from harken.formats.question_template import question_template, title_of
from harken.formats.text import read_lines
from harken.formats.tsv import read_questions
from harken.layers.losses import cross_entropy_
from harken.measure.honesty import measure_honesty
from harken.measure.interval import share
from harken.measure.nearest_name_errors import known_answers
from harken.measure.scored_answers import Answer, exact_matches, majority_answer
from harken.models.gpt import GPT, GPTConfig
from harken.synthetic.fictional_names import fictional_names
from harken.tasks.attention_view import AttentionExample, causal_example, output_title
from harken.tasks.prediction import Evaluation, Prediction, beam_prediction, truncation_of
from harken.tasks.probe import ProbeSizes, random_text_batch, token_sizes
from harken.tasks.seq2seq import Prompt, search_tokens
from harken.tasks.task import Keys, Layout, Predictor, Splits, Task, require_share, warn_unfit
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.runtime import RuntimeConfig

BATCH_TEXTS = 1024  # encoded at once
MAX_ANSWER_TOKENS = 32
BATCH_SIZE = 64  # questions in a search
MAX_FICTIONAL = 200  # fictional names
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
question_ratio = 0.02    # share of each batch that is training questions
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

    pretrain: Path  # texts, one per line
    train: Path  # training questions, `question<TAB>answer` per line
    dev: Path | float = 0.15  # validation questions, or a share of `train` to hold out
    test: Path | None = None  # questions that are not used in training

    def __post_init__(self) -> None:
        require_share(self.dev)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig(StageConfig):
    """Pretraining on texts and training questions."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)  # tokens per batch
    views: ViewsConfig = field(default_factory=ViewsConfig)  # share of each augmentation
    question_ratio: float = bounded(0.0, at_least=0.0, below=1.0)  # share of question tokens
    pack: bool = False  # put several texts into a row: less padding, but a slower mask

    def __post_init__(self) -> None:
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
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)  # first stage; 0 steps skip it
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)  # second stage


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecipe:
    """Recipe of the task `answer`."""

    task: Literal["answer"] = "answer"  # closed-book question answering
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: AnswerData  # paths of the files
    encode: TokenizerConfig = field(default_factory=BytePairConfig)  # tokenizer
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
        training, train_answers = split_questions(self.splits["train"])
        questions, expected = split_questions(examples)
        template, majority = question_template(training), majority_answer(train_answers)
        known = known_answers(list(map(template.name, training)), train_answers)

        def answer_of(prediction: Prediction) -> Answer:
            name = template.name(prediction.input)
            return Answer(name, prediction.output, prediction.confidence)

        predictions = list(self.predict(questions))
        answers = [answer_of(prediction) for prediction in predictions]
        correct = exact_matches([answer.answer for answer in answers], expected)
        count, seed = min(MAX_FICTIONAL, len(examples)), self.recipe.seed
        names = fictional_names(known.names, [answer.name for answer in answers], count, seed)
        # Indices after those of the examples, so that the samples are independent.
        indices = range(len(examples), len(examples) + len(names))
        fictional = self.predict([template.ask(name) for name in names], indices=indices)
        question_of = {template.name(question): question for question in (*training, *questions)}
        samples, notes, honesty = measure_honesty(
            answers,
            expected,
            known,
            template=str(template),
            embed=lambda names: self.states([question_of[name] for name in names]),
            fictional=list(map(answer_of, fictional)),
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

    def attention(self, text: str) -> AttentionExample:
        """Return the attention over a question, <mask> and the predicted answer with <end>."""
        ((prompt, (best, *_)),) = self._search([text])
        answer = [*best.tokens, END][: self.max_answer_tokens]
        (output,) = self.vocabulary.decode([best.tokens])
        tokens, title = [*prompt.tokens.tolist(), *answer], f"{text} → {output_title(output)}"
        token_texts = self.vocabulary.token_texts
        return causal_example(self.model, tokens, token_texts, title, prompt.truncation)

    @torch.inference_mode()
    def states(self, questions: Sequence[str]) -> Float[np.ndarray, "N J"]:
        """Return the last hidden state at the <mask> after each question."""
        model = self.model.eval()
        prompts = [prompt.tokens for prompt in self._prompts(questions)]
        states = np.zeros((len(prompts), model.position.width), dtype=np.float32)
        by_length = np.argsort(list(map(len, prompts)), kind="stable")  # less padding
        for start in range(0, len(prompts), BATCH_SIZE):
            rows = by_length[start : start + BATCH_SIZE]
            tokens, present = pad(ragged([prompts[row] for row in rows]), PAD)
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
        stepper = NonEmptyStepper(LMStepper(self.model.eval()), END)
        prompts, search = self._prompts(questions), self.recipe.search
        rows, limit = [prompt.tokens for prompt in prompts], self.max_answer_tokens
        beams = search_tokens(stepper, rows, self.device, search, limit, nbest, keys)
        return list(zip(prompts, beams, strict=True))


def encode_prompts(
    questions: Sequence[str], vocabulary: Vocabulary, max_length: int
) -> list[Prompt]:
    """Return `question <mask>`; of a long question, the last tokens that fit `max_length`."""
    limit = max_length - 1
    encoded = vocabulary.encode([question.strip() for question in questions])
    lengths = ((min(limit, len(row)), len(row)) for row in encoded)
    truncations = (truncation_of(read, total, "last") for read, total in lengths)
    return list(map(Prompt, (np.append(row[-limit:], MASK) for row in encoded), truncations))


def split_questions(examples: Sequence[Question]) -> tuple[list[str], list[str]]:
    """Return the questions and the answers."""
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
        return read_questions(path)

    def read_splits(self, recipe: AnswerRecipe) -> Splits[Question]:
        def read_train(path: Path) -> list[Question]:
            next(read_lines(recipe.data.pretrain))  # report a missing or empty text before training
            return read_questions(path)

        seed, key = recipe.seed, self.input
        return Splits(recipe.data, read_questions, seed=seed, key=key, read_train=read_train)

    def input(self, example: Question) -> str:
        return example.question

    def target(self, example: Question) -> str:
        return example.answer

    def fit(self, recipe: AnswerRecipe, train: Sequence[Question]) -> Vocabulary:
        questions = chain.from_iterable((item.question, item.answer) for item in train)
        return recipe.encode.fit(chain(read_texts(recipe.data.pretrain), questions))

    def build(self, recipe: AnswerRecipe, sizes: VocabularySizes) -> GPT:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: AnswerRecipe, splits: Splits[Question], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[GPT]]:
        pretrain, finetune = recipe.training.pretrain, recipe.training.finetune
        training = encode_questions(splits["train"], vocabulary, recipe.model.max_length)
        sampler = BucketSampler(training.sequences.lengths, finetune.batch_tokens, recipe.seed)
        questions, answers = split_questions(splits["dev"])

        def question_batch(step: int) -> list[TokenBatch]:
            return [next_token_batch(*training.take(sampler.batch(step)), PAD)]

        def dev_accuracy(model: GPT) -> float:
            predictor = AnswerPredictor(recipe, splits, vocabulary, model)
            outputs = [prediction.output for prediction in predictor.predict(questions)]
            return float(np.mean(exact_matches(outputs, answers)))

        stages = [stage("questions", finetune, question_batch, answer_loss, dev_accuracy)]
        if pretrain.steps > 0:
            shards = cache / "read"
            if not shards.is_dir():
                encoded = encode_all(read_texts(recipe.data.pretrain), vocabulary)
                write_shards(shards, encoded, len(vocabulary))
            titles = encode_all(map(title_of, read_texts(recipe.data.pretrain)), vocabulary)
            pretraining = PretrainingBatches(
                shards=TokenShards(shards),
                titles=np.fromiter(map(len, titles), dtype=np.int64),
                questions=training,
                views=pretrain.views,
                special=SpecialTokens(pad=PAD, mask=MASK, end=END),
                max_length=recipe.model.max_length,
                batch_tokens=pretrain.batch_tokens,
                question_ratio=pretrain.question_ratio,
                pack=pretrain.pack,
                seed=recipe.seed,
            )
            reading = stage("reading", pretrain, pretraining.batch, answer_loss, dev_accuracy)
            stages.insert(0, reading)
        return stages

    def probe_sizes(self, recipe: AnswerRecipe, rows: int | None, length: int | None) -> ProbeSizes:
        config, tokens = recipe.training.pretrain, length or recipe.model.max_length
        return token_sizes(config, rows, tokens, config.batch_tokens)

    def probe(
        self, recipe: AnswerRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[GPT]:
        batch = random_text_batch(letters["B"], letters["T"], vocabulary.entries)
        return micro_batch(batch, answer_loss)


def encode_questions(
    questions: Sequence[Question], vocabulary: Vocabulary, max_length: int
) -> PromptedSequences:
    """Return sequences `question <mask> answer <end>`, of which the answers are targets."""
    half, (texts, answers) = max_length // 2, split_questions(questions)
    prompts = encode_prompts(texts, vocabulary, half)
    pairs = list(zip(prompts, vocabulary.encode(answers), strict=True))
    unfit = sum(prompt.truncation is not None or len(answer) >= half for prompt, answer in pairs)
    warn_unfit(unfit, len(questions), "questions", "truncated")
    sequences = [np.append(prompt.tokens, [*answer, END][:half]) for prompt, answer in pairs]
    first_targets = np.array([len(prompt.tokens) for prompt in prompts])
    return PromptedSequences(ragged(sequences), first_targets)


def read_texts(path: Path) -> Iterator[str]:
    """Read the pretraining texts, one per line."""
    return (line.text for line in read_lines(path))


def encode_all(texts: Iterator[str], vocabulary: Vocabulary) -> Iterator[IntArray]:
    """Yield the tokens of each text, in constant memory."""
    while batch := list(islice(texts, BATCH_TEXTS)):
        yield from vocabulary.encode(batch)


def answer_loss(model: GPT, batch: TokenBatch) -> Tensor:
    """Return the cross-entropy, summed over the counted targets."""
    counted = batch.targets != IGNORE_INDEX
    packing = {"positions": batch.positions, "documents": batch.documents}
    return cross_entropy_(model(batch.inputs, **packing, at=counted), batch.targets[counted]).sum()
