"""Continue prompts with a trained language model, and measure it on text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.batch.padding import IGNORE, TokenBatch, pad
from harken.batch.ragged import Numbers, ragged
from harken.batch.windows import cover, covering_batches
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import LMStepper
from harken.encode.stream import Stream
from harken.encode.vocabulary import END, PAD
from harken.layers.losses import cross_entropy_
from harken.measure.interval import MIN_PIECES
from harken.measure.perplexity import Surprise, mean_nats
from harken.models.gpt import GPT
from harken.models.recurrent_lm import FixedStateLM
from harken.tasks.attention_view import AttentionExample, causal_example, next_token
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
from harken.tasks.task import Predictor

MAX_NEW_TOKENS = 200  # of a continuation, if the recipe does not state it
BATCH_SIZE = 32  # prompts in one batch
BATCH_TOKENS = 4096  # in one batch of evaluation
MAX_CHUNK = 4096  # tokens; longer chunks, as of a text without spaces, are cut
SHOWN, SHOWN_CHARACTERS, SHOWN_TOKENS = 3, 64, 100  # continuations, of prompts, of continuations

AnyLanguageModel = GPT | FixedStateLM


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelPredictor(Predictor[str]):
    """A trained language model."""

    stream: Stream
    model: AnyLanguageModel
    search: SearchConfig
    window: int  # tokens read at once in evaluation

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        model = self.model.eval()
        device = next(model.parameters()).device
        new_tokens = self.search.most or MAX_NEW_TOKENS
        if model.length is not None:
            # At least a quarter of what the model reads is left for the prompt.
            new_tokens = min(new_tokens, model.length - model.length // 4)
        max_prompt = None if model.length is None else model.length - new_tokens
        keys = sample_keys(inputs, indices)
        for start in range(0, len(inputs), BATCH_SIZE):
            texts = inputs[start : start + BATCH_SIZE]
            prompts = [self._prompt(text, max_prompt) for text in texts]
            tokens, present = pad(ragged([prompt.tokens for prompt in prompts]), PAD)
            found = generate(
                LMStepper(model),
                tokens.to(device),
                present.to(device),
                search=self.search,
                end=END,
                max_tokens=new_tokens,
                nbest=nbest,
                keys=keys[start : start + BATCH_SIZE],
            )
            for text, prompt, beam in zip(texts, prompts, found, strict=True):
                outputs = self.stream.continuations(
                    prompt.tokens, [hypothesis.tokens for hypothesis in beam]
                )
                logs = [hypothesis.log_probability for hypothesis in beam]
                yield ranked_prediction(text, outputs, logs, nbest, prompt.truncation)

    def evaluate(self, examples: Sequence[str], condition: str | None = None) -> Evaluation:
        model, window, stream = self.model.eval(), self.window, self.stream
        chunks = stream.encode(examples)
        tokens, contents = stream.join(chunks), stream.contents(examples)
        overlapping, disjoint = (
            chunk_losses(token_nats(model, tokens, window, stride), chunks, contents)
            for stride in (window - window // 2, window)
        )
        continuations = self._continuations(examples)
        return Evaluation(
            n=len(overlapping.nats),
            samples={
                **overlapping.samples(),
                "nats_without_overlap": mean_nats(disjoint.nats, disjoint.tokens),
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
        tokens = prompt.tokens.tolist()
        tokens.append(next_token(self.model, tokens))
        token_texts = self.stream.vocabulary.pieces
        title = f"{text} → {token_texts(tokens[-1:])[0]!r}"
        return causal_example(self.model, tokens, token_texts, title, prompt.truncation)

    def _prompt(self, text: str, most: int | None) -> Prompt:
        """The last `most` tokens of a text after the start of the stream."""
        tokens = self.stream.prompt(text)
        total = len(tokens) - 1  # the start is no token of the text
        kept = total if most is None else min(most, total)
        return Prompt(tokens[-(most or len(tokens)) :], truncation_of(kept, total, "last"))

    def _continuations(self, examples: Sequence[str]) -> Table:
        chosen = np.linspace(0, len(examples), SHOWN, endpoint=False, dtype=int)
        prompts = [examples[index][:SHOWN_CHARACTERS] for index in dict.fromkeys(chosen.tolist())]
        sampling = replace(self, search=SearchConfig(temperature=0.8, most=SHOWN_TOKENS))
        return Table(
            title="Held-out beginnings, continued by samples at temperature 0.8",
            header=("held-out text", "continued by the model"),
            rows=[(sample.input, sample.output) for sample in sampling.predict(prompts)],
        )

    def _notes(self, tokens: int) -> Mapping[str, str]:
        """Explanations of the metrics."""
        window = self.window
        ended = " and ends of lines" if self.stream.documents == "lines" else ""
        return {
            "nats": f"a token, over {tokens:,} tokens, each predicted once, in windows of {window} "
            f"that overlap by half: all but the first {window} have at least {window // 2} before "
            f"them; the interval is over blocks of the text, which needs {MIN_PIECES} pieces",
            "bits": "the same a token in bits",
            "bits_per_character": f"the same bits over the characters{ended} of the text",
            "perplexity": "the exponential of nats a token",
            "perplexity_per_word": "of nats over the words of the text, as white space parts them",
            "perplexity_per_character": f"of nats over the characters{ended} of the text",
            "nats_without_overlap": "a token, in windows side by side that each begin with an "
            "empty past, as nanoGPT measures",
        }


def losses(model: AnyLanguageModel, batch: TokenBatch) -> Float[Tensor, "targets"]:
    """Cross-entropy of every counted target, in reading order."""
    counted = batch.targets != IGNORE
    return cross_entropy_(model(batch.inputs, at=counted), batch.targets[counted])


@torch.inference_mode()
def token_nats(
    model: AnyLanguageModel, stream: Numbers, window: int, stride: int
) -> Float[np.ndarray, "targets"]:
    """Nats of every token of a stream but the first, in windows that start `stride` apart."""
    model.eval()
    device = next(model.parameters()).device
    rows = max(1, BATCH_TOKENS // window)
    batches = covering_batches(stream, cover(len(stream), window, stride), rows, PAD)
    return np.concatenate(
        [losses(model, batch.to(device)).double().cpu().numpy() for batch in batches]
    )


def chunk_losses(
    nats: Float[np.ndarray, "targets"],
    chunks: Sequence[Numbers],
    contents: Float[np.ndarray, "pieces 2"],
) -> Surprise:
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
    return Surprise(nats=sums[:, 0], tokens=sums[:, 1], words=sums[:, 2], characters=sums[:, 3])
