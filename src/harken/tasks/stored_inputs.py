"""Frames of sounds and pixels of images, computed once and stored in the run folder."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from harken.augment.waveform import change_speed
from harken.batch.shards import FrameShards, write_frames
from harken.encode.filterbank import FeaturesConfig, frames_of
from harken.files import replacing
from harken.formats.arrays import ImageArray, read_image_array
from harken.formats.image_source import ImageBatch, ImageFiles
from harken.formats.sound import Signal
from harken.inputs import exists


def stored_frames(
    signals: Callable[[], Iterable[Signal]],
    filterbank: FeaturesConfig,
    speeds: Sequence[float],
    folder: Path,
) -> FrameShards:
    """Return the frames of all signals at the first speed, then at the second, …

    They are computed and stored in `folder` if it does not exist.
    """
    if not folder.is_dir():
        perturbed = (
            change_speed(signal, filterbank.sample_rate, speed)
            for speed in speeds
            for signal in signals()
        )
        frames = (sound_frames.numpy() for sound_frames in frames_of(perturbed, filterbank))
        write_frames(folder, frames, filterbank.mel_bins)
    return FrameShards(folder)


def stored_pixels(
    batches: Iterable[ImageBatch], count: int, files: ImageFiles, path: Path
) -> ImageArray:
    """Return the resized images as one array, so that each file is decoded once.

    The array is stored at `path` if it does not exist.
    """
    if not exists(path):
        shape = (count, files.rows, files.columns, files.channels)
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        # Not memory-mapped: if the disk is full, writing to a mapped file kills the process.
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for batch in batches:
                file.write(batch.tobytes())
    return read_image_array(path)
