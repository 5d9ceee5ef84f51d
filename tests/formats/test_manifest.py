import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.manifest import read_utterances, with_word_times, word_suffixes, write_manifest
from small_files import error_of, write_empty, write_lines

manifest_error = partial(error_of, read_utterances)


SPOKEN = {"audio": "a.wav", "text": "x"}

# --- JSON lines


def test_json_lines(tmp_path: Path) -> None:
    write_empty(tmp_path, "a.wav", "b/c.flac")
    path = write_lines(
        tmp_path,
        "\ufeff" + json.dumps({"audio": "a.wav", "text": " Grüße, 你好 "}, ensure_ascii=False),
        "",
        {"text": "go on", "speaker": "ann", "end": 1.25, "start": 0.5, "audio": "b/c.flac"},
        {"audio": str(tmp_path / "a.wav"), "text": "x", "speaker": None, "end": None},
    )
    assert read_utterances(path) == [
        Utterance(tmp_path / "a.wav", " Grüße, 你好 "),
        Utterance(tmp_path / "b/c.flac", "go on", "ann", 0.5, 1.25),
        Utterance(tmp_path / "a.wav", "x"),
    ]


@pytest.mark.parametrize(
    ("line", "found", "fix"),
    [
        ('{"audio": "a.wav", "text"', "invalid JSON (", "formats.md#speech"),
        ("[" * 100_000, "'[[[", "formats.md#speech"),
        ('["a.wav", "x"]', "expected a JSON object, got", "formats.md#speech"),
        ('{"audio": "a.wav", "text": "x", "text": "y"}', '\'{"audio"', "formats.md#speech"),
        ({"audio": "a.wav", "txet": "x"}, "unknown key 'txet' (expected audio", "mean 'text'?"),
        (SPOKEN | {"lang": "en"}, "unknown key 'lang'", "remove it"),
        ({"audio": "a.wav"}, "missing key 'text'", "add 'text'"),
        ({"text": "x"}, "missing key 'audio'", "add 'audio'"),
        ({"audio": "a.wav", "text": None}, "missing key 'text'", "add 'text'"),
        ({"audio": "a.wav", "text": 7}, "'text' (expected a text", "correct"),
        ({"audio": 7, "text": "x"}, "'audio'", "correct"),
        (SPOKEN | {"speaker": 3}, "'speaker'", "correct"),
        (SPOKEN | {"start": "0"}, "'start' (expected seconds", "correct"),
        (SPOKEN | {"end": True}, "'end' (expected seconds", "correct"),
        ({"audio": "a.wav", "text": " \t"}, "is empty (expected a transcript)", "write it"),
        ({"audio": "a.wav", "text": "\ud800"}, "expected Unicode text", "correct"),
        (SPOKEN | {"start": -1}, "expected 0 <= start < end, got -1.0", "seconds"),
        (SPOKEN | {"start": 2, "end": 2}, "got 2.0 and 2.0", ""),
        ('{"audio": "a.wav", "text": "", "start": NaN}', '\'{"audio": "a.wav"', "formats"),
        ('{"audio": "a.wav", "text": "x", "end": 1e999}', "got 0.0 and inf", ""),
        ('{"audio": "a.wav", "text": "x", "end": ' + "9" * 9999 + "}", "got 0.0 and inf", ""),
        (SPOKEN | {"words": "x"}, "'words' (expected a list", "correct"),
        (SPOKEN | {"words": ["x"]}, "'words' (expected objects", ""),
        (SPOKEN | {"words": [{"word": "x", "start": 0}]}, "missing key 'end'", "add"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_wrong_json_lines(tmp_path: Path, line: object, found: str, fix: str) -> None:
    write_empty(tmp_path, "a.wav")
    path = write_lines(tmp_path, SPOKEN, "", line)
    error = manifest_error(path)
    assert error.message.startswith(f"{path}:3: ") and found in error.message
    assert fix in error.fix


@pytest.mark.parametrize(
    "times", [[(0.2, 0.1)], [(-0.1, 0.1)], [(0.5, 0.6), (0.4, 0.7)], [(0.0, 1.02)], [(0.0, 1e300)]]
)
def test_wrong_word_times(tmp_path: Path, times: list[tuple[float, float]]) -> None:
    write_empty(tmp_path, "a.wav")
    words = [{"word": "go", "start": start, "end": end} for start, end in times]
    line = {"audio": "a.wav", "text": "x", "start": 7, "end": 8, "words": words}
    path = write_lines(tmp_path, line)
    assert f"{path}:1: word 'go' from " in manifest_error(path).message


# --- tables


def test_a_table(tmp_path: Path) -> None:
    write_empty(tmp_path, "a.wav", "b.wav")
    path = write_lines(
        tmp_path,
        "\ufeffend\ttext\tstart\taudio\tspeaker\r",
        "1.5\tgo on\t0.25\ta.wav\tann\r",
        "\t\t\t\t",
        '\t"quoted"\t\tb.wav\t',
        name="train.tsv",
    )
    assert read_utterances(path) == [
        Utterance(tmp_path / "a.wav", "go on", "ann", 0.25, 1.5),
        Utterance(tmp_path / "b.wav", '"quoted"'),
    ]


@pytest.mark.parametrize(
    ("lines", "found", "fix"),
    [
        (["hello there"], "1: expected JSON objects, or column names", "formats"),
        (["audio\ttext\tspeeker"], "1: unknown key 'speeker'", "did you mean 'speaker'?"),
        (["audio\ttext\tqqq"], "1: unknown key 'qqq' (expected audio, text, speaker", "remove it"),
        (["audio\tspeaker"], "1: missing key 'text'", "add 'text'"),
        (["audio\ttext\ttext"], "1: duplicate column", "remove one"),
        (["audio\ttext", "a.wav\tx\ty"], "2: expected 2 tab-separated cells, as in the", "a tab"),
        (["audio\ttext", "a.wav x"], "2: expected 2 tab-separated cells", "put a tab"),
        (["audio\ttext", "a.wav\t "], "2: missing key 'text'", "add 'text'"),
        (["audio\ttext\tend", "a.wav\tx\t1,5"], "2: wrong value of 'end' (expected", "correct"),
        (["audio\ttext\tend", "a.wav\tx\tnan"], "2: expected 0 <= start < end, got", "seconds"),
        (["audio\ttext"], " no examples", "complete"),
    ],
)
def test_a_wrong_table(tmp_path: Path, lines: list[str], found: str, fix: str) -> None:
    write_empty(tmp_path, "a.wav")
    path = write_lines(tmp_path, *lines, name="train.tsv")
    error = manifest_error(path)
    assert error.message.startswith(f"{path}:{found}")
    assert fix in error.fix


# --- missing files


def test_missing_audio_files_are_counted(tmp_path: Path) -> None:
    write_empty(tmp_path, "a.wav")
    assert "this is a folder (expected a manifest)" in manifest_error(tmp_path).message
    names = ["a.wav", "b.wav", "c.wav", "b.wav", "d\0.wav", "."]
    path = write_lines(tmp_path, *({"audio": name, "text": "x"} for name in names))
    error = manifest_error(path)
    assert error.message.startswith(f"{path}:2: audio file not found: {tmp_path / 'b.wav'}")
    assert "(4 of 5 files are missing)" in error.message


# --- writing

seconds = st.floats(0, 1e6)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@st.composite
def utterances(draw: st.DrawFn) -> Utterance:
    start = draw(seconds)
    length = draw(st.none() | st.floats(0.001, 1e6))
    times = sorted(draw(st.lists(st.floats(0, length or 1e6), max_size=7)))
    return Utterance(
        audio=Path(draw(st.sampled_from(["a.wav", "ä b/'c\".flac"]))),
        text=draw(texts),
        speaker=draw(texts | st.just("")),
        start=start,
        end=None if length is None else start + length,
        words=tuple(
            SpokenWord(draw(texts), a, b) for a, b in zip(times[::2], times[1::2], strict=False)
        ),
    )


@given(written=st.lists(utterances(), min_size=1, max_size=5))
def test_round_trip_of_manifests(
    tmp_path_factory: pytest.TempPathFactory, written: list[Utterance]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "written"
    write_empty(folder, "a.wav", "ä b/'c\".flac")
    here = [replace(utterance, audio=folder / utterance.audio) for utterance in written]
    write_manifest(here, folder / "train.jsonl")
    assert read_utterances(folder / "train.jsonl") == here


def test_paths_are_relative_to_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_empty(tmp_path, "sounds/a.wav", "lists/sub/b.wav", "c.wav")
    (tmp_path / "lists/d.wav").symlink_to(tmp_path / "c.wav")
    (tmp_path / "link").symlink_to(tmp_path / "lists")
    monkeypatch.chdir(tmp_path / "sounds")
    written = [
        Utterance(Path("a.wav"), "a"),
        Utterance(tmp_path / "link/sub/b.wav", "b"),
        Utterance(Path("../lists/d.wav"), "d"),
    ]
    path = tmp_path / "link/train.jsonl"
    write_manifest(written, path)
    lines = [json.loads(line)["audio"] for line in path.read_text().splitlines()]
    assert lines == ["../sounds/a.wav", "sub/b.wav", "d.wav"]
    for ours, theirs in zip(read_utterances(path), written, strict=True):
        assert ours.audio.samefile(theirs.audio)


def test_manifests_are_written_atomically(tmp_path: Path) -> None:
    path = write_lines(tmp_path, {"audio": "a.wav", "text": "old"})
    before = path.read_bytes()
    with pytest.raises(ValueError):
        write_manifest([Utterance(tmp_path / "a.wav", "x", end=float("nan"))], path)
    (tmp_path / ".train.jsonl.unfinished").mkdir()
    with pytest.raises(UserError):
        write_manifest([Utterance(tmp_path / "a.wav", "new")], path)
    assert path.read_bytes() == before


# --- word times

WORDS = (SpokenWord("no", 0.5, 1.0), SpokenWord("yes", 1.25, 2.0), SpokenWord("no", 2.0, 2.5))
WHOLE = Utterance(Path("a.wav"), "no yes no", "ann", start=3.0, end=7.0, words=WORDS)


def test_suffixes_keep_the_times_in_the_file() -> None:
    suffixes = list(word_suffixes(WHOLE))
    assert [suffix.text for suffix in suffixes] == ["no yes no", "yes no", "no"]
    assert [suffix.start for suffix in suffixes] == [3.0, 4.25, 5.0]
    in_file = [(word.word, 3 + word.start, 3 + word.end) for word in WORDS]
    for suffix in suffixes:
        assert (suffix.audio, suffix.speaker, suffix.end) == (Path("a.wav"), "ann", 7.0)
        times = [
            (word.word, suffix.start + word.start, suffix.start + word.end) for word in suffix.words
        ]
        assert times == in_file[-len(times) :]


@pytest.mark.parametrize("words", [(), WORDS[:2]])
def test_utterances_without_all_word_times_stay_whole(words: tuple[SpokenWord, ...]) -> None:
    utterance = Utterance(Path("a.wav"), "no yes no", words=words)
    assert list(word_suffixes(utterance)) == [utterance]


def test_predicted_word_times() -> None:
    untimed = Utterance(Path("a.wav"), "no yes no")
    assert with_word_times([untimed], [WORDS])[0].words == WORDS
    assert with_word_times([untimed], [WORDS[:2]]) == [untimed], "other words were predicted"
    assert with_word_times([WHOLE], [WORDS[:2]]) == [WHOLE], "it has word times already"
