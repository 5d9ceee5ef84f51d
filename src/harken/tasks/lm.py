"""Language modeling: predict the next token of whole files, or of documents one per line.

The text is one stream of tokens (`encode/stream.py`). It is encoded once, piece by piece, and
training reads windows of the stored tokens, so it may be larger than the memory; evaluation
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
from harken.batch.shards import TokenShards, write_shards
from harken.batch.windows import RandomWindows, sliding_batches, sliding_windows
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.decode.stepper import LMStepper
from harken.encode.parallel import encode_corpus
from harken.encode.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig
from harken.encode.stream import CHUNK_SIZE, CorpusSample, StreamEncoder, read_texts_whole
from harken.encode.subwords import CharactersConfig, TokenizerConfig
from harken.encode.vocabulary import PAD, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.corpus import Documents, Files, TextCorpus, find_files
from harken.measure.interval import MIN_PIECES
from harken.measure.perplexity import TokenLosses, loss_sample
from harken.models.gpt import GPT, GPTConfig
from harken.models.recurrent_lm import FixedStateLM, LanguageModelConfig
from harken.tasks.attention_view import AttentionExample, continued_example, next_token_example
from harken.tasks.columns import TextColumns
from harken.tasks.dummy_batches import DummySizes, random_text_batch, target_losses, token_sizes
from harken.tasks.prediction import Evaluation, Prediction, Table, ranked_prediction, truncation_of
from harken.tasks.seq2seq import Prompt, search_tokens
from harken.tasks.task import Keys, Layout, Predictor, Splits, Task, file_calls, require_share
from harken.training.distributed import map_batches
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

WINDOW = 256  # tokens, for a model without a limit
MAX_EPOCHS = 20  # above which `harken new` suggests dropout
MAX_NEW_TOKENS = 200  # of a continuation, if the recipe does not set it
BATCH_SIZE = 32  # prompts in a search
BATCH_TOKENS = 4096  # in a batch of evaluation
MAX_CHUNK = 4096  # tokens; longer chunks, such as text without spaces, are cut
MAX_HELD_OUT = {"file": 2**24, "lines": 2**16}  # characters or lines of a held-out share
MAX_EPOCHS_PER_BATCH = 1000  # each epoch is shuffled separately
SAMPLES, PROMPT_CHARACTERS, SAMPLE_TOKENS = 3, 64, 100  # continuations in the report

AnyLanguageModel = GPT | FixedStateLM
TEMPLATE = """\
documents = "{data.documents}"    # or "lines": one document per line

[encode]
kind = "{encode.kind}"    # or "bpe", "unigram", "words"

[model]
kind = "{model.kind}"    # or "rnn", "cnn": remove layers, max_length and position
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
class LanguageModelData:
    """Text files; if `dev` is a share, the end of the training text is held out."""

    train: Files  # training file, list of files or glob
    dev: Files | float = 0.1  # file to evaluate on, or a share of `train` that is held out
    test: Files | None = None  # file that is not used in training
    documents: Documents = "file"  # "file" for one text, "lines" for one document per line
    columns: TextColumns = TextColumns()  # columns of tables
    # characters of training text that the tokenizer is fitted on, spread evenly
    tokenizer_sample: int = bounded(2**26, at_least=1, at_most=2**40)

    def __post_init__(self) -> None:
        require_share(self.dev)

    def corpus(self, files: Files) -> TextCorpus:
        """Return the texts of these files."""
        found = find_files(files)
        return TextCorpus(files=found, documents=self.documents, column=self.columns.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelTraining(StageConfig):
    """The only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
    steps: int = bounded(800, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    # tokens per row; default: model.max_length, or 256 for a model without it
    window: int | None = bounded(None, at_least=2)
    batch_tokens: int = bounded(8192, at_least=1, at_most=MAX_BATCH)  # tokens per batch


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelRecipe:
    """Recipe of the task `lm`."""

    task: Literal["lm"] = "lm"  # language modeling
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights and batches
    data: LanguageModelData  # paths of the files
    # tokenizer, or that of `model.start_from`
    encode: TokenizerConfig | PretrainedTokenizerConfig = field(default_factory=CharactersConfig)
    model: LanguageModelConfig = field(default_factory=GPTConfig)  # architecture
    # Training stage.
    training: LanguageModelTraining = field(default_factory=LanguageModelTraining)
    # Beam search or sampling.
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
    """Suggest dropout for a small text that is trained on for many epochs."""
    tokens = recipe.training.steps * recipe.training.batch_tokens
    epochs = tokens / count_characters(splits["train"])
    return {"model.dropout": 0.2} if epochs > MAX_EPOCHS else {}


class LanguageModelPredictor(Predictor[LanguageModelRecipe, str, Vocabulary, AnyLanguageModel]):
    """A trained language model."""

    batch_size = BATCH_SIZE

    @property
    def stream(self) -> StreamEncoder:
        return StreamEncoder(self.vocabulary, self.recipe.data.documents)

    @property
    def limits(self) -> tuple[int, int | None]:
        """The maximum numbers of tokens of a continuation and, with a `max_length`, of a prompt."""
        limit, max_length = self.recipe.search.max_tokens or MAX_NEW_TOKENS, self.model.max_length
        if max_length is None:
            return limit, None
        # At least a quarter of the context is left for the prompt.
        limit = min(limit, max_length - max_length // 4)
        return limit, max_length - limit

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        model, search, stream = self.model.eval(), self.recipe.search, self.stream
        limit, max_prompt = self.limits
        prompts = [self._prompt(text, max_prompt) for text in inputs]
        rows = [prompt.tokens for prompt in prompts]
        special = self.vocabulary.special
        stepper, device = LMStepper(model), self.device
        beams = search_tokens(stepper, rows, device, search, limit, nbest, keys, special)
        for text, prompt, beam in zip(inputs, prompts, beams, strict=True):
            tokens = [hypothesis.tokens for hypothesis in beam]
            outputs = stream.continuations(prompt.tokens, tokens)
            log_probs = [hypothesis.log_probability for hypothesis in beam]
            yield ranked_prediction(text, outputs, log_probs, nbest, prompt.truncation)

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

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention over the end of the text and the most probable next token."""
        model, token_texts = self.model, self.vocabulary.token_texts
        if not isinstance(model, GPT):
            return None
        if output:
            whole, first = self.stream.encode_continuation(text, output)
            return continued_example(model, whole.tolist(), first, token_texts, (text, output))
        prompt = self._prompt(text, model.max_length)
        tokens, truncation = prompt.tokens.tolist(), prompt.truncation
        return next_token_example(model, tokens, token_texts, text, truncation)

    def _prompt(self, text: str, max_length: int | None) -> Prompt:
        """Return the start token and the text; a long prompt keeps its last `max_length` tokens."""
        tokens = self.stream.encode_prompt(text)
        total = len(tokens) - 1  # without the start token
        limit = max_length or len(tokens)
        return Prompt(tokens[-limit:], truncation_of(min(limit, total), total, "last"))

    def _continuations(self, examples: Sequence[str]) -> Table:
        indices = np.linspace(0, len(examples), SAMPLES, endpoint=False, dtype=int)
        prompts = [examples[index][:PROMPT_CHARACTERS] for index in dict.fromkeys(indices.tolist())]
        search = SearchConfig(temperature=0.8, max_tokens=SAMPLE_TOKENS)
        recipe = replace(self.recipe, search=search)
        predictor = LanguageModelPredictor(recipe, self.splits, self.vocabulary, self.model)
        return Table(
            title="Continuations of held-out text, sampled at temperature 0.8",
            header=("held-out text", "continued by the model"),
            rows=[(sample.input, sample.output) for sample in predictor.predict(prompts)],
        )

    def _notes(self, tokens: int) -> Mapping[str, str]:
        window = self.recipe.window
        is_lines = self.stream.documents == "lines"
        ends = " and line ends" if is_lines else ""
        units = "lines" if is_lines else f"pieces of {CHUNK_SIZE} characters"
        return {
            "nats": f"per token, over {tokens:,} tokens, each predicted once, in windows of "
            f"{window} that overlap by half: after the first {window}, each has at least "
            f"{window // 2} tokens of context; the interval is over blocks of the text and "
            f"needs at least {MIN_PIECES} {units}",
            "bits": "per token: nats / ln 2",
            "bits_per_character": f"total bits / characters{ends} of the text",
            "perplexity": "exp(nats per token)",
            "perplexity_per_word": "exp(total nats / words), words separated by white space",
            "perplexity_per_character": f"exp(total nats / characters{ends})",
            "nats_disjoint": "per token, in disjoint windows, comparable to the loss of nanoGPT",
        }


@torch.inference_mode()
def token_nats(
    model: AnyLanguageModel, stream: IntArray, window: int, stride: int
) -> Float[np.ndarray, "targets"]:
    """Return the loss of each token except the first, in windows that start `stride` apart."""
    device, rows = next(model.eval().parameters()).device, max(1, BATCH_TOKENS // window)
    batches = sliding_batches(stream, sliding_windows(len(stream), window, stride), rows, PAD)

    def nats(batch: TokenBatch) -> Float[np.ndarray, "targets"]:
        batch = batch.to(device)
        return target_losses(model, batch.targets, batch.inputs).double().cpu().numpy()

    return np.concatenate(list(map_batches(nats, batches)))


def chunk_losses(
    nats: Float[np.ndarray, "targets"],
    chunks: Sequence[IntArray],
    counts: Float[np.ndarray, "chunks 2"],
) -> TokenLosses:
    """Sum the losses of each chunk; `counts` are its words and characters.

    A chunk of more than `MAX_CHUNK` tokens is cut, and its counts are divided in proportion to
    tokens.
    """
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
        count=lambda chunks: count_characters(chunks),
    )

    def read_file(self, recipe: LanguageModelRecipe, path: Path) -> list[str]:
        return read_texts_whole(recipe.data.corpus(path))

    def read_splits(self, recipe: LanguageModelRecipe) -> Splits[str]:
        data = recipe.data

        def read_parts() -> tuple[Sequence[str], Sequence[str]]:
            corpus, held_out = data.corpus(data.train), list[str]()
            characters, texts = corpus.size()
            if isinstance(data.dev, float):
                is_file = data.documents == "file"
                count, units = (characters, "characters") if is_file else (texts, "lines")
                stop = train_size(count, data.dev, corpus.files[-1], units)
                stop = max(stop, count - MAX_HELD_OUT[data.documents])
                held_out = read_texts_whole(corpus.between(stop, None))
                corpus = corpus.between(0, stop)
                characters = stop if is_file else characters - sum(map(len, held_out))
            return CorpusSample(corpus, characters, data.tokenizer_sample), held_out

        def read(files: Files) -> list[str]:
            return read_texts_whole(data.corpus(files))

        return Splits(data, read, read_parts=read_parts)

    def input(self, example: str) -> str:
        return example

    def fit(self, recipe: LanguageModelRecipe, train: Sequence[str]) -> Vocabulary:
        return recipe.encode.fit(train)

    def fit_pretrained(
        self, recipe: LanguageModelRecipe, train: Sequence[str], tokenizer: PretrainedTokenizer
    ) -> Vocabulary:
        return tokenizer.vocabulary(mask=False)

    def build(self, recipe: LanguageModelRecipe, sizes: VocabularySizes) -> AnyLanguageModel:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: LanguageModelRecipe, splits: Splits[str], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[AnyLanguageModel]]:
        training, stream = recipe.training, StreamEncoder(vocabulary, recipe.data.documents)
        write_shards(cache / "train", partial(encode_corpus, stream, splits), len(vocabulary))
        rows, tokens = max(1, training.batch_tokens // recipe.window), TokenShards(cache / "train")
        windows = RandomWindows(tokens.numbers, recipe.window, rows, recipe.seed)
        if windows.epochs_per_batch > MAX_EPOCHS_PER_BATCH:
            raise UserError(
                f"training.batch_tokens = {training.batch_tokens} repeats the training text of "
                f"{len(tokens.numbers)} tokens more than {MAX_EPOCHS_PER_BATCH} times in a batch",
                fix="lower training.batch_tokens, or train on more text",
            )
        held_out = stream.join(stream.encode(splits["dev"]))

        def negative_nats(model: AnyLanguageModel) -> float:
            return -float(token_nats(model, held_out, recipe.window, recipe.window).mean())

        return [stage("text", training, lambda step: [windows.batch(step)], lm_loss, negative_nats)]

    def dummy_sizes(
        self, recipe: LanguageModelRecipe, rows: int | None, length: int | None
    ) -> DummySizes:
        tokens = recipe.training.batch_tokens
        return token_sizes(recipe.training, rows, length or recipe.window, tokens)

    def dummy_batch(
        self, recipe: LanguageModelRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[AnyLanguageModel]:
        return random_lm_batch(sizes["B"], sizes["T"], vocabulary.entries)


def lm_loss(model: AnyLanguageModel, batch: TokenBatch) -> Tensor:
    """Return the summed cross-entropy of the targets."""
    return target_losses(model, batch.targets, batch.inputs).sum()


def random_lm_batch(rows: int, length: int, vocab_size: int) -> MicroBatch[AnyLanguageModel]:
    """Return a random batch, with the loss of a language model."""
    return micro_batch(random_text_batch(rows, length, vocab_size), lm_loss)


def train_size(count: int, share: float, path: Path, units: str) -> int:
    """Return the number of lines or characters left for training if the end is held out."""
    size = int((1 - share) * count)
    if not 0 < size < count:
        raise UserError(
            f"{path}: {count} {units} are too few to hold out a share of {share}",
            fix="add text, or name a file in data.dev",
        )
    return size


def count_characters(texts: Sequence[str]) -> int:
    """Return the number of characters of a split; of the training split, also the unread ones."""
    if isinstance(texts, CorpusSample):
        return texts.characters
    return sum(map(len, texts)) + len(texts) - 1  # with separators
