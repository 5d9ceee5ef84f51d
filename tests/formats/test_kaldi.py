from pathlib import Path

import pytest

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.speech_folders import read_speech_folder

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


def folder(parent: Path, tables: dict[str, str]) -> Path:
    for name, content in tables.items():
        (parent / name).write_text(content, encoding="utf-8")
    (parent / "sub").mkdir()
    for name in ("a.wav", "sub/b 1.wav", "tape.wav"):
        (parent / name).write_bytes(b"")
    return parent


def complaint(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        read_speech_folder(path)
    return caught.value


def test_a_recording_is_an_utterance(tmp_path: Path) -> None:
    assert read_speech_folder(folder(tmp_path, PLAIN)) == [
        Utterance(tmp_path / "a.wav", "GO ON", "ann"),
        Utterance(tmp_path / "sub/b 1.wav", "STOP", "bob"),
    ]


def test_segments_of_a_recording(tmp_path: Path) -> None:
    assert read_speech_folder(folder(tmp_path, CUT)) == [
        Utterance(tmp_path / "tape.wav", "GO", "", 0.25, 1.5),
        Utterance(tmp_path / "tape.wav", "STOP", "", 2.5, None),
    ]


def test_paths_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    folder(data, {"wav.scp": "a-1 here.wav\n", "text": "a-1 GO\n"})
    (tmp_path / "here.wav").write_bytes(b"")
    assert f"audio file not found: {data / 'here.wav'}" in complaint(data).message
    monkeypatch.chdir(tmp_path)
    assert [utterance.audio for utterance in read_speech_folder(data)] == [Path("here.wav")]


@pytest.mark.parametrize("command", ["touch {trap} |", "sph2pipe {trap}|", "| touch {trap}"])
def test_no_command_is_run(tmp_path: Path, command: str) -> None:
    trap = tmp_path / "trap"
    line = command.format(trap=trap)
    path = folder(tmp_path, PLAIN | {"wav.scp": f"a-1 a.wav\nb-1 {line}\n"})
    error = complaint(path)
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
    assert complaint(folder(tmp_path, tables)).message.startswith(f"{tmp_path}{found}")


def test_no_text(tmp_path: Path) -> None:
    path = folder(tmp_path, PLAIN)
    (path / "text").unlink()
    assert f"{path / 'text'}: file not found" in complaint(path).message
