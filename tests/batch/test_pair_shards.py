"""Pairs on disk are those of lists in memory."""

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.batch import pair_shards
from harken.batch.pair_shards import PairShards
from harken.batch.shards import write_shards

from .lists import numbers, to_lists


def all_at_once(documents: list[list[int]], done: int) -> list[list[np.ndarray]]:
    return [list(map(numbers, documents))]


sides = st.lists(st.integers(0, 96), max_size=7)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(st.tuples(sides, sides), min_size=1, max_size=13),
    st.integers(0, 7),
    st.integers(1, 7),
    st.data(),
)
def test_pairs_that_fit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pairs: list[tuple[list[int], list[int]]],
    max_source: int,
    max_target: int,
    data: st.DataObject,
) -> None:
    for name, documents in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        write_shards(tmp_path / name, partial(all_at_once, documents), 97)
    (tmp_path / "fitting.bin").unlink(missing_ok=True)
    monkeypatch.setattr(pair_shards, "BLOCK", 3)
    shards = PairShards(tmp_path, max_source, max_target)
    fitting = [(s, t) for s, t in pairs if 0 < len(s) <= max_source and len(t) < max_target]
    assert (len(shards), shards.num_unfit) == (len(fitting), len(pairs) - len(fitting))
    again = PairShards(tmp_path, 0, 0)  # the stored indices
    assert len(again) == len(fitting)
    if not fitting:
        return
    order = data.draw(st.lists(st.integers(0, len(fitting) - 1), min_size=1, max_size=17))
    lengths = [max(len(s), len(t) + 1) for s, t in (fitting[index] for index in order)]
    assert np.asarray(shards[numbers(order)]).tolist() == lengths
    source, target = again.take(numbers(order))
    assert list(zip(to_lists(source), to_lists(target), strict=True)) == [
        fitting[index] for index in order
    ]
