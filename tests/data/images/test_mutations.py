"""Pictures damaged at random: pixels or a sentence, and nothing else.

Each format is read in a process of its own, whose address space and time the system limits, so that
a crash, a hang or a bomb in a C library fails the test and not the suite.
"""

import io
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harken.data.images.files import decode_image, image_size, read_image
from harken.errors import UserError

MUTATIONS = 1000
FORMATS = {
    "PNG": {},
    "JPEG": {"progressive": True, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6"},
    "GIF": {},
    "WEBP": {"lossless": True},
    "BMP": {},
}
MOST_PIXELS = 2**20
MOST_GROWTH = 32 * 2**20  # bytes of memory: 24 for each pixel, and what libraries keep
MOST_SECONDS = 1.0  # of a processor, for one file; most take a thousandth
ADDRESS_SPACE = 2**30  # bytes on top of what Python has when it begins
HUGE = (0, 1, 0x7F, 0x3FF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_pictures_give_pixels_or_a_sentence(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, kind], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["growth"] < MOST_GROWTH
    assert told["slowest"] < MOST_SECONDS
    assert told["read"] + told["refused"] == MUTATIONS
    # Both must happen, or the mutations are too mild or too wild to show anything.
    assert told["read"] > MUTATIONS / 50 and told["refused"] > MUTATIONS / 5


def whole(kind: str) -> bytes:
    """Small enough for the header to be hit often."""
    pixels = np.random.default_rng(5).integers(0, 256, (13, 17, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **FORMATS[kind])
    return file.getvalue()


def mutated(good: bytes, chance: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        # Half of the damage goes to where the header is.
        place = chance.randrange(min(len(data), chance.choice([64, 1 << 30])))
        match chance.randrange(7):
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
                layout = chance.choice(["<I", ">I", "<H", ">H"])
                value = chance.choice(HUGE) & (2 ** (8 * struct.calcsize(layout)) - 1)
                data[place : place + struct.calcsize(layout)] = struct.pack(layout, value)
            case 6:
                other = chance.randrange(len(data))
                length = chance.choice([1, 2, 4, 16])
                data[place : place + length] = data[other : other + length]
    return bytes(data)


def parts(kind: str, data: bytes) -> list[bytes]:
    """Chunks of PNG and segments of JPEG, roughly; of the others pieces of 16 bytes."""
    if kind == "PNG":
        starts = [found.start() - 4 for found in re.finditer(b"IHDR|PLTE|tRNS|IDAT|IEND", data)]
    elif kind == "JPEG":
        starts = [found.start() for found in re.finditer(b"\xff[\xc0-\xfe]", data)]
    else:
        starts = list(range(16, len(data), 16))
    return [data[a:b] for a, b in zip([0, *starts], [*starts, None], strict=True)]


def shuffled(kind: str, good: bytes, chance: random.Random) -> bytes:
    """Two parts change places, or one is missing, or there twice."""
    pieces = parts(kind, good)
    one, other = (chance.randrange(len(pieces)) for _ in range(2))
    match chance.randrange(3):
        case 0:
            pieces[one], pieces[other] = pieces[other], pieces[one]
        case 1:
            del pieces[one]
        case 2:
            pieces.insert(one, pieces[other])
    return b"".join(pieces)


def resized(kind: str, good: bytes, chance: random.Random) -> bytes:
    """A header that claims another size, up to what is just allowed and far beyond."""
    columns, rows = (chance.choice([0, 1, 12, 18, 1000, 1024, 16384, 60000]) for _ in range(2))
    size = struct.pack("<HH", columns, rows)
    match kind:
        case "PNG":
            return good[:16] + struct.pack(">II", columns, rows) + good[24:]
        case "JPEG":
            place = good.index(b"\xff\xc2") + 5
            return good[:place] + struct.pack(">HH", rows, columns) + good[place + 4 :]
        case "GIF":
            frame = good.index(b",\0\0\0\0") + 5
            return good[:6] + size + good[10:frame] + size + good[frame + 4 :]
        case "BMP":
            return good[:18] + struct.pack("<ii", columns, rows) + good[26:]
    sides = (rows - 1 & 0x3FFF) << 14 | columns - 1 & 0x3FFF  # WebP without loss
    return good[:21] + struct.pack("<I", sides) + good[25:]


def checksums_mended(data: bytes) -> bytes:
    """Chunks of PNG as far as there are any, each with the sum that it should have."""
    place, mended = 8, bytearray(data)
    while place + 12 <= len(mended):
        end = place + 8 + int.from_bytes(mended[place : place + 4], "big")
        if end + 4 > len(mended):
            break
        mended[end : end + 4] = struct.pack(">I", zlib.crc32(mended[place + 4 : end]))
        place = end + 4
    return bytes(mended)


def damage(kind: str, folder: Path) -> dict[str, float]:
    """What became of all mutations."""
    import resource

    good, chance = whole(kind), random.Random(7)
    decode_image(good, "it", channels=3)  # libraries take their memory before we measure
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read, refused, slowest = 0, 0, 0.0
    for number in range(MUTATIONS):
        match number % 10:
            case 0 | 1:
                data = shuffled(kind, good, chance)
            case 2:
                data = resized(kind, good, chance)
            case _:
                data = mutated(good, chance)
        if kind == "PNG" and number % 4:
            data = checksums_mended(data)
        channels, size = chance.choice([1, 3]), chance.choice([None, (7, 5), (31, 3)])
        options = {"channels": channels, "size": size, "most_pixels": MOST_PIXELS}
        start = time.process_time()
        try:
            if number % 2:
                pixels = decode_image(data, "it", **options)
            else:
                path = folder / "picture.png"
                path.write_bytes(data)
                pixels = read_image(path, **options)
                columns, rows = size or image_size(path)
                assert pixels.shape == (rows, columns, channels)
            assert pixels.dtype == np.uint8 and 0 < pixels.size <= MOST_PIXELS * channels
            read += 1
        except UserError as error:
            assert "\n" not in str(error)
            refused += 1
        slowest = max(slowest, time.process_time() - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    growth = (after - before) * (1 if sys.platform == "darwin" else 1024)
    return {"read": read, "refused": refused, "slowest": slowest, "growth": growth}


def limited() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


if __name__ == "__main__":
    limited()
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(damage(sys.argv[1], Path(folder))))
