"""Sound files damaged at random: samples or a sentence, and nothing else.

Each format is read in a process of its own, whose address space and time the system limits, so that
a crash, a hang or a bomb in a C library fails the test and not the suite.
"""

import io
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from harken.data.sound.audio import read_sound, read_sound_stream, sound_seconds
from harken.data.sound.containers import PAGE, page_checksum
from harken.errors import UserError

MUTATIONS = 1000
FORMATS = {"WAV": "PCM_16", "FLAC": "PCM_16", "OGG": "VORBIS", "NIST": "PCM_16"}
RATE, SECONDS = 16_000, 5.0
MOST_GROWTH = 64 * 2**20  # bytes of memory; reading should need 8 MiB and these seconds
ADDRESS_SPACE = 2**30  # bytes on top of what Python has when it begins
HUGE = (0, 1, 0x7F, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files_give_samples_or_a_sentence(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, kind], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["growth"] < MOST_GROWTH
    assert told["read"] + told["refused"] == MUTATIONS
    # Both must happen, or the mutations are too mild or too wild to show anything.
    assert told["read"] > MUTATIONS / 50 and told["refused"] > MUTATIONS / 5


def whole(kind: str) -> bytes:
    """A third of a second, small enough for the header to be hit often."""
    noise = 0.1 * np.random.default_rng(5).standard_normal(2003)
    file = io.BytesIO()
    soundfile.write(file, noise, 6007, format=kind, subtype=FORMATS[kind])
    # Ogg numbers its streams at random; the same mutations should give the same files.
    return checksums_mended(file.getvalue(), stream=7) if kind == "OGG" else file.getvalue()


def mutated(good: bytes, chance: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        # Half of the damage goes to where the header is.
        place = chance.randrange(min(len(data), chance.choice([64, 1 << 30])))
        match chance.randrange(6):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.randrange(256)
            case 2:
                del data[max(place, 1) :]
            case 3:
                data[place:place] = chance.randbytes(chance.choice([1, 2, 4, 1000]))
            case 4:
                del data[place : place + chance.choice([1, 2, 4, 100])]
                data = data or bytearray(1)
            case 5:
                order = chance.choice("<>")
                data[place : place + 4] = struct.pack(f"{order}I", chance.choice(HUGE))
    return bytes(data)


def digits_mutated(good: bytes, chance: random.Random) -> bytes:
    """A SPHERE header is text: a number in it becomes another."""
    lines = good[:1024].split(b"\n")
    place = chance.randrange(1, len(lines) - 1)
    number = str(chance.choice([*HUGE, -1, 10**15, 10**30])).encode()
    lines[place] = lines[place].rpartition(b" ")[0] + b" " + number
    return b"\n".join(lines)[:1024].ljust(1024) + good[1024:]


def checksums_mended(data: bytes, stream: int | None = None) -> bytes:
    """Pages of Ogg, each with the sum that it should have; with another number if one is given."""
    pages = data.split(b"OggS")
    for number, rest in enumerate(pages[1:], start=1):
        page = b"OggS" + rest
        if len(page) >= PAGE.size:
            whose = page[14:18] if stream is None else struct.pack("<I", stream)
            plain = page[:14] + whose + page[18:22] + bytes(4) + page[26:]
            pages[number] = plain[4:22] + struct.pack("<I", page_checksum(plain)) + plain[26:]
    return b"OggS".join(pages)


def damage(kind: str, folder: Path) -> dict[str, int]:
    """What became of all mutations."""
    import resource

    good, chance = whole(kind), random.Random(7)
    read_sound_stream(io.BytesIO(good), rate=RATE)  # libraries take their memory before we measure
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = {"read": 0, "refused": 0}
    for number in range(MUTATIONS):
        data = mutated(good, chance)
        if kind == "OGG" and number % 4:
            data = checksums_mended(data)
        if kind == "NIST" and number % 2:
            data = digits_mutated(good, chance)
        try:
            if number % 2:
                samples = read_sound_stream(io.BytesIO(data), rate=RATE, most_seconds=SECONDS)
            else:
                path = folder / "sound.wav"
                path.write_bytes(data)
                samples = read_sound(path, rate=RATE, most_seconds=SECONDS)
                assert abs(len(samples) - sound_seconds(path) * RATE) <= 1
            assert samples.dtype == np.float32 and samples.ndim == 1
            assert 0 < len(samples) <= SECONDS * RATE + 1 and np.isfinite(samples).all()
            told["read"] += 1
        except UserError:
            told["refused"] += 1
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return told | {"growth": (after - before) * (1 if sys.platform == "darwin" else 1024)}


def limited() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


if __name__ == "__main__":
    limited()
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(damage(sys.argv[1], Path(folder))))
