"""Damaged and truncated audio files are errors."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from fuzz.media import with_checksums
from small_sounds import KINDS, noise, packed, read, sound_error, tone

HOLE = 500  # bytes
DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "hole": lambda content, middle: content[:middle] + content[middle + HOLE :],
    "zeros": lambda content, middle: content[:middle] + bytes(HOLE) + content[middle + HOLE :],
    "noise": lambda content, middle: (
        content[:middle] + np.random.default_rng(1).bytes(HOLE) + content[middle + HOLE :]
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage(kind: str, damage: str) -> None:
    """No damaged file is read as a shorter signal. PCM has no checksums: it has other samples."""
    content = packed(noise(48_000), kind=kind)
    assert len(read(content)) == 48_000
    damaged = DAMAGES[damage](content, len(content) // 2)
    is_pcm = kind in ("WAV", "AIFF", "W64", "NIST", "NIST ulaw")
    if is_pcm and damage in ("zeros", "noise"):
        assert len(read(damaged)) == 48_000
    else:
        sound_error(damaged)


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files(kind: str) -> None:
    content = packed(noise(5003), kind=kind)
    last = len(content) - 1
    for length in [*range(0, 60, 7), *range(61, last, last // 53), last - 1, last]:
        sound_error(content[:length])


@pytest.mark.parametrize("kind", ["VORBIS", "OPUS", "FLAC"])
def test_changed_bytes_are_errors(kind: str) -> None:
    """libsndfile alone leaves damaged pages of Ogg out, and returns fewer samples."""
    content = packed(noise(10_007), kind=kind)
    # A FLAC file begins with comments, which have no checksum.
    for index in range(500, len(content), 307):
        sound_error(content[:index] + bytes([content[index] ^ 0x10]) + content[index + 1 :])


def test_missing_pages_and_several_streams() -> None:
    content = packed(noise(50_021), kind="VORBIS")
    whole, other = with_checksums(content, 7), with_checksums(content, 8)
    pages = [b"OggS" + page for page in whole.split(b"OggS")[1:]]
    assert len(read(whole)) == 50_021
    sound_error(b"".join(pages[:3] + pages[4:]))
    assert "end-of-stream" in sound_error(b"".join(pages[:4])).message
    assert "several Ogg streams" in sound_error(whole + other).message


def with_data_length(content: bytes, length: int) -> bytes:
    offset = content.index(b"data") + 4
    return content[:offset] + struct.pack("<I", length) + content[offset + 4 :]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, 0x7FFFF000])
def test_the_length_of_a_streamed_wav(length: int, channels: int) -> None:
    """As ffmpeg, arecord and sox write it to a pipe; the sound goes on to the end."""
    content = packed(np.stack([tone(1009)] * channels, 1))
    streamed = with_data_length(content, length // (2 * channels) * 2 * channels)
    np.testing.assert_array_equal(read(streamed), read(content))


def test_lengths() -> None:
    content = packed(tone(8_000))
    assert "expected 16,000 bytes of audio, got 8,000" in sound_error(content[: 44 + 8_000]).message
    empty = with_data_length(content, 0)
    assert "expected length 16,000 in the header" in sound_error(empty).message
    after = content + b"LIST" + struct.pack("<I", 10_000) + b"half a list"
    assert len(read(after)) == 8_000
    flac = bytearray(packed(tone(1009), kind="FLAC"))
    flac[22:26] = bytes(4)
    assert "no number of samples" in sound_error(bytes(flac)).message
    flac[22:26] = struct.pack(">I", 1010)
    sound_error(bytes(flac))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty (expected WAV, AIFF, W64, FLAC, Ogg"),
        (b"hello, I am text\n", "the file starts with b'hello, I am "),
        (b"RIFF\0\0\0\0AVI LIST", "the file starts with"),
        (packed(tone(1009), kind="RF64", coding="PCM_16"), "the file starts with b'RF64"),
        (packed(tone(1009), kind="AU", coding="PCM_16"), "the file starts with"),
        (b"ID3\3\0\0\0\0\0\x0a" + bytes(10) + packed(tone(1009)), "libsndfile reads WAV"),
        (packed(np.zeros(0)), "no sound"),
        (packed(np.zeros((7, 33))), "expected 1 to 32 channels, got 33"),
        (packed(tone(1009), 999), "expected 1000 to 768000 Hz, got 999 Hz"),
        (packed(tone(1009), 768_001), "got 768001 Hz"),
        (packed(tone(1009))[:20] + bytes(24), "no sound data"),
        (packed(tone(1009)).replace(b"fmt ", b"fmt_"), "libsndfile cannot decode it"),
        (packed(tone(1009))[:12] + b"junk\0\0\0\0" * 2000, "more than 1000 chunks"),
    ],
    ids=range(13),
)
def test_unreadable_files(content: bytes, message: str) -> None:
    assert message in sound_error(content).message


def test_invalid_samples() -> None:
    for wrong in (np.nan, np.inf, -np.inf, 1e30, -1e6):
        samples = np.stack([tone(1009)] * 2, 1)
        samples[503, 1] = wrong
        message = sound_error(packed(samples, coding="FLOAT")).message
        assert "invalid sample after 0.000 s" in message
    assert read(packed(3 * tone(1009), coding="FLOAT")).max() > 1.4
