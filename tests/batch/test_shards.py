"""Token and frame shards: round trips, streaming, damaged files."""

import json
import shutil
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.batch.shards import FrameShards, Shards, TokenShards, write_frames, write_shards
from harken.errors import Failure

from .lists import documents, numbers, to_lists

FEATURES = 3
LENGTHS = [3, 0, 2, 1, 4, 0]
# A folder is written again by each example: the second write replaces the first.
fewer = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)


def write_tokens(folder: Path, sequences: Iterable[np.ndarray], batch: int = 2) -> None:
    """Write all documents, `batch` at a time, as if none was written before."""
    if folder.exists():
        shutil.rmtree(folder)
    iterator = iter(sequences)
    write_shards(folder, lambda done: iter(lambda: list(islice(iterator, batch)), []), 97)


def write_some_frames(folder: Path, sounds: Iterable[np.ndarray]) -> None:
    write_frames(folder, sounds, FEATURES)


def tokens(length: int) -> np.ndarray:
    return np.full(length, length)


def frames(length: int) -> np.ndarray:
    return np.random.default_rng(length).normal(size=(length, FEATURES)).astype(np.float32)


Write = Callable[..., None]
Kind = tuple[Write, type[Shards], Callable[[int], np.ndarray]]
KINDS: dict[str, Kind] = {
    "tokens": (write_tokens, TokenShards, tokens),
    "frames": (write_some_frames, FrameShards, frames),
}
both = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@fewer
@given(documents.filter(len), st.data())
def test_token_documents_round_trip(
    tmp_path: Path, sequences: list[list[int]], data: st.DataObject
) -> None:
    write_tokens(tmp_path / "shards", map(numbers, sequences))
    shards = TokenShards(tmp_path / "shards")
    assert (len(shards), shards.lengths.tolist()) == (len(sequences), list(map(len, sequences)))
    order = data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=13))
    assert to_lists(shards.take(numbers(order))) == [sequences[index] for index in order]


@fewer
@given(st.lists(st.integers(0, 11), min_size=1, max_size=7), st.data())
def test_frames_round_trip(tmp_path: Path, lengths: list[int], data: st.DataObject) -> None:
    sounds = list(map(frames, lengths))
    write_some_frames(tmp_path / "frames", sounds)
    shards = FrameShards(tmp_path / "frames")
    assert (len(shards), shards.lengths.tolist()) == (len(lengths), lengths)
    order = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=13))
    batch, present = shards.take(numbers(order))
    longest = max(lengths[index] for index in order)
    assert batch.shape == (len(order), longest, FEATURES)
    for row, mask, index in zip(batch, present, order, strict=True):
        assert mask.tolist() == [frame < lengths[index] for frame in range(longest)]
        assert np.array_equal(row[mask].numpy(), sounds[index])
        assert (row[~mask] == 0).all()


@both
def test_the_header_has_all_sizes(tmp_path: Path, kind: Kind) -> None:
    write, read, document = kind
    write(tmp_path / "shards", map(document, LENGTHS))
    header = json.loads((tmp_path / "shards" / "shards.json").read_text())
    sizes = {"type": "uint16"} if read is TokenShards else {"type": "float32", "features": 3}
    assert header == {**sizes, "documents": 6}


@both
def test_no_documents(tmp_path: Path, kind: Kind) -> None:
    write, read, _ = kind
    write(tmp_path / "shards", [])
    shards = read(tmp_path / "shards")
    assert (len(shards), shards.lengths.tolist()) == (0, [])
    if isinstance(shards, FrameShards):
        assert [part.shape for part in shards.take(numbers([]))] == [(0, 0, 3), (0, 0)]


@pytest.mark.parametrize(("vocabulary", "size"), [(65536, 2), (65537, 4)])
def test_bytes_per_token(tmp_path: Path, vocabulary: int, size: int) -> None:
    highest = vocabulary - 1
    batch = [numbers([highest, 0, highest])]
    write_shards(tmp_path / "shards", lambda done: [batch], vocabulary)
    shards = TokenShards(tmp_path / "shards")
    assert to_lists(shards.take(numbers([0]))) == [[highest, 0, highest]]
    assert (tmp_path / "shards" / "tokens.bin").stat().st_size == 3 * size


def peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@both
def test_writing_takes_constant_memory(tmp_path: Path, kind: Kind) -> None:
    write, _, document = kind

    def peak(count: int) -> int:
        stream = (document(61) for _ in range(count))
        return peak_bytes(lambda: write(tmp_path / "shards", stream))

    peak(300)  # imports and caches
    # The 1,700 additional documents have 61 tokens each, of at least 2 bytes.
    assert peak(2000) < peak(300) + 1700 * 61 < 200_000


@both
def test_reading_maps_the_files(tmp_path: Path, kind: Kind) -> None:
    write, read, document = kind
    write(tmp_path / "shards", (document(1009) for _ in range(500)))
    shards: list[object] = []
    peak = peak_bytes(lambda: shards.append(read(tmp_path / "shards").take(numbers([7]))))
    assert shards and peak < 200_000  # of 1 or 6 MB on disk


def test_an_interrupted_write_of_frames_keeps_the_old_folder(tmp_path: Path) -> None:
    def interrupted() -> Iterator[np.ndarray]:
        yield from map(frames, LENGTHS)
        raise KeyboardInterrupt

    folder = tmp_path / "shards"
    with pytest.raises(KeyboardInterrupt):
        write_some_frames(folder, interrupted())
    assert list(tmp_path.iterdir()) == []
    write_some_frames(folder, map(frames, [2, 3]))
    with pytest.raises(KeyboardInterrupt):
        write_some_frames(folder, interrupted())
    assert FrameShards(folder).lengths.tolist() == [2, 3]
    assert list(tmp_path.iterdir()) == [folder]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@fewer
@given(documents.filter(len), st.integers(1, 3), st.data())
def test_an_interrupted_write_of_tokens_is_continued(
    tmp_path: Path, sequences: list[list[int]], size: int, data: st.DataObject
) -> None:
    """A kill may leave a part of a batch in either file."""
    whole, folder = tmp_path / "whole", tmp_path / "shards"
    write_tokens(whole, map(numbers, sequences))
    shutil.rmtree(folder, ignore_errors=True)
    stop, requested = data.draw(st.integers(0, len(sequences))), []

    def batches(done: int, until: int) -> Iterator[list[np.ndarray]]:
        requested.append(done)
        for start in range(done, until, size):
            yield list(map(numbers, sequences[start : min(start + size, until)]))
        if until < len(sequences):
            raise KeyboardInterrupt

    if stop < len(sequences):
        with pytest.raises(KeyboardInterrupt):
            write_shards(folder, lambda done: batches(done, stop), 97)
        with pytest.raises(Failure):  # it is not complete
            TokenShards(folder)
        for name in ("tokens.bin", "ends.bin"):
            path = folder / name
            removed = data.draw(st.integers(0, path.stat().st_size))
            path.write_bytes(path.read_bytes()[: path.stat().st_size - removed])
    write_shards(folder, lambda done: batches(done, len(sequences)), 97)
    assert contents(folder) == contents(whole)
    calls = len(requested)
    write_shards(folder, lambda done: batches(done, len(sequences)), 97)
    assert len(requested) == calls  # complete folders are not written again


def test_complete_documents_are_not_encoded_again(tmp_path: Path) -> None:
    requested = []

    def batches(done: int) -> Iterator[list[np.ndarray]]:
        requested.append(done)
        yield from ([tokens(length)] for length in LENGTHS[done : done + 2])
        if done + 2 < len(LENGTHS):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            write_shards(tmp_path, batches, 97)
    write_shards(tmp_path, batches, 97)
    assert requested == [0, 2, 4]
    assert TokenShards(tmp_path).lengths.tolist() == LENGTHS


@both
@pytest.mark.parametrize("name", ["shards.json", "ROWS.bin", "ends.bin"])
@pytest.mark.parametrize("damage", ["missing", "empty", "byte", "number", "row"])
def test_damage_is_reported(tmp_path: Path, kind: Kind, name: str, damage: str) -> None:
    write, read, document = kind
    write(tmp_path / "shards", map(document, LENGTHS))
    rows = "tokens" if read is TokenShards else "frames"
    path = tmp_path / "shards" / name.replace("ROWS", rows)
    content = path.read_bytes()
    number, row = {"tokens": (2, 2), "frames": (4, 12), "ends": (8, 8)}.get(path.stem, (3, 5))
    if damage == "missing":
        path.unlink()
    else:
        cut = {"empty": len(content), "byte": 1, "number": number, "row": row}[damage]
        path.write_bytes(content[: len(content) - cut])
    with pytest.raises(Failure, match=f"the {rows[:-1]} shards cannot be read") as caught:
        read(tmp_path / "shards")
    assert str(tmp_path / "shards") in str(caught.value)
    assert "delete the folder" in caught.value.fix


@both
@pytest.mark.parametrize("header", ["[]", "{}", "3", '{"type": "tokens", "documents": 6}'])
def test_a_wrong_header_is_damage(tmp_path: Path, kind: Kind, header: str) -> None:
    write, read, document = kind
    write(tmp_path / "shards", map(document, LENGTHS))
    (tmp_path / "shards" / "shards.json").write_text(header)
    with pytest.raises(Failure):
        read(tmp_path / "shards")


def test_tokens_are_not_frames(tmp_path: Path) -> None:
    for (write, _, document), (_, other, _) in (KINDS.values(), reversed(KINDS.values())):
        write(tmp_path / "shards", [document(3)])
        with pytest.raises(Failure, match=r"s\.bin"):
            other(tmp_path / "shards")
