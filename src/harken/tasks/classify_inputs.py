"""The inputs of the task `classify`: texts, sounds and images as arguments of a model.

The table [encode] of a recipe is one of the encodings below. Its reader converts inputs to tensors,
stores the training inputs that are slow to compute, and describes the encoder states, which are the
keys of attention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from harken.augment.affine import RandomAffineConfig
from harken.augment.specaugment import (
    RandomEqualizerConfig,
    SpecAugmentConfig,
)
from harken.batch.ragged import IntArray
from harken.config import MAX_BATCH, MAX_STEPS, bounded
from harken.encode.vocabulary import Vocabulary, VocabularySizes
from harken.encode.words import WordVocabulary
from harken.formats.labels import InputKind
from harken.models.classifier import Classifier
from harken.tasks.attention_view import AudioView, ImageView
from harken.tasks.prediction import Truncation
from harken.training.loop import StageConfig
from harken.training.optimizer import AdamWConfig, OptimizerConfig

Arguments = tuple[Tensor, ...]  # of a model


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyStage(StageConfig):
    """Training on labeled inputs. Each augmentation is for one kind of input."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    optimizer: OptimizerConfig = AdamWConfig(lr=2e-3, weight_decay=0.01)  # optimizer, learning rate
    # number of inputs per batch
    batch_size: int = bounded(64, at_least=1, at_most=MAX_BATCH)
    label_smoothing: float = bounded(0.0, at_least=0.0, below=1.0)  # of the targets
    # text: word dropout a: a word with count c becomes unknown with probability a / (a + c)
    unk_dropout: float = bounded(1.0, at_least=0.0, at_most=1e6)
    # sound: factors of speed perturbation
    speeds: tuple[float, ...] = bounded((0.9, 1.0, 1.1), at_least=0.5, at_most=2.0)
    random_equalizer: RandomEqualizerConfig = RandomEqualizerConfig()  # sound: random equalizer
    # sound: SpecAugment
    spec_augment: SpecAugmentConfig = SpecAugmentConfig(time_masks=0, frequency_masks=0)
    random_affine: RandomAffineConfig = RandomAffineConfig()  # image: random affine maps

    def __post_init__(self) -> None:
        StageConfig.__post_init__(self)  # super() fails in a dataclass with slots
        if not self.speeds:
            raise ValueError("speeds is empty; [1.0] leaves every sound unchanged")

    def check_input(self, kind: InputKind) -> None:
        """Raise a ValueError for an augmentation of another kind of input."""
        defaults = ClassifyStage()
        for other, names in AUGMENTATIONS.items():
            for name in names:
                if other != kind and getattr(self, name) != getattr(defaults, name):
                    raise ValueError(f"training.labels.{name} is for data.input = {other!r}")


AUGMENTATIONS: dict[InputKind, tuple[str, ...]] = {
    "text": ("unk_dropout",),
    "sound": ("speeds", "random_equalizer", "spec_augment"),
    "image": ("random_affine",),
}


class ReadInputs(NamedTuple):
    """Padded inputs, and how much of each was read."""

    arguments: Arguments
    truncations: Sequence[Truncation | None]


TrainingInputs = Callable[[IntArray, np.random.Generator], Arguments]
"""A function that returns the training inputs with these indices, augmented."""


class StateLabels(NamedTuple):
    """What the states of an input stand for, and the input that is shown with the attention."""

    unit: str
    texts: Sequence[str]
    sound: AudioView | None = None
    picture: ImageView | None = None


class InputReader(Protocol):
    """Reads inputs of one kind."""

    def read(self, inputs: Sequence[str]) -> ReadInputs:
        """Return the inputs, padded to one length."""

    def store(self, inputs: Sequence[str], stage: ClassifyStage, cache: Path) -> TrainingInputs:
        """Return the training inputs; `cache` is a folder for what is slow to compute."""

    def state_labels(self, text: str, model: Classifier) -> StateLabels:
        """Describe the encoder states of an input."""


class InputVocabulary(NamedTuple):
    """What an encoding fits: words, tokens, or nothing for sounds and images."""

    words: WordVocabulary | None = None
    tokens: Vocabulary | None = None

    @property
    def sizes(self) -> VocabularySizes:
        fitted = self.words or self.tokens
        return VocabularySizes(0) if fitted is None else fitted.sizes
