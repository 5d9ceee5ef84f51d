"""Train `lm` or `translate` on generated text that is larger than the memory it may use.

    python benchmarks/corpus.py --gigabytes 3 --seed 0
    python benchmarks/corpus.py --gigabytes 3 --seed 0 --task translate

The text is written to a temporary folder, which is removed afterwards: words of a lexicon of 20,000
with Zipf's distribution, a line break after every 20. `harken train` encodes it with byte-pair
encoding and trains a small model for a few steps. `translate` reads the text as source and as
target, and its speed is not compared. The benchmark prints a JSON object:

    task, gigabytes, seed   of the text
    generate_seconds        to write it
    train_seconds           of `harken train`: digests, sample, tokenizer, encoding, steps, report
    tokens                  stored
    max_rss_gib             maximum resident memory of `harken train`, which is one process
    encode_mb_per_second    of Harken, from the file to the stored tokens, on the first megabytes
    library_mb_per_second   of `tokenizers` alone: `encode_batch` over the same chunks in memory
    ratio                   of the two, the median of rounds in which they alternate
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import harken
from harken.batch.shards import TokenShards, write_shards
from harken.encode.parallel import encode_corpus
from harken.encode.stream import CorpusSample, StreamEncoder, split_chunks
from harken.encode.vocabulary import Vocabulary
from harken.formats.corpus import TextCorpus
from harken.formats.text import read_whole

WORDS, WORDS_PER_LINE = 20_000, 20
BLOCK = 1_000_000  # words that are generated at once
COMPARED_MB = 24  # of text, in a round of the comparison
ENCODE_BATCH = 4096  # chunks per call of the library, as in Harken
RECIPE = """\
task = "{task}"
seed = {seed}

[encode]
kind = "bpe"
vocab_size = 8000

[search]
max_tokens = 10
"""
TABLES = {
    "lm": """
[data]
train = "text-*.txt"
dev = "dev.txt"

[model]
layers = 2
width = 64
max_length = 128

[training]
steps = {steps}
batch_tokens = 2048
""",
    "translate": """
[data]
train = {{ source = "text-*.txt", target = "text-*.txt" }}
dev = 0.0002

[model]
encoder.layers = 2
decoder = {{ kind = "transformer", layers = 2, width = 64 }}

[training.pairs]
steps = {steps}
batch_tokens = 2048
""",
}


def write_text(folder: Path, size: int, seed: int) -> None:
    """Write `size` bytes to several files, and a small file to evaluate on."""
    generator = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    lexicon = [
        "".join(generator.choice(letters[: 6 + index % 20], 1 + index % 11))
        for index in generator.permutation(WORDS)
    ]
    lexicon += [word + "\n" for word in lexicon]
    shares = np.cumsum(1 / np.arange(1, WORDS + 1))
    ends = WORDS * (np.arange(BLOCK) % WORDS_PER_LINE == WORDS_PER_LINE - 1)

    def block() -> bytes:
        drawn = np.searchsorted(shares, generator.random(BLOCK) * shares[-1]) + ends
        return (" ".join([lexicon[index] for index in drawn])).encode()

    (folder / "dev.txt").write_bytes(block()[:20_000])
    for number in range(4):
        with (folder / f"text-{number}.txt").open("wb") as file:
            while (missing := size // 4 - file.tell()) > 0:
                file.write(block()[:missing])


def train(folder: Path) -> tuple[float, float]:
    """Run `harken train`; return seconds and the maximum resident memory in GiB."""
    command = [sys.executable, "-m", "harken", "train", "recipe.toml", "--run", "run"]
    start = time.monotonic()
    # The same code as in this process, also if PYTHONPATH is relative.
    environment = {**os.environ, "PYTHONPATH": str(Path(harken.__file__).parents[1])}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"harken train ended with status {status}")
    return time.monotonic() - start, usage.ru_maxrss / 2**20


def compare(folder: Path, rounds: int) -> dict[str, float]:
    """Encode the same text with Harken and with the library alone, in turn."""
    with (folder / "text-0.txt").open("rb") as file:
        (folder / "part.txt").write_bytes(file.read(COMPARED_MB * 10**6))
    megabytes = (folder / "part.txt").stat().st_size / 1e6
    tokenizer = Tokenizer.from_file(str(folder / "run" / "tokenizer.json"))
    stream = StreamEncoder(Vocabulary.load(folder / "run" / "tokenizer.json"), "file")
    chunks = split_chunks(read_whole(folder / "part.txt"))
    corpus = TextCorpus(files=(folder / "part.txt",), documents="file")
    splits = {"train": CorpusSample(corpus, corpus.size().characters, 1)}

    def library() -> None:
        for start in range(0, len(chunks), ENCODE_BATCH):
            tokenizer.encode_batch(chunks[start : start + ENCODE_BATCH], add_special_tokens=False)

    def shards() -> None:
        shutil.rmtree(folder / "part", ignore_errors=True)
        write_shards(folder / "part", partial(encode_corpus, stream, splits), 8000)

    rates: dict[str, list[float]] = {"encode": [], "library": []}
    for _ in range(rounds):
        for name, encode in (("library", library), ("encode", shards)):
            start = time.monotonic()
            encode()
            rates[name].append(megabytes / (time.monotonic() - start))
    pairs = zip(rates["encode"], rates["library"], strict=True)
    medians = {f"{name}_mb_per_second": statistics.median(rates[name]) for name in rates}
    return {**medians, "ratio": statistics.median(ours / library for ours, library in pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=list(TABLES), default="lm")
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()
        write_text(folder, int(options.gigabytes * 1e9), options.seed)
        generated = time.monotonic() - start
        text = (RECIPE + TABLES[options.task]).format(**vars(options))
        (folder / "recipe.toml").write_text(text)
        seconds, memory = train(folder)
        sides = {"lm": ["train"], "translate": ["source", "target"]}[options.task]
        shards = [TokenShards(folder / "run" / "tokens" / side) for side in sides]
        result = {
            "task": options.task,
            "gigabytes": options.gigabytes,
            "seed": options.seed,
            "generate_seconds": generated,
            "train_seconds": seconds,
            "tokens": sum(len(side.numbers) for side in shards),
            "max_rss_gib": memory,
            **(compare(folder, options.rounds) if options.task == "lm" else {}),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
