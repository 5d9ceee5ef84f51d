from pathlib import Path

import pytest

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.speech_folders import read_speech_folder
from small_files import error_of

PLAIN = {
    "wav.scp": "b-1  sub/b 1.wav\na-1\ta.wav\n",
    "text": "a-1 GO  ON\nb-1 STOP\n",
    "utt2spk": "a-1 ann\nb-1 bob\n",
}
CUT = {
    "wav.scp": "tape tape.wav\n",
    "text": "t-1 GO\nt-2 STOP\n",
    "segments": "t-2 tape 2.5 -1\nt-1 tape 0.25 1.5\n",
}
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


def folder_error(path: Path) -> UserError:
    return error_of(read_speech_folder, path)


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
        ({"b/a.wav": "", "c.wav": "", "d": ""}, ": expected a folder of Kaldi"),
        ({}, ": expected a folder of Kaldi"),
    ],
    ids=lambda value: value if isinstance(value, str) else "files",
)
def test_wrong_folders(tmp_path: Path, files: dict[str, str], found: str) -> None:
    assert folder_error(folder(tmp_path, files)).message.startswith(f"{tmp_path}{found}")


def test_what_is_no_folder(tmp_path: Path) -> None:
    path = folder(tmp_path, BESIDE)
    assert "folder not found" in folder_error(path / "c").message
    assert "folder not found" in folder_error(path / "a.wav").message
    assert "--pattern" in folder_error(folder(path / "empty", {"a.wav": ""})).fix


# --- Kaldi

SOUNDS = {"a.wav": "", "sub/b 1.wav": "", "tape.wav": ""}


def kaldi(parent: Path, tables: dict[str, str]) -> Path:
    return folder(parent, tables | SOUNDS)


def test_a_recording_is_an_utterance(tmp_path: Path) -> None:
    assert read_speech_folder(kaldi(tmp_path, PLAIN)) == [
        Utterance(tmp_path / "a.wav", "GO ON", "ann"),
        Utterance(tmp_path / "sub/b 1.wav", "STOP", "bob"),
    ]


def test_segments_of_a_recording(tmp_path: Path) -> None:
    assert read_speech_folder(kaldi(tmp_path, CUT)) == [
        Utterance(tmp_path / "tape.wav", "GO", "", 0.25, 1.5),
        Utterance(tmp_path / "tape.wav", "STOP", "", 2.5, None),
    ]


def test_paths_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    kaldi(data, {"wav.scp": "a-1 here.wav\n", "text": "a-1 GO\n"})
    (tmp_path / "here.wav").write_bytes(b"")
    assert f"audio file not found: {data / 'here.wav'}" in folder_error(data).message
    monkeypatch.chdir(tmp_path)
    assert [utterance.audio for utterance in read_speech_folder(data)] == [Path("here.wav")]


@pytest.mark.parametrize("command", ["touch {trap} |", "sph2pipe {trap}|", "| touch {trap}"])
def test_no_command_is_run(tmp_path: Path, command: str) -> None:
    trap = tmp_path / "trap"
    line = command.format(trap=trap)
    path = kaldi(tmp_path, PLAIN | {"wav.scp": f"a-1 a.wav\nb-1 {line}\n"})
    error = folder_error(path)
    assert error.message.startswith(f"{path / 'wav.scp'}:2: expected the path")
    assert f"got the command {line[:60]!r}" in error.message
    assert not trap.exists()


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        (PLAIN | {"text": "a-1 GO\n"}, ": 'b-1' and 0 other utterances have sound, but no text"),
        (
            PLAIN | {"text": PLAIN["text"] + "c-1 NO\nc-2 NO\n"},
            ": 'c-1' and 1 other utterances have a text, but no sound",
        ),
        (
            PLAIN | {"utt2spk": "a-1 ann\n"},
            ": 'b-1' and 0 other utterances have no speaker in utt2spk",
        ),
        (PLAIN | {"text": "a-1 GO\nb-1\n"}, "/text:2: the text of"),
        (PLAIN | {"text": "a-1 GO\na-1 ON\n"}, "/text:2: 'a-1' again"),
        (PLAIN | {"wav.scp": "a-1 a.wav\nb-1\n"}, "/wav.scp:2: expected `recording path`"),
        (PLAIN | {"wav.scp": "a-1 a.wav\nb-1 c.wav\n"}, "/text:2: audio file not found"),
        (PLAIN | {"wav.scp": "a-1 a.wav\nb-1 raw.ark:17\n"}, "/text:2: audio file not found"),
        (
            CUT | {"wav.scp": "tap tape.wav\n"},
            ": 't-1' and 1 other utterances have a segment of a recording that is not in",
        ),
        (
            CUT | {"segments": "t-1 tape 0 1\nt-2 tape 1\n"},
            "/segments:2: expected `utterance recording",
        ),
        (CUT | {"segments": "t-1 tape 0 1 A\nt-2 tape 1 2"}, "/segments:1: expected `utterance"),
        (CUT | {"segments": "t-1 tape 0 1 1\nt-2 tape 1 2"}, "/segments:1: expected `utterance"),
        (CUT | {"segments": "t-1\nt-2 tape 1 2"}, "/segments:1: expected"),
        (
            CUT | {"segments": "t-1 tape 1 1\nt-2 tape 1 2"},
            "/text:1: expected 0 <= start < end, got 1.0",
        ),
        (
            CUT | {"segments": "t-1 tape nan 1\nt-2 tape 1 2"},
            "/text:1: expected 0 <= start < end, got nan",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "tables",
)
def test_wrong_tables(tmp_path: Path, tables: dict[str, str], found: str) -> None:
    assert folder_error(kaldi(tmp_path, tables)).message.startswith(f"{tmp_path}{found}")
