"""Caption pictures with a trained model, and measure captions and attention."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.stepper import TokenHypothesis
from harken.encode.pixels import MapsConfig, PixelsConfig
from harken.encode.vocabulary import END, Vocabulary
from harken.formats.image_source import Numbers
from harken.inspection.forced import forced_cross_attention
from harken.inspection.refs import is_encoder_attention
from harken.measure.boxes import Looks, box_samples, grid_centres
from harken.measure.captions import caption_samples
from harken.measure.edit_distance import align_texts
from harken.models.captioner import Captioner
from harken.tasks.attention_view import AttentionExample, ImageView, output_title, self_view
from harken.tasks.caption_examples import BATCH_SIZE, CaptionExample, load
from harken.tasks.prediction import Evaluation, Indices, Prediction, prediction_of, sample_keys
from harken.tasks.seq2seq import decoder_input_tensor, output_views, search_outputs
from harken.tasks.task import Predictor


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionPredictor(Predictor[CaptionExample]):
    """A trained captioner."""

    vocabulary: Vocabulary
    model: Captioner
    pictures: PixelsConfig | MapsConfig
    search: SearchConfig
    load_named: Callable[[str], Numbers]

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Inputs are names of files, or of rows of arrays such as test.npz#7."""
        keys = sample_keys(inputs, indices)
        for start in range(0, len(inputs), BATCH_SIZE):
            names = inputs[start : start + BATCH_SIZE]
            pictures = np.concatenate([self.load_named(name) for name in names])
            beams = self._search(pictures, nbest, keys[start : start + BATCH_SIZE])
            for name, beam in zip(names, beams, strict=True):
                yield prediction_of(name, beam, self.vocabulary, nbest)

    def evaluate(
        self, examples: Sequence[CaptionExample], condition: str | None = None
    ) -> Evaluation:
        found = self.search_examples(examples)
        predictions = [
            prediction_of(example.name, beam, self.vocabulary)
            for example, beam in zip(examples, found, strict=True)
        ]
        outputs = [prediction.output for prediction in predictions]
        expected = [example.captions[0] for example in examples]
        samples, notes = caption_samples(outputs, [example.captions for example in examples])
        if any(example.boxes for example in examples):
            in_box, in_box_notes = box_samples(
                [
                    example.source.resized_boxes(example.boxes, example.image)
                    for example in examples
                ],
                self._word_attention(examples, [beam[0].tokens for beam in found]),
                align_texts(outputs, expected, units="words"),
            )
            samples, notes = {**samples, **in_box}, {**notes, **in_box_notes}
        return Evaluation(
            n=len(examples),
            samples=samples,
            notes=notes,
            predictions=predictions,
            expected=expected,
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Attention of the decoder as it writes about one picture, or decides to write nothing."""
        picture, front = self.load_named(text), self.model.front
        ((found,),) = self._search(picture)
        outputs = found.tokens or [END]
        pixels = self._encode(picture)
        inputs = decoder_input_tensor(outputs, pixels.device)
        grid = range(front.columns * front.rows)
        places = [f"{at % front.columns}, {at // front.columns}" for at in grid]
        view = ImageView(
            image=picture[0] if isinstance(self.pictures, PixelsConfig) else None,
            columns=front.columns,
            rows=front.rows,
            offset=float(front.offset),
            stride=float(front.stride),
        )
        output = output_title(self.vocabulary.decode([found.tokens])[0])
        return AttentionExample(
            title=f"{Path(text).name}: {output}",
            run=lambda: self.model.states(pixels, inputs),
            views=output_views(
                outputs,
                lambda tokens: [word.strip() for word in self.vocabulary.pieces(tokens)],
                self_view("image positions (x, y)", places, is_encoder_attention),
                "Cross-attention: target tokens to image positions",
                picture=view,
            ),
        )

    def search_examples(self, examples: Sequence[CaptionExample]) -> list[list[TokenHypothesis]]:
        """The best captions of each picture."""
        found: list[list[TokenHypothesis]] = []
        for start in range(0, len(examples), BATCH_SIZE):
            batch = examples[start : start + BATCH_SIZE]
            keys = [(index,) for index in range(start, start + len(batch))]
            found += self._search(load(batch), keys=keys)
        return found

    @torch.inference_mode()
    def _search(
        self, pictures: Numbers, nbest: int = 1, keys: Sequence[SampleKey] | None = None
    ) -> list[list[TokenHypothesis]]:
        model = self.model.eval()
        encoded = model.encode(self._encode(pictures))
        return search_outputs(model, *encoded, self.search, nbest, keys)

    def _word_attention(
        self, examples: Sequence[CaptionExample], outputs: Sequence[Sequence[int]]
    ) -> list[Looks]:
        """Where each word of these captions attends: the mean of the last layer's heads."""
        model, front, found = self.model.eval(), self.model.front, []
        centers = grid_centres(front.columns, front.rows, front.stride, front.offset)
        for start in range(0, len(examples), BATCH_SIZE):
            texts = outputs[start : start + BATCH_SIZE]
            with torch.inference_mode():
                encoded = model.encode(self._encode(load(examples[start : start + BATCH_SIZE])))
            weights = forced_cross_attention(model, *encoded, texts, END)
            for text, heads in zip(texts, weights, strict=True):
                words = np.array(self.vocabulary.word_numbers(text), dtype=np.int64)
                mean = heads.mean(dim=0).cpu().numpy().astype(np.float64)
                found.append(Looks(weights=mean, words=words, centres=centers))
        return found

    def _encode(self, pictures: Numbers) -> Float[Tensor, "B first second third"]:
        return self.pictures.encode(pictures).to(self.device)
