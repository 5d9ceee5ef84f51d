"""Recipes and tables of examples: small whole ones, and mutations of them."""

import gzip
import json
import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import zstandard
from PIL import Image

from fuzz.mutators import json_text, mutate_bytes, mutate_lines, mutate_tree
from harken.config.schema import (
    KeySpec,
    choices,
    config_types,
    find_class,
    item_types,
    key_specs,
    tagged_classes,
    types_of,
)
from harken.config.write import toml_literal
from harken.formats.captions import read_captions
from harken.formats.column_guess import guess_columns
from harken.formats.conllu import read_conllu
from harken.formats.corpus import TextCorpus
from harken.formats.labels import FIELDS, InputKind, LabelFormat, read_labeled
from harken.formats.links import read_links
from harken.formats.manifest import read_utterances
from harken.formats.pairs import ParallelFiles, find_pairs
from harken.formats.speech_folders import read_speech_folder
from harken.formats.table import read_table
from harken.formats.text import read_lines, read_whole
from harken.recipe import load_recipe, recipe_type, task_of
from harken.training.memory import TRAINING, check_model_size
from harken.training.optimizer import scale_learning_rates

CONLLU = """# text = They ducks.
1\tThey\tthey\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tducks.\t_\t_\t_\t_\t_\t_\t_\t_
2\tducks\tduck\tNOUN\tNNS\t_\t0\troot\t_\t_
2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_
3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\tNo\tno\tINTJ\tUH\t_\t0\troot\t_\t_
"""
TAGGED = "the\tO\nduck\tB-bird\n\t\nswims\tO\n"
SPACED = "-DOCSTART- -X- O\n\nthe DT O\nduck NN B-bird\n\nswims VBZ O\n"
ASKED = {"question": "question", "answer": "answer"}
SHEET = (
    'number{0}question{0}answer\n1{0}"where{0} is\nit?"{0}here\n2{0}who is she?{0}Ada\n'
    '3{0}"what ""was""?"{0}an answer\n4{0}when?{0}5\n'
)
LABELED = LabelFormat("text", {"text": "text", "label": "label"}, multiple=False)
LISTS = {"words": ["They", "duck", "."], "tags": ["PRON", "VERB", "PUNCT"]}
QUESTIONS = "where is it?\there\nwho is she?\tAda\nwhat?\tan answer\n" * 3
MANIFEST_TSV = (
    "audio\ttext\tspeaker\tstart\tend\n0.wav\tgo on\tann\t0.0\t0.5\n1.wav\tstop\tbob\t\t\n"
)
CAPTIONS_TSV = "0.png\ttwo ducks\n1.png\ta bird\n0.png\ta pair\n"
TOKENS_TSV = "0.png#0\ttwo ducks\n1.png#0\ta bird\n0.png#1\ta pair\n"
WORDS = [{"word": "go", "start": 0.0, "end": 0.2}, {"word": "on", "start": 0.2, "end": 0.4}]
SPOKEN = {"text": "go on", "speaker": "ann", "start": 0.0, "end": 0.5, "words": WORDS}
MANIFEST = [{"audio": f"{number}.wav", **SPOKEN} for number in range(4)]
CAPTIONS = [{"image": f"{number}.png", "captions": ["two ducks", "a pair"]} for number in range(4)]
ROWS = [
    {"index": number, "caption": "two ducks", "boxes_xywh": [[1, 2, 3, 4], [5, 6, 7, 8.5]]}
    for number in range(4)
]
COCO = {
    "images": [{"id": number, "file_name": f"{number}.png"} for number in range(2)],
    "annotations": [{"image_id": number % 2, "caption": "a duck"} for number in range(4)],
}
SMALL = {"layers": 1, "attention": {"heads": 2}}
RECIPES: dict[str, dict[str, Any]] = {
    "answer": {
        "data": {"pretrain": "text.txt", "train": "questions.tsv", "dev": 0.3},
        "encode": {"kind": "words", "vocab_size": 50},
        "model": {**SMALL, "width": 8, "max_length": 32, "position": {"kind": "rotary"}},
        "training": {"pretrain": {"steps": 1, "batch_tokens": 64}, "finetune": {"steps": 1}},
        "search": {"beam": 2},
    },
    "lm": {
        "data": {"train": "text.txt", "dev": 0.3, "documents": "lines"},
        "encode": {"kind": "bpe", "vocab_size": 270},
        "model": {"kind": "cnn", "width": 8, "convolutions": {"layers": 2}},
        "training": {"steps": 1, "window": 8, "batch_tokens": 64, "optimizer": {"kind": "muon"}},
    },
    "fill": {
        "data": {"train": "text.txt", "dev": 0.3},
        "encode": {"min_count": 1, "vocab_size": 50},
        "model": {"kind": "rnn", "width": 8},
        "training": {"steps": 1, "batch_tokens": 64, "schedule": {"warmup": 2}},
    },
    "tag": {
        "data": {"train": "words.conllu", "dev": "words.conllu", "column": "upos"},
        "encode": {"min_count": 1, "lowercase": True},
        "model": {
            "width": 8,
            "characters": {"kind": "cnn", "width": 4, "embedding_width": 4, "kernel": 3},
        },
        "training": {"tags": {"steps": 1, "batch_tokens": 64, "unk_dropout": 1.0}},
    },
    "translate": {
        "data": {"train": {"source": "text.txt", "target": "text.txt"}, "dev": 0.3},
        "model": {"encoder": {"kind": "transformer", "layers": 1}, "dropout": 0.1},
        "training": {"pairs": {"steps": 1, "batch_tokens": 64, "label_smoothing": 0.1}},
    },
    "transcribe": {
        "data": {"train": "manifest.jsonl", "dev": 0.3},
        "encode": {
            "filterbank": {"sample_rate": 8000, "mel_bins": 20, "window_ms": 25.0, "hop_ms": 10.0}
        },
        "model": {"width": 8, "frontend": {"channels": 2}, "encoder": {"kind": "gru", "layers": 1}},
        "training": {"speech": {"steps": 1, "batch_frames": 200, "speeds": [0.9, 1.0]}},
    },
    "caption": {
        "data": {"train": "captions.jsonl", "dev": 0.3},
        "encode": {"images": {"kind": "pixels", "columns": 8, "rows": 8, "channels": 3}},
        "model": {"width": 8, "frontend": {"kind": "convolution", "channels": [2, 3], "kernel": 3}},
        "training": {"captions": {"steps": 1, "batch_captions": 2}},
    },
}
MAX_PARAMETERS = 300_000  # of a model that is built and trained for a step


def make_data(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text("the duck swims\na bird sings\nit is here\n" * 4)
    (folder / "questions.tsv").write_text(QUESTIONS)
    (folder / "words.conllu").write_text(CONLLU)
    for number in range(4):
        soundfile.write(folder / f"{number}.wav", np.zeros(6000) + 0.1 * number, 8000)
        Image.fromarray(np.full((9, 9, 3), 40 * number, np.uint8)).save(folder / f"{number}.png")
    (folder / "manifest.jsonl").write_text(_lines(MANIFEST))
    (folder / "captions.jsonl").write_text(_lines(CAPTIONS))
    return folder


def _lines(objects: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(fields) + "\n" for fields in objects)


def run_recipe(folder: Path, rng: random.Random) -> None:
    """Load a damaged recipe and, if it is accepted, read, build and compute a loss."""
    task = rng.choice(sorted(RECIPES))
    tree = {"task": task, "seed": 0, **RECIPES[task]}
    path, overrides = folder / "mutant.toml", []
    if rng.random() < 0.5:
        record = find_class(task, types_of(recipe_type()))
        assert record is not None
        overrides = random_settings(record, rng)
    else:
        tree = mutate_tree(tree, rng)
    text = _toml(tree) if isinstance(tree, dict) else str(tree)
    content = text.encode("utf-8", "surrogatepass")
    match rng.randrange(10):
        case 0:
            content = mutate_lines(text, rng)
        case 1:
            content = mutate_bytes(content, rng)
        case 2:
            line = rng.choice(text.split("\n") or [""]).replace(" = ", "=")
            changed = mutate_lines(line, rng).decode("utf-8", "surrogateescape")
            overrides.append(changed[:100_000].replace("\n", " "))
    path.write_bytes(content)
    recipe = load_recipe(path, overrides)
    task_code = task_of(recipe)
    splits = task_code.read_splits(recipe)
    vocabulary = task_code.fit(recipe, splits["train"])
    meta = check_model_size(
        lambda: task_code.build(recipe, vocabulary.sizes),
        "recipe",
        bytes_per_parameter=TRAINING,
        device=torch.device("cpu"),
    )
    if sum(parameter.numel() for parameter in meta.parameters()) < MAX_PARAMETERS:
        model = task_code.build(recipe, vocabulary.sizes)
        cache = folder / "cache"
        for stage in task_code.stages(recipe, splits, vocabulary, cache / str(rng.random())):
            for part in stage.batch(0)[:1]:
                part.loss(model, torch.device("cpu")).backward()
            scale_learning_rates(optimizers := stage.config.optimizer.build(model), 0.5)
            for optimizer in optimizers:
                optimizer.step()


def random_settings(record: type, rng: random.Random) -> list[str]:
    """Some `--set` of keys that exist, with values of their types, often at their bounds."""
    found = []
    for _ in range(rng.randint(1, 4)):
        types: Any = (record,)
        path: list[str] = []
        while union := config_types(types):
            chosen = rng.choice(union)
            if len(union) > 1 and path:
                kind, by_value = tagged_classes(union)
                value = next(value for value, other in by_value.items() if other is chosen)
                found.append(f"{'.'.join([*path, kind])}={value}")
            if not key_specs(chosen):
                break
            name, slot = rng.choice(sorted(key_specs(chosen).items()))
            path.append(name)
            types = slot.types
            if not config_types(types):
                if path not in (["task"], ["data"]) and path[0] != "data":
                    found.append(f"{'.'.join(path)}={_random_value(slot, rng)}")
                break
    return found


def _random_value(slot: KeySpec, rng: random.Random) -> str:
    types = item_types(slot.types) or slot.types
    limits = slot.bounds
    low = limits.get("at_least", limits.get("above", 0))
    high = limits.get("at_most", limits.get("below", 1e9))
    if allowed := choices(types):
        value: Any = rng.choice(allowed)
    elif bool in types:
        value = rng.random() < 0.5
    elif int in types:
        near = [int(low), int(low) + 1, 2, 3, 5, 8, 16, 17, 64, 1000, int(high), int(high) - 1]
        value = rng.choice(near)
    elif float in types:
        value = rng.choice([low, high, (low + high) / 2, 1e-9, 0.5, 0.999999, 1.0, 1e6, 1e300])
        value = float(value)
    else:
        value = "x"
    return toml_literal([value] * rng.randint(0, 3) if item_types(slot.types) else value)


def _toml(tree: dict[str, Any], prefix: str = "") -> str:
    """Dotted keys, one per line, without values that TOML cannot represent."""
    lines = []
    for key, value in tree.items():
        name = prefix + (key if key.isidentifier() else json.dumps(key))
        if isinstance(value, dict):
            lines.append(_toml(value, f"{name}."))
        else:
            try:
                lines.append(f"{name} = {toml_literal(value)}")
            except Exception:
                lines.append(f"{name} = {value!r}")
    return "\n".join(lines)


def run_conllu(folder: Path, rng: random.Random) -> None:
    good = rng.choice([CONLLU, TAGGED, SPACED, LISTS])
    if isinstance(good, str):
        path = _write(folder / "mutant.conllu", mutate_lines(good, rng), rng)
    else:
        text = json_text(mutate_tree(good, rng), rng)
        path = _write(folder / "mutant.jsonl", text.encode("utf-8", "surrogatepass"), rng)
    for sentence in read_conllu(path, rng.choice(["upos", "xpos"])):
        assert len(sentence.words) == len(sentence.tags) > 0


def run_tsv(folder: Path, rng: random.Random) -> None:
    readers: list[tuple[Callable[[Path], object], str]] = [
        (lambda path: list(read_table(path, ASKED)), QUESTIONS),
        (lambda path: list(find_pairs(path).pairs()), QUESTIONS),
        (lambda path: read_labeled(path, LABELED), QUESTIONS),
        (read_utterances, MANIFEST_TSV),
        (read_captions, CAPTIONS_TSV),
        (read_captions, TOKENS_TSV),
    ]
    choice = rng.randrange(len(readers) + 2)
    if choice < len(readers):
        read, good = readers[choice]
        read(_write(folder / "mutant.tsv", mutate_lines(good, rng), rng))
    elif choice == len(readers):
        text = folder / "text.txt"
        pairs = list(find_pairs(ParallelFiles(source=text, target=text)).pairs())
        links = "\n".join(["1-1 2p2"] * len(pairs))
        read_links(_write(folder / "mutant.links", mutate_lines(links, rng), rng), pairs)
    else:
        _run_kaldi(folder / "kaldi", rng)


def run_table(folder: Path, rng: random.Random) -> None:
    """CSV, TSV with a header and Parquet; the columns are also guessed."""
    suffix = rng.choice([".csv", ".tsv", ".parquet"] if find_spec("pyarrow") else [".csv", ".tsv"])
    path = folder / f"mutant{suffix}"
    if suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        rows = [{"question": f"who is {n}?", "answer": str(n), "n": n} for n in range(20)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
    else:
        delimiter = rng.choice(",;\t") if suffix == ".csv" else "\t"
        _write(path, mutate_lines(SHEET.format(delimiter), rng), rng)
    if rng.random() < 0.3:
        guess_columns(path, [*ASKED], {})
    for row in read_table(path, ASKED, keep_empty=rng.random() < 0.5):
        assert row.texts.keys() == ASKED.keys()


def _run_kaldi(folder: Path, rng: random.Random) -> None:
    folder.mkdir(exist_ok=True)
    tables = {
        "wav.scp": "r0 ../0.wav\nr1 ../1.wav\n",
        "text": "u0 go on\nu1 stop\n",
        "segments": "u0 r0 0.0 0.5\nu1 r1 0 -1\n",
        "utt2spk": "u0 ann\nu1 bob\n",
    }
    for name, text in tables.items():
        (folder / name).write_text(text)
    damaged = rng.choice(sorted(tables))
    (folder / damaged).write_bytes(mutate_lines(tables[damaged].replace(" ", "\t"), rng))
    read_speech_folder(folder)


def run_jsonl(folder: Path, rng: random.Random) -> None:
    """Manifests of speech, captions of images, COCO's one object, labels, and texts."""
    choice = rng.randrange(4)
    if choice == 3:
        path = folder / "mutant.json"
        path.write_bytes(json_text(mutate_tree(COCO, rng), rng).encode("utf-8", "surrogatepass"))
        read_captions(path)
        return
    objects: list[Any] = list([MANIFEST, CAPTIONS, ROWS][choice])
    at = rng.randrange(len(objects))
    texts = [json.dumps(fields) for fields in objects]
    texts[at] = json_text(mutate_tree(objects[at], rng), rng)
    content = "\n".join(texts)
    data = content.encode("utf-8", "surrogatepass")
    data = mutate_lines(content, rng) if rng.random() < 0.2 else data
    path = _write(folder / "mutant.jsonl", data, rng)
    if rng.random() < 0.3:
        kind: InputKind = ("sound", "image", "image")[choice]
        column = ("text", "captions", "caption")[choice]
        columns = {FIELDS[kind]: FIELDS[kind], "label": column}
        read_labeled(path, LabelFormat(kind, columns, multiple=rng.random() < 0.5))
    elif choice == 0 and rng.random() < 0.5:
        list(TextCorpus(files=(path,), documents="lines").blocks())
        list(find_pairs(path, ("text", "audio")).pairs())
    elif choice == 0:
        read_utterances(path)
    else:
        read_captions(path, rows=4 if choice == 2 else None)


def _write(path: Path, data: bytes, rng: random.Random) -> Path:
    """Write a text, sometimes compressed, sometimes with the compressed bytes damaged."""
    if rng.random() < 0.2:
        data = gzip.compress(data, mtime=0) if rng.random() < 0.5 else zstandard.compress(data)
        data = mutate_bytes(data, rng) if rng.random() < 0.5 else data
    path.write_bytes(data)
    if rng.random() < 0.2:
        read_whole(path)
    if rng.random() < 0.2:
        list(read_lines(path))
    return path
