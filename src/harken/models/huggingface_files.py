"""Read the files of a Hugging Face folder: config.json, and the headers of the weights.

`Settings` records which keys are read. Any other key could change the outputs, so it is rejected
unless it is disabled or known to be irrelevant. `huggingface.py` converts settings to configs, and
names of tensors to those of Harken.
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from torch import Tensor

from harken.attention.relative import RotaryConfig
from harken.errors import Failure, UserError
from harken.inputs import is_file, read_json, safetensors_header, short_path

MAX_CONFIG_BYTES = 2**20
MAX_INDEX_BYTES = 2**24
MAX_INTEGER = 2**31 - 1
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
RESTORE = "restore config.json from the source of the model"
PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
VALIDATORS: dict[str, Callable[[Any], bool]] = {
    "a string": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a whole number from 1 to 2,147,483,647": lambda value: (
        type(value) is int and 0 < value <= MAX_INTEGER
    ),
    "a number above 0": lambda value: type(value) in (int, float) and 0 < value < math.inf,
}
ACTIVATIONS: dict[str, Any] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
T = TypeVar("T")

# Settings that do not change the outputs: metadata, training, generation, task heads (not loaded).
IGNORED_SETTINGS = re.compile(
    r"_.*|transformers.*|architectures|name_or_path|(torch_)?dtype|use_bfloat16|torchscript"
    r"|finetuning_task|task_specific_params|problem_type|tokenizer_class|prefix|directionality"
    r"|id2label|label2id|num_labels|summary_\w+|pooler_\w+|use_cache"
    r"|initializer_range|gradient_checkpointing|chunk_size_feed_forward|pretraining_tp|n_ctx"
    r"|\w*(dropout|dropout_prob|_pdrop)|reorder_and_upcast_attn|\w+_token_id|bad_words_ids"
    r"|output_(hidden_states|attentions|scores|past)|return_dict\w*|remove_invalid_values"
    r"|(max|min)_length|do_sample|early_stopping|num_beams|num_beam_groups|num_return_sequences"
    r"|temperature|top_[kp]|typical_p|\w+_penalty|\w*no_repeat_ngram_size|tf_legacy_loss"
)


def _shorten(value: object) -> str:
    return reprlib.repr(value)[:80]


class Settings:
    """The settings of a config file; records which keys are read."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.read_keys: set[str] = set()

    def get(self, key: str, expected: str, default: Any) -> Any:
        """Return a value that `VALIDATORS` accepts, or the default if it is absent or null."""
        self.read_keys.add(key)
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not VALIDATORS[expected](value):
            raise UserError(
                f"{self.path}: {key!r} has a wrong value (expected {expected}, got "
                f"{'no value' if value is None else _shorten(value)})",
                fix=RESTORE,
            )
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return str(self.get(key, "a string", default))

    def size(self, key: str, default: int | None = None) -> int:
        return int(self.get(key, "a whole number from 1 to 2,147,483,647", default))

    def number(self, key: str, default: float) -> float:
        return float(self.get(key, "a number above 0", default))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.get(key, "true or false", default))

    def choice(self, key: str, choices: Mapping[str, T], default: str) -> T:
        value = self.text(key, default)
        if value not in choices:
            raise self.unsupported(key, f"one of {', '.join(choices)}")
        return choices[value]

    def require(self, key: str, value: object) -> None:
        """Raise an error unless the setting is absent, null or `value`."""
        self.read_keys.add(key)
        if self.values.get(key) not in (None, value):
            raise self.unsupported(key, json.dumps(value))

    def ignore(self, *keys: str) -> None:
        """Accept settings of any value, since they do not change the outputs."""
        self.read_keys.update(keys)

    def token_ids(self, vocabulary: int) -> dict[str, int]:
        """Return the ids of the special tokens that the config names; of a list, the first."""
        ids = {}
        for role in ("bos", "eos", "pad"):
            value = self.values.get(f"{role}_token_id")
            first = value[0] if isinstance(value, list) and value else value
            if type(first) is int and 0 <= first < vocabulary:
                ids[role] = first
        return ids

    def unsupported(self, key: str, expected: str) -> UserError:
        return UserError(
            f"{self.path}: Harken does not support this value of {key!r} "
            f"(expected {expected}, got {_shorten(self.values[key])})",
            fix="use another model; editing config.json would change its outputs",
        )

    def reject_unknown(self) -> None:
        for key, value in self.values.items():
            is_disabled = value is None or value is False or value == {} or value == []
            if not (is_disabled or key in self.read_keys or IGNORED_SETTINGS.fullmatch(key)):
                raise UserError(
                    f"{self.path}: unknown setting {key!r} = {_shorten(value)} could "
                    "change the outputs",
                    fix="remove it from config.json if it does not change the outputs",
                )


def read_json_object(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return the object in a JSON file of a Hugging Face folder."""
    if not is_file(path):
        raise UserError(
            f"{short_path(path)}: file not found (expected a Hugging Face folder with {CONFIG} and "
            f"{WEIGHTS})",
            fix="give the folder of a downloaded model, or one that save_pretrained wrote",
        )
    values = read_json(path, "a JSON object", max_bytes=max_bytes)
    if not isinstance(values, dict):
        raise UserError(
            f"{short_path(path)}: expected a JSON object, got {type(values).__name__}",
            fix=f"restore {path.name} from the source of the model",
        )
    return values


def rotary_config(settings: Settings, defaults: RotaryConfig) -> RotaryConfig:
    """Return the rotary positions of a config; raise an error if their angles are scaled."""
    base, fraction = settings.number("rope_theta", defaults.base), defaults.fraction
    is_given = "rope_theta" in settings.values
    for key in ("rope_scaling", "rope_parameters"):
        settings.read_keys.add(key)
        options = settings.values.get(key) or {}
        if not isinstance(options, dict):
            raise settings.unsupported(key, "null or an object")
        kind = options.get("rope_type", options.get("type", "default"))
        unknown = options.keys() - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
        nested = Settings(settings.path, options)
        fraction = nested.number("partial_rotary_factor", fraction)
        is_partial = defaults.fraction < 1.0
        if kind != "default" or unknown or fraction > 1.0 or (fraction < 1.0 and not is_partial):
            raise settings.unsupported(key, "rotary embeddings of the default type")
        if "rope_theta" in options:
            nested_base = nested.number("rope_theta", base)
            if is_given and nested_base != base:
                raise settings.unsupported(key, f"rope_theta {base}, as elsewhere in the file")
            base, is_given = nested_base, True
    if base <= 1:
        raise UserError(f"{settings.path}: rope_theta must be above 1 (got {base})", fix=RESTORE)
    return RotaryConfig(base=base, fraction=fraction)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Name, shape and dtype of a tensor, from the header of its file; `read` loads the values."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    def read(self) -> Tensor:
        """Read the tensor; raise `Failure` if the file is damaged."""
        try:
            with safe_open(self.path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(self.name)
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise Failure(
                f"{short_path(self.path)}: the tensor {self.name[:60]!r} cannot be read "
                f"({str(error)[:200]}, expected a safetensors file)",
                fix="download the file again",
            ) from None
        return tensor


def stored_tensors(folder: Path) -> list[StoredTensor]:
    """List all tensors of a folder from the headers of its files."""
    if is_file(folder / WEIGHTS):
        return _read_header(folder / WEIGHTS)
    index = folder / INDEX
    if not is_file(index):
        pickled = sorted(path.name for kind in PICKLE_PATTERNS for path in folder.glob(kind))
        if pickled:
            raise UserError(
                f"{folder / pickled[0]}: pickle files can run any code (expected {WEIGHTS})",
                fix="convert to safetensors: if you trust the file, load it with transformers and "
                "call save_pretrained(folder, safe_serialization=True)",
            )
        raise UserError(
            f"{folder / WEIGHTS}: file not found (expected the model's weights)",
            fix=f"download {WEIGHTS} or {INDEX} and its shards",
        )
    shards = read_json_object(index, MAX_INDEX_BYTES).get("weight_map")
    is_map = isinstance(shards, dict) and all(isinstance(name, str) for name in shards.values())
    if not shards or not is_map:
        raise UserError(
            f"{index}: 'weight_map' is missing, empty or not a map from tensors to files",
            fix=f"restore {INDEX} from the source of the model",
        )
    tensors: list[StoredTensor] = []
    for shard in sorted(set(shards.values())):
        if not re.fullmatch(r"[\w.-]+\.safetensors", shard) or not is_file(folder / shard):
            raise UserError(
                f"{index}: {shard!r} is not the name of a safetensors file in this folder",
                fix="download every shard into the folder",
            )
        tensors += _read_header(folder / shard)
    mismatched = {(tensor.name, tensor.path.name) for tensor in tensors} ^ set(shards.items())
    if mismatched:
        name, shard = min(mismatched)
        raise UserError(
            f"{index}: {name!r} must be both in the index and in {shard} (got only one of them)",
            fix="download the index and all shards of the same version",
        )
    return tensors


def _read_header(path: Path) -> list[StoredTensor]:
    header = safetensors_header(path)
    return [StoredTensor(path, name, entry.shape, entry.dtype) for name, entry in header.items()]
