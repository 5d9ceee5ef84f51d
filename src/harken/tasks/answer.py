"""Closed-book question answering: a language model reads texts, then learns to answer questions.

    reading     each text whole, or with a span moved behind it:  prefix ? suffix ? span .
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
from harken.batch.ragged import Numbers, ragged
from harken.batch.reading import (
    PretrainingBatches,
    PretrainingSizes,
    PromptedSequences,
    SpecialTokens,
)
from harken.batch.shards import TokenShards, write_shards
from harken.batch.views import ViewsConfig
from harken.config import MAX_BATCH, MAX_SEED, bounded
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.stepper import LMStepper, NonEmptyStepper, TokenHypothesis
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary, VocabularySizes
from harken.formats.examples import Question
from harken.formats.question_template import question_template
from harken.formats.text import read_lines
from harken.formats.titles import title_of
from harken.formats.tsv import read_questions
from harken.layers.losses import cross_entropy_
from harken.measure.honesty import measure_honesty
from harken.measure.interval import share
from harken.measure.nearest_name_errors import known_answers
from harken.measure.scored_answers import Answer, exact_matches, majority_answer
from harken.models.gpt import GPT, GPTConfig
from harken.synthetic.fictional_names import fictional_names
from harken.tasks.attention_view import AttentionExample, causal_example, output_title
from harken.tasks.prediction import (
    Evaluation,
    Indices,
    Prediction,
    Prompt,
    prediction_of,
    sample_keys,
    truncation_of,
    warn_unfit,
)
from harken.tasks.seq2seq import search_tokens
from harken.tasks.task import (
    Layout,
    Predictor,
    ProbeSizes,
    Splits,
    Task,
    random_tokens,
    require_share,
    token_sizes,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.runtime import RuntimeConfig

BATCH_TEXTS = 1024  # encoded at once
MAX_ANSWER_TOKENS = 32
BATCH_SIZE = 64  # questions answered in one batch
MAX_FICTIONAL = 200  # fictional names
TEMPLATE = """
[encode]
kind = "words"    # or "bpe", "unigram", "characters"
vocab_size = 20000    # so many that a name is a token or two; leave out with "characters"

[model]
layers = {model.layers}
width = {model.width}
max_length = {model.max_length}    # tokens of a text that the model sees at once
position.kind = "rotary"    # or "learned", "sinusoid", "none"
attention.heads = 4
attention.score.kind = "{model.attention.score.kind}"    # or "dot", "synthesizer" (not with rotary)

[training.pretrain]
steps = 1000
batch_tokens = 2048
question_ratio = 0.02    # share of each batch that is training questions
views.corrupted = 0.0    # share of texts with a hole to fill
views.rotated = 1.0    # of those that start anywhere behind their head
views.masked = 0.5    # of the tokens behind the head that are hidden
optimizer.lr = 0.01
optimizer.fallback.lr = 0.003
evaluate_every = 70    # steps; the best on dev is kept; 0: the last

[training.finetune]
steps = 0    # on questions alone, after the reading
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerData:
    """A text to read, one document per line, and questions; a share for `dev` is by person."""

    pretrain: Path
    train: Path
    dev: Path | float = 0.15
    test: Path | None = None

    def __post_init__(self) -> None:
        require_share(self.dev)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig(StageConfig):
    """Pretraining: how texts are shown, and what share of the batch is training questions."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)
    views: ViewsConfig = field(default_factory=ViewsConfig)
    question_ratio: float = bounded(0.0, at_least=0.0, below=1.0)
    pack: bool = False  # several texts per row: less padding, a slower mask

    def __post_init__(self) -> None:
        if self.pack and self.views.masked:
            raise ValueError("views.masked counts from the head of a row; set pack = false")


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneConfig(StageConfig):
    """Finetuning on questions; only the answers are targets."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTraining:
    """Two stages; `pretrain.steps = 0` leaves the first out."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecipe:
    """The recipe of a run."""

    task: Literal["answer"] = "answer"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: AnswerData
    encode: TokenizerConfig = field(default_factory=BytePairConfig)
    model: GPTConfig = field(default_factory=GPTConfig)
    training: AnswerTraining = field(default_factory=AnswerTraining)
    search: SearchConfig = SearchConfig()


class AnswerPredictor(Predictor[AnswerRecipe, Question, Vocabulary, GPT]):
    """A trained question answering model."""

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        keys = sample_keys(inputs, indices)
        for start in range(0, len(inputs), BATCH_SIZE):
            questions = inputs[start : start + BATCH_SIZE]
            prompts = self._prompts(questions)
            beams = self._search(prompts, nbest, keys[start : start + BATCH_SIZE])
            for question, prompt, answers in zip(questions, prompts, beams, strict=True):
                yield prediction_of(question, answers, self.vocabulary, nbest, prompt.truncation)

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
        right = exact_matches([answer.answer for answer in given], expected)
        majority = majority_answer(answers)
        count, seed = min(MAX_FICTIONAL, len(examples)), self.recipe.seed
        names = fictional_names(known.names, [answer.name for answer in given], count, seed)
        # Indices after those of the examples, so that samples are independent of theirs.
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
                "exact_match": share(right),
                "majority_answer": share(exact_matches([majority] * len(expected), expected)),
                **samples,
            },
            notes={
                "exact_match": "answers equal to the expected one but for white space at the ends",
                "majority_answer": f"always saying {majority!r}, the most common training answer",
                **notes,
            },
            predictions=predictions,
            expected=expected,
            honesty=honesty,
        )

    def attention(self, text: str) -> AttentionExample:
        """Attention over a question, <mask>, and the model's own answer up to <end>."""
        (prompt,) = self._prompts([text])
        ((best, *_),) = self._search([prompt])
        answer = [*best.tokens, END][: self.max_answer_tokens]
        (output,) = self.vocabulary.decode([best.tokens])
        tokens, title = [*prompt.tokens.tolist(), *answer], f"{text} → {output_title(output)}"
        return causal_example(self.model, tokens, self.vocabulary.pieces, title, prompt.truncation)

    @torch.inference_mode()
    def states(self, questions: Sequence[str]) -> Float[np.ndarray, "N J"]:
        """The model's last state at the <mask> after each question, from which it answers."""
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
        """The tokens that are left for an answer."""
        return min(self.recipe.search.max_tokens or MAX_ANSWER_TOKENS, self.model.length // 2)

    def _prompts(self, questions: Sequence[str]) -> list[Prompt]:
        most = self.model.length - self.max_answer_tokens
        return encode_prompts(questions, self.vocabulary, most)

    def _search(
        self, prompts: Sequence[Prompt], nbest: int = 1, keys: Sequence[SampleKey] | None = None
    ) -> list[list[TokenHypothesis]]:
        """The best answers to each prompt, searched in one batch."""
        return search_tokens(
            NonEmptyStepper(LMStepper(self.model.eval()), END),  # no answer is empty
            [prompt.tokens for prompt in prompts],
            self.device,
            self.recipe.search,
            self.max_answer_tokens,
            nbest,
            keys,
        )


def encode_prompts(questions: Sequence[str], vocabulary: Vocabulary, most: int) -> list[Prompt]:
    """Questions with their <mask>, at most `most` tokens; a longer question keeps its end."""
    kept = most - 1
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

        return Splits(
            recipe.data, read_questions, seed=recipe.seed, key=self.input, read_train=read_train
        )

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
        order = BucketSampler(training.sequences.lengths, finetune.batch_tokens, recipe.seed)
        questions = [question.question for question in splits["dev"]]
        answers = [question.answer for question in splits["dev"]]

        def question_batch(step: int) -> list[TokenBatch]:
            return [next_token_batch(*training.take(order.batch(step)), PAD)]

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
            lengths = np.fromiter(map(len, titles), dtype=np.int64)
            sizes = PretrainingSizes(
                length=recipe.model.max_length,
                batch_tokens=pretrain.batch_tokens,
                questions=pretrain.question_ratio,
                pack=pretrain.pack,
            )
            texts, symbols = TokenShards(shards), SpecialTokens(pad=PAD, mask=MASK, end=END)
            reading = PretrainingBatches(
                texts, lengths, training, sizes, pretrain.views, symbols, recipe.seed
            )
            stages.insert(0, stage("reading", pretrain, reading.batch, answer_loss, dev_accuracy))
        return stages

    def probe_sizes(self, recipe: AnswerRecipe, rows: int | None, length: int | None) -> ProbeSizes:
        stage = recipe.training.pretrain
        return token_sizes(stage, rows, length, stage.batch_tokens, recipe.model.max_length)

    def probe(
        self, recipe: AnswerRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[GPT]:
        generator, shape = torch.Generator().manual_seed(0), (letters["B"], letters["T"])
        inputs, targets = (random_tokens(generator, vocabulary.entries, *shape) for _ in range(2))
        return micro_batch(TokenBatch(inputs, targets), answer_loss)


def encode_questions(
    questions: Sequence[Question], vocabulary: Vocabulary, length: int
) -> PromptedSequences:
    """Sequences `question <mask> answer <end>`, of which the answers are targets."""
    half = length // 2
    encoded = vocabulary.encode([question.answer for question in questions])
    answers = [np.append(answer, END)[:half] for answer in encoded]
    prompts = encode_prompts([question.question for question in questions], vocabulary, half)
    pairs = list(zip(prompts, answers, encoded, strict=True))
    unfit = sum(prompt.truncation is not None or len(full) >= half for prompt, _, full in pairs)
    warn_unfit(unfit, len(questions), "questions", "truncated")
    sequences = [np.append(prompt.tokens, answer) for prompt, answer, _ in pairs]
    return PromptedSequences(
        ragged(sequences), np.array([len(prompt.tokens) for prompt in prompts])
    )


def read_texts(path: Path) -> Iterator[str]:
    """The texts to read, one per line."""
    return (line.text for line in read_lines(path))


def encode_all(texts: Iterable[str], vocabulary: Vocabulary) -> Iterator[Numbers]:
    """Every text's tokens, without all texts in memory."""
    pending = iter(texts)
    while batch := list(islice(pending, BATCH_TEXTS)):
        yield from vocabulary.encode(batch)


def answer_loss(model: GPT, batch: TokenBatch) -> Tensor:
    """Cross-entropy, summed over the counted targets."""
    counted = batch.targets != IGNORE_INDEX
    packing = {"positions": batch.positions, "documents": batch.documents}
    return cross_entropy_(model(batch.inputs, **packing, at=counted), batch.targets[counted]).sum()
