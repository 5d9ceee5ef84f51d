from pathlib import Path

import pytest

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.speech_folders import read_speech_folder

KALDI = {"wav.scp": "a a.wav\n", "text": "a GO\n", "a.wav": "", "a.txt": "other layout"}
SPHINX = {
    "etc/an4_test.fileids": "test/fcaw/cen8-fcaw-b\n",
    "etc/an4_test.transcription": "TWENTY SEVEN (cen8-fcaw-b)\n",
    "etc/an4_train.fileids": "clstk/fash/an251-fash-b\nclstk/mwhw/cen8-mwhw-b\n",
    "etc/an4_train.transcription": "<s> YES <sil> NO </s> (an251-fash-b)\n"
    "<s> ONE </s> (clstk/mwhw/cen8-mwhw-b)\n",
    "wav/test/fcaw/cen8-fcaw-b.sph": "",
    "wav/clstk/fash/an251-fash-b.sph": "",
    "wav/clstk/mwhw/cen8-mwhw-b.WAV": "",
}
LIBRISPEECH = {
    "dev/84/121/84-121.trans.txt": "84-121-0000 GO ON\n84-121-0001 STOP\n",
    "dev/84/121/84-121-0000.flac": "",
    "dev/84/121/84-121-0001.wav": "",
    "dev/1988/7/1988-7.trans.txt": "1988-7-0000 YES\n",
    "dev/1988/7/1988-7-0000.flac": "",
    "README.TXT": "about it",
}
BESIDE = {
    "a.wav": "",
    "a.txt": "go\n on \n",
    "sub/b.1.FLAC": "",
    "sub/b.1.txt": "stop",
    "sub/._b.1.FLAC": "written by a Mac",
    "README.txt": "about it",
}


def folder(parent: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (parent / name).parent.mkdir(parents=True, exist_ok=True)
        (parent / name).write_text(content, encoding="utf-8")
    return parent


def complaint(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        read_speech_folder(path)
    return caught.value


def test_kaldi(tmp_path: Path) -> None:
    assert read_speech_folder(folder(tmp_path, KALDI)) == [Utterance(tmp_path / "a.wav", "GO")]


def test_sphinx(tmp_path: Path) -> None:
    wav = folder(tmp_path, SPHINX) / "wav"
    test = [Utterance(wav / "test/fcaw/cen8-fcaw-b.sph", "TWENTY SEVEN", "fcaw")]
    train = [
        Utterance(wav / "clstk/fash/an251-fash-b.sph", "YES NO", "fash"),
        Utterance(wav / "clstk/mwhw/cen8-mwhw-b.WAV", "ONE", "mwhw"),
    ]
    assert read_speech_folder(tmp_path) == test + train


def test_librispeech(tmp_path: Path) -> None:
    dev = folder(tmp_path, LIBRISPEECH) / "dev"
    assert read_speech_folder(tmp_path) == [
        Utterance(dev / "1988/7/1988-7-0000.flac", "YES", "1988"),
        Utterance(dev / "84/121/84-121-0000.flac", "GO ON", "84"),
        Utterance(dev / "84/121/84-121-0001.wav", "STOP", "84"),
    ]


def test_side_by_side(tmp_path: Path) -> None:
    assert read_speech_folder(folder(tmp_path, BESIDE)) == [
        Utterance(tmp_path / "a.wav", "go on"),
        Utterance(tmp_path / "sub/b.1.FLAC", "stop"),
    ]


LINE = "84-121-0000 GO ON\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (
            SPHINX | {"etc/an4_test.transcription": "A (cen8-fcaw-b)\nB (x)\n"},
            "/etc/an4_test.fileids: expected as many lines as an4_test.transcription, got 1",
        ),
        (
            SPHINX | {"etc/an4_test.transcription": "TWENTY (other)\n"},
            "/etc/an4_test.transcription:1: expected words and (cen8-fcaw-b)",
        ),
        (
            SPHINX | {"etc/an4_test.transcription": "TWENTY\n"},
            "/etc/an4_test.transcription:1: expected words and",
        ),
        (
            SPHINX | {"etc/an4_test.transcription": "<s> </s> (cen8-fcaw-b)\n"},
            "/etc/an4_test.transcription:1: the text of",
        ),
        (
            SPHINX | {"etc/an4_test.fileids": "fcaw/cen8-fcaw-b\n"},
            "/etc/an4_test.transcription:1: audio file not found: ",
        ),
        (
            LIBRISPEECH | {"dev/84/121/84-121.trans.txt": LINE + "85-121-0001 STOP\n"},
            "/dev/84/121/84-121.trans.txt:2: expected a name that begins with",
        ),
        (
            LIBRISPEECH | {"dev/84/121/84-121.trans.txt": LINE + "84-121-0001\n"},
            "/dev/84/121/84-121.trans.txt:2: the text of",
        ),
        (
            LIBRISPEECH | {"dev/84/121/84-121.trans.txt": LINE + "84-121-0007 STOP\n"},
            "/dev/84/121/84-121.trans.txt:2: audio file not found: ",
        ),
        (
            BESIDE | {"sub/c.wav": "", "d.ogg": ""},
            ": no text for d.ogg and 1 other audio files (expected name.txt for each",
        ),
        (BESIDE | {"a.txt": " \n"}, "/a.txt: the file is empty"),
        (
            {"b/a.wav": "", "c.wav": "", "d": ""},
            ": expected a folder of Kaldi",
        ),
        ({}, ": expected a folder of Kaldi"),
    ],
    ids=lambda value: value if isinstance(value, str) else "files",
)
def test_wrong_folders(tmp_path: Path, files: dict[str, str], found: str) -> None:
    assert complaint(folder(tmp_path, files)).message.startswith(f"{tmp_path}{found}")


def test_what_is_no_folder(tmp_path: Path) -> None:
    path = folder(tmp_path, BESIDE)
    assert "folder not found" in complaint(path / "c").message
    assert "folder not found" in complaint(path / "a.wav").message
    assert "--pattern" in complaint(folder(path / "empty", {"a.wav": ""})).fix
