"""The pure Python tokenizers and the numpy features of ONNX exports, compared with Harken."""

import random
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WholeWordsConfig,
    WordsConfig,
    split_words,
)
from harken.encode.vocabulary import Vocabulary
from harken.export.onnx_script import Script
from harken.export.onnx_vocabulary import plain_vocabulary
from harken.synthetic.recordings import write_wav

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyzABC",
    "0123456789½²Ⅷ①",
    "'’.,;:!?-()[]{}<>@#$%^&*_+=|~`",
    " \t\u00a0\u2003\u3000\u2028\x85\x1c\x1f\x00\x7f\u200b\ufeff",
    "éèüßñçøåœ",
    "東京日本語中文",
    "🙂👩‍👧🏽🎉❤️",
    "\u0301\u0308\u0327\u200d",
    "अआकखन्عربي",
)
CONTRACTIONS = (
    "don't",
    "we'll",
    "it's",
    "I've",
    "they're",
    "'S",
    "he'd",
    "I'm",
    "<mask>",
    "<0x41>",
)


def random_lines(count: int, seed: int) -> list[str]:
    chosen = random.Random(seed)

    def word() -> str:
        if chosen.random() < 0.3:
            return chosen.choice(CONTRACTIONS)
        alphabet = chosen.choice(ALPHABETS)
        return "".join(chosen.choice(alphabet) for _ in range(chosen.randrange(1, 7)))

    return [
        chosen.choice(("", " ")).join(word() for _ in range(chosen.randrange(12)))
        for _ in range(count)
    ]


def written(script: Script, folder: Path, name: str) -> Any:
    """Write a script and return one of its files as a module."""
    script.options["task"] = "test"
    script.write(folder)
    module = types.ModuleType(name)
    path = folder / f"{name}.py"
    module.__file__ = str(path)
    exec(compile(path.read_text("utf-8"), str(path), "exec"), vars(module))
    return module


def tokenizer_module(vocabulary: Vocabulary, folder: Path) -> Any:
    script = Script(summary="A test.")
    script.add_vocabulary(plain_vocabulary(vocabulary), "encode", "decode", "token_text")
    return written(script, folder, "tokenizer")


@pytest.mark.parametrize(
    "config",
    [
        CharactersConfig(),
        WordsConfig(vocab_size=150),
        BytePairConfig(vocab_size=600),
        UnigramConfig(vocab_size=600),
    ],
    ids=lambda config: config.kind,
)
def test_tokenizers_are_exact(config: TokenizerConfig, tmp_path: Path) -> None:
    vocabulary = config.fit(random_lines(300, seed=1))
    tokenizer = tokenizer_module(vocabulary, tmp_path)
    lines = ["", " ", *random_lines(1000, seed=2)]
    ids = [list(map(int, row)) for row in vocabulary.encode(lines)]
    assert [tokenizer.encode(line) for line in lines] == ids
    noise = np.random.default_rng(0)
    sequences = [noise.integers(0, len(vocabulary), size=n % 17).tolist() for n in range(1000)]
    for rows in (ids, sequences):
        assert list(map(tokenizer.decode, rows)) == vocabulary.decode(rows)
    begins = [tokenizer.token_text(token)[:1].isspace() for token in range(4, len(vocabulary))]
    assert begins == [vocabulary.begins_word(token) for token in range(4, len(vocabulary))]


def test_whole_words_are_exact(tmp_path: Path) -> None:
    script = Script(summary="A test.")
    script.vocabulary = {}
    script.add_whole_words()
    module = written(script, tmp_path, "tokenizer")
    for line in random_lines(1000, seed=3):
        assert module.split_words(line) == [word.text for word in split_words(line)]


def test_an_unsupported_tokenizer_reads_ids(tmp_path: Path) -> None:
    vocabulary = WholeWordsConfig(min_count=1).fit(["the duck swims"])
    tokenizer = tokenizer_module(vocabulary, tmp_path)
    assert tokenizer.encode("4 5 6") == [4, 5, 6]
    assert tokenizer.decode([4, 5, 6]) == "4 5 6"


@pytest.mark.parametrize(
    "config",
    [
        FilterbankConfig(),
        FilterbankConfig(normalize="level", snip_edges=False, sample_rate=11025, mel_bins=41),
        FilterbankConfig(normalize="mean", window="hann", remove_dc=False, preemphasis=0.0),
        FilterbankConfig(normalize="mean_and_variance", window="hamming", snip_edges=False),
    ],
    ids=lambda config: config.normalize,
)
def test_frames_equal_the_filterbank(config: FilterbankConfig, tmp_path: Path) -> None:
    script = Script(summary="A test.")
    script.add_filterbank(config)
    module = written(script, tmp_path, "features")
    noise = np.random.default_rng(0)
    for samples in (3, 100, config.window_samples, 4001, 9973):
        signal = noise.normal(size=samples).astype(np.float32) / 9
        signal[samples // 2 :] = 0  # silence, below the floor
        write_wav(tmp_path / "sound.wav", signal, config.sample_rate)
        stored = np.rint(signal * 32768).clip(-32768, 32767).astype(np.int16)
        (expected,) = frames_of([stored.astype(np.float32) / 32768], config)
        actual = torch.from_numpy(module.frames_of(str(tmp_path / "sound.wav")))
        if len(expected):
            torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-4)
        else:
            assert actual.shape == (1, config.mel_bins) and not actual.any()
