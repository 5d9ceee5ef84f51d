"""Text to its next symbol: a causal model of a whole file, or of documents one a line.

Either way a text becomes one stream of tokens (`encode/stream.py`). Training takes windows of it;
measuring predicts every token of the held-out stream once, whatever stands before it; a prompt is
continued as if it stood at the stream's beginning. A file is one text that does not end, so there a
continuation stops only where there is no more room.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.batch.padding import IGNORE, TokenBatch, pad
from harken.batch.ragged import Numbers, ragged
from harken.batch.windows import Windows, cover, covering_batches
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.decode.seek import seek
from harken.decode.step import LanguageModelSteps
from harken.encode.stream import Documents, Stream, stretches
from harken.encode.subwords import CharactersConfig, UnitsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.errors import Failure, UserError
from harken.files import replacing
from harken.formats.text import read_lines, read_whole
from harken.inputs import file_size
from harken.layers.losses import cross_entropy_
from harken.measure.interval import MIN_PIECES
from harken.measure.perplexity import Surprise, mean_nats
from harken.models.fixed_state import FixedStateModel, LanguageModelConfig
from harken.models.language_model import GPT, GPTConfig
from harken.tasks.looking import ahead, likeliest_next
from harken.tasks.task import (
    AttentionExample,
    Evaluation,
    Hypothesis,
    Indices,
    Prediction,
    Prompt,
    Table,
    Trained,
    keys_of,
    single,
    truncation_of,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig

WINDOW = 256  # tokens, for a model that has no length of its own
MOST_WRITTEN = 200  # tokens of a continuation, where the recipe does not say
CONTINUED_TOGETHER = 32  # prompts in one batch
MEASURED_TOGETHER = 4096  # tokens in one batch
LONGEST_UNIT = 4096  # tokens; longer pieces, as of a text without spaces, are cut
SHOWN, SHOWN_PROMPT, SHOWN_WRITTEN = 3, 64, 100  # continuations, their characters, their tokens

AnyLanguageModel = GPT | FixedStateModel


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelData:
    """A text; a share for `dev` is its end, counted in characters or, with `lines`, in lines."""

    train: Path
    dev: Path | float = 0.1
    test: Path | None = None
    documents: Documents = "file"

    def __post_init__(self) -> None:
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted a file or a number in (0, 1)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelTraining(StageConfig):
    """One stage; `window` is the tokens of a row, as many as the model reads where not given."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    steps: int = bounded(800, at_least=0, at_most=MAX_STEPS)
    window: int | None = bounded(None, at_least=2)
    batch_tokens: int = bounded(8192, at_least=1, at_most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelRecipe:
    """The whole of a run."""

    task: Literal["lm"] = "lm"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: LanguageModelData
    encode: UnitsConfig = field(default_factory=CharactersConfig)
    model: LanguageModelConfig = field(default_factory=GPTConfig)
    training: LanguageModelTraining = field(default_factory=LanguageModelTraining)
    search: SearchConfig = SearchConfig(temperature=0.8, most=MOST_WRITTEN)

    def __post_init__(self) -> None:
        longest = self.model.length if isinstance(self.model, GPTConfig) else None
        if longest is not None and self.window > longest:
            raise ValueError(
                f"training.window {self.window} is more than the model's length {longest}; "
                "make model.length larger, or leave out the window"
            )

    @property
    def window(self) -> int:
        """Tokens that the model sees at once, in training and when it is measured."""
        own = self.model.length if isinstance(self.model, GPTConfig) else WINDOW
        return self.training.window or own


class LanguageModelTask:
    """See the top of this file."""

    def read(self, recipe: LanguageModelRecipe) -> Mapping[str, list[str]]:
        data = recipe.data
        if isinstance(data.dev, Path):
            splits = {
                name: self.read_files(recipe, [path])
                for name, path in (("train", data.train), ("dev", data.dev))
            }
        elif data.documents == "lines":
            lines = self.read_files(recipe, [data.train])
            kept = kept_of(len(lines), data.dev, data.train, "lines")
            splits = {"train": lines[:kept], "dev": lines[kept:]}
        else:
            text = read_whole(data.train)
            kept = kept_of(len(text), data.dev, data.train, "characters")
            splits = {"train": stretches(text[:kept]), "dev": stretches(text[kept:])}
        if data.test is not None:
            splits["test"] = self.read_files(recipe, [data.test])
        return splits

    def read_files(self, recipe: LanguageModelRecipe, paths: Sequence[Path]) -> list[str]:
        path = single(paths, "text")
        if recipe.data.documents == "lines":
            return [line.text for line in read_lines(path)]
        return stretches(read_whole(path))

    def fit(self, recipe: LanguageModelRecipe, splits: Mapping[str, list[str]]) -> Vocabulary:
        return recipe.encode.fit(splits["train"])

    def restore(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: LanguageModelRecipe, vocabulary: Vocabulary) -> AnyLanguageModel:
        return recipe.model.build(len(vocabulary), recipe.seed)

    def stages(
        self,
        recipe: LanguageModelRecipe,
        splits: Mapping[str, list[str]],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage]:
        training, stream = recipe.training, Stream(vocabulary, recipe.data.documents)
        stored = cache / "train.npy"
        if not stored.exists():
            with replacing(stored) as unfinished, unfinished.open("wb") as file:
                small = np.uint16 if len(vocabulary) <= 1 << 16 else np.uint32
                np.save(file, stream.join(stream.encode(splits["train"])).astype(small))
        rows = max(1, training.batch_tokens // recipe.window)
        windows = Windows(mapped(stored), recipe.window, rows, recipe.seed)
        held_out = stream.join(stream.encode(splits["dev"]))

        def gain(model: nn.Module) -> float:
            # Side by side, which costs half of what overlapping windows do.
            return -float(token_nats(model, held_out, recipe.window, recipe.window).mean())

        return [
            Stage(
                name="text",
                config=training,
                batch=lambda step: [windows.batch(step)],
                loss=lambda model, batch: losses(model, batch).sum(),
                evaluate=gain,
            )
        ]

    def evaluate(self, trained: Trained, examples: Sequence[str]) -> Evaluation:
        recipe, model = trained.recipe, trained.model.eval()
        stream = Stream(trained.fitted, recipe.data.documents)
        pieces, window = stream.encode(examples), recipe.window
        tokens, contents = stream.join(pieces), stream.contents(examples)
        surprise, alone = (
            surprise_of(token_nats(model, tokens, window, stride), pieces, contents)
            for stride in (window - window // 2, window)
        )
        return Evaluation(
            n=len(surprise.nats),
            samples={
                **surprise.samples(),
                "nats_without_overlap": mean_nats(alone.nats, alone.tokens),
            },
            notes=notes(recipe, len(tokens) - 1),
            tables=[self._continuations(trained, examples)],
        )

    def _continuations(self, trained: Trained, examples: Sequence[str]) -> Table:
        chosen = np.linspace(0, len(examples), SHOWN, endpoint=False, dtype=int)
        prompts = [examples[place][:SHOWN_PROMPT] for place in dict.fromkeys(chosen.tolist())]
        search = SearchConfig(temperature=0.8, most=SHOWN_WRITTEN)
        looking = replace(trained, recipe=replace(trained.recipe, search=search))
        return Table(
            title="Held-out beginnings, continued by samples at temperature 0.8",
            header=("held-out text", "continued by the model"),
            rows=[(one.input, one.output) for one in self.predict(looking, prompts)],
        )

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        model = cast(AnyLanguageModel, trained.model)
        model.eval()
        stream, search = (
            Stream(trained.fitted, trained.recipe.data.documents),
            trained.recipe.search,
        )
        room = search.most or MOST_WRITTEN
        if model.length is not None:
            # At least a quarter of what the model reads stays with the prompt.
            room = min(room, model.length - model.length // 4)
        most = None if model.length is None else model.length - room
        keys = keys_of(inputs, indices)
        for start in range(0, len(inputs), CONTINUED_TOGETHER):
            texts = inputs[start : start + CONTINUED_TOGETHER]
            prompts = [prompt_of(stream, text, most) for text in texts]
            tokens, present = pad(ragged([prompt.tokens for prompt in prompts]), PAD)
            found = seek(
                LanguageModelSteps(model),
                tokens.to(trained.device),
                present.to(trained.device),
                search=search,
                end=END,
                most=room,
                nbest=nbest,
                keys=keys[start : start + CONTINUED_TOGETHER],
            )
            for text, prompt, some in zip(texts, prompts, found, strict=True):
                outputs = stream.continuations(prompt.tokens, [one.tokens for one in some])
                listed = [
                    Hypothesis(output=output, log_probability=one.log_probability)
                    for output, one in zip(outputs, some, strict=True)
                ]
                yield Prediction(
                    input=text,
                    output=outputs[0],
                    confidence=math.exp(listed[0].log_probability),
                    nbest=listed if nbest > 1 else (),
                    truncation=prompt.truncation,
                )

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        return self.look(trained, str(evaluation.tables[0].rows[0][0]))

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """The end of the text, as much as the model reads, and what is likeliest behind it."""
        model, stream = trained.model, Stream(trained.fitted, trained.recipe.data.documents)
        if not isinstance(model, GPT):
            return None
        prompt = prompt_of(stream, asked, model.length)
        tokens = prompt.tokens.tolist()
        tokens.append(likeliest_next(model, tokens))
        pieces = trained.fitted.pieces
        title = f"{asked} → {pieces(tokens[-1:])[0]!r}"
        return replace(ahead(model, tokens, pieces, title), truncation=prompt.truncation)

    def inputs(self, trained: Trained, count: int) -> list[str]:
        return list(self.read(trained.recipe)["dev"][:count])


def prompt_of(stream: Stream, text: str, most: int | None) -> Prompt:
    """The last `most` tokens of a text behind the stream's start."""
    tokens = stream.prompt(text)
    total = len(tokens) - 1  # the start is no token of the text
    kept = total if most is None else min(most, total)
    return Prompt(tokens[-(most or len(tokens)) :], truncation_of(kept, total, "last"))


def kept_of(count: int, share: float, path: Path, what: str) -> int:
    """How many come before the share at the end, which is held out."""
    kept = int((1 - share) * count)
    if not 0 < kept < count:
        raise UserError(
            f"{path}: found {count} {what}, wanted enough to hold out a share of {share}",
            fix="add text, or name a file in data.dev",
        )
    return kept


def mapped(path: Path) -> Numbers:
    """A stored stream, which stays on the disk."""
    try:
        file_size(path, "the tokens of a text")
        tokens: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
    except (UserError, OSError, ValueError, EOFError) as error:
        raise Failure(
            f"{path}: found tokens that cannot be read ({error}), wanted those that the run wrote",
            fix="delete the file and resume the run: it is made again from the data",
        ) from None
    return tokens


def losses(model: nn.Module, batch: TokenBatch) -> Float[Tensor, "targets"]:
    """Return the nats of every counted target, in reading order."""
    counted = batch.targets != IGNORE
    return cross_entropy_(model(batch.inputs, at=counted), batch.targets[counted])


@torch.inference_mode()
def token_nats(
    model: nn.Module, stream: Numbers, window: int, stride: int
) -> Float[np.ndarray, "targets"]:
    """Nats of every token of a stream but the first, in windows that start `stride` apart."""
    model.eval()
    device = next(model.parameters()).device
    rows = max(1, MEASURED_TOGETHER // window)
    batches = covering_batches(stream, cover(len(stream), window, stride), rows, PAD)
    return np.concatenate(
        [losses(model, batch.to(device)).double().cpu().numpy() for batch in batches]
    )


def surprise_of(
    nats: Float[np.ndarray, "targets"],
    pieces: Sequence[Numbers],
    contents: Float[np.ndarray, "pieces 2"],
) -> Surprise:
    """Sums over each piece; a very long one is cut, its words and characters shared out evenly."""
    lengths = np.array([len(piece) for piece in pieces])
    ends = np.cumsum(lengths)
    starts = [
        np.arange(end - length, end, LONGEST_UNIT)
        for end, length in zip(ends, lengths, strict=True)
    ]
    shares = np.repeat(contents / lengths[:, None], lengths, axis=0)
    sums = np.add.reduceat(
        np.column_stack((nats, np.ones_like(nats), shares)), np.concatenate(starts), axis=0
    )
    return Surprise(nats=sums[:, 0], tokens=sums[:, 1], words=sums[:, 2], characters=sums[:, 3])


def notes(recipe: LanguageModelRecipe, tokens: int) -> Mapping[str, str]:
    """What each figure is."""
    window = recipe.window
    ended = " and ends of lines" if recipe.data.documents == "lines" else ""
    return {
        "nats": f"a token, over {tokens:,} tokens, each predicted once, in windows of {window} "
        f"that overlap by half: all but the first {window} have at least {window // 2} before "
        f"them; the interval is over blocks of the text, which needs {MIN_PIECES} pieces",
        "bits": "the same a token in bits",
        "bits_per_character": f"the same bits over the characters{ended} of the text",
        "perplexity": "the exponential of nats a token",
        "perplexity_per_word": "of nats over the words of the text, as white space parts them",
        "perplexity_per_character": f"of nats over the characters{ended} of the text",
        "nats_without_overlap": "a token, in windows side by side that each begin with an empty "
        "past, as nanoGPT measures",
    }
