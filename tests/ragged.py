"""Causal language models must give equal states for whole rows and for chunks of padded rows."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close


def check_ragged_chunks(model: Any, vocabulary: int, length: int, max_examples: int) -> None:
    """Each chunk is padded separately, and a row may have no token in a chunk."""
    row = st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=length)
    rows_and_cuts = st.tuples(row, st.lists(st.integers(0, length), min_size=3, max_size=3))

    @given(st.lists(rows_and_cuts, min_size=1, max_size=4), st.integers(0, vocabulary - 1))
    @settings(max_examples=max_examples)
    def holds(rows: list[tuple[list[int], list[int]]], padding: int) -> None:
        state = model.init_state(len(rows), torch.device("cpu"))
        gathered: list[list[Tensor]] = [[] for _ in rows]
        for chunk in range(4):
            parts = []
            for tokens, cuts in rows:
                bounds = [0, *sorted(cuts), length]
                parts.append(tokens[bounds[chunk] : bounds[chunk + 1]])
            longest = max(map(len, parts))
            if longest == 0:
                continue
            padded = torch.tensor([part + [padding] * (longest - len(part)) for part in parts])
            present = torch.arange(longest) < torch.tensor([[len(part)] for part in parts])
            states, state = model.step(padded, present, state)
            assert states.isfinite().all()
            for number, part in enumerate(parts):
                gathered[number].append(states[number, : len(part)])
        for (tokens, _), states in zip(rows, gathered, strict=True):
            (alone,) = model.states(torch.tensor([tokens]))
            assert_close(torch.cat(states), alone, rtol=0, atol=1e-10)

    holds()
