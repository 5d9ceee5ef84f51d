"""Small untrained runs of all tasks, their inputs, and their exports to ONNX."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from harken.export.synthetic_lines import synthetic_lines
from harken.run import Run, load
from harken.synthetic.recordings import write_wav
from small_files import SMALL, write_lines
from small_models import add_noise
from untrained import task_recipe, untrained_run

RNN_DECODER = "model.decoder={kind='rnn',width=14,hidden=17}"
ENTITIES = {"PRON": "O", "VERB": "B-bird", "CCONJ": "I-bird", "ADV": "I-place", "NUM": "B-place"}
# name: task, overrides in addition to those of `small_files.py`
CASES: dict[str, tuple[str, Sequence[str]]] = {
    "answer": ("answer", ()),
    "answer rotary words": (
        "answer",
        ("encode={kind='words',vocab_size=60}", "model.position={kind='rotary'}", "model.window=9"),
    ),
    "answer synthesizer": (
        "answer",
        (
            "model.position={kind='learned'}",
            "model.attention.score={kind='synthesizer'}",
            "model.mask='strictly_causal'",
        ),
    ),
    "answer kv_heads": (
        "answer",
        ("model.attention={heads=2,kv_heads=1}", "model.position={kind='alibi'}"),
    ),
    "lm": ("lm", ()),
    "lm bpe": ("lm", ("encode={kind='bpe',vocab_size=290}",)),
    "lm unigram lines": (
        "lm",
        ("encode={kind='unigram',vocab_size=290}", "data.documents='lines'"),
    ),
    "lm lstm": ("lm", ("model={kind='rnn',width=13,cell={kind='lstm',layers=2}}",)),
    "lm gru": ("lm", ("model={kind='rnn',width=13,cell={kind='gru'}}",)),
    "lm tanh": ("lm", ("model={kind='rnn',width=13,cell={kind='tanh'}}",)),
    "lm cnn": ("lm", ("model={kind='cnn',width=13,convolutions={kind='gated',causal=true}}",)),
    "tag": ("tag", ()),
    "tag entities": ("tag", ()),
    "tag characters lstm": ("tag", ("model.characters={kind='lstm',width=10}",)),
    "tag gru": ("tag", ("model.encoder={kind='gru',direction='both'}",)),
    "tag stride2": ("tag", ("model.encoder={kind='stride2'}", "model.characters={kind='none'}")),
    "tag transformer": ("tag", ("model.encoder={kind='transformer',layers=1}",)),
    "fill": ("fill", ()),
    "fill masked": ("fill", ("model={kind='masked',width=16}",)),
    "translate": ("translate", ()),
    "translate rnn": ("translate", (RNN_DECODER, "model.encoder={kind='gru',direction='both'}")),
    "caption": ("caption", ()),
    "caption transformer": (
        "caption",
        ("model.decoder={kind='transformer',width=16,layers=1}", "model.encoder.layers=1"),
    ),
    "transcribe": ("transcribe", ()),
    "transcribe both": ("transcribe", ("model.decoder={kind='transformer',width=16,layers=1}",)),
    "transcribe location": (
        "transcribe",
        (RNN_DECODER, "model.attention_window_ms=400", "model.ctc=false", "search.max_tokens=7"),
    ),
    "classify": ("classify", ()),
    "classify image": (
        "classify",
        (
            "data={input='image',train='FOLDER/captions.jsonl',dev=0.3,columns={label='caption'}}",
            "encode={kind='image',images={columns=14,rows=10,channels=1}}",
            "model={kind='image',width=12,frontend={kind='convolution',channels=[3]},"
            "encoder={attention={heads=3}}}",
        ),
    ),
    "classify sound": (
        "classify",
        (
            "data={input='sound',train='FOLDER/train.jsonl',dev=0.3,columns={label='text'}}",
            "encode={kind='sound',filterbank={sample_rate=8000,mel_bins=23}}",
            "model={kind='sound',width=12,encoder={layers=1,attention={heads=2}}}",
        ),
    ),
    "classify tokens": ("classify", ("encode={kind='tokens'}", "model={kind='tokens',width=16}")),
}


def onnx_run(name: str, folder: Path, copy: str = "") -> Run:
    """Return a run with random weights; its files are in a folder of its own."""
    task, overrides = CASES[name]
    keys = {override.split("=")[0] for override in overrides}
    small = [item for item in SMALL[task] if not any(item.startswith(key) for key in keys)]
    files = folder / f"{name} {copy}".strip().replace(" ", "-")
    files.mkdir()
    changed = [override.replace("FOLDER", str(files)) for override in overrides]
    recipe: Any = task_recipe(task, files, [*small, *changed])
    if "entities" in name:
        for path in files.glob("*.conllu"):
            text = path.read_text("utf-8")
            for tag, entity in ENTITIES.items():
                text = text.replace(f"\t{tag}\t", f"\t{entity}\t")
            path.write_text(text, "utf-8")
    noise = np.random.default_rng(5)
    if name == "classify image":
        lines = [{"image": f"{n}.png", "caption": f"label {n % 5}"} for n in range(19)]
        for line in lines:
            Image.fromarray(np.zeros((10, 14, 3), dtype=np.uint8)).save(files / line["image"])
        write_lines(files, *lines, name="captions.jsonl")
    for path in files.glob("*captions.npz"):
        shape = np.load(path)["images"].shape
        np.savez(path, images=noise.integers(256, size=shape, dtype=np.uint8))
    # The noise of a kernel is too large for its fan-in, so states would grow with each layer.
    strength = 0.3 if name in ("tag stride2", "lm cnn") else 1.0
    return load(untrained_run(recipe, files / "run", partial(add_noise, strength=strength)), "cpu")


def inputs_of(run: Run, count: int) -> list[str]:
    """Return inputs of many lengths; sounds have from 1 frame to 150."""
    folder = run.folder.parent
    if run.input_form == "images":
        return [f"{folder / 'captions.npz'}#{row}" for row in range(min(count, 19))]
    if run.input_form == "lines":
        return synthetic_lines(run, count)
    recipe: Any = run.recipe
    rate, generator, names = recipe.encode.filterbank.sample_rate, np.random.default_rng(7), []
    for index in range(min(count, 11)):
        samples = generator.normal(size=rate // 39 + rate // 7 * index).astype(np.float32) / 8
        samples *= np.sin(np.arange(len(samples)) / (3 + index))
        write_wav(folder / f"{index}.wav", samples, rate)
        names.append(str(folder / f"{index}.wav"))
    return names
