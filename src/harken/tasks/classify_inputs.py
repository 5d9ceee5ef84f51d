"""The inputs of the task `classify`: texts, sounds and images as tensors.

An encoding is the table [encode] of a recipe. Its reader converts inputs to the arguments of a
model, and stores the training inputs in the run folder if they are slow to compute.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as cached
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.augment.affine import random_affine
from harken.augment.specaugment import equalize, spec_augment
from harken.batch.padding import pad
from harken.batch.ragged import IntArray, ragged
from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.pixels import PixelsConfig
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import END, PAD, UNKNOWN, Vocabulary
from harken.errors import UserError
from harken.formats.arrays import ImageArray, read_image_array
from harken.formats.image_source import ImageBatch, ImageFiles, load_image
from harken.formats.labels import InputKind, LabeledExample
from harken.formats.sound import MAX_SECONDS, load_signal
from harken.layers.frontends import ImageSizes
from harken.models.classifier import Classifier, InputSizes
from harken.tasks.attention_view import AudioView, ImageView
from harken.tasks.classify_recipe import ClassifyStage
from harken.tasks.prediction import Truncation, truncation_of
from harken.tasks.stored_inputs import stored_frames, stored_pixels
