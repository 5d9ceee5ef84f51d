"""Decoded audio against libsndfile, soxr and samples written by hand."""

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from harken.errors import UserError
from harken.formats import sound
from harken.formats.examples import Utterance
from harken.formats.sound import (
    UtteranceSignals,
    load_signal,
    read_sound,
    read_sound_stream,
    segment_name,
    sound_rate,
    sound_seconds,
)
from small_files import peak_memory
from small_sounds import KINDS, RATE, decoded, noise, packed, read, saved, sound_error, tone

# --- formats


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 2])
def test_each_format_as_libsndfile_decodes_it(
    tmp_path: Path, kind: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks; the suffix does not matter, not even that of files without a header."""
    monkeypatch.setattr(sound, "BLOCK", 1013)
    channel_tones = [tone(5003, pitch=97.0 * (channel + 1)) for channel in range(channels)]
    content = packed(np.stack(channel_tones, 1), kind=kind)
    path = saved(tmp_path, content, name="sound.raw")
    samples = read_sound(path, rate=RATE)
    assert samples.dtype == np.float32 and len(samples) == 5003
    np.testing.assert_allclose(samples, decoded(content).mean(axis=1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(samples, read(content))
    assert sound_seconds(path) == 5003 / RATE and sound_rate(path) == RATE


@pytest.mark.parametrize(
    ("kind", "coding"),
    [
        *(("WAV", coding) for coding in ("PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
        *(("WAV", coding) for coding in ("ULAW", "ALAW", "IMA_ADPCM")),
        *(("WAVEX", "PCM_24"), ("FLAC", "PCM_24"), ("AIFF", "PCM_24"), ("NIST", "ALAW")),
    ],
)
def test_each_coding(kind: str, coding: str) -> None:
    content = packed(tone(1009), kind=kind, coding=coding)
    np.testing.assert_array_equal(read(content)[:1009], decoded(content)[:1009, 0])


def test_numbers_of_the_standard_library(tmp_path: Path) -> None:
    """Written by Python's own `wave`, the numbers known by hand; the extremes are clipped sound."""
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        file.writeframes(struct.pack("<8h", 0, 0, 32767, 32767, -32768, -32768, 100, 300))
    expected = [0, 32767 / 32768, -1, 200 / 32768]
    assert read_sound(tmp_path / "sound.wav", rate=RATE).tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("segment", [(0, 9001), (7, 9001), (0, 13), (3331, 7773), (9000, 9001)])
def test_segments_equal_slices_of_the_signal(
    tmp_path: Path, kind: str, segment: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """libsndfile seeks inexactly in MP3 and Ogg."""
    path = saved(tmp_path, packed(noise(9001), kind=kind))
    whole = read_sound(path, rate=RATE)
    monkeypatch.setattr(sound, "BLOCK", 1013)
    first, last = segment
    part = read_sound(path, rate=RATE, start=first / RATE, end=last / RATE)
    np.testing.assert_array_equal(part, whole[first:last])


def test_names_of_segments(tmp_path: Path) -> None:
    path = saved(tmp_path, packed(noise(2 * RATE)), name="talk.wav")
    for start, end in [(0.0, None), (0.25, None), (0.0, 1.5), (0.1, 0.7)]:
        utterance = Utterance(audio=path, text="so", start=start, end=end)
        signal = load_signal(segment_name(utterance), RATE, 10.0)
        np.testing.assert_array_equal(signal, UtteranceSignals([utterance], RATE, 10.0)[0])
        assert len(signal) == round(((2.0 if end is None else end) - start) * RATE)
    assert segment_name(Utterance(audio=path, text="so")) == str(path)
    assert segment_name(Utterance(audio=path, text="so", end=1.5)) == f"{path}#t=0.0,1.5"
    for wrong in ["#t=3,4", "#t=1,0.5", "#t=-1", "#s=1,2", "#t=1,2,3", f"#t={'9' * 400}"]:
        with pytest.raises(UserError):
            load_signal(f"{path}{wrong}", RATE, 10.0)
    odd = path.rename(tmp_path / "talk.wav#t=1")
    assert len(load_signal(str(odd), RATE, 10.0)) == 2 * RATE


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 96_000])
def test_resampling_in_blocks_equals_soxr(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "BLOCK", 1013)
    content = packed(tone(7 * 1013 + 5, rate), rate)
    theirs = soxr.resample(decoded(content)[:, 0], rate, RATE, quality="HQ")
    np.testing.assert_array_equal(read(content), theirs)


def test_one_sample() -> None:
    assert read(packed(np.array([0.25]))).tolist() == [0.25]
    assert "at least 1/16000 s" in sound_error(packed(np.array([0.25]), 96_000)).message


# --- NIST SPHERE


NUMBERS = np.array([0, -1, 32767, 258, 7, 1, 256, -32768, -3, 11])
RAW = NUMBERS.astype("<i2").tobytes()


def sphere(raw: bytes = RAW, *, header: int = 1024, **fields: object) -> bytes:
    """A file as the standard says, written by hand; a field of None is left out."""
    known: dict[str, object] = {
        "database_id": "-s4 mine",
        "channel_count": 1,
        "sample_count": len(raw) // 2,
        "sample_rate": RATE,
        "sample_n_bytes": 2,
        "sample_byte_format": "-s2 01",
        "sample_coding": "-s3 pcm",
    }
    lines = [
        f"{name} -i {value}" if isinstance(value, int) else f"{name} {value}"
        for name, value in (known | fields).items()
        if value is not None
    ]
    text = "\n".join(["NIST_1A", f"{header:7d}", *lines, "end_head", ""])
    return text.encode().ljust(header) + raw


@pytest.mark.parametrize("coding", ["-s3 pcm", None])
@pytest.mark.parametrize("header", [1024, 2048])
def test_sphere_numbers(header: int, coding: str | None) -> None:
    expected = (NUMBERS / 32768).tolist()
    assert read(sphere(header=header, sample_coding=coding)).tolist() == expected
    big = sphere(NUMBERS.astype(">i2").tobytes(), sample_byte_format="-s2 10", header=header)
    assert read(big).tolist() == expected
    assert read(sphere(sample_count=3) + b"more").tolist() == expected[:3]
    stereo = sphere(channel_count=2, sample_count=5)
    np.testing.assert_allclose(read(stereo), NUMBERS.reshape(5, 2).mean(1) / 32768, rtol=1e-6)


def test_every_byte_of_mu_law() -> None:
    """A byte with the bits ~seeemmmm is (-1)^s ((33 + 2m) 2^e - 33) 4."""
    byte = ~np.arange(256, dtype=np.uint8)
    size, steps = (byte >> 4) & 7, (byte & 15).astype(np.int32)
    heights = ((33 + 2 * steps) * 2**size - 33) * 4
    sizes = {"sample_count": 256, "sample_n_bytes": 1, "sample_byte_format": "-s1 1"}
    content = sphere(bytes(range(256)), **sizes, sample_coding="-s4 ulaw")
    np.testing.assert_array_equal(read(content), np.where(byte & 128, -heights, heights) / 2**15)


@pytest.mark.parametrize(
    "content",
    [
        *(sphere(sample_count=count) for count in (11, 10**14, 0, None, -5)),
        *(sphere(sample_rate=rate) for rate in (None, 7)),
        sphere(channel_count=0),
        sphere(RAW * 40, channel_count=200, sample_count=1),
        sphere()[:900],
        b"NIST_1A\n",
    ],
    ids=range(11),
)
def test_wrong_sphere_headers(content: bytes) -> None:
    sound_error(content)
    shorten = sphere(sample_coding="-s26 pcm,embedded-shorten-v2.00")
    assert "sph2pipe" in sound_error(shorten).fix


# --- segments and limits


@pytest.mark.parametrize(
    ("start", "end"),
    [
        *[(-0.1, None), (0.5, 0.5), (0.4, 0.3), (0.6, None), (0.5, None), (0.1, 0.7)],
        *[(np.nan, 0.2), (0.0, np.nan), (0.0, np.inf), (-np.inf, 0.1), (0.0, 0.511)],
    ],
)
def test_segments_outside_of_the_file(tmp_path: Path, start: float, end: float | None) -> None:
    path = saved(tmp_path, packed(tone(8_000)))
    with pytest.raises(UserError, match=r"is not in the file \(expected 0 <= start < end <= 0.500"):
        read_sound(path, rate=RATE, start=start, end=end)


def test_limits_of_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, packed(tone(8_000)))
    assert len(read_sound(path, rate=RATE, end=0.509)) == 8_000  # rounded up
    assert len(read_sound(path, rate=RATE, start=0.1, end=0.4, max_seconds=0.31)) == 4_800
    with pytest.raises(UserError, match=r"too long \(expected at most 0.31 s, got 0.5 s\)"):
        read_sound(path, rate=RATE, max_seconds=0.31)
    with pytest.raises(UserError, match=r"has no sample \(expected at least 1/16000 s\)"):
        read_sound(path, rate=RATE, start=0.25 + 0.1 / RATE, end=0.25 + 0.2 / RATE)
    monkeypatch.setattr(sound, "MAX_STREAM", path.stat().st_size)
    read_sound_stream(io.BytesIO(path.read_bytes()), rate=RATE)
    monkeypatch.setattr(sound, "MAX_STREAM", path.stat().st_size - 1)
    assert "expected at most 16,043 bytes" in sound_error(path.read_bytes()).message


def read_or_refuse(path: Path, **options: float) -> None:
    try:
        read_sound(path, rate=RATE, **options)
    except UserError as error:
        assert "expected at most" in error.message


def test_bombs_are_refused_before_decoding(tmp_path: Path) -> None:
    """Twenty minutes of silence in a few kilobytes, and a header that promises three days."""
    bomb = tmp_path / "silence.flac"
    with soundfile.SoundFile(bomb, "w", 8_000, 1) as file:
        for _ in range(20):
            file.write(np.zeros(60 * 8_000, dtype=np.int16))
    assert bomb.stat().st_size < 50_000
    assert sound_seconds(bomb) == 1200.0
    read_sound(bomb, rate=RATE, end=0.1)
    assert peak_memory(read_or_refuse, bomb) < 2**19
    assert peak_memory(read_or_refuse, bomb, start=1_100.0, end=1_101.0) < 2**21
    content = bytearray(packed(tone(1009), kind="FLAC"))
    content[22:26] = b"\xff" * 4
    assert peak_memory(read_or_refuse, saved(tmp_path, bytes(content))) < 2**19


@pytest.mark.parametrize("kind", ["WAV", "NIST", "NIST ulaw"])
def test_memory_is_as_stated(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve MiB of floats, of which 32,000 remain."""
    monkeypatch.setattr(sound, "BLOCK", 2**12)
    channels, rate, seconds = 31, 48_000, 2
    path = saved(tmp_path, packed(np.zeros((seconds * rate, channels)), rate, kind))
    stated = 8 * seconds * RATE + 16 * sound.BLOCK * sound.MAX_CHANNELS
    assert seconds * rate * channels * 4 > 4 * stated
    assert peak_memory(read_sound, path, rate=RATE) < stated


def test_too_many_samples_are_refused_by_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sound.flac"
    soundfile.write(path, np.zeros((1009, 8)), 655_350, format="FLAC")
    monkeypatch.setattr(sound, "MAX_SAMPLES", 8 * 1009)
    assert len(read_sound(path, rate=RATE)) > 0
    monkeypatch.setattr(sound, "MAX_SAMPLES", 8 * 1009 - 1)
    monkeypatch.setattr(soundfile.SoundFile, "read", None)
    with pytest.raises(UserError, match="8 channels at 655350 Hz has too many samples"):
        read_sound(path, rate=RATE)
