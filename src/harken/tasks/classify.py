"""Classification of texts, sounds and images, with one label or several labels per example.

    input --reader--> tokens, frames or pixels --encoder--> states --pooling--> logits

With one label, the prediction is the label with the largest softmax; with several, all labels whose
sigmoid is at least 1/2. The confidence is the probability of the output. An input that is longer
than the model's limit is cut.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from harken.batch.bucketing import BucketSampler, rng
from harken.batch.labeled import LabeledBatch
from harken.config import as_plain
from harken.encode.pretrained import PretrainedTokenizer
from harken.encode.vocabulary import VocabularySizes
from harken.errors import UserError
from harken.formats.examples import LabeledExample
from harken.formats.labels import join_labels, split_labels
from harken.inspection.record import has_multihead
from harken.inspection.refs import is_cross_attention, is_self_attention
from harken.measure.scored_answers import exact_matches
from harken.models.classifier import Classifier
from harken.models.encoders import TextEncoderConfig
from harken.tasks.attention_view import (
    AttentionExample,
    AttentionView,
    ScoredOutput,
    named_output,
    output_title,
    self_attention_view,
)
from harken.tasks.classify_data import (
    ClassifyRecipe,
    LabelVocabulary,
    check_labels,
    fit_labels,
    labels_loss,
    require_known_labels,
)
from harken.tasks.classify_inputs import InputReader
from harken.tasks.classify_new import LAYOUT
from harken.tasks.classify_results import label_evaluation
from harken.tasks.dummy_batches import DummySizes
from harken.tasks.prediction import Evaluation, LabelProbability, Prediction, RankedOutput
from harken.tasks.task import InputForm, Keys, Predictor, Splits, Task
from harken.training.loop import MicroBatch, Stage, micro_batch, stage

FINETUNING_DROPOUT = 0.1  # of a pretrained encoder, unless the recipe sets it
THRESHOLD = 0.5  # probability from which one of several labels is predicted
FORMS: Mapping[str, InputForm] = {"text": "lines", "sound": "sounds", "image": "images"}


class LabelPredictor(Predictor[ClassifyRecipe, LabeledExample, LabelVocabulary, Classifier]):
    """A trained classifier."""

    batch_size = 64

    @torch.inference_mode()
    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        (arguments, truncations), model = self._reader.read(inputs), self.model.eval()
        logits = model(*(tensor.to(self.device) for tensor in arguments)).double()
        is_multiple = self.recipe.is_multiple
        probabilities = logits.sigmoid() if is_multiple else logits.softmax(dim=-1)
        rows = probabilities.cpu().numpy()
        for text, row, truncation in zip(inputs, rows, truncations, strict=True):
            labels = list(map(LabelProbability, self.vocabulary.names, row.tolist()))
            ranked = sorted(labels, key=lambda label: -label.probability)
            chosen = [label for label in labels if label.probability >= THRESHOLD]
            output = join_labels([label.label for label in chosen])
            yield Prediction(
                input=text,
                output=output if is_multiple else ranked[0].label,
                confidence=joint_probability(row) if is_multiple else ranked[0].probability,
                nbest=list(map(ranked_output, ranked[:nbest])) if nbest > 1 else (),
                labels=ranked,
                truncation=truncation,
            )

    def evaluate(
        self, examples: Sequence[LabeledExample], condition: str | None = None
    ) -> Evaluation:
        return label_evaluation(
            list(self.predict([example.input for example in examples])),
            [example.labels for example in examples],
            known=self.vocabulary.names,
            majority=self.vocabulary.majority,
            multiple=self.recipe.is_multiple,
        )

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention of the pooling and of the encoder to the start of an input."""
        if not has_multihead(self.model):
            return None
        (arguments, truncations), states = (
            self._reader.read([text]),
            self._reader.state_labels(text, self.model),
        )
        on_device = [tensor.to(self.device) for tensor in arguments]
        (prediction,) = self.predict([text])
        scored = self._scored(prediction.output if output is None else output)
        output, is_text = scored.text, self.recipe.data.input == "text"
        title = f"Pooling: weights of the {states.unit}"
        keys, media = states.texts, (states.sound, states.picture)
        return AttentionExample(
            title=f"{text if is_text else Path(text).name} → {output_title(output)}",
            run=lambda: self._log_probs(self.model(*on_device)[0].float()),
            output=scored,
            views=[
                AttentionView(title, is_cross_attention, [output_title(output)], keys, *media),
                self_attention_view(states.unit, keys, is_self_attention),
            ],
            truncation=truncations[0],
        )

    def _scored(self, output: str) -> ScoredOutput:
        """Return a label, or the presence of each label, as the output of an example."""
        names = self.vocabulary.names
        if not self.recipe.is_multiple:
            return named_output([output], [output], names)
        chosen = split_labels(output)
        if unknown := {*chosen} - {*names}:
            fix = f"use {', '.join(names[:8])}"
            raise UserError(f"output: unknown label {min(unknown)[:60]!r}", fix=fix)
        return ScoredOutput(output, [int(name in chosen) for name in names], None)

    def _log_probs(self, logits: Float[Tensor, "labels"]) -> Float[Tensor, "T V"]:
        """Return one row for one label, or for each of several labels its absence and presence."""
        if not self.recipe.is_multiple:
            return logits.log_softmax(dim=-1)[None]
        return torch.stack((F.logsigmoid(-logits), F.logsigmoid(logits)), dim=1)

    @property
    def _reader(self) -> InputReader:
        return self.recipe.reader(self.vocabulary)


class ClassifyTask(Task[ClassifyRecipe, LabeledExample, LabelVocabulary, Classifier]):
    """Classification."""

    recipe_type = ClassifyRecipe
    vocabulary_type = LabelVocabulary
    predictor_type = LabelPredictor
    layout = LAYOUT

    def inputs(self, recipe: ClassifyRecipe) -> InputForm:
        return FORMS[recipe.data.input]

    def read_file(self, recipe: ClassifyRecipe, path: Path) -> list[LabeledExample]:
        return recipe.read_examples(path)

    def read_splits(self, recipe: ClassifyRecipe) -> Splits[LabeledExample]:
        return Splits(
            recipe.data,
            recipe.read_examples,
            seed=recipe.seed,
            key=split_key,
            check_train=partial(check_labels, recipe),
        )

    def input(self, example: LabeledExample) -> str:
        return example.input

    def target(self, example: LabeledExample) -> str:
        return join_labels(example.labels)

    def fit(self, recipe: ClassifyRecipe, train: Sequence[LabeledExample]) -> LabelVocabulary:
        return fit_labels(recipe, train)

    def fit_pretrained(
        self,
        recipe: ClassifyRecipe,
        train: Sequence[LabeledExample],
        tokenizer: PretrainedTokenizer,
    ) -> LabelVocabulary:
        return fit_labels(recipe, train, tokenizer.vocabulary(mask=False))

    def pretrained_keys(self, model: object) -> Mapping[str, object]:
        return {
            "encode": {"kind": "tokens", "tokenizer": {"kind": "pretrained"}},
            "training": {"labels": {"unk_dropout": 0.0}},
        }

    def start_keys(self, model: object) -> Mapping[str, object] | None:
        if isinstance(model, TextEncoderConfig):
            keys = as_plain(model) | {"dropout": FINETUNING_DROPOUT}
            own = {name: keys.pop(name) for name in ("width", "segments")}
            return {"kind": "tokens", "dropout": FINETUNING_DROPOUT, **own, "encoder": keys}
        return super().start_keys(model)

    def build(self, recipe: ClassifyRecipe, sizes: VocabularySizes) -> Classifier:
        inputs = recipe.encode.sizes(sizes)
        return recipe.model.build(inputs, labels=sizes.tags, seed=recipe.seed)

    def stages(
        self,
        recipe: ClassifyRecipe,
        splits: Splits[LabeledExample],
        vocabulary: LabelVocabulary,
        cache: Path,
    ) -> list[Stage[Classifier]]:
        config, examples = recipe.training.labels, splits["train"]
        require_known_labels(recipe, examples, vocabulary)
        names = [example.input for example in examples]
        inputs = recipe.reader(vocabulary).store(names, config, cache)
        targets = vocabulary.targets(examples, multiple=recipe.is_multiple)
        # Not bucketed by length: batches of similar inputs have similar labels, and train worse.
        sampler = BucketSampler(
            np.ones(len(examples), dtype=np.int64), config.batch_size, recipe.seed
        )

        def batch(step: int) -> list[LabeledBatch]:
            chosen = sampler.batch(step)
            arguments = inputs(chosen, rng(recipe.seed, step))
            return [LabeledBatch(arguments, targets[torch.from_numpy(chosen)])]

        dev = splits["dev"]
        expected = [self.target(example) for example in dev]

        def dev_accuracy(model: Classifier) -> float:
            predictor = LabelPredictor(recipe, splits, vocabulary, model)
            predictions = predictor.predict([example.input for example in dev])
            return float(np.mean(exact_matches([item.output for item in predictions], expected)))

        return [stage("labels", config, batch, labels_loss(recipe), dev_accuracy)]

    def dummy_sizes(
        self, recipe: ClassifyRecipe, rows: int | None, length: int | None
    ) -> DummySizes:
        config = recipe.training.labels
        sizes = {"B": rows or config.batch_size, **recipe.encode.dummy_sizes(length)}
        tokens = sizes.get("T") or sizes.get("S")
        assumed = () if length or not tokens else (f"a length of {tokens} (--length)",)
        return DummySizes(config, sizes, assumed)

    def dummy_batch(
        self, recipe: ClassifyRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[Classifier]:
        generator = torch.Generator().manual_seed(0)
        arguments = recipe.encode.dummy_arguments(vocabulary, sizes, generator)
        targets = torch.randint(vocabulary.tags, (sizes["B"],), generator=generator)
        if recipe.is_multiple:
            targets = F.one_hot(targets, vocabulary.tags).float()
        return micro_batch(LabeledBatch(arguments, targets), labels_loss(recipe))


def ranked_output(label: LabelProbability) -> RankedOutput:
    """Return a label as an entry of an n-best list."""
    probability = label.probability
    return RankedOutput(label.label, math.log(probability) if probability > 0 else -math.inf)


def joint_probability(probabilities: Float[np.ndarray, "labels"]) -> float:
    """Return the probability of the predicted set, with independent labels."""
    return float(np.maximum(probabilities, 1 - probabilities).prod())


def split_key(example: LabeledExample) -> str:
    """Return the text, or folder and name of a file; its hash selects a share `data.dev`."""
    if example.file is None:
        return example.input
    return "/".join(Path(example.input).parts[-2:])
