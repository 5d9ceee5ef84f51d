"""Read audio files as one channel of float32 samples at the requested rate.

    format by the first bytes -> completeness -> libsndfile -> mean over channels -> soxr (HQ)

libsndfile decodes truncated files without an error, so completeness is checked separately:

    WAV, AIFF, W64    the data chunk lies within the file
    NIST SPHERE       there are `sample_count` samples
    Ogg               the last page is complete and has the end-of-stream flag
    all               as many frames are decoded as libsndfile reports

Memory: at most 8 bytes * seconds * requested rate + 16 bytes * BLOCK * MAX_CHANNELS (32 MiB).
"""

import io
import re
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, overload

import numpy as np
import soundfile
import soxr
from jaxtyping import Float

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.inputs import exists, open_input

MAX_SECONDS = 600.0  # of one segment
MAX_STREAM = 2**28  # bytes of standard input
MAX_CHANNELS = 32
MAX_SAMPLES = 2**27  # of one segment over all channels: 10 minutes of stereo at 96 kHz
MIN_RATE, MAX_RATE = 1_000, 768_000
MAX_AMPLITUDE = 2.0**16  # twice the largest unscaled 16-bit sample in a float file
BLOCK = 2**16  # frames
ROUNDING = 0.01  # seconds: the end of a segment may be rounded up to hundredths
SAMPLE_COUNT = re.compile(rb"^sample_count -i ([0-9]{1,15})\s*$", re.MULTILINE)
MAX_CHUNKS = 1000
UNKNOWN_LENGTHS = (0xFFFFFFFF, 0x80000000, 0x7FFFF000)  # in WAV from a pipe, or up to 255 lower
W64_MAGIC = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
OGG_PAGE = struct.Struct("<4sBBqIIIB")  # OggS, version, flags, time, stream, number, CRC, segments
MAX_PAGE = 27 + 255 + 255 * 255
END_OF_STREAM = 4  # flag of the last page
REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
FORMATS = "WAV, AIFF, W64, FLAC, Ogg (Vorbis, Opus), MP3 or NIST SPHERE"
CONVERT = "convert it to WAV, for example with `ffmpeg -i OLD NEW.wav`"
RESAMPLE = "mix or resample it, for example with `ffmpeg -i OLD -ac 1 -ar 16000 NEW.wav`"
READ_FROM_START = ("OGG", "MP3")  # libsndfile seeks inexactly in these

Signal = Float[np.ndarray, "samples"]

_SECONDS = r"[0-9]+(\.[0-9]+)?"
_SEGMENT = re.compile(rf"(?P<file>.+)#t=(?P<start>{_SECONDS})?(,(?P<end>{_SECONDS}))?")


def read_sound(
    path: Path,
    *,
    rate: int,
    start: float = 0.0,
    end: float | None = None,
    max_seconds: float = MAX_SECONDS,
) -> Signal:
    """Read a segment of a file, with times in seconds; `end=None` is the end of the file."""
    with _open_file(path) as sound:
        return _read(sound, rate, *_frame_range(sound, start, end, max_seconds))


def read_sound_stream(
    stream: BinaryIO, *, rate: int, name: str = "<stdin>", max_seconds: float = MAX_SECONDS
) -> Signal:
    """Read all of a stream, such as a pipe or `io.BytesIO`."""
    content = io.BytesIO()
    while block := stream.read(BLOCK):
        content.write(block)
        if content.tell() > MAX_STREAM:
            problem = f"the sound is too long for a pipe (expected at most {MAX_STREAM:,} bytes)"
            raise UserError(f"{name}: {problem}", fix="write it to a file and pass its path")
    with _open_sound(content, name) as sound:
        return _read(sound, rate, *_frame_range(sound, 0.0, None, max_seconds))


def sound_seconds(path: Path) -> float:
    """Return the length of a file from its header, without decoding it."""
    with _open_file(path) as sound:
        return sound.seconds


def sound_rate(path: Path) -> int:
    """Return the samples per second of a file."""
    with _open_file(path) as sound:
        return sound.rate


class UtteranceSignals(Sequence[Signal]):
    """The signals of utterances, each read on access."""

    def __init__(self, utterances: Sequence[Utterance], rate: int, max_seconds: float) -> None:
        self._utterances, self._rate, self._max_seconds = utterances, rate, max_seconds

    def __len__(self) -> int:
        return len(self._utterances)

    @overload
    def __getitem__(self, index: int) -> Signal: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Signal]: ...
    def __getitem__(self, index: int | slice) -> Signal | Sequence[Signal]:
        if isinstance(index, slice):
            return UtteranceSignals(self._utterances[index], self._rate, self._max_seconds)
        item, limit = self._utterances[index], self._max_seconds
        return read_sound(
            item.audio, rate=self._rate, start=item.start, end=item.end, max_seconds=limit
        )


def segment_name(utterance: Utterance) -> str:
    """Return the name of an utterance for `load_signal`, such as `talk.wav#t=1.5,3`."""
    if utterance.start == 0.0 and utterance.end is None:
        return str(utterance.audio)
    end = "" if utterance.end is None else f",{utterance.end!r}"
    return f"{utterance.audio}#t={utterance.start!r}{end}"


def load_signal(name: str, rate: int, max_seconds: float) -> Signal:
    """Read a file, a segment of it (`talk.wav#t=1.5,3`, in seconds) or stdin (`-`)."""
    if name == "-":
        if sys.stdin is None:  # closed by `<&-`
            raise UserError("<stdin>: it is closed", fix="name a file, or use a pipe")
        return read_sound_stream(sys.stdin.buffer, rate=rate, max_seconds=max_seconds)
    segment = None if exists(Path(name)) else _SEGMENT.fullmatch(name)
    if segment is None:
        return read_sound(Path(name), rate=rate, max_seconds=max_seconds)
    start, end = float(segment["start"] or 0.0), float(segment["end"]) if segment["end"] else None
    path = Path(segment["file"])
    return read_sound(path, rate=rate, start=start, end=end, max_seconds=max_seconds)


# --- opening


class _Decoder(soundfile.SoundFile):  # type: ignore[misc]
    """Disable the seek of `soundfile` after every read, which is inexact in MP3."""

    def seekable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Sound:
    name: str
    decoder: _Decoder
    frames: int  # a frame is one sample of each channel

    @property
    def rate(self) -> int:
        return int(self.decoder.samplerate)

    @property
    def channels(self) -> int:
        return int(self.decoder.channels)

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


@contextmanager
def _open_file(path: Path) -> Iterator[_Sound]:
    with open_input(path, "an audio file") as file, _open_sound(file, str(path)) as sound:
        yield sound


@contextmanager
def _open_sound(file: BinaryIO, name: str) -> Iterator[_Sound]:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(BLOCK)
    kind = _format(start)
    if kind is None:
        got = f"starts with {start[:12]!r}" if start else "is empty"
        fix = f"if it is sound, {CONVERT}" if start else "copy, download or record it again"
        raise UserError(f"{name}: the file {got} (expected {FORMATS})", fix=fix)
    if kind == "NIST" and b"shorten" in start[:1024]:
        message = f"{name}: compressed SPHERE file (expected the coding pcm, ulaw or alaw)"
        fix = "convert it to WAV, for example with `sph2pipe -f wav OLD NEW.wav`"
        raise UserError(message, fix=fix)
    if kind in ("WAV", "AIFF", "W64"):
        _check_data_chunk(file, size, kind, name)
    elif kind == "OGG":
        _check_last_page(file, size, name)
    file.seek(0)
    with _decoding(name):
        decoder = _Decoder(_unnamed(file))
    with decoder:
        if decoder.format.removesuffix("EX") != kind:  # WAVEX is an extension of WAV
            raise _damaged(name, f"it starts like {kind}, but libsndfile reads {decoder.format}")
        frames = decoder.frames
        if kind == "NIST":
            count = SAMPLE_COUNT.search(start.partition(b"end_head")[0])
            if count is None or int(count[1]) > frames:
                header = f"a sample_count of {int(count[1])}" if count else "no sample_count"
                raise _damaged(name, f"{frames} samples, but a header with {header}")
            frames = int(count[1])
        sound = _Sound(name, decoder, frames)
        _check_limits(sound)
        yield sound


def _unnamed(file: BinaryIO) -> SimpleNamespace:
    """Hide the name of a file, because `soundfile` reads files named .raw without a header."""

    def seek(offset: int, whence: int = io.SEEK_SET) -> None:
        with suppress(OSError, ValueError):  # before the start, after damaged headers
            file.seek(offset, whence)

    return SimpleNamespace(seek=seek, tell=file.tell, read=file.read)


def _check_limits(sound: _Sound) -> None:
    if not 1 <= sound.frames < 2**48:  # libsndfile returns 2^63 - 1 for a FLAC file from a pipe
        problem = "no sound, or no number of samples in the header (expected both)"
        fix = "record it again, or write it again with `ffmpeg -i OLD NEW.wav`"
        raise UserError(f"{sound.name}: {problem}", fix=fix)
    fix = f"if the file is complete, {RESAMPLE}"
    if not MIN_RATE <= sound.rate <= MAX_RATE:
        limits = f"expected {MIN_RATE} to {MAX_RATE} Hz, got {sound.rate} Hz"
        raise UserError(f"{sound.name}: unusual sound ({limits})", fix=fix)
    if not 1 <= sound.channels <= MAX_CHANNELS:
        limits = f"expected 1 to {MAX_CHANNELS} channels, got {sound.channels}"
        raise UserError(f"{sound.name}: unusual sound ({limits})", fix=fix)


# --- formats and truncated files


def _format(start: bytes) -> str | None:
    """Return libsndfile's name of the format."""
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        return "WAV"
    if start[:4] == b"FORM" and start[8:12] in (b"AIFF", b"AIFC"):
        return "AIFF"
    # An MPEG frame starts with 11 one bits; the layer bits 01 are layer III.
    if start[:3] == b"ID3" or (start[:1] == b"\xff" and start[1:2] and start[1] & 0xE6 == 0xE2):
        return "MP3"
    magics = {W64_MAGIC: "W64", b"fLaC": "FLAC", b"OggS": "OGG", b"NIST_1A\n": "NIST"}
    return next((kind for magic, kind in magics.items() if start.startswith(magic)), None)


def _check_data_chunk(file: BinaryIO, size: int, kind: str, name: str) -> None:
    """Compare the length of the data chunk with the bytes that follow its header."""
    is_w64 = kind == "W64"
    header = struct.Struct({"WAV": "<4sI", "AIFF": ">4sI", "W64": "<4s12xQ"}[kind])
    position, alignment = (40, 8) if is_w64 else (12, 2)  # of the first chunk, of every chunk
    for _ in range(MAX_CHUNKS):
        file.seek(min(position, size))
        raw = file.read(header.size)
        if len(raw) < header.size:
            raise _damaged(name, "no sound data")
        chunk_id, length = header.unpack(raw)
        position += header.size
        length -= header.size if is_w64 else 0  # W64 lengths include the header
        if length < 0:
            raise _damaged(name, "a chunk of negative length")
        if chunk_id == (b"SSND" if kind == "AIFF" else b"data"):
            break
        position += -(-length // alignment) * alignment
    else:
        raise _damaged(name, f"more than {MAX_CHUNKS} chunks")
    actual = size - position
    is_unknown = kind == "WAV" and any(0 <= value - length < 256 for value in UNKNOWN_LENGTHS)
    if length == 0 and actual:
        message = f"{name}: interrupted recording (expected length {actual:,} in the header, got 0)"
        raise UserError(message, fix="record it again, or repair it with `ffmpeg -i OLD NEW.wav`")
    if length > actual and not is_unknown:
        problem = f"the file is truncated (expected {length:,} bytes of audio, got {actual:,})"
        raise UserError(f"{name}: {problem}", fix="copy, download or record it again")


def _check_last_page(file: BinaryIO, size: int, name: str) -> None:
    """Check that an Ogg file ends with a complete page that has the end-of-stream flag."""
    file.seek(0)
    first_stream = OGG_PAGE.unpack(file.read(OGG_PAGE.size).ljust(OGG_PAGE.size, b"\0"))[4]
    file.seek(max(0, size - MAX_PAGE))
    tail = file.read(MAX_PAGE)
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) >= OGG_PAGE.size:
        _, _, flags, _, stream, _, checksum, segments = OGG_PAGE.unpack_from(page)
        lengths = page[OGG_PAGE.size : OGG_PAGE.size + segments]
        page = page[: OGG_PAGE.size + segments + sum(lengths)]
        if stream != first_stream:
            message = f"{name}: several Ogg streams (expected one audio stream)"
            raise UserError(message, fix=CONVERT)
        if flags & END_OF_STREAM and checksum == ogg_checksum(page):
            return
    raise _damaged(name, "the last Ogg page is incomplete or lacks the end-of-stream flag")


def ogg_checksum(page: bytes) -> int:
    """Return the CRC of an Ogg page, computed with its CRC field set to zero.

    Ogg and zlib use the same polynomial; zlib also reverses the bits of each byte and complements
    the value before and after.
    """
    zeroed = page[:22] + bytes(4) + page[26:]
    value = zlib.crc32(zeroed.translate(REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(value.to_bytes(4, "little").translate(REVERSED_BITS), "big")


def _damaged(name: str, reason: str) -> UserError:
    message = f"{name}: damaged or unsupported sound ({reason}; expected a complete file)"
    return UserError(message, fix=f"copy or download it again, or {CONVERT}")


# --- decoding


def _frame_range(
    sound: _Sound, start: float, end: float | None, max_seconds: float
) -> tuple[int, int]:
    """Return the first frame of a segment, and the frame after its last."""
    stop = sound.seconds if end is None else end
    where = f"{sound.name}: segment from {start} to {stop} s"
    if not 0 <= start < stop <= sound.seconds + ROUNDING:  # false for NaN
        raise UserError(
            f"{where} is not in the file (expected 0 <= start < end <= {sound.seconds:.3f})",
            fix="correct start and end: both are seconds from the start of the file",
        )
    if stop - start > max_seconds:
        raise UserError(
            f"{where} is too long (expected at most {max_seconds:g} s, got {stop - start:.1f} s)",
            fix="cut it into utterances, by files or by start and end in the manifest",
        )
    first, end_frame = round(start * sound.rate), min(round(stop * sound.rate), sound.frames)
    if (end_frame - first) * sound.channels > MAX_SAMPLES:
        size = f"{sound.channels} channels at {sound.rate} Hz"
        raise UserError(
            f"{where} with {size} has too many samples (expected at most {MAX_SAMPLES:,})",
            fix=RESAMPLE,
        )
    if first >= end_frame:
        message = f"{where} has no sample (expected at least 1/{sound.rate} s)"
        raise UserError(message, fix="correct start and end")
    return first, end_frame


def _read(sound: _Sound, rate: int, first: int, end: int) -> Signal:
    """Decode the frames from `first` to before `end`, mix and resample them."""
    if sound.decoder.format in READ_FROM_START:
        for position in range(0, first, BLOCK):
            _block(sound, position, min(position + BLOCK, first))
    else:
        with _decoding(sound.name):
            sound.decoder.seek(first)
    resampler = soxr.ResampleStream(sound.rate, rate, 1, dtype="float32", quality="HQ")
    # A product is much faster than numpy's mean over such a short axis.
    channel_weights = np.full(sound.channels, 1 / sound.channels, dtype=np.float32)
    blocks = []
    for position in range(first, end, BLOCK):
        stop = min(position + BLOCK, end)
        samples = _block(sound, position, stop) @ channel_weights
        if sound.rate != rate:
            samples = resampler.resample_chunk(samples, last=stop == end)
        blocks.append(samples)
    resampled = np.concatenate(blocks)
    if not len(resampled):
        length = f"{(end - first) / sound.rate:.6f} s of sound"
        message = f"{sound.name}: {length} are too short (expected at least 1/{rate} s)"
        raise UserError(message, fix="leave this segment out")
    return resampled


def _block(sound: _Sound, position: int, stop: int) -> Float[np.ndarray, "frames channels"]:
    with _decoding(sound.name, f" after {position / sound.rate:.3f} s"):
        block = np.asarray(sound.decoder.read(stop - position, dtype="float32", always_2d=True))
    if len(block) < stop - position:
        count = position + len(block)
        raise _damaged(sound.name, f"{count} of {sound.frames} samples can be decoded")
    peak = max(block.max(), -block.min())
    if not peak <= MAX_AMPLITUDE:  # false for NaN
        where = f"{sound.name}: invalid sample after {position / sound.rate:.3f} s"
        message = f"{where} (expected an amplitude of at most {MAX_AMPLITUDE:g}, got {peak})"
        raise UserError(message, fix="write the file again with numbers between -1 and 1")
    return block


@contextmanager
def _decoding(name: str, position: str = "") -> Iterator[None]:
    try:
        yield
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ").rstrip(".")
        raise _damaged(name, f"libsndfile cannot decode it{position}: {reason}") from error
