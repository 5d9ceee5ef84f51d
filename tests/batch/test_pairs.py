import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.padding import IGNORE_INDEX
from harken.batch.pairs import RaggedPairs, pair_batch
from harken.batch.ragged import ragged

START, END, FILLER = 1, 2, 0
tokens = st.lists(st.integers(3, 30), max_size=6)
pairs = st.lists(st.tuples(tokens.filter(bool), tokens), min_size=1, max_size=5)


def ragged_pairs(rows: list[tuple[list[int], list[int]]]) -> RaggedPairs:
    sides = ([np.array(row[side], dtype=np.int64) for row in rows] for side in (0, 1))
    return RaggedPairs(*(ragged(side) for side in sides))


@given(pairs, st.randoms())
def test_each_row_is_told_its_target_one_step_late(rows: list, random) -> None:
    together = ragged_pairs(rows)
    longer = [max(len(source), len(target) + 1) for source, target in rows]
    assert together.lengths.tolist() == longer
    chosen = [random.randrange(len(rows)) for _ in range(3)]
    batch = pair_batch(together.take(np.array(chosen)), START, END, FILLER)
    for row, number in enumerate(chosen):
        source, target = rows[number]
        present = batch.present[row]
        assert batch.source[row][present].tolist() == source
        assert (batch.source[row][~present] == FILLER).all()
        counted = batch.targets[row] != IGNORE_INDEX
        assert batch.targets[row][counted].tolist() == [*target, END]
        assert batch.inputs[row][counted].tolist() == [START, *target]
    assert batch.counted == sum(len(rows[number][1]) + 1 for number in chosen)
    moved = batch.to(torch.device("cpu"))
    assert all(torch.equal(one, other) for one, other in zip(batch, moved, strict=True))
