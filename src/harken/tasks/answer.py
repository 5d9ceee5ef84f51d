"""Short answers from what was read: a language model reads texts, then learns to answer from few.

    reading     each text whole, or with a hole whose content follows it:  prefix ? suffix ? span .
    questions   a question is a text with a hole at its end:               question ? answer .

`?` is <mask> and `.` is <end>. The answer is never in front of the model when it is asked (closed
book); the vocabulary is fitted once on the texts and the training questions and then frozen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.batch.bucketing import Order
from harken.batch.padding import IGNORE, TokenBatch, next_token_batch, pad
from harken.batch.ragged import Numbers, ragged
from harken.batch.reading import Reading, ReadingSizes, Symbols, Targeted
from harken.batch.shards import TokenShards, write_shards
from harken.batch.views import ViewsConfig
from harken.config import MAX_BATCH, MAX_SEED, bounded
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.seek import Found, seek
from harken.decode.step import LanguageModelSteps, NonEmptySteps
from harken.encode.subwords import BytePairConfig, UnitsConfig
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary
from harken.formats.examples import Question
from harken.formats.question_template import Frame, frame_of
from harken.formats.questions import hold_out, read_questions
from harken.formats.text import read_lines
from harken.formats.titles import head_of
from harken.layers.losses import cross_entropy_
from harken.measure.accuracy import commonest, exact_matches
from harken.measure.borrowing import known_of
from harken.measure.honesty import measure_honesty
from harken.measure.interval import share
from harken.measure.judged import Judged, Said, judge
from harken.models.language_model import GPT, GPTConfig
from harken.synthetic.fictional_names import invent_names
from harken.tasks.looking import ahead, output_title
from harken.tasks.task import (
    AttentionExample,
    Evaluation,
    Indices,
    Prediction,
    Prompt,
    Trained,
    keys_of,
    one_of,
    prediction_of,
    single,
    truncation_of,
    warn_unfit,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig

MOST_ANSWER_TOKENS = 32
ASKED_TOGETHER = 64  # questions answered in one batch
MOST_INVENTED = 200  # names that nobody bears


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerData:
    """A text to read, one document a line, and questions; a share for `dev` is split by person."""

    read: Path
    train: Path
    dev: Path | float = 0.15
    test: Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted a file or a number in (0, 1)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingConfig(StageConfig):
    """Pretraining: how texts are shown, and what share of the batch is training questions."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)
    views: ViewsConfig = field(default_factory=ViewsConfig)
    questions: float = bounded(0.0, at_least=0.0, below=1.0)
    pack: bool = False  # several texts a row: less padding, a slower mask

    def __post_init__(self) -> None:
        if self.pack and self.views.hidden:
            raise ValueError("views.hidden counts from the head of a row; set pack = false")


@dataclass(frozen=True, kw_only=True, slots=True)
class AskingConfig(StageConfig):
    """Finetuning on questions, where only the answer is learnt."""

    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTraining:
    """Two stages; `pretrain.steps = 0` leaves the first out."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    pretrain: ReadingConfig = field(default_factory=ReadingConfig)
    finetune: AskingConfig = field(default_factory=AskingConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecipe:
    """The whole of a run."""

    task: Literal["answer"] = "answer"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: AnswerData
    encode: UnitsConfig = field(default_factory=BytePairConfig)
    model: GPTConfig = field(default_factory=GPTConfig)
    training: AnswerTraining = field(default_factory=AnswerTraining)
    search: SearchConfig = SearchConfig()


class AnswerTask:
    """See the top of this file."""

    def read(self, recipe: AnswerRecipe) -> Mapping[str, list[Question]]:
        data = recipe.data
        train = read_questions(data.train)
        if isinstance(data.dev, Path):
            splits = {"train": train, "dev": read_questions(data.dev)}
        else:
            kept, held = hold_out(train, data.dev, recipe.seed)
            splits = {"train": kept, "dev": held}
        if data.test is not None:
            splits["test"] = read_questions(data.test)
        next(read_lines(data.read))  # a missing or empty text is better told now than later
        return splits

    def read_files(self, recipe: AnswerRecipe, paths: Sequence[Path]) -> list[Question]:
        return read_questions(single(paths, "questions"))

    def fit(self, recipe: AnswerRecipe, splits: Mapping[str, list[Question]]) -> Vocabulary:
        asked = ((question.question, question.answer) for question in splits["train"])
        return recipe.encode.fit(chain(texts_of(recipe.data.read), chain.from_iterable(asked)))

    def restore(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: AnswerRecipe, vocabulary: Vocabulary) -> GPT:
        return recipe.model.build(len(vocabulary), recipe.seed)

    def stages(
        self,
        recipe: AnswerRecipe,
        splits: Mapping[str, list[Question]],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage]:
        length = recipe.model.length
        asked = encode_questions(splits["train"], vocabulary, length)
        finetune = recipe.training.finetune
        order = Order(asked.sequences.lengths, finetune.batch_tokens, recipe.seed)

        def ask(step: int) -> list[TokenBatch]:
            chosen, first = asked.take(order.batch(step))
            return [next_token_batch(chosen, first, PAD)]

        def dev_share(model: nn.Module) -> float:
            trained = Trained(recipe=recipe, fitted=vocabulary, model=model)
            outputs = [one.output for one in self.predict(trained, questions)]
            return float(np.mean(exact_matches(outputs, answers)))

        questions = [question.question for question in splits["dev"]]
        answers = [question.answer for question in splits["dev"]]
        stage = partial(Stage, loss=loss, evaluate=dev_share)
        stages = [stage(name="questions", config=finetune, batch=ask)]
        pretrain = recipe.training.pretrain
        if pretrain.steps > 0:
            shards = cache / "read"
            if not shards.is_dir():
                write_shards(
                    shards, encode_all(texts_of(recipe.data.read), vocabulary), len(vocabulary)
                )
            reading = Reading(
                TokenShards(shards),
                count_heads(texts_of(recipe.data.read), vocabulary),
                asked,
                ReadingSizes(
                    length=length,
                    batch_tokens=pretrain.batch_tokens,
                    questions=pretrain.questions,
                    pack=pretrain.pack,
                ),
                pretrain.views,
                Symbols(pad=PAD, mask=MASK, end=END),
                recipe.seed,
            )
            stages.insert(0, stage(name="reading", config=pretrain, batch=reading.batch))
        return stages

    def evaluate(self, trained: Trained, examples: Sequence[Question]) -> Evaluation:
        training, seed = self.read(trained.recipe)["train"], trained.recipe.seed
        frame = frame_of([one.question for one in training])
        known = known_of(
            [frame.name(one.question) for one in training], [one.answer for one in training]
        )
        expected = [one.answer for one in examples]
        predictions = list(self.predict(trained, [one.question for one in examples]))
        said = [said_of(one, frame) for one in predictions]
        right = exact_matches([one.answer for one in said], expected)
        usual = commonest([one.answer for one in training])
        names = invent_names(
            known.names,
            [one.name for one in said],
            min(MOST_INVENTED, len(examples)),
            seed,
        )
        # Indices after those of the examples, so that samples are independent of theirs.
        indices = range(len(examples), len(examples) + len(names))
        invented = self.predict(trained, [frame.ask(name) for name in names], indices=indices)
        asked = {frame.name(one.question): one.question for one in (*training, *examples)}
        measured = measure_honesty(
            said,
            expected,
            known,
            frame=str(frame),
            embed=lambda names: states_of(trained, [asked[name] for name in names]),
            invented=[said_of(one, frame) for one in invented],
            seed=seed,
        )
        return Evaluation(
            n=len(examples),
            samples={
                "exact_match": share(right),
                "commonest_answer": share(exact_matches([usual] * len(expected), expected)),
                **measured.samples,
            },
            notes={
                "exact_match": "answers equal to the expected one but for white space at the ends",
                "commonest_answer": f"always saying {usual!r}, the commonest training answer",
                **measured.notes,
            },
            predictions=predictions,
            expected=expected,
            honesty=measured.honesty,
        )

    def judged(self, trained: Trained) -> Judged:
        examples = self.read(trained.recipe)["dev"]
        predictions = list(self.predict(trained, [one.question for one in examples]))
        right = exact_matches([one.output for one in predictions], [one.answer for one in examples])
        return judge([one.confidence for one in predictions], right)

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        keys = keys_of(inputs, indices)
        for start in range(0, len(inputs), ASKED_TOGETHER):
            questions = inputs[start : start + ASKED_TOGETHER]
            prompts = prompts_for(trained, questions)
            found = answers_of(trained, prompts, nbest, keys[start : start + ASKED_TOGETHER])
            for question, prompt, answers in zip(questions, prompts, found, strict=True):
                yield prediction_of(question, answers, trained.fitted, nbest, prompt.truncation)

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample:
        outputs = [one.output for one in evaluation.predictions]
        right = one_of(exact_matches(outputs, evaluation.expected))
        return self.look(trained, evaluation.predictions[right].input)

    def look(self, trained: Trained, asked: str) -> AttentionExample:
        """A question, <mask>, and the model's own answer up to <end>."""
        (prompt,) = prompts_for(trained, [asked])
        ((found, *_),) = answers_of(trained, [prompt])
        answer = [*found.tokens, END][: room_of(trained)]  # one without an end fills its room
        (said,) = trained.fitted.decode([found.tokens])
        example = ahead(
            cast(GPT, trained.model),
            [*prompt.tokens.tolist(), *answer],
            trained.fitted.pieces,
            f"{asked} → {output_title(said)}",
        )
        return replace(example, truncation=prompt.truncation)

    def inputs(self, trained: Trained, count: int) -> list[str]:
        return [one.question for one in self.read(trained.recipe)["dev"][:count]]


def said_of(prediction: Prediction, frame: Frame) -> Said:
    """A prediction as an answer about a name."""
    return Said(frame.name(prediction.input), prediction.output, prediction.confidence)


@torch.inference_mode()
def states_of(trained: Trained, questions: Sequence[str]) -> Float[np.ndarray, "N J"]:
    """The model's last state at the <mask> behind each question, from which it answers."""
    model = cast(GPT, trained.model).eval()
    prompts = [prompt.tokens for prompt in prompts_for(trained, questions)]
    states = np.zeros((len(prompts), model.position.width), dtype=np.float32)
    by_length = np.argsort([len(prompt) for prompt in prompts], kind="stable")  # little padding
    for start in range(0, len(prompts), ASKED_TOGETHER):
        rows = by_length[start : start + ASKED_TOGETHER]
        tokens, present = pad(ragged([prompts[row] for row in rows]), PAD)
        last = present.sum(dim=1) - 1
        found = model.states(tokens.to(trained.device))[torch.arange(len(rows)), last]
        states[rows] = found.float().cpu().numpy()
    return states


def room_of(trained: Trained) -> int:
    """The tokens that are kept free for an answer."""
    model = cast(GPT, trained.model)
    return min(trained.recipe.search.most or MOST_ANSWER_TOKENS, model.length // 2)


def answers_of(
    trained: Trained,
    prompts: Sequence[Prompt],
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[Found]]:
    """The best answers to each prompt, searched in one batch."""
    tokens, present = pad(ragged([prompt.tokens for prompt in prompts]), PAD)
    stepper = LanguageModelSteps(cast(GPT, trained.model).eval())
    return seek(
        NonEmptySteps(stepper, END),  # no training answer is empty
        tokens.to(trained.device),
        present.to(trained.device),
        search=trained.recipe.search,
        end=END,
        most=room_of(trained),
        nbest=nbest,
        keys=keys,
    )


def prompts_for(trained: Trained, questions: Sequence[str]) -> list[Prompt]:
    """Questions as the model is asked them, with room left for an answer."""
    model = cast(GPT, trained.model)
    return prompts_of(questions, trained.fitted, model.length - room_of(trained))


def prompts_of(questions: Sequence[str], vocabulary: Vocabulary, most: int) -> list[Prompt]:
    """Questions with their <mask>; one that is too long keeps its end."""
    room = most - 1
    return [
        Prompt(
            np.append(tokens[-room:], MASK),
            truncation_of(min(room, len(tokens)), len(tokens), "last"),
        )
        for tokens in vocabulary.encode([question.strip() for question in questions])
    ]


def encode_questions(
    questions: Sequence[Question], vocabulary: Vocabulary, length: int
) -> Targeted:
    """Sequences `question <mask> answer <end>`, of which the answers are to be learnt."""
    room = length // 2
    encoded = vocabulary.encode([question.answer for question in questions])
    answers = [np.append(answer, END)[:room] for answer in encoded]
    prompts = prompts_of([one.question for one in questions], vocabulary, room)
    asked = [prompt.tokens for prompt in prompts]
    pairs = zip(prompts, encoded, strict=True)
    unfit = sum(prompt.truncation is not None or len(answer) >= room for prompt, answer in pairs)
    warn_unfit(unfit, len(questions), "questions", "truncated")
    sequences = [np.append(*pair) for pair in zip(asked, answers, strict=True)]
    return Targeted(ragged(sequences), np.array([len(prompt) for prompt in asked]))


def texts_of(path: Path) -> Iterator[str]:
    """The texts to read, one a line."""
    return (line.text for line in read_lines(path))


def encode_all(
    texts: Iterable[str], vocabulary: Vocabulary, together: int = 1024
) -> Iterator[Numbers]:
    """Every text's tokens, a thousand texts at a time."""
    pending = iter(texts)
    while some := list(islice(pending, together)):
        yield from vocabulary.encode(some)


def count_heads(texts: Iterable[str], vocabulary: Vocabulary) -> Numbers:
    """How many tokens of each text are its head."""
    heads = encode_all(map(head_of, texts), vocabulary)
    return np.fromiter((len(head) for head in heads), dtype=np.int64)


def loss(model: nn.Module, batch: TokenBatch) -> Tensor:
    """Return the summed loss of the counted targets."""
    counted = batch.targets != IGNORE
    packing = {"positions": batch.positions, "documents": batch.documents}
    return cross_entropy_(model(batch.inputs, **packing, at=counted), batch.targets[counted]).sum()
