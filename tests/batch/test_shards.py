import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.batch.shards import TokenShards, write_shards
from harken.errors import Failure

from .lists import documents, from_lists, numbers, to_lists

EXAMPLE = [[2, 3, 5], [], [7, 11], [13], [17, 19, 23, 29], []]


def written(folder: Path, sequences: list[list[int]], *, vocabulary: int = 97) -> TokenShards:
    write_shards(folder, map(numbers, sequences), vocabulary, shard_tokens=5)
    return TokenShards(folder)


# The folder is written anew by every example, which is itself what the second write must survive.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(documents.filter(len), st.data())
def test_documents_come_back_in_any_order(
    tmp_path: Path, sequences: list[list[int]], data: st.DataObject
) -> None:
    shards = written(tmp_path / "shards", sequences)
    assert len(shards) == len(sequences)
    assert shards.lengths.tolist() == [len(one) for one in sequences]
    order = data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=13))
    assert to_lists(shards.take(numbers(order))) == [sequences[n] for n in order]


def test_a_shard_ends_with_the_document_that_fills_it(tmp_path: Path) -> None:
    written(tmp_path / "shards", EXAMPLE)
    header = json.loads((tmp_path / "shards" / "shards.json").read_text())
    assert header == {"type": "uint16", "documents": [3, 2, 1]}


def test_no_documents_at_all(tmp_path: Path) -> None:
    shards = written(tmp_path / "shards", [])
    assert len(shards) == 0
    assert shards.lengths.tolist() == []


@pytest.mark.parametrize(("vocabulary", "size"), [(65536, 2), (65537, 4)])
def test_numbers_take_no_more_bytes_than_needed(tmp_path: Path, vocabulary: int, size: int) -> None:
    highest = vocabulary - 1
    shards = written(tmp_path / "shards", [[highest, 0, highest]], vocabulary=vocabulary)
    assert to_lists(shards.take(numbers([0]))) == [[highest, 0, highest]]
    assert (tmp_path / "shards" / "tokens-00000.bin").stat().st_size == 3 * size


def test_writing_streams(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        stream = (np.full(101, n, dtype=np.int64) for n in range(count))
        tracemalloc.start()
        write_shards(tmp_path / "shards", stream, 65536, shard_tokens=5000)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(3000)  # imports and caches
    assert peak(3000) < 1.2 * peak(300) < 100_000


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path) -> None:
    def breaks_off() -> Iterator[np.ndarray]:
        yield from map(numbers, EXAMPLE)
        raise KeyboardInterrupt

    folder = tmp_path / "shards"
    with pytest.raises(KeyboardInterrupt):
        write_shards(folder, breaks_off(), 97, shard_tokens=5)
    assert list(tmp_path.iterdir()) == []
    written(folder, [[2, 3]])
    with pytest.raises(KeyboardInterrupt):
        write_shards(folder, breaks_off(), 97, shard_tokens=5)
    assert to_lists(TokenShards(folder).take(numbers([0]))) == [[2, 3]]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["shards.json", "tokens-00001.bin", "ends-00001.bin"])
@pytest.mark.parametrize("damage", ["missing", "empty", "short by a byte", "short by a number"])
def test_damage_is_told_before_training(tmp_path: Path, name: str, damage: str) -> None:
    written(tmp_path / "shards", EXAMPLE)
    path = tmp_path / "shards" / name
    whole = path.read_bytes()
    number = {"tokens": 2, "ends": 8}.get(name.split("-")[0], 3)
    cut = {"empty": len(whole), "short by a byte": 1, "short by a number": number}
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) - cut[damage]])
    with pytest.raises(Failure, match="token shards that cannot be read") as caught:
        TokenShards(tmp_path / "shards")
    assert str(tmp_path / "shards") in str(caught.value)
    assert "delete the folder" in caught.value.fix


@pytest.mark.parametrize("header", ["[]", "{}", "3", '{"type": "tokens", "documents": [1]}'])
def test_a_foreign_header_is_damage(tmp_path: Path, header: str) -> None:
    written(tmp_path / "shards", EXAMPLE)
    (tmp_path / "shards" / "shards.json").write_text(header)
    with pytest.raises(Failure):
        TokenShards(tmp_path / "shards")


def test_reading_maps_and_does_not_load(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", (np.full(1009, n) for n in range(1000)), 65536)
    tracemalloc.start()
    shards = TokenShards(tmp_path / "shards")
    assert to_lists(shards.take(numbers([7]))) == to_lists(from_lists([[7] * 1009]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200_000  # of 2 MB on disk
