"""Sounds and images of the task `classify`, as log-mel frames and as pixels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as cached
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.augment.affine import random_affine
from harken.augment.specaugment import (
    equalize,
    spec_augment,
)
from harken.batch.ragged import IntArray
from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.pixels import PixelsConfig
from harken.encode.vocabulary import VocabularySizes
from harken.errors import UserError
from harken.formats.arrays import ImageArray, read_image_array
from harken.formats.image_source import ImageBatch, ImageFiles, load_image
from harken.formats.labels import InputKind
from harken.formats.sound import Signal, load_signal
from harken.layers.frontends import ImageSizes
from harken.models.classifier import Classifier, InputSizes
from harken.tasks.attention_view import AudioView, ImageView
from harken.tasks.classify_inputs import (
    Arguments,
    ClassifyStage,
    InputVocabulary,
    ReadInputs,
    StateLabels,
    TrainingInputs,
)
from harken.tasks.prediction import truncation_of
from harken.tasks.stored_inputs import stored_frames, stored_pixels

DUMMY_FRAMES = 100  # 1 s, one frame every 10 ms
MAX_SECONDS = 60.0  # of a sound
IMAGES = 64  # decoded at once


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundEncoding:
    """Sounds as log-mel frames."""

    kind: Literal["sound"] = "sound"
    input: ClassVar[InputKind] = "sound"
    filterbank: FilterbankConfig = FilterbankConfig(normalize="level")  # log-mel filterbank

    def fit(self, texts: Sequence[str]) -> InputVocabulary:
        """Filterbanks are not fitted."""
        return InputVocabulary()

    def sizes(self, vocabulary: VocabularySizes) -> InputSizes:
        """Return the sizes of the model's inputs."""
        return InputSizes(features=self.filterbank.mel_bins)

    def dummy_sizes(self, length: int | None) -> dict[str, int]:
        """Return the sizes of a random sound, as in `DummySizes`."""
        return {"S": length or DUMMY_FRAMES, "F": self.filterbank.mel_bins}

    def dummy_arguments(
        self, vocabulary: VocabularySizes, sizes: Mapping[str, int], generator: torch.Generator
    ) -> Arguments:
        """Return random frames."""
        shape = (sizes["B"], sizes["S"])
        frames = torch.randn(*shape, sizes["F"], generator=generator)
        return frames, torch.ones(shape, dtype=torch.bool)

    def reader(self, vocabulary: InputVocabulary, max_length: int | None) -> "SoundReader":
        return SoundReader(self.filterbank, max_length)


@dataclass(frozen=True, slots=True)
class SoundReader:
    """Sounds -> frames, and the mask of the frames."""

    filterbank: FilterbankConfig
    max_length: int | None

    def read(self, inputs: Sequence[str]) -> ReadInputs:
        sounds = list(frames_of(map(self._signal, inputs), self.filterbank))
        kept = [frames[: self.max_length] for frames in sounds]
        padded = pad_sequence(kept, batch_first=True)
        present = torch.arange(padded.shape[1]) < torch.tensor(list(map(len, kept)))[:, None]
        truncations = [
            truncation_of(len(cut), len(full), "first", "frames")
            for cut, full in zip(kept, sounds, strict=True)
        ]
        return ReadInputs(_without_empty_rows(padded, present), truncations)

    def store(self, inputs: Sequence[str], stage: ClassifyStage, cache: Path) -> TrainingInputs:
        shards = stored_frames(
            lambda: map(self._signal, inputs), self.filterbank, stage.speeds, cache / "frames"
        )

        def batch(chosen: IntArray, generator: np.random.Generator) -> Arguments:
            speeds = generator.integers(len(stage.speeds), size=len(chosen))
            frames, present = shards.take(speeds * len(inputs) + chosen)  # as `stored_frames` says
            frames, present = frames[:, : self.max_length], present[:, : self.max_length]
            frames, present = _without_empty_rows(frames, present)
            frames = equalize(frames, present, stage.random_equalizer, generator)
            return spec_augment(frames, present, stage.spec_augment, generator), present

        return batch

    def state_labels(self, text: str, model: Classifier) -> StateLabels:
        (frames, _), _ = self.read([text])
        config, count = self.filterbank, -(-frames.shape[1] // model.stride)
        centers = [model.offset + model.stride * state for state in range(count)]
        times = [f"{config.seconds_of(center):.2f} s" for center in centers]
        view = AudioView(
            spectrogram=frames[0].numpy(),
            frame_seconds=config.hop_ms / 1000,
            first_frame_seconds=config.seconds_of(0),
            state_seconds=config.hop_ms / 1000 * model.stride,
            first_state_seconds=config.seconds_of(model.offset),
        )
        return StateLabels("time in seconds", times, sound=view)

    def _signal(self, name: str) -> Signal:
        return load_signal(name, self.filterbank.sample_rate, MAX_SECONDS)


def _without_empty_rows(
    frames: Float[Tensor, "B S F"], present: Bool[Tensor, "B S"]
) -> tuple[Tensor, Tensor]:
    """Return the arguments with one frame of zeros for each sound that is too short for a frame."""
    if not frames.shape[1]:
        frames, present = (
            frames.new_zeros(len(frames), 1, frames.shape[2]),
            present.new_zeros(len(frames), 1),
        )
    has_frame = torch.zeros(frames.shape[:2], dtype=torch.bool)
    has_frame[:, : present.shape[1]] = present
    has_frame[:, 0] = True
    return frames, has_frame


# --- images


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEncoding:
    """Images as pixels."""

    kind: Literal["image"] = "image"
    input: ClassVar[InputKind] = "image"
    images: PixelsConfig = PixelsConfig()  # size of the images

    def fit(self, texts: Sequence[str]) -> InputVocabulary:
        """Images are not fitted."""
        return InputVocabulary()

    def sizes(self, vocabulary: VocabularySizes) -> InputSizes:
        """Return the sizes of the model's inputs."""
        config = self.images
        sizes = ImageSizes(channels=config.channels, columns=config.columns, rows=config.rows)
        return InputSizes(image=sizes)

    def dummy_sizes(self, length: int | None) -> dict[str, int]:
        """Images have no other sizes than those of the recipe."""
        return {}

    def dummy_arguments(
        self, vocabulary: VocabularySizes, sizes: Mapping[str, int], generator: torch.Generator
    ) -> Arguments:
        """Return random images."""
        config = self.images
        shape = (sizes["B"], config.channels, config.rows, config.columns)
        return (torch.randn(shape, generator=generator),)

    def reader(self, vocabulary: InputVocabulary, max_length: int | None) -> "ImageReader":
        config = self.images
        columns, rows, channels = config.columns, config.rows, config.channels
        files = ImageFiles(columns=columns, rows=rows, channels=channels, fit=config.fit)
        return ImageReader(config, files, cached(partial(open_array, config)))


@dataclass(frozen=True, slots=True)
class ImageReader:
    """Images -> pixels."""

    config: PixelsConfig
    files: ImageFiles
    open_array: Callable[[Path], ImageArray]

    def read(self, inputs: Sequence[str]) -> ReadInputs:
        return ReadInputs((self.config.encode(self._load(inputs)),), [None] * len(inputs))

    def store(self, inputs: Sequence[str], stage: ClassifyStage, cache: Path) -> TrainingInputs:
        batches = (inputs[start : start + IMAGES] for start in range(0, len(inputs), IMAGES))
        array = stored_pixels(
            map(self._load, batches), len(inputs), self.files, cache / "pixels.npy"
        )

        def batch(chosen: IntArray, generator: np.random.Generator) -> Arguments:
            pixels = self.config.encode(array.take(chosen.tolist()))
            return (random_affine(pixels, stage.random_affine, generator),)

        return batch

    def state_labels(self, text: str, model: Classifier) -> StateLabels:
        positions = [f"{x}, {y}" for y in range(model.rows) for x in range(model.columns)]
        view = ImageView(
            image=self._load([text])[0],
            columns=model.columns,
            rows=model.rows,
            offset=float(model.offset),
            stride=float(model.stride),
        )
        return StateLabels("image positions (x, y)", positions, picture=view)

    def _load(self, names: Sequence[str]) -> ImageBatch:
        return np.concatenate([load_image(name, self.files, self.open_array) for name in names])


def open_array(config: PixelsConfig, path: Path) -> ImageArray:
    """Open an array and check its columns, rows and channels."""
    array, names = read_image_array(path), ("columns", "rows", "channels")
    actual, expected = ([getattr(item, name) for name in names] for item in (array, config))
    if actual != expected:
        pairs = zip(names, actual, strict=True)
        sizes = " ".join(f"encode.images.{name}={size}" for name, size in pairs)
        raise UserError(
            f"{path}: wrong columns, rows and channels (expected {expected}, got {actual})",
            fix=f"use an array of the expected sizes, or train with {sizes}",
        )
    return array
