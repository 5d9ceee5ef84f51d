"""Language modeling: predict the next token of a whole file, or of documents one per line.

Either way a text becomes one stream of tokens (`encode/stream.py`). Training takes windows of it;
evaluation predicts every token of the held-out stream once; a prompt is continued as if it stood at
the beginning of the stream. A file is one text without an end, so there a continuation stops only
at the limit of its length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.batch.padding import TokenBatch
from harken.batch.ragged import Numbers
from harken.batch.windows import Windows, covering_batches, sliding_windows
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.decode.stepper import LMStepper
from harken.encode.stream import Documents, Stream, split_chunks
from harken.encode.subwords import CharactersConfig, TokenizerConfig
from harken.encode.vocabulary import PAD, Vocabulary, VocabularySizes
from harken.errors import Failure, UserError
from harken.files import replacing
from harken.formats.text import read_lines, read_whole
from harken.inputs import file_size
from harken.measure.interval import MIN_PIECES
from harken.measure.perplexity import TokenLosses, mean_nats
from harken.models.gpt import GPT, GPTConfig
from harken.models.recurrent_lm import FixedStateLM, LanguageModelConfig
from harken.tasks.attention_view import AttentionExample, next_token_example
from harken.tasks.prediction import (
    Evaluation,
    Indices,
    Prediction,
    Prompt,
    Table,
    ranked_prediction,
    sample_keys,
    truncation_of,
)
from harken.tasks.seq2seq import search_tokens
from harken.tasks.task import (
    Layout,
    Predictor,
    ProbeSizes,
    SplitPaths,
    Splits,
    Task,
    file_calls,
    random_tokens,
    target_losses,
    token_sizes,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.runtime import RuntimeConfig

WINDOW = 256  # tokens, for a model that has no length of its own
MAX_EPOCHS = 20  # above which `harken new` suggests dropout
MAX_NEW_TOKENS = 200  # of a continuation, if the recipe does not state it
BATCH_SIZE = 32  # prompts in one batch
BATCH_TOKENS = 4096  # in one batch of evaluation
MAX_CHUNK = 4096  # tokens; longer chunks, as of a text without spaces, are cut
SHOWN, SHOWN_CHARACTERS, SHOWN_TOKENS = 3, 64, 100  # continuations, of prompts, of continuations

AnyLanguageModel = GPT | FixedStateLM
TEMPLATE = """\
documents = "{data.documents}"    # or "lines": every line is a text of its own

[encode]
kind = "{encode.kind}"    # or "bpe", "unigram", "words"

[model]
kind = "{model.kind}"    # or "rnn", "cnn": these take only width and dropout of what follows
layers = {model.layers}
width = {model.width}
max_length = {model.max_length}    # tokens that the model sees at once
dropout = {model.dropout}
position.kind = "{model.position.kind}"    # or "rotary", "sinusoid", "alibi", "none"

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}
evaluate_every = {training.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
temperature = {search.temperature}    # below 1 likelier, above 1 bolder; or beam = 4 in its place
max_tokens = {search.max_tokens}    # tokens of a continuation
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelData(SplitPaths):
    """A text; a share for `dev` is its end, counted in characters or, with `lines`, in lines."""

    documents: Documents = "file"


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelTraining(StageConfig):
    """One stage; `window` is the tokens of a row, by default the model's length."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    steps: int = bounded(800, at_least=0, at_most=MAX_STEPS)
    window: int | None = bounded(None, at_least=2)
    batch_tokens: int = bounded(8192, at_least=1, at_most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelRecipe:
    """The recipe of a run."""

    task: Literal["lm"] = "lm"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: LanguageModelData
    encode: TokenizerConfig = field(default_factory=CharactersConfig)
    model: LanguageModelConfig = field(default_factory=GPTConfig)
    training: LanguageModelTraining = field(default_factory=LanguageModelTraining)
    search: SearchConfig = SearchConfig(temperature=0.8, max_tokens=MAX_NEW_TOKENS)

    def __post_init__(self) -> None:
        longest = self.model.max_length if isinstance(self.model, GPTConfig) else None
        if longest is not None and self.window > longest:
            raise ValueError(
                f"training.window {self.window} is more than the model's length {longest}; "
                "make model.max_length larger, or leave out the window"
            )

    @property
    def window(self) -> int:
        """Tokens that the model reads at once, in training and evaluation."""
        own = self.model.max_length if isinstance(self.model, GPTConfig) else WINDOW
        return self.training.window or own


def suggest_dropout(recipe: LanguageModelRecipe, splits: Splits[str]) -> dict[str, object]:
    """Dropout for a model that reads a small text many times."""
    characters = sum(map(len, splits["train"]))
    epochs = recipe.training.steps * recipe.training.batch_tokens / characters
    return {"model.dropout": 0.2} if epochs > MAX_EPOCHS else {}


class LanguageModelPredictor(Predictor[LanguageModelRecipe, str, Vocabulary, AnyLanguageModel]):
    """A trained language model."""

    @property
    def stream(self) -> Stream:
        return Stream(self.vocabulary, self.recipe.data.documents)

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        model, search, stream = self.model.eval(), self.recipe.search, self.stream
        max_tokens = search.max_tokens or MAX_NEW_TOKENS
        if model.length is not None:
            # At least a quarter of what the model reads is left for the prompt.
            max_tokens = min(max_tokens, model.length - model.length // 4)
        max_prompt = None if model.length is None else model.length - max_tokens
        keys = sample_keys(inputs, indices)
        for start in range(0, len(inputs), BATCH_SIZE):
            texts = inputs[start : start + BATCH_SIZE]
            prompts = [self._prompt(text, max_prompt) for text in texts]
            rows = [prompt.tokens for prompt in prompts]
            batch_keys = keys[start : start + BATCH_SIZE]
            beams = search_tokens(
                LMStepper(model), rows, self.device, search, max_tokens, nbest, batch_keys
            )
            for text, prompt, beam in zip(texts, prompts, beams, strict=True):
                tokens = [hypothesis.tokens for hypothesis in beam]
                outputs = stream.continuations(prompt.tokens, tokens)
                logs = [hypothesis.log_probability for hypothesis in beam]
                yield ranked_prediction(text, outputs, logs, nbest, prompt.truncation)

    def evaluate(self, examples: Sequence[str], condition: str | None = None) -> Evaluation:
        window, stream = self.recipe.window, self.stream
        chunks = stream.encode(examples)
        tokens, contents = stream.join(chunks), stream.contents(examples)
        overlapping, disjoint = (
            chunk_losses(token_nats(self.model, tokens, window, stride), chunks, contents)
            for stride in (window - window // 2, window)
        )
        continuations = self._continuations(examples)
        return Evaluation(
            n=len(overlapping.nats),
            samples={
                **overlapping.samples(),
                "nats_disjoint": mean_nats(disjoint.nats, disjoint.tokens),
            },
            notes=self._notes(len(tokens) - 1),
            tables=[continuations],
            example=str(continuations.rows[0][0]),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Attention over the end of the text, as much as the model reads, and the next token."""
        if not isinstance(self.model, GPT):
            return None
        prompt = self._prompt(text, self.model.length)
        return next_token_example(
            self.model, prompt.tokens.tolist(), self.vocabulary.pieces, text, prompt.truncation
        )

    def _prompt(self, text: str, most: int | None) -> Prompt:
        """The last `most` tokens of a text after the start of the stream."""
        tokens = self.stream.prompt(text)
        total = len(tokens) - 1  # the start is no token of the text
        kept = total if most is None else min(most, total)
        return Prompt(tokens[-(most or len(tokens)) :], truncation_of(kept, total, "last"))

    def _continuations(self, examples: Sequence[str]) -> Table:
        chosen = np.linspace(0, len(examples), SHOWN, endpoint=False, dtype=int)
        prompts = [examples[index][:SHOWN_CHARACTERS] for index in dict.fromkeys(chosen.tolist())]
        search = SearchConfig(temperature=0.8, max_tokens=SHOWN_TOKENS)
        recipe = replace(self.recipe, search=search)
        sampling = LanguageModelPredictor(recipe, self.splits, self.vocabulary, self.model)
        return Table(
            title="Held-out beginnings, continued by samples at temperature 0.8",
            header=("held-out text", "continued by the model"),
            rows=[(sample.input, sample.output) for sample in sampling.predict(prompts)],
        )

    def _notes(self, tokens: int) -> Mapping[str, str]:
        """Explanations of the metrics."""
        window = self.recipe.window
        ended = " and ends of lines" if self.stream.documents == "lines" else ""
        return {
            "nats": f"per token, over {tokens:,} tokens, each predicted once, in windows of "
            f"{window} that overlap by half: all but the first {window} have at least "
            f"{window // 2} before them; the interval is over blocks of the text, which needs "
            f"{MIN_PIECES} pieces",
            "bits": "the same per token in bits",
            "bits_per_character": f"the same bits over the characters{ended} of the text",
            "perplexity": "the exponential of nats per token",
            "perplexity_per_word": "of nats over the words of the text, separated by white space",
            "perplexity_per_character": f"of nats over the characters{ended} of the text",
            "nats_disjoint": "per token, in disjoint windows without context before them, "
            "as in nanoGPT",
        }


def losses(model: AnyLanguageModel, batch: TokenBatch) -> Float[Tensor, "targets"]:
    """Cross-entropy of every counted target, in reading order."""
    return target_losses(model, batch.targets, batch.inputs)


@torch.inference_mode()
def token_nats(
    model: AnyLanguageModel, stream: Numbers, window: int, stride: int
) -> Float[np.ndarray, "targets"]:
    """Nats of every token of a stream but the first, in windows that start `stride` apart."""
    model.eval()
    device = next(model.parameters()).device
    rows = max(1, BATCH_TOKENS // window)
    batches = covering_batches(stream, sliding_windows(len(stream), window, stride), rows, PAD)
    return np.concatenate(
        [losses(model, batch.to(device)).double().cpu().numpy() for batch in batches]
    )


def chunk_losses(
    nats: Float[np.ndarray, "targets"],
    chunks: Sequence[Numbers],
    contents: Float[np.ndarray, "pieces 2"],
) -> TokenLosses:
    """Sums over each chunk; a very long one is cut, its words and characters shared evenly."""
    lengths = np.array([len(chunk) for chunk in chunks])
    ends = np.cumsum(lengths)
    starts = [
        np.arange(end - length, end, MAX_CHUNK) for end, length in zip(ends, lengths, strict=True)
    ]
    shares = np.repeat(contents / lengths[:, None], lengths, axis=0)
    sums = np.add.reduceat(
        np.column_stack((nats, np.ones_like(nats), shares)), np.concatenate(starts), axis=0
    )
    return TokenLosses(nats=sums[:, 0], tokens=sums[:, 1], words=sums[:, 2], characters=sums[:, 3])


class LanguageModelTask(Task[LanguageModelRecipe, str, Vocabulary, AnyLanguageModel]):
    """Language modeling; an example is a line, or a chunk of a file."""

    recipe_type = LanguageModelRecipe
    vocabulary_type = Vocabulary
    predictor_type = LanguageModelPredictor
    layout = Layout[LanguageModelRecipe, str](
        calls=file_calls("text.txt", "train.txt", "dev.txt", "test.txt"),
        template=TEMPLATE,
        examples="characters",
        stage="training",
        suggest=suggest_dropout,
        count=lambda chunks: sum(map(len, chunks)) + len(chunks) - 1,  # with what separates them
    )

    def read_file(self, recipe: LanguageModelRecipe, path: Path) -> list[str]:
        if recipe.data.documents == "lines":
            return [line.text for line in read_lines(path)]
        return split_chunks(read_whole(path))

    def read_splits(self, recipe: LanguageModelRecipe) -> Splits[str]:
        path = recipe.data.train

        def hold_out_end(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
            if recipe.data.documents == "lines":
                first = kept_of(len(texts), share, path, "lines")
                return list(texts[:first]), list(texts[first:])
            text = " ".join(texts)
            first = kept_of(len(text), share, path, "characters")
            return split_chunks(text[:first]), split_chunks(text[first:])

        return Splits(recipe.data, partial(self.read_file, recipe), split=hold_out_end)

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
            small = np.uint16 if len(vocabulary) <= 1 << 16 else np.uint32
            with replacing(stored) as unfinished, unfinished.open("wb") as file:
                np.save(file, stream.join(stream.encode(splits["train"])).astype(small))
        rows = max(1, training.batch_tokens // recipe.window)
        windows = Windows(memory_mapped(stored), recipe.window, rows, recipe.seed)
        held_out = stream.join(stream.encode(splits["dev"]))

        def negative_nats(model: AnyLanguageModel) -> float:
            # Side by side, which costs half of what overlapping windows do.
            return -float(token_nats(model, held_out, recipe.window, recipe.window).mean())

        def batch(step: int) -> list[TokenBatch]:
            return [windows.batch(step)]

        return [stage("text", training, batch, lm_loss, negative_nats)]

    def probe_sizes(
        self, recipe: LanguageModelRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        stage = recipe.training
        return token_sizes(stage, rows, length, stage.batch_tokens, recipe.window)

    def probe(
        self, recipe: LanguageModelRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[AnyLanguageModel]:
        return random_text(letters["B"], letters["T"], vocabulary.entries)


def lm_loss(model: AnyLanguageModel, batch: TokenBatch) -> Tensor:
    """Cross-entropy, summed over the counted targets."""
    return losses(model, batch).sum()


def random_text(rows: int, length: int, vocabulary: int) -> MicroBatch[AnyLanguageModel]:
    """A random batch of any language model, with its loss."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (random_tokens(generator, vocabulary, rows, length) for _ in range(2))
    return micro_batch(TokenBatch(inputs, targets), lm_loss)


def kept_of(count: int, share: float, path: Path, what: str) -> int:
    """How many come before the share at the end, which is held out."""
    first = int((1 - share) * count)
    if not 0 < first < count:
        raise UserError(
            f"{path}: {count} {what} are too few to hold out a share of {share}",
            fix="add text, or name a file in data.dev",
        )
    return first


def memory_mapped(path: Path) -> Numbers:
    """The stored stream of tokens."""
    try:
        file_size(path, "the tokens of a text")
        tokens: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
    except (UserError, OSError, ValueError, EOFError) as error:
        raise Failure(
            f"{path}: the tokens cannot be read ({error})",
            fix="delete the file and resume the run, which encodes the data again",
        ) from None
    return tokens
