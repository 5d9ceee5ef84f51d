"""The files of a Hugging Face folder, read with mistrust: settings, and where each tensor stands.

Settings are asked for one by one; one that nobody asked for could change the numbers, so it is
refused unless it is off or known to say nothing of them. Of weights only headers are read here.
What the settings and names mean is in `huggingface.py`.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from torch import Tensor

from harken.errors import Failure, UserError

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


class Settings:
    """A JSON object whose keys are asked for one by one, so that those never asked for show."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.asked: set[str] = set()

    @classmethod
    def of(cls, path: Path) -> "Settings":
        return cls(path, read_json(path, LARGEST_CONFIG))

    def get(self, key: str, wanted: str, default: Any) -> Any:
        """A value of a kind, or the default where it is absent or null."""
        self.asked.add(key)
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not FITS[wanted](value):
            found = "nothing" if value is None else json.dumps(value)[:80]
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
            f"{self.path}: found {key!r} = {json.dumps(self.values[key])[:80]}, "
            f"which Harken cannot compute, wanted {wanted}",
            fix="use another model; altering config.json would alter its answers",
        )

    def refuse_unknown(self) -> None:
        for key, value in self.values.items():
            off = value is None or value is False or value == {} or value == []
            if off or key in self.asked or INERT.fullmatch(key):
                continue
            raise UserError(
                f"{self.path}: found the setting {key!r} = {json.dumps(value)[:80]}, wanted "
                "none that Harken does not know: it could change what the model computes",
                fix="remove it from config.json if you are sure that it does not",
            )


def read_json(path: Path, largest: int) -> dict[str, Any]:
    """A JSON object; anything else is the user's error."""
    if not path.is_file():
        raise UserError(
            f"{path}: found no such file, wanted a Hugging Face folder with {CONFIG} and {WEIGHTS}",
            fix="give the folder of a downloaded model, or that save_pretrained wrote",
        )
    restore = f"restore {path.name} from where the model came from"
    try:
        with path.open("rb") as file:
            text = file.read(largest + 1)
        if len(text) > largest:
            raise UserError(f"{path}: found more than {largest} bytes, wanted fewer", fix=restore)
        values = json.loads(text.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: found what cannot be read ({error}), wanted a JSON object", fix=restore
        ) from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: found {type(values).__name__}, wanted a JSON object", fix=restore)
    return values


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a file, not read yet."""

    path: Path
    name: str
    shape: tuple[int, ...]
    kind: str

    def read(self) -> Tensor:
        with _opened(self.path) as file:
            tensor: Tensor = file.get_tensor(self.name)
        return tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A safetensors file; damage is a Failure, not a traceback."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise Failure(
            f"{path}: found weights that cannot be read ({error}), wanted a safetensors file",
            fix="download it again; a file of some 130 bytes is a Git LFS pointer",
        ) from None


def stored_in(folder: Path) -> list[Stored]:
    """Names, shapes and kinds of all tensors; no weight is read."""
    if (folder / WEIGHTS).is_file():
        return _header(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
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
    places = read_json(index, LARGEST_INDEX).get("weight_map")
    whole = isinstance(places, dict) and all(isinstance(one, str) for one in places.values())
    if not isinstance(places, dict) or not whole or not places:
        raise UserError(
            f"{index}: found no 'weight_map' of tensors to files, wanted one",
            fix=f"restore {INDEX} from where the model came from",
        )
    found: list[Stored] = []
    for shard in sorted(set(places.values())):
        if not re.fullmatch(r"[\w.-]+\.safetensors", shard) or not (folder / shard).is_file():
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
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return [
            Stored(path, name, tuple(one.get_shape()), one.get_dtype())
            for name, one in slices.items()
        ]
