"""Start training from the vocabulary and the weights of a run or of a Hugging Face folder.

`start.json` in the new run folder lists where each tensor comes from. The new run has its own copy
of the tokenizer and the architecture, so it does not need the other folder after its first step.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harken.encode.pretrained import PretrainedTokenizer
from harken.encode.whisper_tokenizer import GENERATION_CONFIG
from harken.errors import Failure
from harken.files import sha256, write_text
from harken.inputs import is_file, read_json
from harken.models.huggingface import read_folder, read_folder_config
from harken.models.huggingface_files import CONFIG
from harken.recipe import Recipe, task_of
from harken.run_folder import MODEL, RECIPE, TOKENIZER, require_run
from harken.tasks.task import TaskVocabulary
from harken.training.checkpoint import Weights, check_digests, load_weights, model_state
from harken.training.origins import TensorOrigin, WeightsLoaded
from harken.training.sharding import full_tensor, shard_like

START = "start.json"
MAX_BYTES = 2**24
MAX_NEW_TOKENS = 4  # special tokens that a task adds to a pretrained tokenizer


def starting_folder(recipe: Recipe) -> Path | None:
    """Return `model.start_from`, or None."""
    folder: Path | None = getattr(recipe.model, "start_from", None)
    return folder


def starting_files(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    """Yield the files of `model.start_from` that training reads, with their names in provenance."""
    folder = starting_folder(recipe)
    if folder is not None:
        weights = sorted(path.name for path in folder.glob("*.safetensors"))
        for name in (RECIPE, CONFIG, GENERATION_CONFIG, TOKENIZER, *weights):
            if is_file(folder / name):
                yield f"model.start_from ({name})", folder / name


def fit_vocabulary(recipe: Recipe, train: Sequence[Any]) -> TaskVocabulary:
    """Fit the vocabulary on the training data, or take that of `model.start_from`."""
    task, folder = task_of(recipe), starting_folder(recipe)
    vocabulary: TaskVocabulary
    if folder is None:
        vocabulary = task.fit(recipe, train)
    elif is_file(folder / RECIPE):
        require_run(folder)
        check_digests(folder, (RECIPE, TOKENIZER, MODEL))
        vocabulary = task.vocabulary_type.load(folder / TOKENIZER)
    else:
        _, _, rows, token_ids = read_folder_config(folder)
        tokenizer = PretrainedTokenizer.load(folder, rows, token_ids)
        vocabulary = task.fit_pretrained(recipe, train, tokenizer)
    return vocabulary


def load_starting_weights(model: nn.Module, folder: Path) -> WeightsLoaded:
    """Copy the weights of a folder into a model where names and shapes match."""
    unused: tuple[str, ...] = ()
    if is_file(folder / RECIPE):
        check_digests(folder, (RECIPE, TOKENIZER, MODEL))
        stored = load_weights(folder / MODEL)
    else:
        contents = read_folder(folder)
        modules, kind = model.named_modules(), type(contents.model)
        # A model that has the parts of an encoder, but not as one module, needs no prefix.
        prefix = next((name for name, module in modules if isinstance(module, kind)), "")
        weights = model_state(contents.model).items()
        stored = {f"{prefix}.{name}".removeprefix("."): tensor for name, tensor in weights}
        unused = contents.unused
    tensors = _copy_matching(model, stored)
    names = {tensor.name for tensor in tensors}
    return WeightsLoaded(
        folder=str(folder),
        tensors=tensors,
        unused=(*unused, *sorted(stored.keys() - names)),
    )


@torch.no_grad()
def _copy_matching(model: nn.Module, stored: Weights) -> tuple[TensorOrigin, ...]:
    """Copy tensors of equal shape, and the rows of a table to which tokens were added."""
    origins = []
    for name, tensor in model_state(model).items():
        source, origin = stored.get(name), "initialized"
        if source is not None and source.shape == tensor.shape:
            tensor.copy_(shard_like(source, tensor))
            origin = "loaded"
        elif source is not None and has_new_rows(tensor, source):
            whole = full_tensor(tensor).clone()
            whole[: len(source)] = source
            tensor.copy_(shard_like(whole, tensor))
            origin = f"loaded, except for {len(whole) - len(source)} new rows"
        origins.append(TensorOrigin(name=name, shape=tuple(tensor.shape), origin=origin))
    return tuple(origins)


def has_new_rows(tensor: Tensor, source: Tensor) -> bool:
    """Whether a table of token vectors has more rows than the one it starts from."""
    is_table = tensor.dim() == source.dim() == 2 and tensor.shape[1] == source.shape[1]
    return is_table and len(source) < len(tensor) <= len(source) + MAX_NEW_TOKENS


def write_origins(folder: Path, recipe: Recipe, loaded: WeightsLoaded) -> None:
    """Write where the weights of a run come from."""
    files = {name: sha256(path) for name, path in starting_files(recipe)}
    write_text(folder / START, json.dumps({**asdict(loaded), "sha256": files}, indent=1))


def read_origins(folder: Path) -> WeightsLoaded | None:
    """Read where the weights of a run come from; None if it started from random weights."""
    if not is_file(folder / START):
        return None
    stored = read_json(folder / START, "the origins of weights", max_bytes=MAX_BYTES)
    try:
        tensors = tuple(
            TensorOrigin(
                name=str(entry["name"]),
                shape=tuple(map(int, entry["shape"])),
                origin=str(entry["origin"]),
            )
            for entry in stored["tensors"]
        )
        unused = tuple(map(str, stored["unused"]))
        return WeightsLoaded(folder=str(stored["folder"]), tensors=tensors, unused=unused)
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(
            f"{folder / START}: cannot be read ({error!r})",
            fix="restore it from a copy, or delete it; it is only shown in the report",
        ) from None
