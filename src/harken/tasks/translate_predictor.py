"""Translate sentences with a trained encoder-decoder, and measure how well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from harken.batch.padding import pad
from harken.batch.ragged import Numbers, ragged
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.stepper import TokenHypothesis, concatenate
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.formats.examples import Pair
from harken.inspection.refs import is_encoder_attention
from harken.measure.bleu import translation_samples
from harken.models.seq2seq import MAX_SOURCE, EncoderDecoder
from harken.tasks.attention_view import AttentionExample, output_title, self_view
from harken.tasks.prediction import (
    Evaluation,
    Indices,
    Prediction,
    prediction_of,
    sample_keys,
    truncation_of,
)
from harken.tasks.seq2seq import decoder_input_tensor, max_tokens, output_views, search_outputs
from harken.tasks.task import Predictor

BATCH_SIZE = 64  # sentences searched in one batch
SHORT = 20  # words of a sentence whose attention is easy to read


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslatePredictor(Predictor[Pair]):
    """A trained translator."""

    vocabulary: Vocabulary
    model: EncoderDecoder
    search: SearchConfig
    target_language: str

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Translate each text; a long text is joined from its chunks, a blank one stays blank."""
        keys = sample_keys(inputs, indices)
        chunks: list[Numbers] = []
        owners: list[int] = []
        chunk_keys: list[SampleKey] = []
        encoded = self.vocabulary.encode(inputs)
        for owner, (text, tokens) in enumerate(zip(inputs, encoded, strict=True)):
            if not text.strip() or len(tokens) == 0:
                continue
            for number, chunk in enumerate(self._chunks(tokens)):
                chunks.append(chunk)
                owners.append(owner)
                chunk_keys.append((*keys[owner], number))
        joined: list[list[TokenHypothesis]] = [[] for _ in inputs]
        found = self._search(chunks, chunk_keys, nbest)
        for owner, hypotheses in zip(owners, found, strict=True):
            joined[owner] = concatenate(joined[owner], hypotheses) if joined[owner] else hypotheses
        for text, hypotheses in zip(inputs, joined, strict=True):
            yield prediction_of(
                text, hypotheses or [TokenHypothesis([], 0.0)], self.vocabulary, nbest
            )

    def evaluate(self, examples: Sequence[Pair], condition: str | None = None) -> Evaluation:
        predictions = list(self.predict([pair.source for pair in examples]))
        expected = [pair.target for pair in examples]
        outputs = [prediction.output for prediction in predictions]
        samples, notes = translation_samples(outputs, expected, self.target_language)
        sources = [pair.source for pair in examples if pair.source.split()]
        short = (source for source in sources if len(source.split()) <= SHORT)
        return Evaluation(
            n=len(examples),
            samples=samples,
            notes=notes,
            predictions=predictions,
            expected=expected,
            example=next(short, min(sources, key=len, default="")),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Attention of the hypothesis that is kept; of a long source, the first chunk."""
        model, vocabulary = self.model.eval(), self.vocabulary
        (tokens,) = vocabulary.encode([text])
        if not text.strip() or len(tokens) == 0:
            return None
        chunk, *_ = self._chunks(tokens)
        ((found, *_),) = self._search([chunk], [(0, 0)])
        outputs = [*found.tokens, END][: max_tokens(model, self.search)]
        source = torch.tensor([chunk.tolist()], device=self.device)
        inputs = decoder_input_tensor(outputs, self.device)
        encoder = self_view(
            "source tokens", vocabulary.pieces(chunk.tolist()), is_encoder_attention
        )
        return AttentionExample(
            title=f"{text} → {output_title(vocabulary.decode([found.tokens])[0])}",
            run=lambda: model.states(source, torch.ones_like(source, dtype=torch.bool), inputs),
            views=output_views(
                outputs,
                vocabulary.pieces,
                encoder,
                "Cross-attention: target tokens to source tokens",
            ),
            truncation=truncation_of(len(chunk), len(tokens), "first"),
        )

    def _search(
        self, sources: Sequence[Numbers], keys: Sequence[SampleKey], nbest: int = 1
    ) -> list[list[TokenHypothesis]]:
        """The best hypotheses for each source that fits the model, in order."""
        model = self.model.eval()
        found: list[list[TokenHypothesis]] = [[] for _ in sources]
        # Similar lengths together, the longest first: what does not fit in memory fails at once.
        ranked = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        for start in range(0, len(ranked), BATCH_SIZE):
            chosen = ranked[start : start + BATCH_SIZE]
            source, present = pad(ragged([sources[index] for index in chosen]), PAD)
            beams = search_outputs(
                model,
                source.to(self.device),
                present.to(self.device),
                self.search,
                nbest,
                [keys[index] for index in chosen],
            )
            for index, beam in zip(chosen, beams, strict=True):
                found[index] = beam
        return found

    def _chunks(self, tokens: Numbers) -> list[Numbers]:
        return cut_between_words(tokens, self.model.max_source or MAX_SOURCE, self.vocabulary)


def cut_between_words(tokens: Numbers, most: int, vocabulary: Vocabulary) -> list[Numbers]:
    """Chunks of at most `most` tokens, each cut before a word if there is one."""
    chunks = []
    while len(tokens) > most:
        starts = [
            index
            for index in range(most // 2, most + 1)
            if vocabulary.begins_word(int(tokens[index]))
        ]
        cut = starts[-1] if starts else most
        chunks.append(tokens[:cut])
        tokens = tokens[cut:]
    return [*chunks, tokens]
