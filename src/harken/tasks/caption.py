"""Image captioning with a decoder that attends to the positions (x, y) of an image.

    image or feature map --front end, encoder--> one state per position
    <end> caption        -> caption <end>        (decoder inputs, targets)

In training, each caption of an image is an example; in evaluation, all captions of an image are
references. If the captions have boxes, the evaluation measures whether words attend to their boxes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache as cached
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.augment.affine import random_affine
from harken.batch.bucketing import BucketSampler, rng
from harken.batch.padding import Seq2SeqBatch, shift_targets
from harken.batch.ragged import ragged
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper
from harken.encode.pixels import PixelsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.formats.arrays import read_image_array
from harken.formats.image_source import ImageBatch, load_image
from harken.inspection.refs import is_encoder_attention
from harken.inspection.search_attention import forced_cross_attention
from harken.layers.frontends import FeatureProjectionConfig
from harken.measure.boxes import ImageAttention, box_samples, grid_centers
from harken.measure.captions import caption_samples
from harken.measure.edit_distance import align_texts
from harken.models.captioner import Captioner
from harken.tasks.attention_view import (
    AttentionExample,
    ImageView,
    output_title,
    self_attention_view,
)
from harken.tasks.caption_data import (
    CaptionExample,
    CaptionRecipe,
    encode_captions,
    image_batches,
    load_images,
    resize_once,
)
from harken.tasks.dummy_batches import DummySizes, random_seq2seq_batch
from harken.tasks.prediction import Evaluation, Prediction, beam_prediction
from harken.tasks.seq2seq import (
    Beams,
    cross_entropy_loss,
    decoder_inputs,
    max_tokens,
    output_views,
    scored_output,
)
from harken.tasks.task import (
    InputForm,
    Keys,
    Layout,
    Predictor,
    Splits,
    Task,
    file_calls,
    sample_keys,
)
from harken.training.distributed import map_batches
from harken.training.loop import MicroBatch, Stage, micro_batch, stage

DEV_IMAGES = 300  # captioned greedily at each evaluation during training
DUMMY_TOKENS = 16  # per caption of a dummy batch
TEMPLATE = """
[encode.images]
kind = "{encode.images.kind}"
columns = {encode.images.columns}    # image files are resized; an array must have this size
rows = {encode.images.rows}
channels = {encode.images.channels}    # 1 for gray

[encode.tokenizer]
kind = "{encode.tokenizer.kind}"    # or "bpe", "unigram", "characters"

[model]
frontend.kind = "{model.frontend.kind}"    # or "patch"
encoder.layers = {model.encoder.layers}    # of self-attention; use 2 with decoder "transformer"
decoder.kind = "{model.decoder.kind}"    # or "transformer"
width = {model.width}

[training.captions]
steps = {training.captions.steps}
batch_captions = {training.captions.batch_captions}
evaluate_every = {training.captions.evaluate_every}    # steps; keeps the best weights; 0: never

[search]
beam = {search.beam}
"""


class CaptionPredictor(Predictor[CaptionRecipe, CaptionExample, Vocabulary, Captioner]):
    """A trained captioner."""

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        """Caption image files, or rows of arrays such as test.npz#7."""
        load_named = self._loader()

        def search_images(batch: slice) -> Beams:
            images = np.concatenate(list(map(load_named, inputs[batch])))
            return self._search(images, nbest, keys[batch])

        beams = chain.from_iterable(map_batches(search_images, image_batches(len(inputs))))
        for name, beam in zip(inputs, beams, strict=True):
            yield beam_prediction(name, beam, self.vocabulary, nbest)

    def evaluate(
        self, examples: Sequence[CaptionExample], condition: str | None = None
    ) -> Evaluation:
        beams = self.search_examples(examples)
        predictions = [
            beam_prediction(example.name, beam, self.vocabulary)
            for example, beam in zip(examples, beams, strict=True)
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

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention of the best caption, or of <end> if it is empty."""
        image, frontend = self._loader()(text), self.model.frontend
        ((best,),) = self._search(image)  # one image, one hypothesis
        caption = scored_output(best.tokens, output, self.vocabulary)
        pixels = self._encode(image)
        inputs = decoder_inputs(caption.targets, pixels.device)
        positions = [f"{x}, {y}" for y in range(frontend.rows) for x in range(frontend.columns)]
        view = ImageView(
            image=image[0] if isinstance(self.recipe.encode.images, PixelsConfig) else None,
            columns=frontend.columns,
            rows=frontend.rows,
            offset=float(frontend.offset),
            stride=float(frontend.stride),
        )
        return AttentionExample(
            title=f"{Path(text).name}: {output_title(caption.text)}",
            run=lambda: self.model(pixels, inputs)[0].float().log_softmax(dim=-1),
            output=caption,
            views=output_views(
                caption.targets,
                lambda tokens: [word.strip() for word in self.vocabulary.token_texts(tokens)],
                self_attention_view("image positions (x, y)", positions, is_encoder_attention),
                "image positions",
                picture=view,
            ),
        )

    def search_examples(self, examples: Sequence[CaptionExample]) -> Beams:
        """Return the best captions of each image."""
        keys = sample_keys(examples)

        def search_images(batch: slice) -> Beams:
            return self._search(load_images(examples[batch]), keys=keys[batch])

        return list(chain.from_iterable(map_batches(search_images, image_batches(len(examples)))))

    @torch.inference_mode()
    def _search(self, images: ImageBatch, nbest: int = 1, keys: Keys | None = None) -> Beams:
        model, search = self.model.eval(), self.recipe.search
        memory, present = model.encode(self._encode(images))
        return generate(
            Seq2SeqStepper(model, END),
            memory,
            present,
            search=search,
            end=END,
            max_tokens=max_tokens(model, search),
            nbest=nbest,
            sample_keys=keys,
        )

    def _word_attention(
        self, examples: Sequence[CaptionExample], outputs: Sequence[Sequence[int]]
    ) -> list[ImageAttention]:
        """Return the attention of each token, averaged over the heads of the last layer."""
        model, grid, attention = self.model.eval(), self.model.frontend, []
        centers = grid_centers(grid.columns, grid.rows, grid.stride, grid.offset)
        for batch in image_batches(len(examples)):
            with torch.inference_mode():
                encoded = model.encode(self._encode(load_images(examples[batch])))
            weights = forced_cross_attention(model, *encoded, outputs[batch], END)
            for tokens, head_weights in zip(outputs[batch], weights, strict=True):
                words = np.array(self.vocabulary.word_indices(tokens), dtype=np.int64)
                mean = head_weights.mean(dim=0).cpu().numpy().astype(np.float64)
                attention.append(ImageAttention(weights=mean, words=words, centers=centers))
        return attention

    def _loader(self) -> Callable[[str], ImageBatch]:
        """Return a function that loads an image by name; each array is opened once."""
        files, arrays = self.recipe.image_files, cached(self.recipe.open_array)
        return lambda name: load_image(name, files, arrays)

    def _encode(self, images: ImageBatch) -> Float[Tensor, "B *axes"]:
        return self.recipe.encode.images.encode(images).to(self.device)


def array_sizes(files: Sequence[Path]) -> list[str]:
    """Return recipe overrides with the sizes of the array next to the captions, if any."""
    sibling = files[0].with_suffix(".npz")
    if not sibling.is_file():
        return []
    array = read_image_array(sibling)
    sizes = {"columns": array.columns, "rows": array.rows, "channels": array.channels}
    return [f"encode.images.{name}={size}" for name, size in sizes.items()]


class CaptionTask(Task[CaptionRecipe, CaptionExample, Vocabulary, Captioner]):
    """Image captioning."""

    recipe_type = CaptionRecipe
    vocabulary_type = Vocabulary
    predictor_type = CaptionPredictor
    layout = Layout[CaptionRecipe, CaptionExample](
        calls=file_calls(
            "captions.jsonl", "captions.jsonl", "dev-captions.jsonl", "test-captions.jsonl"
        ),
        template=TEMPLATE,
        examples="images",
        stage="training.captions",
        overrides=array_sizes,
    )

    def inputs(self, recipe: CaptionRecipe) -> InputForm:
        return "images"

    def read_file(self, recipe: CaptionRecipe, path: Path) -> list[CaptionExample]:
        return recipe.read_examples(path)

    def read_splits(self, recipe: CaptionRecipe) -> Splits[CaptionExample]:
        read, key = recipe.read_examples, attrgetter("key")
        return Splits(recipe.data, read, seed=recipe.seed, key=key)

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
        config, images = recipe.training.captions, recipe.encode.images
        examples = resize_once(splits["train"], cache)
        max_length = recipe.model.decoder.max_length
        captions, image_of = encode_captions(examples, vocabulary, max_length)
        lengths = np.ones(len(captions), dtype=np.int64)  # the batch size is a number of captions
        sampler = BucketSampler(lengths, config.batch_captions, recipe.seed)

        def batch(step: int) -> list[Seq2SeqBatch]:
            chosen = sampler.batch(step)
            pixels = images.encode(load_images([examples[image_of[index]] for index in chosen]))
            pixels = random_affine(pixels, config.random_affine, rng(recipe.seed, step))
            texts = ragged([captions[index] for index in chosen])
            targets = shift_targets(texts, start=END, end=END, padding_value=PAD)
            return [Seq2SeqBatch(pixels, None, *targets)]

        dev = splits["dev"][:DEV_IMAGES]
        greedy = replace(recipe, search=SearchConfig())

        def dev_cider(model: Captioner) -> float:
            beams = CaptionPredictor(greedy, splits, vocabulary, model).search_examples(dev)
            outputs = vocabulary.decode([beam[0].tokens for beam in beams])
            samples, _ = caption_samples(outputs, [example.captions for example in dev])
            return samples["cider_d"].value

        loss = cross_entropy_loss(config.label_smoothing)
        return [stage("captions", config, batch, loss, dev_cider)]

    def dummy_sizes(
        self, recipe: CaptionRecipe, rows: int | None, length: int | None
    ) -> DummySizes:
        config, tokens = recipe.training.captions, length or DUMMY_TOKENS
        assumed = () if length else (f"a length of {tokens} (--length)",)
        return DummySizes(config, {"B": rows or config.batch_captions, "T": tokens}, assumed)

    def dummy_batch(
        self, recipe: CaptionRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[Captioner]:
        generator, config = torch.Generator().manual_seed(0), recipe.encode.images
        shape = (config.channels, config.rows, config.columns)
        if isinstance(recipe.model.frontend, FeatureProjectionConfig):
            shape = shape[::-1]  # feature maps are X Y K
        images = torch.randn(sizes["B"], *shape, generator=generator)
        batch = random_seq2seq_batch(images, sizes["T"], vocabulary.entries, generator)
        return micro_batch(batch, cross_entropy_loss(recipe.training.captions.label_smoothing))
