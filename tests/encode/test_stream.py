"""Streams preserve the text, and chunks have the tokens of the whole text."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.encode import stream
from harken.encode.stream import StreamEncoder, split_blocks, split_chunks, split_pieces
from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WordsConfig,
)
from harken.encode.vocabulary import END, SPECIAL, Vocabulary
from harken.formats.corpus import Documents, TextBlock

SAMPLE = [
    "What's done, is done. It's 1606!\n\nMACBETH:\nTo-morrow, and to-morrow  and to-morrow,\n",
    "creeps in this petty pace from day to day (to the last syllable) - héllo 語語",
]
TOKENIZERS: list[TokenizerConfig] = [
    CharactersConfig(),
    WordsConfig(vocab_size=20),
    BytePairConfig(vocab_size=300),
    UnigramConfig(vocab_size=300),
]
VOCABULARIES: dict[str, Vocabulary] = {config.kind: config.fit(SAMPLE * 3) for config in TOKENIZERS}
every_tokenizer = pytest.mark.parametrize("kind", VOCABULARIES)
# Words, marks and white space of all kinds, so that cuts fall next to each of them.
texts = st.lists(
    st.sampled_from(
        ["to", "morrow", "'s", ".", ",", "(", "7", "-", "é", "語", "☃", "\x1c", "\u3000"]
        + [" "] * 6
        + ["  ", "\n", "\t", "\r", "\u00a0"]
    ),
    min_size=1,
    max_size=40,
).map("".join)


@given(texts, st.integers(0, 20))
def test_chunks_are_the_text_without_the_spaces_between_them(text: str, size: int) -> None:
    pieces = split_chunks(text, size)
    assert " ".join(pieces) == text
    assert all(len(piece) >= size for piece in pieces[:-1])
    assert all(re.match(r"\S", piece) for piece in pieces[1:])
    assert all(re.search(r"\S$", piece) for piece in pieces[:-1])


def test_chunks_end_at_the_next_space() -> None:
    pieces = split_chunks("four word text here " * 100, 50)
    assert len(pieces) > 30
    assert max(map(len, pieces)) < 55


@every_tokenizer
@given(text=texts, size=st.integers(0, 20))
def test_chunks_have_the_tokens_of_the_whole(kind: str, text: str, size: int) -> None:
    stream = StreamEncoder(VOCABULARIES[kind], "file")
    assert stream.join(stream.encode(split_chunks(text, size))).tolist() == (
        stream.join(stream.encode([text])).tolist()
    )


@given(texts)
def test_a_stream_of_characters_has_the_characters_of_the_text(text: str) -> None:
    vocabulary = CharactersConfig().fit([text, "\n"])
    stream = StreamEncoder(vocabulary, "file")
    start, *tokens = stream.join(stream.encode(split_chunks(text, 5))).tolist()
    assert vocabulary.token_texts([start]) == ["\n"]
    assert "".join(vocabulary.token_texts(tokens)) == text
    assert len(tokens) == len(text) == stream.text_lengths(split_chunks(text, 5))[:, 1].sum()


def test_lines_are_separated_by_ends() -> None:
    vocabulary = CharactersConfig().fit(["ab", " c"])
    stream = StreamEncoder(vocabulary, "lines")
    (first, second), third = vocabulary.encode(["a", "b"]), vocabulary.encode(["c"])[0]
    tokens = stream.join(stream.encode(["ab", " c"])).tolist()
    space = third[0]
    assert tokens == [END, first[1], second[1], END, space, third[1], END]
    assert stream.text_lengths(["ab", " c"]).tolist() == [[1, 3], [1, 3]]


@every_tokenizer
def test_the_first_space_of_a_line(kind: str) -> None:
    """It is removed if it is a token of its own."""
    vocabulary = VOCABULARIES[kind]
    (tokens,) = StreamEncoder(vocabulary, "lines").encode(["to-morrow"])
    pieces = vocabulary.token_texts(tokens.tolist())
    assert pieces[-1] == SPECIAL[END]
    assert "".join(pieces[:-1]) == ("to-morrow" if kind == "characters" else " to-morrow")


@given(texts, st.integers(0, 20))
def test_contents_sum_to_the_words_and_characters_of_the_text(text: str, size: int) -> None:
    counts = StreamEncoder(VOCABULARIES["bpe"], "file").text_lengths(split_chunks(text, size))
    assert counts.sum(axis=0).tolist() == [len(text.split()), len(text)]


@every_tokenizer
@pytest.mark.parametrize("documents", ["file", "lines"])
def test_continuations_of_a_prompt(kind: str, documents: str) -> None:
    stream = StreamEncoder(VOCABULARIES[kind], documents)
    text = "to-morrow and to-morrow, in this petty  pace"
    whole = stream.encode_prompt(text)
    assert whole[0] == stream.start
    for cut in range(2, len(whole) + 1):
        (after,) = stream.continuations(whole[:cut], [whole[cut:].tolist()])
        assert text.endswith(after)
        (before,) = stream.vocabulary.decode([whole[:cut].tolist()])
        assert before.removeprefix("\n").lstrip(" ") + after == text


@every_tokenizer
@pytest.mark.parametrize("documents", ["file", "lines"])
@pytest.mark.parametrize("text", ["", "☃ ünknown \U0001f600", " ", "<end>", "\x00"])
def test_any_prompt_can_be_encoded(kind: str, documents: str, text: str) -> None:
    stream = StreamEncoder(VOCABULARIES[kind], documents)
    tokens = stream.encode_prompt(text)
    assert tokens[0] == stream.start
    assert len(tokens) > 1 or not text.strip()
    assert (tokens[1:] >= len(SPECIAL)).all()


def blocks_of(text: str, sizes: list[int]) -> list[TextBlock]:
    """Cut a text into blocks of these sizes, in turn."""
    blocks, start = [], 0
    while start < len(text):
        size = sizes[len(blocks) % len(sizes)]
        blocks.append(TextBlock(text[start : start + size], start == 0))
        start += size
    return blocks


spaced = st.text(alphabet="ab \n", min_size=1, max_size=90)


@given(spaced, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_chunks_of_blocks_equal_chunks_of_the_text(text: str, sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK_SIZE", 7)
        chunks = list(split_blocks(blocks_of(text, sizes)))
    assert [chunk.text for chunk in chunks] == split_chunks(text, 7)
    assert [chunk.separator for chunk in chunks] == ["start"] + ["space"] * (len(chunks) - 1)


@pytest.mark.parametrize("kind", [CharactersConfig(), BytePairConfig(vocab_size=270)])
@pytest.mark.parametrize("documents", ["file", "lines"])
def test_pieces_equal_the_whole_stream(
    kind: TokenizerConfig, documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK_SIZE", 7)
    monkeypatch.setattr(stream, "PIECE_SIZE", 20)
    text = "the king of the crown\nsleeps, and  the question dreams of the king"
    encoder = StreamEncoder(kind.fit([text]), documents)
    lines = text.split("\n")
    whole = encoder.join(encoder.encode(lines if documents == "lines" else split_chunks(text, 7)))
    if documents == "lines":
        blocks = [TextBlock(line, True) for line in lines]
    else:
        blocks = blocks_of(text, [5])
    pieces = list(split_pieces(blocks, documents))
    assert len(pieces) > 1
    tokens = np.concatenate([encoder.encode_piece(piece) for piece in pieces])
    assert tokens.tolist() == whole.tolist()


def test_several_texts_and_text_without_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_CHUNK", 10)
    texts = ["日本語\n日本語\n日本語", "日本語日本語日本語日本語"]
    blocks = [block for text in texts for block in blocks_of(text, [4])]
    encoder = StreamEncoder(CharactersConfig().fit(texts), "file")
    (piece,) = split_pieces(blocks, "file")
    assert {chunk.separator for chunk in piece} == {"start", ""}
    assert max(len(chunk.text) for chunk in piece) <= 14
    tokens = encoder.encode_piece(piece).tolist()
    expected = [encoder.join(encoder.encode([text])).tolist() for text in texts]
    assert tokens == expected[0] + expected[1]
