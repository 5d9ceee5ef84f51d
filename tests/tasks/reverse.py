"""A complete task: a GPT reads a word twice and writes its letters in reverse."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.batch.bucketing import rng
from harken.batch.padding import IGNORE_INDEX, TokenBatch
from harken.encode.subwords import CharactersConfig
from harken.encode.vocabulary import PAD, Vocabulary, VocabularySizes
from harken.formats.text import read_lines
from harken.measure.interval import share
from harken.models.gpt import GPT, GPTConfig
from harken.tasks.attention_view import AttentionExample, self_attention_view
from harken.tasks.dummy_batches import DummySizes, random_tokens, target_losses
from harken.tasks.lm import LanguageModelTraining
from harken.tasks.prediction import Evaluation, Prediction
from harken.tasks.task import Keys, Layout, Predictor, SplitPaths, Splits, Task
from harken.training.loop import MicroBatch, Stage, micro_batch, stage


@dataclass(frozen=True, kw_only=True)
class Reverse:
    task: Literal["reverse"] = "reverse"
    seed: int = 0
    data: SplitPaths
    encode: CharactersConfig = CharactersConfig()
    model: GPTConfig = GPTConfig(layers=2, width=32, max_length=32)
    training: LanguageModelTraining = field(default_factory=LanguageModelTraining)


def encode(words: Sequence[str], vocabulary: Vocabulary) -> TokenBatch:
    letters = [tokens[1:].tolist() for tokens in vocabulary.encode(words)]  # no space before them
    inputs = [torch.tensor([*word, *word]) for word in letters]
    targets = [torch.tensor([IGNORE_INDEX] * len(word) + word[::-1]) for word in letters]
    return TokenBatch(pad_sequence(inputs, True, PAD), pad_sequence(targets, True, IGNORE_INDEX))


def loss(model: GPT, batch: TokenBatch) -> Tensor:
    return target_losses(model, batch.targets, batch.inputs).sum()


class ReversePredictor(Predictor[Reverse, str, Vocabulary, GPT]):
    @torch.inference_mode()
    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        for word in inputs:
            batch = encode([word], self.vocabulary)
            logits = self.model.eval()(batch.inputs, at=batch.targets != IGNORE_INDEX)
            logs, tokens = logits.log_softmax(-1).max(-1)
            output = self.vocabulary.decode([tokens.tolist()])[0]
            yield Prediction(input=word, output=output, confidence=float(logs.sum().exp()))

    def evaluate(self, examples: Sequence[str], condition: str | None = None) -> Evaluation:
        outputs, expected = list(self.predict(examples)), [word[::-1] for word in examples]
        samples = {"exact_match": share([word.output == word.input[::-1] for word in outputs])}
        return Evaluation(n=len(outputs), samples=samples, predictions=outputs, expected=expected)

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        tokens = encode([text], self.vocabulary).inputs
        view = self_attention_view("Letters", self.vocabulary.token_texts(tokens[0].tolist()))
        return AttentionExample(title=text, run=lambda: self.model.states(tokens), views=[view])


class ReverseTask(Task[Reverse, str, Vocabulary, GPT]):
    recipe_type = Reverse
    vocabulary_type = Vocabulary
    predictor_type = ReversePredictor
    layout = Layout[Reverse, str](calls={"words.txt": ["train"]}, examples="words")

    def read_file(self, recipe: Reverse, path: Path) -> list[str]:
        return [line.text.strip() for line in read_lines(path)]

    def read_splits(self, recipe: Reverse) -> Splits[str]:
        return Splits(recipe.data, partial(self.read_file, recipe), seed=recipe.seed)

    def input(self, example: str) -> str:
        return example

    def target(self, example: str) -> str:
        return example[::-1]

    def fit(self, recipe: Reverse, train: Sequence[str]) -> Vocabulary:
        return recipe.encode.fit(train)

    def build(self, recipe: Reverse, sizes: VocabularySizes) -> GPT:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: Reverse, splits: Splits[str], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[GPT]]:
        def batch(step: int) -> list[TokenBatch]:
            chosen = rng(recipe.seed, step).choice(splits["train"], size=32)
            return [encode(chosen.tolist(), vocabulary)]

        return [stage("words", recipe.training, batch, loss)]

    def dummy_sizes(self, recipe: Reverse, rows: int | None, length: int | None) -> DummySizes:
        return DummySizes(recipe.training, {"B": rows or 32, "T": length or 16})

    def dummy_batch(
        self, recipe: Reverse, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[GPT]:
        tokens = random_tokens(torch.Generator(), vocabulary.entries, sizes["B"], sizes["T"])
        return micro_batch(TokenBatch(tokens, tokens), loss)
