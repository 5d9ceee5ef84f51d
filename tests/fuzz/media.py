"""Sound, images and arrays: whole files, and mutations that know their formats."""

import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from fuzz.mutators import HUGE, mutate_bytes, mutate_parts
from harken.formats.arrays import read_feature_maps, read_image_array
from harken.formats.image_file import decode_image, image_size, read_image
from harken.formats.sound import (
    OGG_PAGE,
    ogg_checksum,
    read_sound,
    read_sound_stream,
    sound_seconds,
)
from small_images import packed

SOUNDS = {
    **{kind: (kind, "PCM_16") for kind in ("WAV", "AIFF", "W64", "FLAC", "NIST")},
    "VORBIS": ("OGG", "VORBIS"),
    "OPUS": ("OGG", "OPUS"),
    "MP3": ("MP3", "MPEG_LAYER_III"),
}
IMAGES: dict[str, dict[str, object]] = {
    "PNG": {},
    "JPEG": {"progressive": True, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6"},
    "GIF": {},
    "WEBP": {"lossless": True},
    "BMP": {},
}
RATE, MAX_SECONDS, MAX_PIXELS = 16_000, 5.0, 2**20


def sound(kind: str) -> bytes:
    """Two thousand samples, few enough for mutations to hit the header often."""
    noise = 0.1 * np.random.default_rng(5).standard_normal(2003)
    file = io.BytesIO()
    name, coding = SOUNDS[kind]
    rate = 16_000 if kind in ("OPUS", "MP3") else 6007
    soundfile.write(file, noise, rate, format=name, subtype=coding)
    # Ogg numbers its streams at random; the same mutations should give the same files.
    return with_checksums(file.getvalue(), stream=7) if name == "OGG" else file.getvalue()


def mutate_sound(kind: str, good: bytes, rng: random.Random) -> bytes:
    if kind == "NIST" and rng.random() < 0.5:
        return _mutate_sphere(good, rng)
    if kind == "FLAC" and rng.random() < 0.3:
        return _mutate_streaminfo(good, rng)
    data = mutate_bytes(good, rng)
    return with_checksums(data) if kind in ("VORBIS", "OPUS") and rng.random() < 0.7 else data


def _mutate_sphere(good: bytes, rng: random.Random) -> bytes:
    """A SPHERE header is text: a number in it becomes another."""
    lines = good[:1024].split(b"\n")
    place = rng.randrange(1, len(lines) - 1)
    number = str(rng.choice([*HUGE, -1, 10**15, 10**30])).encode()
    lines[place] = lines[place].rpartition(b" ")[0] + b" " + number
    return b"\n".join(lines)[:1024].ljust(1024) + good[1024:]


def _mutate_streaminfo(good: bytes, rng: random.Random) -> bytes:
    """Another rate, number of channels, sample size and number of samples in a FLAC header."""
    rate, channels, bits = rng.choice([0, 1, 8000, 655_350]), rng.randrange(8), rng.randrange(32)
    frames = rng.choice([0, 1, 2003, 2**31, 2**36 - 1])
    packed = rate << 44 | channels << 41 | bits << 36 | frames
    return good[:18] + packed.to_bytes(8, "big") + good[26:]


def with_checksums(data: bytes, stream: int | None = None) -> bytes:
    """Give every Ogg page the checksum that it should have, and a stream number if given."""
    pages = data.split(b"OggS")
    for number, rest in enumerate(pages[1:], start=1):
        page = b"OggS" + rest
        if len(page) >= OGG_PAGE.size:
            owner = page[14:18] if stream is None else struct.pack("<I", stream)
            page = page[:14] + owner + page[18:]
            pages[number] = page[4:22] + struct.pack("<I", ogg_checksum(page)) + page[26:]
    return b"OggS".join(pages)


def read_mutated_sound(data: bytes, path: Path, rng: random.Random) -> None:
    """Read from a file or a stream and check that samples are what was promised."""
    if rng.random() < 0.5:
        samples = read_sound_stream(io.BytesIO(data), rate=RATE, max_seconds=MAX_SECONDS)
    else:
        path.write_bytes(data)
        samples = read_sound(path, rate=RATE, max_seconds=MAX_SECONDS)
        assert abs(len(samples) - sound_seconds(path) * RATE) <= 1
    assert samples.dtype == np.float32 and samples.ndim == 1
    assert 0 < len(samples) <= MAX_SECONDS * RATE + 1 and np.isfinite(samples).all()


def image(kind: str) -> bytes:
    pixels = np.random.default_rng(5).integers(0, 256, (13, 17, 3), dtype=np.uint8)
    return packed(pixels, kind, **IMAGES[kind])


def mutate_image(kind: str, good: bytes, rng: random.Random) -> bytes:
    match rng.randrange(10):
        case 0 | 1:
            data = mutate_parts(good, _part_starts(kind, good), rng)
        case 2:
            data = _with_size(kind, good, rng)
        case _:
            data = mutate_bytes(good, rng)
    return _with_chunk_checksums(data) if kind == "PNG" and rng.random() < 0.75 else data


def _part_starts(kind: str, data: bytes) -> list[int]:
    if kind == "PNG":
        return [found.start() - 4 for found in re.finditer(b"IHDR|PLTE|tRNS|IDAT|IEND", data)]
    if kind == "JPEG":
        return [found.start() for found in re.finditer(b"\xff[\xc0-\xfe]", data)]
    return list(range(16, len(data), 16))


def _with_size(kind: str, good: bytes, rng: random.Random) -> bytes:
    """Claim another size, up to what is allowed and far beyond."""
    columns, rows = (rng.choice([0, 1, 12, 18, 1000, 1024, 16384, 60000]) for _ in range(2))
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
    sides = (rows - 1 & 0x3FFF) << 14 | columns - 1 & 0x3FFF  # lossless WebP
    return good[:21] + struct.pack("<I", sides) + good[25:]


def _with_chunk_checksums(data: bytes) -> bytes:
    place, fixed = 8, bytearray(data)
    while place + 12 <= len(fixed):
        end = place + 8 + int.from_bytes(fixed[place : place + 4], "big")
        if end + 4 > len(fixed):
            break
        fixed[end : end + 4] = struct.pack(">I", zlib.crc32(fixed[place + 4 : end]))
        place = end + 4
    return bytes(fixed)


def read_mutated_image(data: bytes, path: Path, rng: random.Random) -> None:
    channels, size = rng.choice([1, 3]), rng.choice([None, (7, 5), (31, 3)])
    options = {"channels": channels, "size": size}
    if rng.random() < 0.5:
        pixels = decode_image(data, "it", **options)
    else:
        path.write_bytes(data)
        pixels = read_image(path, **options)
        columns, rows = size or image_size(path)
        assert pixels.shape == (rows, columns, channels)
    assert pixels.dtype == np.uint8 and 0 < pixels.size <= MAX_PIXELS * channels


def arrays() -> dict[str, bytes]:
    """Images and maps as .npy and .npz, packed and not."""
    pixels = np.random.default_rng(5).integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
    maps = pixels.astype(np.float32)
    found = {}
    for name, array in (("images", pixels), ("maps", maps)):
        for save in (np.savez, np.savez_compressed):
            file = io.BytesIO()
            save(file, **{name: array})
            found[f"{name}-{save.__name__}.npz"] = file.getvalue()
        file = io.BytesIO()
        np.save(file, array)
        found[f"{name}.npy"] = file.getvalue()
    return found


def mutate_array(name: str, good: bytes, rng: random.Random) -> bytes:
    """Damage the bytes, the header of the array, or the list of members."""
    choice = rng.randrange(3)
    if choice == 0:
        return mutate_bytes(good, rng)
    if name.endswith(".npy"):
        return _mutate_npy(good, rng)
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(file, "w") as new:
        for member in old.infolist():
            content = old.read(member)
            content = _mutate_npy(content, rng) if choice == 1 else content
            packing = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
            for copy in range(rng.choice([1, 1, 2, 300])):
                new.writestr(f"{copy or ''}{member.filename}", content, packing)
    return mutate_bytes(file.getvalue(), rng) if choice == 2 else file.getvalue()


def _mutate_npy(good: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return mutate_bytes(good, rng)
    header, numbers = good[10:128].decode("latin-1"), good[128:]
    shape = ", ".join(str(rng.choice([*HUGE, 3, 5, 7, -1, 10**30])) for _ in range(4))
    kinds = ["|u1", "<f4", ">f8", "|O", "|i1", "<U9", "<M8[s]", "|V5", "<f2", "<c16", "x"]
    changes: list[Callable[[str], str]] = [
        lambda text: re.sub(r"\(.*\)", f"({shape})", text),
        lambda text: re.sub(r"'descr': '[^']*'", f"'descr': '{rng.choice(kinds)}'", text),
        lambda text: text.replace("False", rng.choice(["True", "1", "__import__('os')"])),
        lambda text: text.replace("{", "{" * rng.choice([2, 90])),
        lambda text: text.replace("(3", "(" + "9" * 60),
    ]
    header = rng.choice(changes)(header)
    content = header.encode("latin-1")
    return good[:8] + struct.pack("<H", len(content) & 0xFFFF) + content + numbers


def read_mutated_array(name: str, data: bytes, path: Path) -> None:
    path.write_bytes(data)
    array = read_image_array(path) if name.startswith("images") else read_feature_maps(path)
    array.take(range(min(len(array), 2)))
