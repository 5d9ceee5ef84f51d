import io
import struct
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from harken.formats.sound.containers import page_checksum

from harken.errors import UserError
from harken.formats.sound import audio, read_sound, read_sound_stream, sound_seconds

KINDS = {"WAV": "PCM_16", "FLAC": "PCM_16", "OGG": "VORBIS", "NIST": "PCM_16"}
RATE = 16_000


def tone(frames: int, rate: int = RATE, pitch: float = 211.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(frames) / rate)


def packed(samples: np.ndarray, rate: int = RATE, kind: str = "WAV", coding: str = "") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=coding or KINDS[kind])
    return file.getvalue()


def saved(folder: Path, content: bytes, name: str = "sound.wav") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def decoded(content: bytes) -> np.ndarray:
    """What libsndfile alone makes of a whole file; our SPHERE reader never asks it."""
    samples = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)[0]
    return np.asarray(samples)


def complaint(content: bytes, **options: float) -> UserError:
    with pytest.raises(UserError) as caught:
        read_sound_stream(io.BytesIO(content), name="it.wav", **{"rate": RATE, **options})
    assert caught.value.message.startswith("it.wav: found ")
    return caught.value


# --- what is read


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_each_format_as_libsndfile_decodes_it(tmp_path: Path, kind: str, channels: int) -> None:
    content = packed(
        np.stack([tone(1009, pitch=97.0 * (c + 1)) for c in range(channels)], 1), kind=kind
    )
    # The suffix of another format: only the content counts.
    path = saved(tmp_path, content, "sound.flac" if kind == "WAV" else "sound.wav")
    samples = read_sound(path, rate=RATE)
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, decoded(content).mean(axis=1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(samples, read_sound_stream(io.BytesIO(content), rate=RATE))
    assert sound_seconds(path) == 1009 / RATE


@pytest.mark.parametrize(
    ("kind", "coding"),
    [
        *(("WAV", coding) for coding in ("PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
        *(("WAV", coding) for coding in ("ULAW", "ALAW")),
        ("WAVEX", "PCM_24"),
        ("FLAC", "PCM_24"),
        ("OGG", "OPUS"),
    ],
)
def test_each_coding(kind: str, coding: str) -> None:
    content = packed(tone(1009), kind=kind, coding=coding)
    samples = read_sound_stream(io.BytesIO(content), rate=RATE)
    np.testing.assert_array_equal(samples, decoded(content)[:, 0])


def test_numbers_of_the_standard_library(tmp_path: Path) -> None:
    """Written by Python's own `wave`, the numbers known by hand; the extremes are clipped sound."""
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        file.writeframes(struct.pack("<8h", 0, 0, 32767, 32767, -32768, -32768, 100, 300))
    expected = [0, 32767 / 32768, -1, 200 / 32768]
    assert read_sound(tmp_path / "sound.wav", rate=RATE).tolist() == expected


def test_silence() -> None:
    samples = read_sound_stream(io.BytesIO(packed(np.zeros(1009), 8_000)), rate=RATE)
    assert samples.tolist() == [0.0] * 2018


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [(0, 1009), (7, 1009), (0, 13), (331, 773), (1008, 1009)])
def test_a_stretch_is_a_part_of_the_whole(
    tmp_path: Path, kind: str, place: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, packed(tone(1009), kind=kind))
    whole = read_sound(path, rate=RATE)
    monkeypatch.setattr(audio, "BLOCK", 101)
    first, last = place
    part = read_sound(path, rate=RATE, start=first / RATE, end=last / RATE)
    np.testing.assert_array_equal(part, whole[first:last])
    np.testing.assert_array_equal(read_sound(path, rate=RATE, start=first / RATE), whole[first:])


def test_an_end_may_be_rounded_past_the_last_sample(tmp_path: Path) -> None:
    path = saved(tmp_path, packed(tone(1009)))
    whole = read_sound(path, rate=RATE)
    np.testing.assert_array_equal(read_sound(path, rate=RATE, end=1009 / RATE + 0.009), whole)
    with pytest.raises(UserError, match=r"found the stretch from 0.0 to 0.0\d+ s, wanted one with"):
        read_sound(path, rate=RATE, end=1009 / RATE + 0.011)


# --- resampling


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 96_000])
def test_block_by_block_as_soxr_at_once(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "BLOCK", 1013)
    content = packed(tone(7 * 1013 + 5, rate), rate)
    ours = read_sound_stream(io.BytesIO(content), rate=RATE)
    theirs = soxr.resample(decoded(content)[:, 0], rate, RATE, quality="HQ")
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("rate", [8_000, 44_100, 96_000])
def test_a_tone_stays_that_tone(rate: int) -> None:
    """Against the sine itself; a filter has less to look at near the two ends."""
    content = packed(tone(rate, rate), rate, coding="FLOAT")
    ours = read_sound_stream(io.BytesIO(content), rate=RATE)
    assert len(ours) == RATE
    np.testing.assert_allclose(ours[800:-800], tone(RATE)[800:-800], rtol=0, atol=1e-4)


def test_one_sample() -> None:
    content = packed(np.array([0.25]))
    assert read_sound_stream(io.BytesIO(content), rate=RATE).tolist() == [0.25]
    message = complaint(packed(np.array([0.25]), 96_000)).message
    assert "found 0.000010 s of sound, wanted at least one sample at 16000 Hz" in message


# --- files that are not whole


@pytest.mark.parametrize("kind", KINDS)
def test_no_beginning_of_a_file_is_read(kind: str) -> None:
    content = packed(0.1 * np.random.default_rng(3).standard_normal(5003), kind=kind)
    last = len(content) - 1
    for length in [*range(0, 60, 7), *range(61, last, last // 53), last - 1, last]:
        complaint(content[:length])


def test_half_a_file_says_how_much_is_there() -> None:
    content = packed(tone(8_000))
    error = complaint(content[: 44 + 8_000])
    assert "found 0.250 s of sound (8000 bytes), wanted the 0.500 s (16000 bytes)" in error.message
    assert "cut short" in error.fix


@pytest.mark.parametrize("kind", ["OGG", "FLAC"])
def test_damage_within_is_found(kind: str) -> None:
    """libsndfile alone leaves damaged pages of Ogg out, and gives fewer samples without a word."""
    content = packed(0.1 * np.random.default_rng(3).standard_normal(10_007), kind=kind)
    # A FLAC file begins with comments, which have no checksum.
    for place in range(500, len(content), 307):
        complaint(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])


def pages_of_stream(content: bytes, stream: int) -> list[bytes]:
    """The pages of an Ogg file with another number of their stream, and sums that are right."""
    starts = [place for place in range(len(content)) if content.startswith(b"OggS", place)]
    pages = []
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        page = content[start:end]
        plain = page[:14] + struct.pack("<I", stream) + page[18:22] + bytes(4) + page[26:]
        pages.append(plain[:22] + struct.pack("<I", page_checksum(plain)) + plain[26:])
    return pages


def test_pages_that_are_missing_or_foreign() -> None:
    content = packed(0.1 * np.random.default_rng(3).standard_normal(50_021), kind="OGG")
    pages = pages_of_stream(content, 7)
    assert len(read_sound_stream(io.BytesIO(b"".join(pages)), rate=RATE)) == 50_021
    gap = complaint(b"".join(pages[:3] + pages[4:]))
    assert "found page 4 of an Ogg file in place of page 3" in gap.message
    short = complaint(b"".join(pages[:4]))
    assert "found an Ogg file that was cut short after 4 pages" in short.message
    two = complaint(b"".join(pages + pages_of_stream(content, 8)))
    assert "found several streams in one Ogg file" in two.message


def with_data_length(content: bytes, length: int) -> bytes:
    place = content.index(b"data") + 4
    return content[:place] + struct.pack("<I", length) + content[place + 4 :]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, 0x7FFFF000])
def test_a_length_that_a_pipe_cannot_know(length: int, channels: int) -> None:
    """As ffmpeg, arecord and sox write it; the sound goes on to the end."""
    content = packed(np.stack([tone(1009)] * channels, 1))
    streamed = with_data_length(content, length // (2 * channels) * 2 * channels)
    np.testing.assert_array_equal(
        read_sound_stream(io.BytesIO(streamed), rate=RATE),
        read_sound_stream(io.BytesIO(content), rate=RATE),
    )


def test_a_recorder_that_was_stopped() -> None:
    error = complaint(with_data_length(packed(tone(1009)), 0))
    assert "length 0 before 2018 bytes" in error.message


def test_what_follows_the_sound_does_not_matter() -> None:
    content = packed(tone(1009))
    after = content + b"LIST" + struct.pack("<I", 10_000) + b"half a list"
    assert len(read_sound_stream(io.BytesIO(after), rate=RATE)) == 1009


def test_a_flac_file_of_unknown_length() -> None:
    content = bytearray(packed(tone(1009), kind="FLAC"))
    content[22:26] = bytes(4)
    assert "a FLAC file of unknown length" in complaint(bytes(content)).message


def test_a_flac_file_of_fewer_samples_than_it_says() -> None:
    content = bytearray(packed(tone(1009), kind="FLAC"))
    content[22:26] = struct.pack(">I", 1010)
    complaint(bytes(content))


# --- files that are something else


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (b"hello, I am text\n", "a file that begins with b'hello, I am "),
        (b"RIFF\0\0\0\0AVI LIST", "a file that begins with"),
        (packed(tone(1009), kind="RF64", coding="PCM_16"), "a file that begins with b'RF64"),
        (packed(tone(1009), kind="AIFF", coding="PCM_16"), "a file that begins with b'FORM"),
        (packed(tone(1009), coding="IMA_ADPCM"), "WAV coding 0x0011, wanted one of PCM, float"),
        (packed(np.zeros(0)), "a header and no sound"),
        (packed(np.zeros((7, 33))), "33 channels, wanted 1 to 32"),
        (packed(tone(1009), 999), "999 Hz, wanted 1000 to 768000 Hz"),
        (packed(tone(1009), 768_001), "768001 Hz"),
        (packed(tone(1009))[:20] + bytes(24), "WAV coding 0x0000"),
        (packed(tone(1009)).replace(b"fmt ", b"fmt_"), "the data of a WAV file before its format"),
        (packed(tone(1009))[:12] + b"junk\0\0\0\0" * 2000, "a WAV file of more than 1000 chunks"),
        (
            packed(tone(1009)).replace(b"\x02\0\x10\0data", b"\x03\0\x10\0data"),
            "1 channels of 16 b",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_what_is_no_sound_that_we_read(content: bytes, found: str) -> None:
    assert f"it.wav: found {found}" in complaint(content).message


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e30, -1e6])
def test_samples_that_are_no_sound(wrong: float) -> None:
    samples = np.stack([tone(1009)] * 2, 1)
    samples[503, 1] = wrong
    message = complaint(packed(samples, coding="FLOAT")).message
    assert "found a sample of size" in message and "wanted finite ones" in message


def test_float_samples_beyond_one_are_kept() -> None:
    content = packed(3 * tone(1009), coding="FLOAT")
    assert read_sound_stream(io.BytesIO(content), rate=RATE).max() > 1.4


# --- stretches and limits


@pytest.mark.parametrize(
    ("start", "end"),
    [
        *[(-0.1, None), (0.5, 0.5), (0.4, 0.3), (0.6, None), (0.5, None), (0.1, 0.7)],
        *[(np.nan, 0.2), (0.0, np.nan), (0.0, np.inf), (-np.inf, 0.1)],
    ],
)
def test_stretches_outside_of_the_file(tmp_path: Path, start: float, end: float | None) -> None:
    path = saved(tmp_path, packed(tone(8_000)))
    with pytest.raises(UserError, match=r"found the stretch from .* wanted one within its 0.500 s"):
        read_sound(path, rate=RATE, start=start, end=end)


def test_a_stretch_between_two_samples(tmp_path: Path) -> None:
    path = saved(tmp_path, packed(tone(8_000)))
    with pytest.raises(UserError, match="wanted at least one sample, 1/16000 s"):
        read_sound(path, rate=RATE, start=0.25 + 0.1 / RATE, end=0.25 + 0.2 / RATE)


def test_the_limit_is_that_of_the_stretch(tmp_path: Path) -> None:
    path = saved(tmp_path, packed(tone(8_000)))
    assert len(read_sound(path, rate=RATE, start=0.1, end=0.4, max_seconds=0.31)) == 4_800
    with pytest.raises(UserError, match=r"found 0.5 s of sound, wanted at most 0.31 s"):
        read_sound(path, rate=RATE, max_seconds=0.31)


def test_a_limit_of_bytes() -> None:
    content = packed(tone(1009))
    assert "more than 2061 bytes" in complaint(content, max_bytes=len(content) - 1).message
    read_sound_stream(io.BytesIO(content), rate=RATE, max_bytes=len(content))


def peak(path: Path, **options: float) -> int:
    """Bytes that Python and numpy took at once; a refusal is fine."""
    tracemalloc.start()
    try:
        read_sound(path, **{"rate": RATE, **options})
    except UserError as error:
        assert "wanted at most" in error.message
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


def test_bombs_are_refused_before_they_go_off(tmp_path: Path) -> None:
    """Twenty minutes of silence in a few kilobytes, and a header that promises three days."""
    bomb = tmp_path / "silence.flac"
    with soundfile.SoundFile(bomb, "w", 8_000, 1) as file:
        for _ in range(20):
            file.write(np.zeros(60 * 8_000, dtype=np.int16))
    assert bomb.stat().st_size < 50_000
    assert sound_seconds(bomb) == 1200.0
    read_sound(bomb, rate=RATE, end=0.1)
    assert peak(bomb) < 2**18
    assert peak(bomb, start=1_100.0, end=1_101.0) < 2**21
    content = bytearray(packed(tone(1009), kind="FLAC"))
    content[22:26] = b"\xff" * 4
    assert peak(saved(tmp_path, bytes(content))) < 2**18


@pytest.mark.parametrize(
    ("kind", "coding"), [("WAV", "PCM_16"), ("NIST", "PCM_16"), ("NIST", "ULAW")]
)
def test_memory_is_as_stated(
    tmp_path: Path, kind: str, coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve MiB of floats, of which 32,000 remain."""
    monkeypatch.setattr(audio, "BLOCK", 2**12)
    channels, rate, seconds = 31, 48_000, 2
    path = saved(tmp_path, packed(np.zeros((seconds * rate, channels)), rate, kind, coding))
    stated = 8 * seconds * RATE + 16 * audio.BLOCK * audio.MOST_CHANNELS
    assert seconds * rate * channels * 4 > 4 * stated
    assert peak(path) < stated


# --- paths


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"file not found \(expected a sound file"):
        read_sound(tmp_path / "a.wav", rate=RATE)
    with pytest.raises(UserError, match=r"file not found \(expected a sound file"):
        read_sound(tmp_path / "a\0.wav", rate=RATE)
    with pytest.raises(UserError, match=r"file not found \(expected a sound file"):
        sound_seconds(saved(tmp_path, b"") / "a.wav")
    with pytest.raises(UserError, match=r"this is a folder \(expected a sound file"):
        sound_seconds(tmp_path)


def test_too_many_samples_are_refused_by_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight channels at 655 kHz are refused before anything is decoded."""
    path = tmp_path / "sound.flac"
    soundfile.write(path, np.zeros((1009, 8)), 655_350, format="FLAC")
    monkeypatch.setattr(audio, "MAX_SAMPLES", 8 * 1009)
    assert len(read_sound(path, rate=RATE)) > 0
    monkeypatch.setattr(audio, "MAX_SAMPLES", 8 * 1009 - 1)
    monkeypatch.setattr(soundfile.SoundFile, "read", None)
    with pytest.raises(UserError, match="8 channels at 655350 Hz are too many samples"):
        read_sound(path, rate=RATE)
    assert sound_seconds(path) > 0
