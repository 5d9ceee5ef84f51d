import os
import string
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.formats.examples import Utterance
from harken.formats.speech_folders import utterances_from_names
from small_files import error_of, write_empty

names_error = partial(error_of, utterances_from_names)


def test_text_and_speaker(tmp_path: Path) -> None:
    """As the Free Spoken Digit Dataset names its files; other files are ignored."""
    write_empty(
        tmp_path, "7_jackson_32.wav", "0_ann_1.wav", "README.md", "._0_ann_1.wav", "sub/a.wav"
    )
    pattern = "{text}_{speaker}_{index}.wav"
    assert utterances_from_names(tmp_path, pattern) == [
        Utterance(tmp_path / "0_ann_1.wav", "0", "ann"),
        Utterance(tmp_path / "7_jackson_32.wav", "7", "jackson"),
    ]
    named = utterances_from_names(tmp_path, pattern, words={"0": "zero", "7": "seven"})
    assert [utterance.text for utterance in named] == ["zero", "seven"]


def test_several_words_in_a_name(tmp_path: Path) -> None:
    write_empty(tmp_path, "1_0_1_1.wav")
    words = {"1": "yes", "0": "no"}
    (utterance,) = utterances_from_names(tmp_path, "{text}.wav", words=words, split="_")
    assert utterance.text == "yes no yes yes"
    (utterance,) = utterances_from_names(tmp_path, "{text}.wav", split="_")
    assert utterance.text == "1 0 1 1"


def test_folders_in_the_pattern(tmp_path: Path) -> None:
    write_empty(tmp_path, "ann/go/1.wav", "bob/[x]+/2.wav", "top.wav")
    assert utterances_from_names(tmp_path, "{speaker}/{text}/{take}.wav") == [
        Utterance(tmp_path / "ann/go/1.wav", "go", "ann"),
        Utterance(tmp_path / "bob/[x]+/2.wav", "[x]+", "bob"),
    ]


field = st.text(string.ascii_letters + string.digits + ". ()[]+*?^$\\-", min_size=1).map(
    lambda text: f"a{text}a"
)


@given(st.tuples(field, field, field))
def test_what_was_put_together_is_taken_apart(
    tmp_path_factory: pytest.TempPathFactory, values: tuple[str, str, str]
) -> None:
    path = tmp_path_factory.mktemp("names")
    text, speaker, take = values
    write_empty(path, f"x+{text}_{speaker}__{take}.wav")
    (utterance,) = utterances_from_names(path, "x+{text}_{speaker}__{take}.wav")
    assert (utterance.text, utterance.speaker) == (text, speaker)


@pytest.mark.parametrize(
    ("pattern", "found", "fix"),
    [
        ("{txt}.wav", "expected 'text' once and 'speaker' at most once, got", "mean 'text' by"),
        ("{speaker}.wav", "got ['speaker']", "write it like"),
        ("a.wav", "got []", "write it like"),
        ("{text}_{text}.wav", "got ['text', 'text']", "write it like"),
        ("{text}_{speaker}_{speaker}.wav", "at most once", "write it like"),
        ("{text}_{speaker.wav", "unmatched brace", "close every brace"),
    ],
)
def test_wrong_patterns(tmp_path: Path, pattern: str, found: str, fix: str) -> None:
    error = names_error(write_empty(tmp_path, "a_b.wav"), pattern)
    assert error.message.startswith(f"pattern {pattern!r}: ") and found in error.message
    assert fix in error.fix


def test_names_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    write_empty(tmp_path, "a_1.wav", "b-2.wav", "c_3.flac", "d_.wav", "e_5.txt")
    error = names_error(tmp_path, "{text}_{index}.wav")
    assert error.message.startswith(
        f"{tmp_path}: 3 of 4 audio files do not match '{{text}}_{{index"
    )
    assert error.message.endswith(", the first is 'b-2.wav'")


def test_names_that_fit_in_two_ways_are_counted(tmp_path: Path) -> None:
    write_empty(tmp_path, "a_1.wav", "a_b_2.wav")
    error = names_error(tmp_path, "{text}_{index}.wav")
    assert "1 of 2 audio files match" in error.message
    assert "match in several ways" in error.message


def test_texts_that_nobody_put_into_words(tmp_path: Path) -> None:
    write_empty(tmp_path, "1_0_2.wav")
    error = names_error(tmp_path, "{text}.wav", words={"1": "yes", "0": "no"}, split="_")
    assert error.message.startswith(f"{tmp_path / '1_0_2.wav'}: expected one of 1")
    assert "2=WORD" in error.fix


def test_nothing_is_there(tmp_path: Path) -> None:
    write_empty(tmp_path, "sub/a.wav")
    assert "no audio file at * (expected" in names_error(tmp_path, "{text}.wav").message
    assert "no audio file at */*/*" in names_error(tmp_path, "{a}/{b}/{text}.wav").message
    assert "folder not found" in names_error(tmp_path / "c", "{text}.wav").message


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav")).write_bytes(b"")
    assert "expected Unicode text" in names_error(tmp_path, "{text}.wav").message
