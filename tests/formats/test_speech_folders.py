from functools import partial
from pathlib import Path

import pytest

from harken.formats.examples import Utterance
from harken.formats.speech_folders import read_speech_folder
from small_files import error_of

SOUNDS = {"a.wav": "", "sub/b 1.wav": "", "tape.wav": "", "a.txt": "other layout"}
PLAIN = SOUNDS | {
    "wav.scp": "b-1  sub/b 1.wav\na-1\ta.wav\n",
    "text": "a-1 GO  ON\nb-1 STOP\n",
    "utt2spk": "a-1 ann\nb-1 bob\n",
}
CUT = SOUNDS | {
    "wav.scp": "tape tape.wav\n",
    "text": "t-1 GO\nt-2 STOP\n",
    "segments": "t-2 tape 2.5 -1\nt-1 tape 0.25 1.5\n",
}
WORDS = "etc/an4_test.transcription"
SPHINX = {
    "etc/an4_test.fileids": "test/fcaw/cen8-fcaw-b\n",
    WORDS: "TWENTY SEVEN (cen8-fcaw-b)\n",
    "etc/an4_train.fileids": "clstk/fash/an251-fash-b\nclstk/mwhw/cen8-mwhw-b\n",
    "etc/an4_train.transcription": "<s> YES <sil> NO </s> (an251-fash-b)\n"
    "<s> ONE </s> (clstk/mwhw/cen8-mwhw-b)\n",
    "wav/test/fcaw/cen8-fcaw-b.sph": "",
    "wav/clstk/fash/an251-fash-b.sph": "",
    "wav/clstk/mwhw/cen8-mwhw-b.WAV": "",
}
TRANS = "dev/84/121/84-121.trans.txt"
LIBRISPEECH = {
    TRANS: "84-121-0000 GO ON\n84-121-0001 STOP\n",
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


folder_error = partial(error_of, read_speech_folder)


def test_kaldi(tmp_path: Path) -> None:
    assert read_speech_folder(folder(tmp_path, PLAIN)) == [
        Utterance(tmp_path / "a.wav", "GO ON", "ann"),
        Utterance(tmp_path / "sub/b 1.wav", "STOP", "bob"),
    ]


def test_kaldi_segments(tmp_path: Path) -> None:
    assert read_speech_folder(folder(tmp_path, CUT)) == [
        Utterance(tmp_path / "tape.wav", "GO", "", 0.25, 1.5),
        Utterance(tmp_path / "tape.wav", "STOP", "", 2.5, None),
    ]


def test_sphinx(tmp_path: Path) -> None:
    wav = folder(tmp_path, SPHINX) / "wav"
    assert read_speech_folder(tmp_path) == [
        Utterance(wav / "test/fcaw/cen8-fcaw-b.sph", "TWENTY SEVEN", "fcaw"),
        Utterance(wav / "clstk/fash/an251-fash-b.sph", "YES NO", "fash"),
        Utterance(wav / "clstk/mwhw/cen8-mwhw-b.WAV", "ONE", "mwhw"),
    ]


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
    ("files", "name", "content", "found"),
    [
        (
            SPHINX,
            WORDS,
            "A (cen8-fcaw-b)\nB (x)\n",
            "etc/an4_test.fileids: expected as many lines as an4",
        ),
        (SPHINX, WORDS, "TWENTY (other)\n", f"{WORDS}:1: expected words and (cen8-fcaw-b)"),
        (SPHINX, WORDS, "TWENTY\n", f"{WORDS}:1: expected words and"),
        (SPHINX, WORDS, "<s> </s> (cen8-fcaw-b)\n", f"{WORDS}:1: the text of"),
        (
            SPHINX,
            "etc/an4_test.fileids",
            "fcaw/cen8-fcaw-b\n",
            f"{WORDS}:1: audio file not found: ",
        ),
        (LIBRISPEECH, TRANS, f"{LINE}85-121-0001 NO\n", f"{TRANS}:2: expected a name that"),
        (LIBRISPEECH, TRANS, f"{LINE}84-121-0001\n", f"{TRANS}:2: the text of"),
        (LIBRISPEECH, TRANS, f"{LINE}84-121-0007 NO\n", f"{TRANS}:2: audio file not found: "),
        (BESIDE, "d.ogg", "", ": no text for d.ogg and 0 other audio files (expected name.txt"),
        (BESIDE | {"sub/c.wav": ""}, "d.ogg", "", ": no text for d.ogg and 1 other"),
        (BESIDE, "a.txt", " \n", "a.txt: the file has no text"),
        ({"b/a.wav": "", "c.wav": ""}, "d", "", ": expected a folder of Kaldi"),
        ({}, "README", "", ": expected a folder of Kaldi"),
        (PLAIN, "text", "a-1 GO\n", ": 'b-1' and 0 other utterances have sound, but no text"),
        (
            PLAIN,
            "text",
            "a-1 A\nb-1 B\nc-1 C\nc-2 C\n",
            ": 'c-1' and 1 other utterances have a text",
        ),
        (PLAIN, "utt2spk", "a-1 ann\n", ": 'b-1' and 0 other utterances have no speaker"),
        (PLAIN, "text", "a-1 GO\nb-1\n", "text:2: the text of"),
        (PLAIN, "text", "a-1 GO\na-1 ON\n", "text:2: duplicate 'a-1'"),
        (PLAIN, "wav.scp", "a-1 a.wav\nb-1\n", "wav.scp:2: expected `recording path`"),
        (PLAIN, "wav.scp", "a-1 a.wav\nb-1 c.wav\n", "text:2: audio file not found"),
        (PLAIN, "wav.scp", "a-1 a.wav\nb-1 raw.ark:17\n", "text:2: audio file not found"),
        (CUT, "wav.scp", "tap tape.wav\n", ": 't-1' and 1 other utterances have a segment of"),
        *(
            (CUT, "segments", f"{line}\nt-2 tape 1 2", "segments:1: expected `utterance recording")
            for line in ("t-1 tape 1", "t-1 tape 0 1 A", "t-1 tape 0 1 1", "t-1")
        ),
        (CUT, "segments", "t-1 tape 1 1\nt-2 tape 1 2", "text:1: expected 0 <= start < end, got"),
        (
            CUT,
            "segments",
            "t-1 tape nan 1\nt-2 tape 1 2",
            "text:1: expected 0 <= start < end, got",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "files",
)
def test_wrong_folders(
    tmp_path: Path, files: dict[str, str], name: str, content: str, found: str
) -> None:
    message = folder_error(folder(tmp_path, files | {name: content})).message
    assert message.removeprefix(str(tmp_path)).removeprefix("/").startswith(found)


def test_what_is_no_folder(tmp_path: Path) -> None:
    path = folder(tmp_path, BESIDE)
    assert "folder not found" in folder_error(path / "c").message
    assert "folder not found" in folder_error(path / "a.wav").message
    (path / "nothing").mkdir()
    assert "expected a folder of Kaldi" in folder_error(path / "nothing").message
    assert "--pattern" in folder_error(folder(path / "empty", {"a.wav": ""})).fix


def test_paths_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    folder(data, SOUNDS | {"wav.scp": "a-1 here.wav\n", "text": "a-1 GO\n"})
    (tmp_path / "here.wav").write_bytes(b"")
    assert f"audio file not found: {data / 'here.wav'}" in folder_error(data).message
    monkeypatch.chdir(tmp_path)
    assert [utterance.audio for utterance in read_speech_folder(data)] == [Path("here.wav")]


@pytest.mark.parametrize("command", ["touch {trap} |", "sph2pipe {trap}|", "| touch {trap}"])
def test_no_command_is_run(tmp_path: Path, command: str) -> None:
    trap = tmp_path / "trap"
    line = command.format(trap=trap)
    path = folder(tmp_path, PLAIN | {"wav.scp": f"a-1 a.wav\nb-1 {line}\n"})
    error = folder_error(path)
    assert error.message.startswith(f"{path / 'wav.scp'}:2: expected the path")
    assert f"got the command {line[:60]!r}" in error.message
    assert not trap.exists()
