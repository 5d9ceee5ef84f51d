import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.batch.frames import FrameShards, write_frames
from harken.batch.shards import TokenShards, write_shards
from harken.errors import Failure

from .lists import numbers

FEATURES = 3
LENGTHS = [5, 0, 2, 1, 7, 0]


def utterances(lengths: list[int], features: int = FEATURES) -> list[np.ndarray]:
    random = np.random.default_rng(len(lengths))
    return [random.normal(size=(length, features)).astype(np.float32) for length in lengths]


def written(folder: Path, documents: list[np.ndarray]) -> FrameShards:
    write_frames(folder, documents, FEATURES, shard_numbers=7 * FEATURES)
    return FrameShards(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.integers(0, 11), min_size=1, max_size=7), st.data())
def test_utterances_come_back_in_any_order(
    tmp_path: Path, lengths: list[int], data: st.DataObject
) -> None:
    documents = utterances(lengths)
    shards = written(tmp_path / "frames", documents)
    assert (len(shards), shards.lengths.tolist()) == (len(lengths), lengths)
    order = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=13))
    frames, present = shards.take(numbers(order))
    longest = max(lengths[one] for one in order)
    assert frames.shape == (len(order), longest, FEATURES)
    for row, there, one in zip(frames, present, order, strict=True):
        assert there.tolist() == [place < lengths[one] for place in range(longest)]
        assert np.array_equal(row[there].numpy(), documents[one])
        assert (row[~there] == 0).all()


def test_the_header_tells_all_sizes(tmp_path: Path) -> None:
    written(tmp_path / "frames", utterances(LENGTHS))
    header = json.loads((tmp_path / "frames" / "shards.json").read_text())
    assert header == {"type": "float32", "features": 3, "documents": [3, 2, 1]}


def test_no_utterances_at_all(tmp_path: Path) -> None:
    shards = written(tmp_path / "frames", [])
    assert (len(shards), shards.lengths.tolist()) == (0, [])
    frames, present = shards.take(numbers([]))
    assert (frames.shape, present.shape) == ((0, 0, 3), (0, 0))


def test_half_the_bytes_keep_three_digits(tmp_path: Path) -> None:
    documents = utterances([101])
    write_frames(tmp_path / "half", documents, FEATURES, number_type="float16")
    assert (tmp_path / "half" / "frames-00000.bin").stat().st_size == 101 * FEATURES * 2
    frames, _ = FrameShards(tmp_path / "half").take(numbers([0]))
    assert frames.dtype == torch.float32
    assert np.array_equal(frames[0].numpy(), documents[0].astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(frames[0].numpy(), documents[0], rtol=2.0**-11)


def test_writing_streams(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        stream = (np.full((31, FEATURES), n, dtype=np.float32) for n in range(count))
        tracemalloc.start()
        write_frames(tmp_path / "frames", stream, FEATURES, shard_numbers=9001)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(3000)  # imports and caches
    assert peak(3000) < 1.2 * peak(300) < 200_000  # of 1 MB


def test_reading_maps_and_does_not_load(tmp_path: Path) -> None:
    stream = (np.full((1009, FEATURES), n, dtype=np.float32) for n in range(500))
    write_frames(tmp_path / "frames", stream, FEATURES)
    tracemalloc.start()
    frames, _ = FrameShards(tmp_path / "frames").take(numbers([7]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frames.unique().tolist() == [7]
    assert most < 200_000  # of 6 MB on disk


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path) -> None:
    def breaks_off() -> Iterator[np.ndarray]:
        yield from utterances(LENGTHS)
        raise KeyboardInterrupt

    folder = tmp_path / "frames"
    written(folder, utterances([2, 3]))
    with pytest.raises(KeyboardInterrupt):
        write_frames(folder, breaks_off(), FEATURES)
    assert FrameShards(folder).lengths.tolist() == [2, 3]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["shards.json", "frames-00001.bin", "ends-00001.bin"])
@pytest.mark.parametrize(
    "damage", ["missing", "empty", "short by a byte", "short by a number", "short by a row"]
)
def test_damage_is_told_before_training(tmp_path: Path, name: str, damage: str) -> None:
    written(tmp_path / "frames", utterances(LENGTHS))
    path = tmp_path / "frames" / name
    whole = path.read_bytes()
    number, row = {"frames": (4, 12), "ends": (8, 8)}.get(name.split("-")[0], (3, 5))
    cut = {
        "empty": len(whole),
        "short by a byte": 1,
        "short by a number": number,
        "short by a row": row,
    }
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) - cut[damage]])
    with pytest.raises(Failure, match="frame shards that cannot be read") as caught:
        FrameShards(tmp_path / "frames")
    assert str(tmp_path / "frames") in str(caught.value)
    assert "delete the folder" in caught.value.fix


@pytest.mark.parametrize("header", ["[]", "{}", "3", '{"type": "float32", "documents": [6]}'])
def test_a_foreign_header_is_damage(tmp_path: Path, header: str) -> None:
    written(tmp_path / "frames", utterances(LENGTHS))
    (tmp_path / "frames" / "shards.json").write_text(header)
    with pytest.raises(Failure):
        FrameShards(tmp_path / "frames")


def test_tokens_are_no_frames(tmp_path: Path) -> None:
    write_shards(tmp_path / "tokens", [numbers([2, 3, 5])], 97)
    with pytest.raises(Failure, match="frames-00000"):
        FrameShards(tmp_path / "tokens")
    written(tmp_path / "frames", utterances(LENGTHS))
    with pytest.raises(Failure, match="tokens-00000"):
        TokenShards(tmp_path / "frames")
