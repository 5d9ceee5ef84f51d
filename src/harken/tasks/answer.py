"""Closed-book question answering: pretrain a language model on texts, finetune it on questions.

    reading     views of each text, such as span corruption:      prefix ? suffix ? span .
    questions   a question is a text whose span is missing:       question ? answer .

`?` is <mask> and `.` is <end>. The vocabulary is fitted on the texts and the training questions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from harken.batch.ragged import Numbers, ragged
from harken.batch.shards import TokenShards, write_shards
from harken.batch.views import ViewsConfig
from harken.config import MAX_BATCH, MAX_SEED, bounded
from harken.decode.sampling import SampleKey
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
from harken.tasks.prediction import Evaluation, Indices, Prediction, prediction_of, truncation_of
from harken.tasks.probe import ProbeSizes, random_text_batch, token_sizes
from harken.tasks.seq2seq import Prompt, input_batches, search_tokens
from harken.tasks.task import Layout, Predictor, Splits, Task, require_share, warn_unfit
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

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        for questions, keys in input_batches(inputs, indices, BATCH_SIZE):
            prompts = self._prompts(questions)
            beams = self._search(prompts, nbest, keys)
            for question, prompt, beam in zip(questions, prompts, beams, strict=True):
                yield prediction_of(question, beam, self.vocabulary, nbest, prompt.truncation)

    def evaluate(self, examples: Sequence[Question], condition: str | None = None) -> Evaluation:
        training = [question.question for question in self.splits["train"]]
        answers = [question.answer for question in self.splits["train"]]
        template = question_template(training)
        known = known_answers(list(map(template.name, training)), answers)
        questions = [question.question for question in examples]
        expected = [question.answer for question in examples]
        predictions = list(self.predict(questions))

        def answer_of(prediction: Prediction) -> Answer:
            name = template.name(prediction.input)
            return Answer(name, prediction.output, prediction.confidence)

        given = [answer_of(prediction) for prediction in predictions]
        correct = exact_matches([answer.answer for answer in given], expected)
        majority = majority_answer(answers)
        count, seed = min(MAX_FICTIONAL, len(examples)), self.recipe.seed
        names = fictional_names(known.names, [answer.name for answer in given], count, seed)
        # Indices after those of the examples, so that the samples are independent.
        indices = range(len(examples), len(examples) + len(names))
        invented = self.predict([template.ask(name) for name in names], indices=indices)
        question_of = {template.name(question): question for question in (*training, *questions)}
        samples, notes, honesty = measure_honesty(
            given,
            expected,
            known,
            frame=str(template),
            embed=lambda names: self.states([question_of[name] for name in names]),
            invented=[answer_of(prediction) for prediction in invented],
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
        (prompt,) = self._prompts([text])
        ((best, *_),) = self._search([prompt])
        answer = [*best.tokens, END][: self.max_answer_tokens]
        (output,) = self.vocabulary.decode([best.tokens])
        tokens, title = [*prompt.tokens.tolist(), *answer], f"{text} → {output_title(output)}"
        return causal_example(self.model, tokens, self.vocabulary.pieces, title, prompt.truncation)

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
            read = model.states(tokens.to(self.device))[torch.arange(len(rows)), last]
            states[rows] = read.float().cpu().numpy()
        return states

    @property
    def max_answer_tokens(self) -> int:
        """The maximum number of tokens of an answer."""
        return min(self.recipe.search.max_tokens or MAX_ANSWER_TOKENS, self.model.length // 2)

    def _prompts(self, questions: Sequence[str]) -> list[Prompt]:
        max_prompt = self.model.length - self.max_answer_tokens
        return encode_prompts(questions, self.vocabulary, max_prompt)

    def _search(
        self, prompts: Sequence[Prompt], nbest: int = 1, keys: Sequence[SampleKey] | None = None
    ) -> list[list[TokenHypothesis]]:
        """Return the best answers to each prompt, searched in one batch."""
        stepper = NonEmptyStepper(LMStepper(self.model.eval()), END)
        rows, search = [prompt.tokens for prompt in prompts], self.recipe.search
        limit = self.max_answer_tokens
        return search_tokens(stepper, rows, self.device, search, limit, nbest, keys)


def encode_prompts(
    questions: Sequence[str], vocabulary: Vocabulary, max_length: int
) -> list[Prompt]:
    """Return questions with <mask> of at most `max_length` tokens; the end of a long one."""
    kept = max_length - 1
    encoded = vocabulary.encode([question.strip() for question in questions])
    return [
        Prompt(np.append(tokens[-kept:], MASK), truncation_of(min(kept, n), n, "last"))
        for tokens, n in ((tokens, len(tokens)) for tokens in encoded)
    ]


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
        questions = [question.question for question in splits["dev"]]
        answers = [question.answer for question in splits["dev"]]

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
            batches = pretraining.batch
            stages.insert(0, stage("reading", pretrain, batches, answer_loss, dev_accuracy))
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
    half = max_length // 2
    encoded = vocabulary.encode([question.answer for question in questions])
    answers = [np.append(answer, END)[:half] for answer in encoded]
    prompts = encode_prompts([question.question for question in questions], vocabulary, half)
    pairs = list(zip(prompts, answers, encoded, strict=True))
    unfit = sum(prompt.truncation is not None or len(full) >= half for prompt, _, full in pairs)
    warn_unfit(unfit, len(questions), "questions", "truncated")
    sequences = [np.append(prompt.tokens, answer) for prompt, answer, _ in pairs]
    first_targets = np.array([len(prompt.tokens) for prompt in prompts])
    return PromptedSequences(ragged(sequences), first_targets)


def read_texts(path: Path) -> Iterator[str]:
    """Read the pretraining texts, one per line."""
    return (line.text for line in read_lines(path))


def encode_all(texts: Iterable[str], vocabulary: Vocabulary) -> Iterator[Numbers]:
    """Yield the tokens of each text, in constant memory."""
    pending = iter(texts)
    while batch := list(islice(pending, BATCH_TEXTS)):
        yield from vocabulary.encode(batch)


def answer_loss(model: GPT, batch: TokenBatch) -> Tensor:
    """Return the cross-entropy, summed over the counted targets."""
    counted = batch.targets != IGNORE_INDEX
    packing = {"positions": batch.positions, "documents": batch.documents}
    return cross_entropy_(model(batch.inputs, **packing, at=counted), batch.targets[counted]).sum()
