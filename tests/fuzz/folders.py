"""Hugging Face folders and run folders: small whole ones, and mutations of their files."""

import io
import json
import random
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch

from fuzz.mutators import json_text, mutate_bytes, mutate_lines, mutate_tree
from fuzz.tokenizer_files import tokenizers
from harken.cli.main import main
from harken.foreign import load_huggingface
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.training.checkpoint import write_digests
from harken.training.signals import Interrupted
from small_huggingface import write_folder

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"max_position_embeddings": 40, "hidden_act": "gelu", "layer_norm_eps": 1e-12},
    "gpt2": {
        "n_positions": 40,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "architectures": ["GPT2LMHeadModel"],
    },
    "llama": {
        "max_position_embeddings": 40,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    },
}
TEXT = "the bank of a river, or 12 ducks"


def make_huggingface(folder: Path) -> dict[str, Path]:
    """A folder of each family with random weights in the names of the family."""
    found = {}
    for family, settings in FAMILIES.items():
        found[family] = write_folder(folder / family, family, vocab_size=300, **settings)
        (found[family] / "tokenizer.json").write_text(tokenizers()[family])
    return found


def run_huggingface(good: dict[str, Path], folder: Path, rng: random.Random) -> None:
    family = rng.choice(sorted(good))
    _copy(good[family], folder)
    name = rng.choice(["config.json", "tokenizer.json", "model.safetensors", "split"])
    if name == "split":
        _split_weights(folder, rng)
    elif name == "model.safetensors":
        path = folder / name
        path.write_bytes(mutate_safetensors(path.read_bytes(), rng))
    else:
        mutate_json_file(folder / name, rng)
    attention = load_huggingface(folder, "cpu").attention(TEXT)
    with torch.inference_mode():
        attention.run()


def _split_weights(folder: Path, rng: random.Random) -> None:
    """Weights in one shard with an index, one of the two damaged."""
    shard = folder / "model-00001-of-00001.safetensors"
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").rename(shard)
    names = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    names.pop("__metadata__", None)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, shard.name)}))
    if rng.random() < 0.5:
        mutate_json_file(index, rng)
    else:
        shard.write_bytes(mutate_safetensors(content, rng))


def mutate_safetensors(good: bytes, rng: random.Random) -> bytes:
    """Damage the header as JSON or the file as bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(good, rng)
    length = int.from_bytes(good[:8], "little")
    header = mutate_tree(json.loads(good[8 : 8 + length]), rng)
    content = json_text(header, rng).encode("utf-8", "surrogatepass")
    said = rng.choice([len(content)] * 6 + [0, 2**31, 2**63, len(content) + 8])
    return said.to_bytes(8, "little") + content + good[8 + length :]


def mutate_json_file(path: Path, rng: random.Random) -> None:
    tree = mutate_tree(json.loads(path.read_text(encoding="utf-8")), rng)
    content = json_text(tree, rng).encode("utf-8", "surrogatepass")
    path.write_bytes(mutate_bytes(content, rng) if rng.random() < 0.1 else content)


def make_runs(folder: Path) -> dict[str, Path]:
    """A finished run, and one that was stopped after a checkpoint; both of a tiny GPT."""
    data, recipe = folder / "text.txt", folder / "recipe.toml"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("the duck swims\na bird sings\n" * 12)
    recipe.write_text(
        'task = "lm"\n[data]\ntrain = "text.txt"\ndev = 0.3\ndocuments = "lines"\n'
        "[model]\nlayers = 1\nwidth = 8\nmax_length = 24\nattention.heads = 2\n"
        "[training]\nsteps = 4\nwindow = 12\nbatch_tokens = 64\nsave_every = 2\n"
        "evaluate_every = 2\n[search]\nmax_tokens = 3\n"
    )

    def stop_at_three(event: Any) -> None:
        if getattr(event, "step", 0) == 3:
            signal.raise_signal(signal.SIGTERM)

    train(load_recipe(recipe), folder / "finished")
    with suppress(Interrupted):
        train(load_recipe(recipe), folder / "stopped", listener=stop_at_three)
    return {"finished": folder / "finished", "stopped": folder / "stopped"}


def run_run(good: dict[str, Path], folder: Path, rng: random.Random) -> None:
    """Damage one file of a run folder and give the folder to a command."""
    kind = rng.choice(["finished", "finished", "stopped"])
    _copy(good[kind], folder)
    # Nobody reads the checkpoints of a finished run.
    files = folder.rglob("*") if kind == "stopped" else folder.iterdir()
    unread = (".html", ".md", ".bin", ".npy")
    mutable = sorted(path for path in files if path.is_file() and path.suffix not in unread)
    path = rng.choice(mutable)
    _mutate_run_file(path, rng)
    if rng.random() < 0.6:
        _sign(path.parent)
    if kind == "stopped":
        command = ["train", str(folder / "recipe.toml"), "--run", str(folder), "--resume"]
    else:
        command = rng.choice(_commands(folder, good["finished"]))
    call(command)


def _commands(run: Path, other: Path) -> list[list[str]]:
    text = str(other.parent / "text.txt")
    return [
        ["predict", str(run), text],
        ["evaluate", str(run), "--data", text],
        ["report", str(run), "--out", str(run / "page.html")],
        ["compare", str(run), str(other)],
        ["inspect", str(run), "the duck", "--out", str(run / "out"), "--json"],
        ["train", str(run / "recipe.toml"), "--run", str(run), "--resume", "--json"],
        ["heads", str(run), "--json"],
    ]


def call(command: list[str]) -> None:
    """Run a command as a user does: an exit code, and messages without a traceback."""
    printed = io.StringIO()
    with redirect_stderr(printed), redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        code = main(command)
    messages = printed.getvalue()
    assert code in (0, 1, 2), (code, messages)
    assert "Traceback" not in messages
    if code:
        refused = [line for line in messages.splitlines() if line.startswith("harken: ")]
        assert len(refused) == 1, messages
        raise Refused(refused[0])


class Refused(Exception):
    """A command ended with one message."""


def _mutate_run_file(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    match path.suffix:
        case ".safetensors":
            path.write_bytes(mutate_safetensors(content, rng))
        case ".json" if rng.random() < 0.8:
            mutate_json_file(path, rng)
        case ".jsonl" | ".toml" if rng.random() < 0.8:
            path.write_bytes(mutate_lines(content.decode(), rng))
        case _:
            path.write_bytes(mutate_bytes(content, rng))
    if rng.random() < 0.1:
        path.unlink()


def _sign(folder: Path) -> None:
    """Write a manifest that fits the damaged files, so that they are read all the same."""
    manifest = folder / "manifest.json"
    if manifest.exists():
        names = [path.name for path in folder.iterdir() if path.is_file() and path != manifest]
        write_digests(folder, {name: name for name in names})


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
