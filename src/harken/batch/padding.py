"""Sequences to a rectangle: padded, or packed so that hardly anything is padding.

The last token of a sequence is only ever a target and the first only ever an input, so a sequence
of n tokens takes n - 1 places. A packed row holds several sequences; `documents` numbers them and
`positions` starts again at each, which is all that attention needs to keep them apart.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from harken.batch.ragged import Numbers, Ragged, append, places

IGNORE_INDEX = -100  # a target that no loss counts


class TokenBatch(NamedTuple):
    """Inputs and the token that follows each; the last two only for packed rows."""

    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"] | None = None
    documents: Int[Tensor, "B T"] | None = None

    @property
    def counted(self) -> int:
        return int((self.targets != IGNORE_INDEX).sum())

    def to(self, device: torch.device) -> "TokenBatch":
        moved = [None if part is None else part.to(device) for part in self]
        return TokenBatch(*moved)  # type: ignore[arg-type]


def pad(sequences: Ragged, filler: int) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """(tokens, where a token is) of sequences set flush left."""
    rows = len(sequences.lengths)
    longest = int(sequences.lengths.max(initial=0))
    owner, place = places(sequences.lengths)
    grid = np.full((rows, longest), filler, dtype=np.int64)
    grid[owner, place] = sequences.values
    present = np.arange(longest) < sequences.lengths[:, None]
    return torch.from_numpy(grid), torch.from_numpy(present)


def shift_targets(
    texts: Ragged, start: int, end: int, filler: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Texts as a decoder is told them, `start` first, and as it is to write them, `end` last."""
    wanted, counted = pad(append(texts, end), filler)
    told = torch.cat((torch.full_like(wanted[:, :1], start), wanted[:, :-1]), dim=1)
    return told, wanted.masked_fill(~counted, IGNORE_INDEX)


def next_token_batch(sequences: Ragged, first_targets: Numbers, filler: int) -> TokenBatch:
    """One sequence a row; targets before token number `first_target` are not counted."""
    tokens, present = pad(sequences, filler)
    counted = present[:, 1:] & (
        torch.arange(tokens.shape[1])[1:] >= torch.from_numpy(first_targets)[:, None]
    )
    return TokenBatch(tokens[:, :-1], tokens[:, 1:].masked_fill(~counted, IGNORE_INDEX))


def pack_rows(lengths: Numbers, room: int) -> tuple[Numbers, Numbers]:
    """(row, offset in it) of every sequence: the longest first, each where it fits most tightly."""
    row = np.zeros(len(lengths), dtype=np.int64)
    offset = np.zeros(len(lengths), dtype=np.int64)
    spare: list[int] = []
    for one in np.argsort(-lengths, kind="stable"):
        need = int(lengths[one])
        fitting = [(left, number) for number, left in enumerate(spare) if left >= need]
        chosen = min(fitting)[1] if fitting else len(spare)
        if not fitting:
            assert need <= room, "a sequence longer than a row must be cut before it is packed"
            spare.append(room)
        row[one], offset[one] = chosen, room - spare[chosen]
        spare[chosen] -= need
    return row, offset


def packed_batch(sequences: Ragged, first_targets: Numbers, filler: int, room: int) -> TokenBatch:
    """Several sequences a row of `room` places, kept apart by `documents`."""
    lengths = np.maximum(sequences.lengths - 1, 0)
    row, offset = pack_rows(lengths, room)
    owner, place = places(lengths)
    at = (row[owner], offset[owner] + place)
    shape = (int(row.max(initial=-1)) + 1, room)
    source = sequences.starts[owner] + place
    inputs = np.full(shape, filler, dtype=np.int64)
    targets = np.full(shape, IGNORE_INDEX, dtype=np.int64)
    positions = np.zeros(shape, dtype=np.int64)
    # Padding is a text of its own (-1), so that it sees only padding and nothing sees it.
    documents = np.full(shape, -1, dtype=np.int64)
    inputs[at] = sequences.values[source]
    counted = place + 1 >= first_targets[owner]
    targets[at] = np.where(counted, sequences.values[source + 1], IGNORE_INDEX)
    positions[at] = place
    documents[at] = owner
    return TokenBatch(*(torch.from_numpy(part) for part in (inputs, targets, positions, documents)))
