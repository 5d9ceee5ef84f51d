"""Checkpoints: safetensors and JSON, written atomically and checked against a manifest on load.

A checkpoint is a folder `checkpoints/stage-1-step-0000400/`:

    model.safetensors       weights
    best.safetensors        the best weights so far, if the stage is evaluated
    optimizer.safetensors   optimizer state, named `weight|key`
    average.safetensors     weights of an average, named `number|weight`, if the stage has one
    progress.json           the fields of `Progress`
    manifest.json           SHA-256 of all of these

A resumed run reads no other state of the training: batches and dropout are functions of the seed
and the step.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim import Optimizer

from harken.errors import Failure, HarkenError, UserError
from harken.files import (
    remove_folder,
    replacing_folder,
    sha256,
    stored_order,
    write_tensors,
    write_text,
)
from harken.inputs import is_file, is_folder, read_json, safetensors_header
from harken.strict_json import is_finite, is_whole, text_of
from harken.training.distributed import world
from harken.training.sharding import full_tensor, shard_like

MANIFEST = "manifest.json"
MAX_JSON = 2**20  # bytes of a manifest or of the progress
CHECKPOINT = re.compile(r"stage-[0-9]{1,9}-step-[0-9]{1,12}")
MAX_CHECKPOINTS = 2  # the newest, and the one before it in case the disk damages a file
RESTORE = "restore it from a copy, or train again"
REMOVE = "remove the damaged checkpoint, or train again"
Weights = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far training is."""

    stage: int = 0
    step: int = 0  # steps done of the stage
    best: float | None = None  # best value of the evaluations of the stage
    rounds_without_gain: int = 0  # evaluations since the best one
    evaluation_due: bool = False  # the step is done, its evaluation is not


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The state that a resumed run starts from."""

    progress: Progress
    model: Weights
    best: Weights | None
    optimizer: Weights
    kept: Sequence[Weights] = ()  # sets of weights whose mean is the average of the stage


def model_state(model: nn.Module) -> Weights:
    """Return parameters and buffers; tied weights once, under their first name."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors}


@torch.no_grad()
def load_model_state(model: nn.Module, weights: Mapping[str, Tensor], where: Path) -> None:
    """Copy weights into a model that must have exactly these names and shapes."""
    state = model_state(model)
    _require_fit(state, weights, where)
    for name, tensor in state.items():
        tensor.copy_(shard_like(weights[name], tensor))


def weights_like(state: Weights, weights: Mapping[str, Tensor], where: Path) -> Weights:
    """Return the weights with the devices and the sharding of the tensors in `state`."""
    _require_fit(state, weights, where)
    return {
        name: shard_like(weights[name], tensor).to(tensor.device) for name, tensor in state.items()
    }


def _require_fit(state: Weights, weights: Mapping[str, Tensor], where: Path) -> None:
    wrong = sorted(
        name
        for name in state.keys() | weights.keys()
        if name not in state or name not in weights or state[name].shape != weights[name].shape
    )
    if wrong:
        raise Failure(
            f"{where}: the weights do not fit the recipe ({len(wrong)} tensors differ in name or "
            f"shape, such as {wrong[0]!r})",
            fix="restore recipe.toml and the weights from the same run",
        )


def optimizer_state(model: nn.Module, optimizers: Iterable[Optimizer]) -> Weights:
    """Return the state of the optimizers, with the keys `weight|key`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{names[id(parameter)]}|{key}": value
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_state(model: nn.Module, optimizers: Iterable[Optimizer], state: Weights) -> None:
    """Restore what `optimizer_state` returned."""
    parameters = dict(model.named_parameters())
    owner = {
        id(parameter): optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, value in state.items():
        weight, _, key = name.partition("|")
        parameter = parameters.get(weight)
        if parameter is None or not key or value.shape not in (parameter.shape, torch.Size()):
            raise Failure(
                f"checkpoint: the optimizer state {name[:60]!r} of shape {list(value.shape)} does "
                "not belong to the model",
                fix=REMOVE,
            )
        if value.shape == parameter.shape:
            value = shard_like(value, parameter)
        owner[id(parameter)].state[parameter][key] = value.to(parameter.device)


def write_digests(folder: Path, names: Mapping[str, str]) -> None:
    """Write a manifest of SHA-256 digests.

    `names` maps the name of a file in the manifest to its current name, which differs for a file
    that is renamed afterwards.
    """
    digests = {name: sha256(folder / current) for name, current in names.items()}
    write_text(folder / MANIFEST, json.dumps({"sha256": digests}, indent=1))


def check_digests(folder: Path, names: Iterable[str]) -> None:
    """Raise `Failure` unless the files are those that were written."""
    try:
        digests = read_json(folder / MANIFEST, "a manifest", max_bytes=MAX_JSON)["sha256"]
        expected = {name: text_of(MANIFEST, name, digests[name]) for name in names}
    except UserError as error:
        raise Failure(error.message, fix=RESTORE) from None
    except (KeyError, TypeError) as error:
        raise Failure(f"{folder / MANIFEST}: cannot be read ({error})", fix=RESTORE) from None
    for name, digest in expected.items():
        if not is_file(folder / name):
            raise Failure(f"{folder / name}: file not found", fix=RESTORE)
        if (actual := sha256(folder / name)) != digest:
            raise Failure(
                f"{folder / name}: the file is damaged or was altered (expected SHA-256 "
                f"{digest[:12]}…, got {actual[:12]}…)",
                fix=RESTORE,
            )


def load_weights(path: Path) -> Weights:
    """Read a safetensors file; damage is a Failure, not a traceback."""
    safetensors_header(path)
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise Failure(f"{path}: the weights cannot be read ({error})", fix=RESTORE) from None


def checkpoint_path(folder: Path, progress: Progress) -> Path:
    """Return the folder of a checkpoint."""
    return folder / f"stage-{progress.stage}-step-{progress.step:07d}"


def write_weights(path: Path, weights: Weights) -> None:
    """Write a safetensors file on rank 0; all ranks gather sharded weights, one at a time."""
    if world().is_main:
        write_tensors(path, weights, full_tensor)
    else:
        for name in stored_order(weights):
            full_tensor(weights[name])


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint on rank 0 and remove the oldest ones; all ranks must call this."""
    progress = checkpoint.progress
    target = checkpoint_path(folder, progress)
    parts = {"model": checkpoint.model, "optimizer": checkpoint.optimizer}
    if checkpoint.best is not None:
        parts["best"] = checkpoint.best
    if checkpoint.kept:
        parts["average"] = _numbered(checkpoint.kept)
    if not world().is_main:
        for name, weights in parts.items():
            write_weights(target / f"{name}.safetensors", weights)
        return target
    with replacing_folder(target) as unfinished:
        for name, weights in parts.items():
            write_weights(unfinished / f"{name}.safetensors", weights)
        write_text(unfinished / "progress.json", json.dumps(asdict(progress)))
        names = sorted(path.name for path in unfinished.iterdir())
        write_digests(unfinished, {name: name for name in names})
    for old in checkpoint_folders(folder)[:-MAX_CHECKPOINTS]:
        remove_folder(old)
    return target


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the complete checkpoints, oldest first."""
    paths = folder.glob("stage-*-step-*")
    folders = [path for path in paths if CHECKPOINT.fullmatch(path.name) and is_folder(path)]
    return sorted(folders, key=lambda path: [int(part) for part in path.name.split("-")[1::2]])


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, None if there is none; raise if all are damaged."""
    damage: HarkenError | None = None
    for path in reversed(checkpoint_folders(folder)):
        try:
            return _read(path)
        except HarkenError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return None


def _read(path: Path) -> Checkpoint:
    optional = [part for part in ("best", "average") if (path / f"{part}.safetensors").exists()]
    parts = ["model", "optimizer", *optional]
    check_digests(path, ["progress.json", *(f"{part}.safetensors" for part in parts)])
    progress = _read_progress(path / "progress.json")
    weights = {part: load_weights(path / f"{part}.safetensors") for part in parts}
    return Checkpoint(
        progress=progress,
        model=weights["model"],
        best=weights.get("best"),
        optimizer=weights["optimizer"],
        kept=_by_number(weights.get("average", {})),
    )


def _numbered(kept: Sequence[Weights]) -> Weights:
    return {
        f"{number:03d}|{name}": tensor
        for number, weights in enumerate(kept)
        for name, tensor in weights.items()
    }


def _by_number(numbered: Weights) -> list[Weights]:
    """Invert `_numbered`."""
    kept: dict[str, Weights] = defaultdict(dict)
    for key, tensor in numbered.items():
        number, _, name = key.partition("|")
        kept[number][name] = tensor
    return [kept[number] for number in sorted(kept)]


def _read_progress(path: Path) -> Progress:
    stored = read_json(path, "the progress of training", max_bytes=MAX_JSON)
    counts = ("stage", "step", "rounds_without_gain")
    if (
        not isinstance(stored, dict)
        or stored.keys() != {*counts, "best", "evaluation_due"}
        or not isinstance(stored["evaluation_due"], bool)
        or not all(is_whole(stored[name]) and 0 <= stored[name] < 2**40 for name in counts)
        or not (stored["best"] is None or is_finite(stored["best"]))
    ):
        raise Failure(
            f"{path}: the progress of training is damaged (expected stage, step, best, "
            "rounds_without_gain and evaluation_due)",
            fix=REMOVE,
        )
    return Progress(**stored)
