"""Language modeling: predict the next token of a whole file, or of documents one per line.

The text is one stream of tokens (`encode/stream.py`). Training reads windows of it; evaluation
predicts each token of the held-out stream once; a prompt is continued as the start of a stream. In
a whole file, the end token does not occur, so a continuation stops only at its maximum length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.batch.padding import TokenBatch
from harken.batch.ragged import IntArray
from harken.batch.windows import RandomWindows, sliding_batches, sliding_windows
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.decode.stepper import LMStepper
from harken.encode.stream import Documents, StreamEncoder, split_chunks
from harken.encode.subwords import CharactersConfig, TokenizerConfig
from harken.encode.vocabulary import PAD, Vocabulary, VocabularySizes
from harken.errors import Failure, UserError
from harken.files import replacing
from harken.formats.text import read_lines, read_whole
from harken.inputs import file_size
from harken.measure.interval import MIN_PIECES
from harken.measure.perplexity import TokenLosses, loss_sample
from harken.models.gpt import GPT, GPTConfig
from harken.models.recurrent_lm import FixedStateLM, LanguageModelConfig
from harken.tasks.attention_view import AttentionExample, next_token_example
from harken.tasks.prediction import Evaluation, Prediction, Table, ranked_prediction, truncation_of
from harken.tasks.probe import ProbeSizes, random_text_batch, target_losses, token_sizes
from harken.tasks.seq2seq import Prompt, search_tokens
from harken.tasks.task import Keys, Layout, Predictor, SplitPaths, Splits, Task, file_calls
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.runtime import RuntimeConfig

WINDOW = 256  # tokens, for a model without a limit
MAX_EPOCHS = 20  # above which `harken new` suggests dropout
MAX_NEW_TOKENS = 200  # of a continuation, if the recipe does not set it
BATCH_SIZE = 32  # prompts in a search
BATCH_TOKENS = 4096  # in a batch of evaluation
MAX_CHUNK = 4096  # tokens; longer chunks, such as text without spaces, are cut
SAMPLES, PROMPT_CHARACTERS, SAMPLE_TOKENS = 3, 64, 100  # of the continuations in the report

AnyLanguageModel = GPT | FixedStateLM
TEMPLATE = """\
documents = "{data.documents}"    # or "lines": one document per line

[encode]
kind = "{encode.kind}"    # or "bpe", "unigram", "words"

[model]
kind = "{model.kind}"    # or "rnn", "cnn", with only width and dropout
layers = {model.layers}
width = {model.width}
max_length = {model.max_length}    # tokens of context
dropout = {model.dropout}
position.kind = "{model.position.kind}"    # or "rotary", "sinusoid", "alibi", "none"

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}
evaluate_every = {training.evaluate_every}    # steps; keeps the best weights; 0: never

[search]
temperature = {search.temperature}    # of sampling; or beam = 4 instead
max_tokens = {search.max_tokens}    # tokens of a continuation
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelData(SplitPaths):
    """Text files; a share for `dev` is the end of the training text."""

    documents: Documents = "file"  # "file" for one text, "lines" for one document per line


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelTraining(StageConfig):
    """The only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    steps: int = bounded(800, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    window: int | None = bounded(None, at_least=2)  # tokens per row; default: model.max_length
    batch_tokens: int = bounded(8192, at_least=1, at_most=MAX_BATCH)  # tokens per batch


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelRecipe:
    """Recipe of the task `lm`."""

    task: Literal["lm"] = "lm"  # language modeling
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights and batches
    data: LanguageModelData  # paths of the files
    encode: TokenizerConfig = field(default_factory=CharactersConfig)  # tokenizer
    model: LanguageModelConfig = field(default_factory=GPTConfig)  # architecture
    training: LanguageModelTraining = field(default_factory=LanguageModelTraining)  # stage
    # How prompts are continued.
    search: SearchConfig = SearchConfig(temperature=0.8, max_tokens=MAX_NEW_TOKENS)

    def __post_init__(self) -> None:
        if isinstance(self.model, GPTConfig) and self.window > self.model.max_length:
            raise ValueError(
                f"training.window {self.window} is more than model.max_length "
                f"{self.model.max_length}; raise model.max_length, or leave out the window"
            )

    @property
    def window(self) -> int:
        """Tokens of context in training and evaluation."""
        limit = self.model.max_length if isinstance(self.model, GPTConfig) else WINDOW
        return self.training.window or limit


def suggest_dropout(recipe: LanguageModelRecipe, splits: Splits[str]) -> dict[str, object]:
    """Suggest dropout for a small text that is read many times."""
    characters = sum(map(len, splits["train"]))
    epochs = recipe.training.steps * recipe.training.batch_tokens / characters
    return {"model.dropout": 0.2} if epochs > MAX_EPOCHS else {}


class LanguageModelPredictor(Predictor[LanguageModelRecipe, str, Vocabulary, AnyLanguageModel]):
    """A trained language model."""

    batch_size = BATCH_SIZE

    @property
    def stream(self) -> StreamEncoder:
        return StreamEncoder(self.vocabulary, self.recipe.data.documents)

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        model, search, stream = self.model.eval(), self.recipe.search, self.stream
        limit, max_prompt = search.max_tokens or MAX_NEW_TOKENS, None
        if model.max_length is not None:
            # At least a quarter of the context is left for the prompt.
            limit = min(limit, model.max_length - model.max_length // 4)
            max_prompt = model.max_length - limit
        prompts = [self._prompt(text, max_prompt) for text in inputs]
        rows = [prompt.tokens for prompt in prompts]
        beams = search_tokens(LMStepper(model), rows, self.device, search, limit, nbest, keys)
        for text, prompt, beam in zip(inputs, prompts, beams, strict=True):
            tokens = [hypothesis.tokens for hypothesis in beam]
            outputs = stream.continuations(prompt.tokens, tokens)
            logs = [hypothesis.log_probability for hypothesis in beam]
            yield ranked_prediction(text, outputs, logs, nbest, prompt.truncation)

    def evaluate(self, examples: Sequence[str], condition: str | None = None) -> Evaluation:
        window, stream = self.recipe.window, self.stream
        chunks = stream.encode(examples)
        tokens, counts = stream.join(chunks), stream.text_lengths(examples)
        overlapping, disjoint = (
            chunk_losses(token_nats(self.model, tokens, window, stride), chunks, counts)
            for stride in (window - window // 2, window)
        )
        continuations = self._continuations(examples)
        nats_disjoint = loss_sample(disjoint.nats, disjoint.tokens, "nats")
        return Evaluation(
            n=len(overlapping.nats),
            samples={**overlapping.samples(), "nats_disjoint": nats_disjoint},
            notes=self._notes(len(tokens) - 1),
            tables=[continuations],
            example=str(continuations.rows[0][0]),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Return the attention over the end of the text and the most probable next token."""
        if not isinstance(self.model, GPT):
            return None
        prompt = self._prompt(text, self.model.max_length)
        return next_token_example(
            self.model, prompt.tokens.tolist(), self.vocabulary.token_texts, text, prompt.truncation
        )

    def _prompt(self, text: str, max_length: int | None) -> Prompt:
        """Return the start token and a text, or the last `max_length` tokens of these."""
        tokens = self.stream.encode_prompt(text)
        total = len(tokens) - 1  # without the start token
        limit = max_length or len(tokens)
        return Prompt(tokens[-limit:], truncation_of(min(limit, total), total, "last"))

    def _continuations(self, examples: Sequence[str]) -> Table:
        spread = np.linspace(0, len(examples), SAMPLES, endpoint=False, dtype=int)
        prompts = [examples[index][:PROMPT_CHARACTERS] for index in dict.fromkeys(spread.tolist())]
        search = SearchConfig(temperature=0.8, max_tokens=SAMPLE_TOKENS)
        recipe = replace(self.recipe, search=search)
        sampling = LanguageModelPredictor(recipe, self.splits, self.vocabulary, self.model)
        return Table(
            title="Continuations of held-out text, sampled at temperature 0.8",
            header=("held-out text", "continued by the model"),
            rows=[(sample.input, sample.output) for sample in sampling.predict(prompts)],
        )

    def _notes(self, tokens: int) -> Mapping[str, str]:
        """Return explanations of the metrics."""
        window = self.recipe.window
        ends = " and line ends" if self.stream.documents == "lines" else ""
        return {
            "nats": f"per token, over {tokens:,} tokens, each predicted once, in windows of "
            f"{window} that overlap by half: after the first {window}, each has at least "
            f"{window // 2} tokens of context; the interval is over blocks of the text and needs "
            f"{MIN_PIECES} pieces",
            "bits": "per token: nats / ln 2",
            "bits_per_character": f"total bits / characters{ends} of the text",
            "perplexity": "exp(nats per token)",
            "perplexity_per_word": "exp(total nats / words), words separated by white space",
            "perplexity_per_character": f"exp(total nats / characters{ends})",
            "nats_disjoint": "per token, in disjoint windows, as in nanoGPT",
        }


@torch.inference_mode()
def token_nats(
    model: AnyLanguageModel, stream: IntArray, window: int, stride: int
) -> Float[np.ndarray, "targets"]:
    """Return the nats of each token except the first, in windows that start `stride` apart."""
    device, rows = next(model.eval().parameters()).device, max(1, BATCH_TOKENS // window)
    batches = sliding_batches(stream, sliding_windows(len(stream), window, stride), rows, PAD)
    on_device = (batch.to(device) for batch in batches)
    nats = [target_losses(model, batch.targets, batch.inputs) for batch in on_device]
    return np.concatenate([row.double().cpu().numpy() for row in nats])


def chunk_losses(
    nats: Float[np.ndarray, "targets"],
    chunks: Sequence[IntArray],
    counts: Float[np.ndarray, "pieces 2"],
) -> TokenLosses:
    """Sum over each chunk; a very long one is cut, its words and characters shared evenly."""
    lengths = np.array([len(chunk) for chunk in chunks])
    ends = np.cumsum(lengths)
    starts = np.concatenate(list(map(np.arange, ends - lengths, ends, repeat(MAX_CHUNK))))
    shares = np.repeat(counts / lengths[:, None], lengths, axis=0)
    columns = np.column_stack((nats, np.ones_like(nats), shares))
    sums = np.add.reduceat(columns, starts, axis=0)
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
        count=lambda chunks: sum(map(len, chunks)) + len(chunks) - 1,  # with separators
    )

    def read_file(self, recipe: LanguageModelRecipe, path: Path) -> list[str]:
        if recipe.data.documents == "lines":
            return [line.text for line in read_lines(path)]
        return split_chunks(read_whole(path))

    def read_splits(self, recipe: LanguageModelRecipe) -> Splits[str]:
        def hold_out_end(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
            if recipe.data.documents == "lines":
                count = train_size(len(texts), share, recipe.data.train, "lines")
                return list(texts[:count]), list(texts[count:])
            text = " ".join(texts)
            count = train_size(len(text), share, recipe.data.train, "characters")
            return split_chunks(text[:count]), split_chunks(text[count:])

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
        training, stream = recipe.training, StreamEncoder(vocabulary, recipe.data.documents)
        stored = cache / "train.npy"
        if not stored.exists():
            small = np.uint16 if len(vocabulary) <= 1 << 16 else np.uint32
            with replacing(stored) as unfinished, unfinished.open("wb") as file:
                np.save(file, stream.join(stream.encode(splits["train"])).astype(small))
        rows = max(1, training.batch_tokens // recipe.window)
        windows = RandomWindows(memory_mapped(stored), recipe.window, rows, recipe.seed)
        held_out = stream.join(stream.encode(splits["dev"]))

        def negative_nats(model: AnyLanguageModel) -> float:
            return -float(token_nats(model, held_out, recipe.window, recipe.window).mean())

        return [stage("text", training, lambda step: [windows.batch(step)], lm_loss, negative_nats)]

    def probe_sizes(
        self, recipe: LanguageModelRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        tokens = recipe.training.batch_tokens
        return token_sizes(recipe.training, rows, length or recipe.window, tokens)

    def probe(
        self, recipe: LanguageModelRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[AnyLanguageModel]:
        return random_text(letters["B"], letters["T"], vocabulary.entries)


def lm_loss(model: AnyLanguageModel, batch: TokenBatch) -> Tensor:
    """Return the cross-entropy, summed over the counted targets."""
    return target_losses(model, batch.targets, batch.inputs).sum()


def random_text(rows: int, length: int, vocabulary: int) -> MicroBatch[AnyLanguageModel]:
    """Return a random batch of a language model, with its loss."""
    return micro_batch(random_text_batch(rows, length, vocabulary), lm_loss)


def train_size(count: int, share: float, path: Path, units: str) -> int:
    """Return how many lines or characters precede the share at the end, which is held out."""
    first = int((1 - share) * count)
    if not 0 < first < count:
        raise UserError(
            f"{path}: {count} {units} are too few to hold out a share of {share}",
            fix="add text, or name a file in data.dev",
        )
    return first


def memory_mapped(path: Path) -> IntArray:
    """Open the stored stream of tokens."""
    try:
        file_size(path, "the tokens of a text")
        tokens: IntArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (UserError, OSError, ValueError, EOFError) as error:
        raise Failure(
            f"{path}: the tokens cannot be read ({error})",
            fix="delete the file and resume the run, which encodes the data again",
        ) from None
    return tokens
