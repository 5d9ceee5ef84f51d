"""Language modeling: predict the next token of a whole file, or of documents one per line.

Either way a text becomes one stream of tokens (`encode/stream.py`). Training takes windows of it;
evaluation predicts every token of the held-out stream once; a prompt is continued as if it stood at
the beginning of the stream. A file is one text without an end, so there a continuation stops only
at the limit of its length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from harken.batch.padding import TokenBatch
from harken.batch.ragged import Numbers
from harken.batch.windows import Windows
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.encode.stream import Documents, Stream, stretches
from harken.encode.subwords import CharactersConfig, UnitsConfig
from harken.encode.vocabulary import Vocabulary, VocabularySizes
from harken.errors import Failure, UserError
from harken.files import replacing
from harken.formats.text import read_lines, read_whole
from harken.inputs import file_size
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import LanguageModelConfig
from harken.tasks.lm_predictor import (
    MAX_NEW_TOKENS,
    AnyLanguageModel,
    LanguageModelPredictor,
    losses,
    token_nats,
)
from harken.tasks.task import (
    Layout,
    ProbeSizes,
    SplitPaths,
    Splits,
    Task,
    file_calls,
    random_tokens,
    require_one_file,
    token_sizes,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.machine import MachineConfig

WINDOW = 256  # tokens, for a model that has no length of its own
MAX_EPOCHS = 20  # above which `harken new` suggests dropout
TEMPLATE = """\
documents = "{data.documents}"    # or "lines": every line is a text of its own

[encode]
kind = "{encode.kind}"    # or "bpe", "unigram", "words"

[model]
kind = "{model.kind}"    # or "rnn", "cnn": these take only width and dropout of what follows
layers = {model.layers}
width = {model.width}
length = {model.length}    # tokens that the model sees at once
dropout = {model.dropout}
position.kind = "{model.position.kind}"    # or "rotary", "sinusoid", "alibi", "none"

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}
evaluate_every = {training.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
temperature = {search.temperature}    # below 1 likelier, above 1 bolder; or beam = 4 in its place
most = {search.most}    # tokens of a continuation
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelData(SplitPaths):
    """A text; a share for `dev` is its end, counted in characters or, with `lines`, in lines."""

    documents: Documents = "file"


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelTraining(StageConfig):
    """One stage; `window` is the tokens of a row, by default the model's length."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    steps: int = bounded(800, at_least=0, at_most=MAX_STEPS)
    window: int | None = bounded(None, at_least=2)
    batch_tokens: int = bounded(8192, at_least=1, at_most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelRecipe:
    """The recipe of a run."""

    task: Literal["lm"] = "lm"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: LanguageModelData
    encode: UnitsConfig = field(default_factory=CharactersConfig)
    model: LanguageModelConfig = field(default_factory=GPTConfig)
    training: LanguageModelTraining = field(default_factory=LanguageModelTraining)
    search: SearchConfig = SearchConfig(temperature=0.8, most=MAX_NEW_TOKENS)

    def __post_init__(self) -> None:
        longest = self.model.length if isinstance(self.model, GPTConfig) else None
        if longest is not None and self.window > longest:
            raise ValueError(
                f"training.window {self.window} is more than the model's length {longest}; "
                "make model.length larger, or leave out the window"
            )

    @property
    def window(self) -> int:
        """Tokens that the model reads at once, in training and evaluation."""
        own = self.model.length if isinstance(self.model, GPTConfig) else WINDOW
        return self.training.window or own


def suggest_dropout(recipe: LanguageModelRecipe, splits: Splits[str]) -> dict[str, object]:
    """Dropout for a model that reads a small text many times."""
    characters = sum(map(len, splits["train"]))
    epochs = recipe.training.steps * recipe.training.batch_tokens / characters
    return {"model.dropout": 0.2} if epochs > MAX_EPOCHS else {}


class LanguageModelTask(Task[LanguageModelRecipe, str, Vocabulary, AnyLanguageModel]):
    """Language modeling; an example is a line, or a chunk of a file."""

    recipe_type = LanguageModelRecipe
    vocabulary_type = Vocabulary
    layout = Layout[LanguageModelRecipe, str](
        calls=file_calls("text.txt", "train.txt", "dev.txt", "test.txt"),
        template=TEMPLATE,
        examples="characters",
        stage="training",
        suggest=suggest_dropout,
        count=lambda chunks: sum(map(len, chunks)) + len(chunks) - 1,  # with what separates them
    )

    def read(self, recipe: LanguageModelRecipe, paths: Sequence[Path]) -> list[str]:
        path = require_one_file(paths, "text")
        if recipe.data.documents == "lines":
            return [line.text for line in read_lines(path)]
        return stretches(read_whole(path))

    def read_splits(self, recipe: LanguageModelRecipe) -> Splits[str]:
        path = recipe.data.train

        def hold_out_end(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
            if recipe.data.documents == "lines":
                kept = kept_of(len(texts), share, path, "lines")
                return list(texts[:kept]), list(texts[kept:])
            text = " ".join(texts)
            kept = kept_of(len(text), share, path, "characters")
            return stretches(text[:kept]), stretches(text[kept:])

        return Splits(recipe.data, lambda file: self.read(recipe, [file]), split=hold_out_end)

    def input(self, example: str) -> str:
        return example

    def fit(self, recipe: LanguageModelRecipe, train: Sequence[str]) -> Vocabulary:
        return recipe.encode.fit(train)

    def build(self, recipe: LanguageModelRecipe, sizes: VocabularySizes) -> AnyLanguageModel:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: LanguageModelRecipe, splits: Splits[str], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[AnyLanguageModel]]:
        training, stream = recipe.training, Stream(vocabulary, recipe.data.documents)
        stored = cache / "train.npy"
        if not stored.exists():
            with replacing(stored) as unfinished, unfinished.open("wb") as file:
                small = np.uint16 if len(vocabulary) <= 1 << 16 else np.uint32
                np.save(file, stream.join(stream.encode(splits["train"])).astype(small))
        rows = max(1, training.batch_tokens // recipe.window)
        windows = Windows(memory_mapped(stored), recipe.window, rows, recipe.seed)
        held_out = stream.join(stream.encode(splits["dev"]))

        def negative_nats(model: AnyLanguageModel) -> float:
            # Side by side, which costs half of what overlapping windows do.
            return -float(token_nats(model, held_out, recipe.window, recipe.window).mean())

        return [
            stage(
                "text",
                training,
                lambda step: [windows.batch(step)],
                lambda model, batch: losses(model, batch).sum(),
                negative_nats,
            )
        ]

    def bind(
        self,
        recipe: LanguageModelRecipe,
        splits: Splits[str],
        vocabulary: Vocabulary,
        model: AnyLanguageModel,
    ) -> LanguageModelPredictor:
        return LanguageModelPredictor(
            stream=Stream(vocabulary, recipe.data.documents),
            model=model,
            search=recipe.search,
            window=recipe.window,
        )

    def probe_sizes(
        self, recipe: LanguageModelRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        stage = recipe.training
        return token_sizes(stage, rows, length, stage.batch_tokens, recipe.window)

    def probe(
        self, recipe: LanguageModelRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[AnyLanguageModel]:
        return random_text(letters["B"], letters["T"], vocabulary.entries)


def random_text(rows: int, length: int, vocabulary: int) -> MicroBatch[AnyLanguageModel]:
    """A random batch of any language model, with its loss."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (random_tokens(generator, vocabulary, rows, length) for _ in range(2))
    return micro_batch(TokenBatch(inputs, targets), lambda model, batch: losses(model, batch).sum())


def kept_of(count: int, share: float, path: Path, what: str) -> int:
    """How many come before the share at the end, which is held out."""
    kept = int((1 - share) * count)
    if not 0 < kept < count:
        raise UserError(
            f"{path}: found {count} {what}, wanted enough to hold out a share of {share}",
            fix="add text, or name a file in data.dev",
        )
    return kept


def memory_mapped(path: Path) -> Numbers:
    """The stored stream of tokens."""
    try:
        file_size(path, "the tokens of a text")
        tokens: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
    except (UserError, OSError, ValueError, EOFError) as error:
        raise Failure(
            f"{path}: found tokens that cannot be read ({error}), wanted those that the run wrote",
            fix="delete the file and resume the run: it is made again from the data",
        ) from None
    return tokens
