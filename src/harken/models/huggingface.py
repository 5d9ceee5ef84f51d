"""Load a Hugging Face folder into Harken's modules, with equal outputs.

    config.json                      -> GPTConfig, TextEncoderConfig or RecognizerConfig
    model.safetensors, or its shards -> renamed, split and transposed weights

Loading is strict. An unknown setting could change the outputs, so it is rejected unless it is null,
false or empty. Every weight of the model must be in the file with its shape, and all other tensors
of the file must be known to be irrelevant. Pickle files and code from a config are never run. Sizes
are checked before the model is built. Tokenizers, dropout rates, and the pooler and pretraining
heads of BERT are not loaded.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from harken.errors import UserError
from harken.models.decoders import TransformerDecoder
from harken.models.encoders import TextEncoder
from harken.models.gpt import GPT
from harken.models.huggingface_files import (
    CONFIG,
    MAX_CONFIG_BYTES,
    RESTORE,
    Settings,
    StoredTensor,
    read_json_object,
    stored_tensors,
)
from harken.models.huggingface_types import (
    ARCHITECTURES,
    PretrainedConfig,
    WeightSource,
    tied_head,
)
from harken.models.recognizer import SpeechRecognizer

PretrainedModel = GPT | TextEncoder | SpeechRecognizer
FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model with its weights, and what was loaded."""

    model: PretrainedModel
    model_type: str
    config: PretrainedConfig
    vocabulary: int
    used: tuple[str, ...]  # tensors of the file that were loaded
    unused: tuple[str, ...]  # tensors of the file that were ignored


class FolderConfig(NamedTuple):
    """The architecture that a config.json describes."""

    model_type: str
    config: PretrainedConfig
    vocabulary: int
    token_ids: Mapping[str, int]  # such as "eos": 50256, of the special tokens that it names


def read_folder_config(folder: Path) -> FolderConfig:
    """Read the architecture of a folder; raise `UserError` if Harken cannot build it."""
    settings = Settings(folder / CONFIG, read_json_object(folder / CONFIG, MAX_CONFIG_BYTES))
    model_type = settings.text("model_type", "")
    if model_type not in ARCHITECTURES:
        raise UserError(
            f"{settings.path}: unknown model_type "
            f"(expected one of {', '.join(ARCHITECTURES)}, got {model_type!r})",
            fix="choose a model of one of these types",
        )
    vocabulary = settings.size("vocab_size")
    with _size_errors(settings.path):
        config = ARCHITECTURES[model_type].read_config(settings)
    settings.reject_unknown()
    return FolderConfig(model_type, config, vocabulary, settings.token_ids(vocabulary))


@contextmanager
def _size_errors(path: Path) -> Iterator[None]:
    """Turn errors of building a model, such as heads that do not divide a width, into UserError."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{path}: a model of these sizes cannot be built ({error})", fix=RESTORE
        ) from None


def read_text_folder(folder: Path) -> tuple[LoadedModel, GPT | TextEncoder]:
    """Load a model of texts; raise `UserError` for a speech recognizer."""
    contents = read_folder(folder)
    if isinstance(contents.model, SpeechRecognizer):
        raise UserError(
            f"{folder / CONFIG}: a model of {contents.model_type!r} reads sounds (expected a model "
            "of texts)",
            fix='train a recipe with task = "transcribe" and model.start_from, also with 0 steps, '
            "and give its run folder",
        )
    return contents, contents.model


def read_folder(folder: Path, *, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a model from a folder and convert its weights to `dtype`."""
    model_type, config, vocabulary, _ = read_folder_config(folder)
    architecture = ARCHITECTURES[model_type]
    sources: dict[str, WeightSource] = {}
    stored = _index_by_name(stored_tensors(folder), architecture.prefix)
    with _size_errors(folder / CONFIG):
        for name, source in architecture.sources(config, vocabulary):
            _check_stored(source, stored, folder)
            sources[name] = source
    used = {source.name for source in sources.values()}
    unused = sorted(stored.keys() - used)
    for name in unused:
        if not re.fullmatch(architecture.ignored, name):
            raise UserError(
                f"{stored[name].path}: unexpected tensor {stored[name].name!r} (expected only "
                f"weights of the {model_type} model in {CONFIG})",
                fix=f"save the model without task heads and adapters, or restore its {CONFIG}",
            )
    return LoadedModel(
        model=_build_model(config, vocabulary, sources, stored, dtype),
        model_type=model_type,
        config=config,
        vocabulary=vocabulary,
        used=tuple(sorted(stored[name].name for name in used)),
        unused=tuple(stored[name].name for name in unused),
    )


def _index_by_name(stored: list[StoredTensor], prefix: str) -> dict[str, StoredTensor]:
    """Index the tensors by name: without the prefix, and old parameter names replaced."""
    named: dict[str, StoredTensor] = {}
    for tensor in stored:
        name = tensor.name.removeprefix(prefix)
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")  # the first BERT checkpoints
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            raise UserError(
                f"{tensor.path}: {named[name].name!r} and {tensor.name!r} are two names of one "
                "parameter (expected one of them)",
                fix="load the model with transformers and save it with save_pretrained",
            )
        named[name] = tensor
    return named


def _check_stored(source: WeightSource, stored: Mapping[str, StoredTensor], folder: Path) -> None:
    """Raise an error unless the tensor is in the file, with its shape and a float dtype."""
    tensor = stored.get(source.name)
    if tensor is None:
        raise UserError(
            f"{folder}: no tensor {source.name!r} (expected shape {list(source.shape)})",
            fix=f"download the weights that belong to this {CONFIG}",
        )
    if tensor.shape != source.shape or tensor.dtype not in FLOAT_DTYPES:
        raise UserError(
            f"{tensor.path}: {tensor.name!r} has the wrong shape or type (expected "
            f"{list(source.shape)} in {', '.join(FLOAT_DTYPES)}, got {list(tensor.shape)} in "
            f"{tensor.dtype})",
            fix=f"use the weights that belong to this {CONFIG}, not quantized",
        )


def _build_model(
    config: PretrainedConfig,
    vocabulary: int,
    sources: Mapping[str, WeightSource],
    stored: Mapping[str, StoredTensor],
    dtype: torch.dtype,
) -> PretrainedModel:
    """Build the model on the meta device, then assign the weights."""
    with torch.device("meta"):
        model = config.build(vocabulary, seed=0)
    weights = {
        name: source.convert(stored[source.name].read())
        .to(dtype)
        .clone(memory_format=torch.contiguous_format)
        for name, source in sources.items()
    }
    tied = tied_head(config)
    if tied is None:
        model.load_state_dict(weights, assign=True)
        return model
    writer = model.decoder if isinstance(model, SpeechRecognizer) else model
    assert isinstance(writer, GPT | TransformerDecoder)
    embedding = weights[tied.replace("lm_head", "embedding")]
    head = stored.get("proj_out.weight" if writer is not model else "lm_head.weight")
    if head is not None and not torch.equal(head.read().to(dtype), embedding):
        raise UserError(
            f"{head.path}: {head.name!r} differs from the token embeddings, but {CONFIG} sets "
            "tie_word_embeddings",
            fix="set tie_word_embeddings to false if the model has separate embeddings",
        )
    model.load_state_dict(weights | {tied: embedding}, assign=True)
    writer.lm_head.weight = writer.embedding.weight
    return model
