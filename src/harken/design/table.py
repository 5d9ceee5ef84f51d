"""A shift between any vectors of places, learned ones too: no turn, but one pair after the other.

    p_i . W~ p_t = [t = i - T]       W~ = P^+ S P^+',   S[i, t] = [t = i - T]

with the places as rows of P and its pseudo-inverse P^+. Exact where the places are linearly
independent, so for no more of them than numbers in each; and it takes a key width of one for every
pair, where waves take two for every frequency.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.merging import split_merged
from harken.design.head import Head


def table_shift(places: Float[Tensor, "T J"], offset: int, key_width: int | None) -> Head:
    """At sharpness one; of a narrow head, as much as fits: measure before you trust it."""
    steps = torch.diag(places.new_ones(len(places) - offset), -offset)
    inverse = torch.linalg.pinv(places)
    merged = inverse @ steps @ inverse.T
    split = split_merged(merged[None], key_width or merged.shape[0])
    return Head(queries=split.queries[0], keys=split.keys[0])


def sharpened(head: Head, sharpness: float) -> Head:
    """The same head, with scores so many times as large."""
    return Head(
        queries=head.queries * sharpness,
        keys=head.keys,
        query_offset=None if head.query_offset is None else head.query_offset * sharpness,
        key_offset=head.key_offset,
        values=head.values,
        output=head.output,
    )
