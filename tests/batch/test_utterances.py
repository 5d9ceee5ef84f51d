"""Texts beside their sound: what is told, what is wanted, what counts."""

import torch

from harken.batch.padding import IGNORE_INDEX
from harken.batch.utterances import utterance_batch

from .lists import from_lists

START, END, FILLER = 3, 4, 0


def test_told_and_wanted_are_one_apart() -> None:
    frames = torch.randn(3, 7, 5)
    present = torch.arange(7) < torch.tensor([7, 2, 5])[:, None]
    batch = utterance_batch(frames, present, from_lists([[11, 12], [], [13]]), START, END, FILLER)
    assert batch.inputs.tolist() == [[START, 11, 12], [START, END, 0], [START, 13, END]]
    wanted = [[11, 12, END], [END, IGNORE_INDEX, IGNORE_INDEX], [13, END, IGNORE_INDEX]]
    assert batch.targets.tolist() == wanted
    assert batch.counted == 6
    moved = batch.to(torch.device("cpu"))
    assert moved.frames is frames and torch.equal(moved.present, present)
