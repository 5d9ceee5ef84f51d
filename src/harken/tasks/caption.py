"""Image captioning: a decoder attends to places x, y of a picture and writes a caption.

    picture or feature map --front, encoder--> one state per place
    <end> caption          -> caption <end>        (decoder inputs, targets)

In training a picture with several captions is one example for each; in evaluation all are its
references. If the captions have boxes, it is measured whether each word attends to its box.
Pictures that are files are resized once and kept in the run folder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache as cached
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.augment.affine import random_affine
from harken.batch.bucketing import BucketSampler, seeded
from harken.batch.captions import CaptionBatch
from harken.batch.padding import shift_targets
from harken.batch.ragged import ragged
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.stepper import TokenHypothesis
from harken.encode.pixels import PixelsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.formats.arrays import read_pictures
from harken.formats.image_source import Numbers, picture_named
from harken.inspection.refs import is_encoder_attention
from harken.inspection.search_attention import forced_cross_attention
from harken.layers.frontends import FeatureProjectionConfig
from harken.measure.boxes import ImageAttention, box_samples, grid_centers
from harken.measure.captions import caption_samples
from harken.measure.edit_distance import align_texts
from harken.models.captioner import Captioner
from harken.tasks.attention_view import AttentionExample, ImageView, output_title, self_view
from harken.tasks.caption_data import (
    BATCH_SIZE,
    CaptionExample,
    CaptionRecipe,
    encode_captions,
    identity,
    image_files,
    load,
    open_array,
    read_examples,
    resize_once,
)
from harken.tasks.prediction import Evaluation, Indices, Prediction, prediction_of, sample_keys
from harken.tasks.seq2seq import decoder_inputs, output_views, search_outputs
from harken.tasks.task import (
    Layout,
    Predictor,
    ProbeSizes,
    Splits,
    Task,
    file_calls,
    random_tokens,
    target_losses,
)
from harken.training.loop import MicroBatch, Stage, micro_batch, stage

DEV_PICTURES = 300  # captioned greedily at each evaluation during training
PROBE_LENGTH = 16  # tokens of a caption
TEMPLATE = """
[encode.images]
kind = "{encode.images.kind}"
columns = {encode.images.columns}    # files are scaled to this size, an array has it
rows = {encode.images.rows}
channels = {encode.images.channels}    # 1 for gray

[encode.tokenizer]
kind = "{encode.tokenizer.kind}"    # or "bpe", "unigram", "characters"

[model]
frontend.kind = "{model.frontend.kind}"    # or "patch"
encoder.layers = {model.encoder.layers}    # of attention between places: 2 or more where the
decoder.kind = "{model.decoder.kind}"    # is "transformer"
width = {model.width}

[training.captions]
steps = {training.captions.steps}
batch_captions = {training.captions.batch_captions}
evaluate_every = {training.captions.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
beam = {search.beam}
"""


class CaptionPredictor(Predictor[CaptionRecipe, CaptionExample, Vocabulary, Captioner]):
    """A trained captioner."""

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Inputs are names of files, or of rows of arrays such as test.npz#7."""
        keys, load_named = sample_keys(inputs, indices), self._loader()
        for start in range(0, len(inputs), BATCH_SIZE):
            names = inputs[start : start + BATCH_SIZE]
            pictures = np.concatenate([load_named(name) for name in names])
            beams = self._search(pictures, nbest, keys[start : start + BATCH_SIZE])
            for name, beam in zip(names, beams, strict=True):
                yield prediction_of(name, beam, self.vocabulary, nbest)

    def evaluate(
        self, examples: Sequence[CaptionExample], condition: str | None = None
    ) -> Evaluation:
        beams = self.search_examples(examples)
        predictions = [
            prediction_of(example.name, beam, self.vocabulary)
            for example, beam in zip(examples, beams, strict=True)
        ]
        outputs = [prediction.output for prediction in predictions]
        expected = [example.captions[0] for example in examples]
        samples, notes = caption_samples(outputs, [example.captions for example in examples])
        if any(example.boxes for example in examples):
            in_box, in_box_notes = box_samples(
                [item.source.resized_boxes(item.boxes, item.image) for item in examples],
                self._word_attention(examples, [beam[0].tokens for beam in beams]),
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
        picture, front = self._loader()(text), self.model.frontend
        ((best,),) = self._search(picture)
        outputs = best.tokens or [END]
        pixels = self._encode(picture)
        inputs = decoder_inputs(outputs, pixels.device)
        grid = range(front.columns * front.rows)
        places = [f"{at % front.columns}, {at // front.columns}" for at in grid]
        view = ImageView(
            image=picture[0] if isinstance(self.recipe.encode.images, PixelsConfig) else None,
            columns=front.columns,
            rows=front.rows,
            offset=float(front.offset),
            stride=float(front.stride),
        )
        output = output_title(self.vocabulary.decode([best.tokens])[0])
        return AttentionExample(
            title=f"{Path(text).name}: {output}",
            run=lambda: self.model.states(pixels, inputs),
            views=output_views(
                outputs,
                lambda tokens: [word.strip() for word in self.vocabulary.pieces(tokens)],
                self_view("image positions (x, y)", places, is_encoder_attention),
                "image positions",
                picture=view,
            ),
        )

    def search_examples(self, examples: Sequence[CaptionExample]) -> list[list[TokenHypothesis]]:
        """The best captions of each picture."""
        beams: list[list[TokenHypothesis]] = []
        for start in range(0, len(examples), BATCH_SIZE):
            batch = examples[start : start + BATCH_SIZE]
            keys = [(index,) for index in range(start, start + len(batch))]
            beams += self._search(load(batch), keys=keys)
        return beams

    @torch.inference_mode()
    def _search(
        self, pictures: Numbers, nbest: int = 1, keys: Sequence[SampleKey] | None = None
    ) -> list[list[TokenHypothesis]]:
        model = self.model.eval()
        encoded = model.encode(self._encode(pictures))
        return search_outputs(model, *encoded, self.recipe.search, nbest, keys)

    def _word_attention(
        self, examples: Sequence[CaptionExample], outputs: Sequence[Sequence[int]]
    ) -> list[ImageAttention]:
        """Where each word of these captions attends: the mean of the last layer's heads."""
        model, front, attention = self.model.eval(), self.model.frontend, []
        centers = grid_centers(front.columns, front.rows, front.stride, front.offset)
        for start in range(0, len(examples), BATCH_SIZE):
            texts = outputs[start : start + BATCH_SIZE]
            with torch.inference_mode():
                encoded = model.encode(self._encode(load(examples[start : start + BATCH_SIZE])))
            weights = forced_cross_attention(model, *encoded, texts, END)
            for text, heads in zip(texts, weights, strict=True):
                words = np.array(self.vocabulary.word_numbers(text), dtype=np.int64)
                mean = heads.mean(dim=0).cpu().numpy().astype(np.float64)
                attention.append(ImageAttention(weights=mean, words=words, centers=centers))
        return attention

    def _loader(self) -> Callable[[str], Numbers]:
        """Load pictures by name; each array is opened once."""
        arrays = cached(partial(open_array, self.recipe))
        return lambda name: picture_named(name, image_files(self.recipe), arrays)

    def _encode(self, pictures: Numbers) -> Float[Tensor, "B first second third"]:
        return self.recipe.encode.images.encode(pictures).to(self.device)


def array_sizes(files: Sequence[Path]) -> list[str]:
    """The sizes of the array next to the captions; without one, pictures are resized."""
    beside = files[0].with_suffix(".npz")
    if not beside.is_file():
        return []
    array = read_pictures(beside)
    sizes = {"columns": array.columns, "rows": array.rows, "channels": array.channels}
    return [f"encode.images.{name}={size}" for name, size in sizes.items()]


class CaptionTask(Task[CaptionRecipe, CaptionExample, Vocabulary, Captioner]):
    """Image captioning."""

    inputs = "pictures"
    recipe_type = CaptionRecipe
    vocabulary_type = Vocabulary
    predictor_type = CaptionPredictor
    layout = Layout[CaptionRecipe, CaptionExample](
        calls=file_calls(
            "captions.jsonl", "captions.jsonl", "dev-captions.jsonl", "test-captions.jsonl"
        ),
        template=TEMPLATE,
        examples="pictures",
        stage="training.captions",
        overrides=array_sizes,
    )

    def read_file(self, recipe: CaptionRecipe, path: Path) -> list[CaptionExample]:
        return read_examples(recipe, path)

    def read_splits(self, recipe: CaptionRecipe) -> Splits[CaptionExample]:
        return Splits(recipe.data, partial(read_examples, recipe), seed=recipe.seed, key=identity)

    def input(self, example: CaptionExample) -> str:
        return example.name

    def fit(self, recipe: CaptionRecipe, train: Sequence[CaptionExample]) -> Vocabulary:
        return recipe.encode.tokenizer.fit(text for example in train for text in example.captions)

    def build(self, recipe: CaptionRecipe, sizes: VocabularySizes) -> Captioner:
        return recipe.model.build(sizes.entries, recipe.image_sizes, recipe.seed)

    def stages(
        self,
        recipe: CaptionRecipe,
        splits: Splits[CaptionExample],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage[Captioner]]:
        config, pictures = recipe.training.captions, recipe.encode.images
        examples = resize_once(splits["train"], cache)
        texts, owners = encode_captions(examples, vocabulary, recipe.model.decoder.max_length)
        order = BucketSampler(
            np.ones(len(texts), dtype=np.int64), config.batch_captions, recipe.seed
        )

        def batch(step: int) -> list[CaptionBatch]:
            chosen = order.batch(step)
            pixels = pictures.encode(load([examples[owners[index]] for index in chosen]))
            pixels = random_affine(pixels, config.random_affine, seeded(recipe.seed, step))
            captions = ragged([texts[index] for index in chosen])
            return [CaptionBatch(pixels, *shift_targets(captions, END, END, PAD))]

        dev = splits["dev"][:DEV_PICTURES]
        greedy = replace(recipe, search=SearchConfig())

        def dev_cider(model: Captioner) -> float:
            beams = CaptionPredictor(greedy, splits, vocabulary, model).search_examples(dev)
            outputs = vocabulary.decode([beam[0].tokens for beam in beams])
            samples, _ = caption_samples(outputs, [example.captions for example in dev])
            return samples["cider_d"].value

        return [stage("captions", config, batch, caption_loss(config.label_smoothing), dev_cider)]

    def probe_sizes(
        self, recipe: CaptionRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        config, tokens = recipe.training.captions, length or PROBE_LENGTH
        assumed = () if length else (f"a length of {tokens} (--length)",)
        return ProbeSizes(config, {"B": rows or config.batch_captions, "T": tokens}, assumed)

    def probe(
        self, recipe: CaptionRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[Captioner]:
        generator, shape = torch.Generator().manual_seed(0), (letters["B"], letters["T"])
        size = recipe.encode.images
        axes = (size.channels, size.rows, size.columns)
        if isinstance(recipe.model.frontend, FeatureProjectionConfig):
            axes = (size.columns, size.rows, size.channels)
        pictures = torch.randn(letters["B"], *axes, generator=generator)
        inputs, targets = (random_tokens(generator, vocabulary.entries, *shape) for _ in range(2))
        smoothing = recipe.training.captions.label_smoothing
        return micro_batch(CaptionBatch(pictures, inputs, targets), caption_loss(smoothing))


def caption_loss(smoothing: float) -> Callable[[Captioner, CaptionBatch], Tensor]:
    """Cross-entropy with label smoothing, summed over the targets."""

    def loss(model: Captioner, batch: CaptionBatch) -> Tensor:
        inputs = (batch.pictures, batch.inputs)
        return target_losses(model, batch.targets, *inputs, smoothing=smoothing).sum()

    return loss
