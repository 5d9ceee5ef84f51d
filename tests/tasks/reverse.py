"""A complete task: a GPT reads a word twice and the second time writes its letters backwards."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.batch.bucketing import seeded
from harken.batch.padding import IGNORE, TokenBatch, pad
from harken.batch.ragged import ragged
from harken.encode.subwords import CharactersConfig
from harken.encode.vocabulary import PAD, Vocabulary, VocabularySizes
from harken.formats.text import hold_out_lines, read_lines
from harken.measure.accuracy import exact_matches
from harken.measure.interval import share
from harken.models.language_model import GPT, GPTConfig
from harken.tasks.attention_view import AttentionExample, self_view
from harken.tasks.prediction import Evaluation, Indices, Prediction
from harken.tasks.task import Layout, Predictor, ProbeSizes, Splits, Task, file_calls, random_tokens
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.machine import MachineConfig


@dataclass(frozen=True, kw_only=True)
class ReverseData:
    train: Path
    dev: Path | float = 0.2
    test: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ReverseTraining(StageConfig):
    machine: MachineConfig = field(default_factory=MachineConfig)
    words: int = 32  # of a batch


@dataclass(frozen=True, kw_only=True)
class ReverseRecipe:
    task: Literal["reverse"] = "reverse"
    seed: int = 0
    data: ReverseData
    encode: CharactersConfig = CharactersConfig()
    model: GPTConfig = GPTConfig(layers=2, width=32, length=32)
    training: ReverseTraining = field(default_factory=ReverseTraining)


def encode(words: Sequence[str], vocabulary: Vocabulary) -> TokenBatch:
    letters = [tokens[1:] for tokens in vocabulary.encode(words)]  # without the space before them
    inputs, _ = pad(ragged([word.repeat(2).reshape(-1, 2).T.ravel() for word in letters]), PAD)
    targets, _ = pad(ragged([[IGNORE] * len(word) + [*word[::-1]] for word in letters]), IGNORE)
    return TokenBatch(inputs, targets)


def loss(model: GPT, batch: TokenBatch) -> Tensor:
    counted = batch.targets != IGNORE
    return F.cross_entropy(model(batch.inputs, at=counted), batch.targets[counted], reduction="sum")


@dataclass(frozen=True)
class ReversePredictor(Predictor[str]):
    vocabulary: Vocabulary
    model: GPT

    @torch.inference_mode()
    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        for word in inputs:
            batch = encode([word], self.vocabulary)
            logits = self.model.eval()(batch.inputs, at=batch.targets != IGNORE)
            logs, tokens = logits.log_softmax(-1).max(-1)
            output = self.vocabulary.decode([tokens.tolist()])[0]
            yield Prediction(input=word, output=output, confidence=math.exp(logs.sum()))

    def evaluate(self, examples: Sequence[str], condition: str | None = None) -> Evaluation:
        found, expected = list(self.predict(examples)), [word[::-1] for word in examples]
        samples = {"exact_match": share(exact_matches([one.output for one in found], expected))}
        return Evaluation(
            n=len(found), samples=samples, notes={}, predictions=found, expected=expected
        )

    def attention(self, text: str) -> AttentionExample | None:
        tokens = encode([text], self.vocabulary).inputs
        view = self_view("Letters", self.vocabulary.pieces(tokens[0].tolist()))
        return AttentionExample(title=text, run=lambda: self.model.states(tokens), views=[view])


class ReverseTask(Task[ReverseRecipe, str, Vocabulary, GPT]):
    name = "reverse"
    recipe_type = ReverseRecipe
    layout = Layout[ReverseRecipe, str](
        calls=file_calls("words.txt", "train.txt", "dev.txt"),
        template="\n[training]\nsteps = {training.steps}\n",
        examples="words",
    )

    def read(self, recipe: ReverseRecipe, paths: Sequence[Path]) -> list[str]:
        return [line.text.strip() for line in read_lines(paths[0])]

    def read_splits(self, recipe: ReverseRecipe) -> Splits[str]:
        return Splits(
            recipe.data,
            lambda path: self.read(recipe, [path]),
            lambda words, part: hold_out_lines(words, part, recipe.seed),
        )

    def input(self, example: str) -> str:
        return example

    def target(self, example: str) -> str:
        return example[::-1]

    def fit(self, recipe: ReverseRecipe, train: Sequence[str]) -> Vocabulary:
        return recipe.encode.fit(train)

    def load_vocabulary(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: ReverseRecipe, sizes: VocabularySizes) -> GPT:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: ReverseRecipe, splits: Splits[str], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[GPT]]:
        words, config = splits["train"], recipe.training

        def batch(step: int) -> list[TokenBatch]:
            chosen = seeded(recipe.seed, step).integers(len(words), size=config.words)
            return [encode([words[index] for index in chosen], vocabulary)]

        return [stage("words", config, batch, loss)]

    def bind(
        self, recipe: ReverseRecipe, splits: Splits[str], vocabulary: Vocabulary, model: GPT
    ) -> ReversePredictor:
        return ReversePredictor(vocabulary, model)

    def probe_sizes(
        self, recipe: ReverseRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        return ProbeSizes(recipe.training, {"B": rows or recipe.training.words, "T": length or 16})

    def probe(
        self, recipe: ReverseRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[GPT]:
        tokens = random_tokens(torch.Generator(), vocabulary.entries, letters["B"], letters["T"])
        return micro_batch(TokenBatch(tokens, tokens), loss)
