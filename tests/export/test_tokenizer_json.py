"""`AutoTokenizer` returns the ids of Harken's vocabularies on any text."""

from pathlib import Path

import numpy as np
import pytest

from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WordsConfig,
)
from harken.encode.vocabulary import END, MASK
from harken.export.tokenizer_json import write_tokenizer

KINDS: dict[str, TokenizerConfig] = {
    "characters": CharactersConfig(),
    "words": WordsConfig(vocab_size=150),
    "bpe": BytePairConfig(vocab_size=400),
    "unigram": UnigramConfig(vocab_size=400),
}
FRAGMENTS = [
    *(
        "the ",
        "duck ",
        "Größe ",
        "naïve",
        " ",
        "  ",
        "\t",
        "don't",
        "3.14",
        "\u00a0",
        "É",
        "e\u0301",
    ),
    *("日本語", "漢字", "ひらがな", "한국어", "水。", "עברית", "العَرَبِيَّة", "हिन्दी", "ไทย"),
    *(
        "😀",
        "👩‍👩‍👧",
        "🇩🇪",
        "👍🏽",
        "a\u0300\u0323\u0330",
        "\u200b",
        "\u0000",
        "ﬁ",
        "Ⅷ",
        "\ufeff",
        "𝔘",
    ),
    *("<mask>", "<end>", "<pad>", "<unknown>", "<0x41>", "Ġ", "▁", "\\n", '"', "\r"),
]


def lines(count: int, seed: int) -> list[str]:
    """Return random lines with emoji, CJK, combining marks and names of special tokens."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 12, size=count)
    return ["".join(generator.choice(FRAGMENTS, size=size)) for size in sizes]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_ids_on_1000_lines(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    vocabulary = KINDS[kind].fit(lines(300, seed=1))
    write_tokenizer(tmp_path, vocabulary, before=[END], after=[MASK], max_length=64)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    texts = lines(1000, seed=2)
    expected = [ids.tolist() for ids in vocabulary.encode(texts)]
    assert len({tuple(ids) for ids in expected}) > 900
    assert tokenizer(texts, add_special_tokens=False)["input_ids"] == expected
    assert tokenizer(texts)["input_ids"] == [[END, *ids, MASK] for ids in expected]
    decoded = [tokenizer.decode(ids, skip_special_tokens=True) for ids in expected]
    assert decoded == vocabulary.decode(expected)
    assert tokenizer.eos_token_id == END and tokenizer.mask_token_id == MASK
    assert tokenizer.pad_token_id == 0 and len(tokenizer) == len(vocabulary)


def test_a_pretrained_tokenizer_gets_the_space_that_harken_adds(tmp_path: Path) -> None:
    """Harken adds a space before a text if the tokenizer of GPT-2 does not."""
    from transformers import AutoTokenizer

    from harken.encode.pretrained import PretrainedTokenizer
    from huggingface_folder import save_gpt2

    folder = save_gpt2(tmp_path / "gpt2")
    tokenizer = PretrainedTokenizer.load(folder, 10_000, {})
    tokenizer = PretrainedTokenizer.load(folder, tokenizer.tokenizer.get_vocab_size(), {})
    vocabulary = tokenizer.vocabulary(mask=True)
    write_tokenizer(tmp_path, vocabulary, before=[], after=[], max_length=64)
    texts = lines(200, seed=3)
    exported = AutoTokenizer.from_pretrained(tmp_path)
    assert exported(texts)["input_ids"] == [ids.tolist() for ids in vocabulary.encode(texts)]
