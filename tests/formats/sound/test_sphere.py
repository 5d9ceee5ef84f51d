import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from harken.errors import UserError
from harken.formats.sound import read_sound, read_sound_stream, sound_seconds

RATE = 16_000
NUMBERS = np.array([[0, 1], [-1, 256], [32767, -32768], [258, -3], [7, 11]])  # time, channel


def sphere(raw: bytes, *, header: int = 1024, **fields: object) -> bytes:
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


def samples(content: bytes) -> np.ndarray:
    return read_sound_stream(io.BytesIO(content), rate=RATE)


def complaint(content: bytes) -> UserError:
    with pytest.raises(UserError) as caught:
        read_sound_stream(io.BytesIO(content), name="it.sph", rate=RATE)
    assert caught.value.message.startswith("it.sph: found ")
    return caught.value


@pytest.mark.parametrize("order", ["01", "10"])
@pytest.mark.parametrize("coding", ["-s3 pcm", None])
def test_both_orders_of_bytes(order: str, coding: str | None) -> None:
    raw = NUMBERS.astype("<i2" if order == "01" else ">i2")[:, 0].tobytes()
    content = sphere(raw, sample_byte_format=f"-s2 {order}", sample_coding=coding)
    assert samples(content).tolist() == (NUMBERS[:, 0] / 32768).tolist()


def test_channels_stand_side_by_side(tmp_path: Path) -> None:
    raw = NUMBERS.astype("<i2").tobytes()
    content = sphere(raw, channel_count=2, sample_count=5)
    np.testing.assert_allclose(samples(content), NUMBERS.mean(axis=1) / 32768, rtol=1e-6)
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    assert sound_seconds(path) == 5 / RATE
    part = read_sound(path, rate=RATE, start=1 / RATE, end=3 / RATE)
    np.testing.assert_allclose(part, NUMBERS[1:3].mean(axis=1) / 32768, rtol=1e-6)


@pytest.mark.parametrize("header", [1024, 2048])
def test_the_header_says_where_it_ends(header: int) -> None:
    raw = NUMBERS.astype("<i2")[:, 0].tobytes()
    assert samples(sphere(raw, header=header)).tolist() == (NUMBERS[:, 0] / 32768).tolist()


def test_what_follows_the_samples_does_not_matter() -> None:
    raw = NUMBERS.astype("<i2")[:, 0].tobytes()
    assert len(samples(sphere(raw, sample_count=3) + b"more")) == 3


def test_every_byte_of_mu_law_as_libsndfile_decodes_it() -> None:
    raw = bytes(range(256))
    plain = io.BytesIO()
    soundfile.write(plain, np.zeros(256), RATE, format="WAV", subtype="ULAW")
    theirs = soundfile.read(io.BytesIO(plain.getvalue()[:-256] + raw), dtype="float32")[0]
    content = sphere(raw, sample_count=256, sample_n_bytes=1, sample_coding="-s4 ulaw")
    np.testing.assert_array_equal(samples(content), theirs)
    assert theirs.min() == -32124 / 32768  # nothing but the table can be told from its extremes


def test_a_file_that_libsndfile_wrote() -> None:
    noise = 0.1 * np.random.default_rng(3).standard_normal((1009, 2))
    for coding, order in (("PCM_16", "LITTLE"), ("PCM_16", "BIG"), ("ULAW", "FILE")):
        file = io.BytesIO()
        soundfile.write(file, noise, RATE, format="NIST", subtype=coding, endian=order)
        theirs = soundfile.read(io.BytesIO(file.getvalue()), dtype="float32")[0]
        np.testing.assert_allclose(samples(file.getvalue()), theirs.mean(axis=1), atol=1e-7)


def test_half_a_file() -> None:
    raw = np.zeros(8_000, dtype="<i2").tobytes()
    error = complaint(sphere(raw)[: 1024 + 4_001])
    assert "found 0.125 s of sound (4001 bytes), wanted the 0.500 s (16000 bytes)" in error.message
    assert "cut short" in error.fix


RAW = NUMBERS.astype("<i2")[:, 0].tobytes()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (sphere(RAW, sample_count=6), "0.000 s of sound (10 bytes)"),
        (sphere(RAW, sample_count=10**14), "0.000 s of sound"),
        (sphere(RAW, sample_count=0), "a header and no sound"),
        (sphere(RAW, sample_count=None), "no sample_count in a SPHERE header"),
        (sphere(RAW, sample_count=-5), "sample_count '-5'"),
        (sphere(RAW, sample_count=10**30), "sample_count '1000"),
        (sphere(RAW, sample_rate=None), "no sample_rate"),
        (sphere(RAW, sample_rate=0), "1 channels at 0 Hz"),
        (sphere(RAW, sample_rate=7), "7 Hz, wanted 1000 to 768000 Hz"),
        (sphere(RAW, sample_rate="-r 16000.5"), "sample_rate '16000.5'"),
        (sphere(RAW, channel_count=0), "0 channels at 16000 Hz"),
        (sphere(RAW * 40, channel_count=200, sample_count=1), "200 channels, wanted 1 to 32"),
        (sphere(RAW, sample_byte_format=None), "SPHERE coding 'pcm' with 2 bytes"),
        (sphere(RAW, sample_n_bytes=4), "SPHERE coding 'pcm' with 4 bytes"),
        (sphere(RAW, sample_coding="-s4 ulaw"), "SPHERE coding 'ulaw' with 2 bytes"),
        (sphere(RAW).replace(b"end_head", b"end_haed"), "a SPHERE header without its end_head"),
        (sphere(RAW)[:900], "a SPHERE header of length '1024' in a file of 900 bytes"),
        (sphere(RAW).replace(b"   1024\n", b"99999999"), "a SPHERE header of length '99999999'"),
        (sphere(RAW).replace(b"   1024\n", b"   -124\n"), "a SPHERE header of length '-124'"),
        (b"NIST_1A\n", "a SPHERE header of length ''"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_wrong_headers(content: bytes, found: str) -> None:
    assert f"it.sph: found {found}" in complaint(content).message


def test_compressed_files_are_refused_with_the_tool_that_unpacks_them() -> None:
    error = complaint(sphere(RAW, sample_coding="-s26 pcm,embedded-shorten-v2.00"))
    assert "found SPHERE coding 'pcm,embedded-shorten-v2.00'" in error.message
    assert "sph2pipe" in error.fix
