"""The files of a Hugging Face folder, read with mistrust: settings, and where each tensor stands.

Settings are asked for one by one; one that nobody asked for could change the numbers, so it is
refused unless it is off or known to say nothing of them. Of weights only headers are read here.
What the settings and names mean is in `huggingface.py`.
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

from harken.errors import Failure, UserError
from harken.inputs import is_file, read_json, safetensors_header, shown

LARGEST_CONFIG = 2**20  # bytes
LARGEST_INDEX = 2**24
LARGEST_SIZE = 2**31 - 1
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
FITS: dict[str, Callable[[Any], bool]] = {
    "a string": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a whole number above 0": lambda value: type(value) is int and 0 < value <= LARGEST_SIZE,
    "a number above 0": lambda value: type(value) in (int, float) and 0 < value < math.inf,
}
T = TypeVar("T")

# Settings that say nothing of the numbers: notes, training, generation, heads that are not read.
INERT = re.compile(
    r"_.*|transformers.*|architectures|name_or_path|(torch_)?dtype|use_bfloat16|torchscript"
    r"|finetuning_task|task_specific_params|problem_type|tokenizer_class|prefix|directionality"
    r"|id2label|label2id|num_labels|summary_\w+|pooler_\w+|use_cache"
    r"|initializer_range|gradient_checkpointing|chunk_size_feed_forward|pretraining_tp|n_ctx"
    r"|\w*(dropout|dropout_prob|_pdrop)|reorder_and_upcast_attn|\w+_token_id|bad_words_ids"
    r"|output_(hidden_states|attentions|scores|past)|return_dict\w*|remove_invalid_values"
    r"|(max|min)_length|do_sample|early_stopping|num_beams|num_beam_groups|num_return_sequences"
    r"|temperature|top_[kp]|typical_p|\w+_penalty|\w*no_repeat_ngram_size|tf_legacy_loss"
)


def _brief(value: object) -> str:
    """Write a value for a message, however long and deep it is."""
    return reprlib.repr(value)[:80]


class Settings:
    """A JSON object whose keys are asked for one by one, so that those never asked for show."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.asked: set[str] = set()

    @classmethod
    def of(cls, path: Path) -> "Settings":
        return cls(path, read_object(path, LARGEST_CONFIG))

    def get(self, key: str, wanted: str, default: Any) -> Any:
        """A value of a kind, or the default where it is absent or null."""
        self.asked.add(key)
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not FITS[wanted](value):
            found = "nothing" if value is None else _brief(value)
            raise UserError(
                f"{self.path}: found {found} for {key!r}, wanted {wanted}",
                fix=f"restore {CONFIG} from where the model came from",
            )
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return str(self.get(key, "a string", default))

    def size(self, key: str, default: int | None = None) -> int:
        return int(self.get(key, "a whole number above 0", default))

    def number(self, key: str, default: float) -> float:
        return float(self.get(key, "a number above 0", default))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.get(key, "true or false", default))

    def choice(self, key: str, choices: Mapping[str, T], default: str) -> T:
        value = self.text(key, default)
        if value not in choices:
            raise self.unsupported(key, f"one of {', '.join(choices)}")
        return choices[value]

    def only(self, key: str, value: object) -> None:
        """A setting that Harken has one value of; absent means that value."""
        self.asked.add(key)
        if self.values.get(key) not in (None, value):
            raise self.unsupported(key, json.dumps(value))

    def unsupported(self, key: str, wanted: str) -> UserError:
        return UserError(
            f"{self.path}: found {key!r} = {_brief(self.values[key])}, "
            f"which Harken cannot compute, wanted {wanted}",
            fix="use another model; altering config.json would alter its answers",
        )

    def refuse_unknown(self) -> None:
        for key, value in self.values.items():
            off = value is None or value is False or value == {} or value == []
            if off or key in self.asked or INERT.fullmatch(key):
                continue
            raise UserError(
                f"{self.path}: found the setting {key!r} = {_brief(value)}, wanted "
                "none that Harken does not know: it could change what the model computes",
                fix="remove it from config.json if you are sure that it does not",
            )


def read_object(path: Path, max_bytes: int) -> dict[str, Any]:
    """Read a JSON object of a Hugging Face folder."""
    if not is_file(path):
        raise UserError(
            f"{shown(path)}: file not found (expected a Hugging Face folder with {CONFIG} and "
            f"{WEIGHTS})",
            fix="give the folder of a downloaded model, or one that save_pretrained wrote",
        )
    values = read_json(path, "a JSON object", max_bytes=max_bytes)
    if not isinstance(values, dict):
        raise UserError(
            f"{shown(path)}: this is not a JSON object (got {type(values).__name__})",
            fix=f"restore {path.name} from where the model came from",
        )
    return values


def rotary_base(settings: Settings) -> float:
    """Return `rope_theta` from wherever a config has it; raise if rotary angles are scaled."""
    base = settings.number("rope_theta", 10000.0)
    given = "rope_theta" in settings.values
    for key in ("rope_scaling", "rope_parameters"):
        settings.asked.add(key)
        inside = settings.values.get(key) or {}
        if not isinstance(inside, dict):
            raise settings.unsupported(key, "null or an object")
        kind = inside.get("rope_type", inside.get("type", "default"))
        strange = inside.keys() - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
        if kind != "default" or strange or inside.get("partial_rotary_factor", 1.0) != 1.0:
            raise settings.unsupported(key, "rotary positions that are not scaled")
        if "rope_theta" in inside:
            own = Settings(settings.path, inside).number("rope_theta", base)
            if given and own != base:
                raise settings.unsupported(key, f"the rope_theta {base} that stands beside it")
            base, given = own, True
    if base <= 1:
        raise UserError(
            f"{settings.path}: found rope_theta {base}, wanted more than 1",
            fix="restore config.json from where the model came from",
        )
    return base


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a file, not read yet."""

    path: Path
    name: str
    shape: tuple[int, ...]
    kind: str

    def read(self) -> Tensor:
        """Read the tensor; damage is a `Failure`, not a traceback."""
        try:
            with safe_open(self.path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(self.name)
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise Failure(
                f"{shown(self.path)}: the tensor {self.name[:60]!r} cannot be read "
                f"({str(error)[:200]}, expected a safetensors file)",
                fix="download the file again",
            ) from None
        return tensor


def stored_in(folder: Path) -> list[Stored]:
    """Names, shapes and kinds of all tensors; no weight is read."""
    if is_file(folder / WEIGHTS):
        return _header(folder / WEIGHTS)
    if not is_file(folder / INDEX):
        pickled = sorted(path.name for kind in PICKLED for path in folder.glob(kind))
        if pickled:
            raise UserError(
                f"{folder / pickled[0]}: found pickled weights alone, which could run any code, "
                f"wanted {WEIGHTS}",
                fix="convert to safetensors: load the model with transformers where you trust it, "
                "and save_pretrained(folder, safe_serialization=True)",
            )
        raise UserError(
            f"{folder / WEIGHTS}: found no such file, wanted the model's weights",
            fix=f"download {WEIGHTS} or {INDEX} and its shards",
        )
    index = folder / INDEX
    places = read_object(index, LARGEST_INDEX).get("weight_map")
    whole = isinstance(places, dict) and all(isinstance(one, str) for one in places.values())
    if not isinstance(places, dict) or not whole or not places:
        raise UserError(
            f"{index}: found no 'weight_map' of tensors to files, wanted one",
            fix=f"restore {INDEX} from where the model came from",
        )
    found: list[Stored] = []
    for shard in sorted(set(places.values())):
        if not re.fullmatch(r"[\w.-]+\.safetensors", shard) or not is_file(folder / shard):
            raise UserError(
                f"{index}: found {shard!r}, wanted the name of a safetensors file in this folder",
                fix="download every shard into the folder",
            )
        found += _header(folder / shard)
    wrong = {(one.name, one.path.name) for one in found} ^ set(places.items())
    if wrong:
        name, shard = min(wrong)
        raise UserError(
            f"{index}: found that {name!r} is in one of the index and {shard}, wanted it in both",
            fix="download the index and all shards of the same version",
        )
    return found


def _header(path: Path) -> list[Stored]:
    return [
        Stored(path, name, tensor.shape, tensor.dtype)
        for name, tensor in safetensors_header(path).items()
    ]
