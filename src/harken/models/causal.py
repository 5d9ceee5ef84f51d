"""Causal Transformers that extend sequences from a state: the base of `GPT` and of the decoder."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.context import attention_context
from harken.attention.masks import CAUSAL, Mask, MaskKind, build_mask, padding_mask
from harken.attention.multihead import AttentionContext
from harken.attention.positions import Position
from harken.layers.dropout import Dropout
from harken.layers.embedding import TokenEmbedding
from harken.layers.transformer import Stack, StackState
from harken.models.inputs import Present, TokenIds, select_rows

MAX_SHARED = 8  # hypotheses of a prompt that share a row of the cache


class CausalState(NamedTuple):
    """Cached keys and values of the tokens, and for a decoder those of the memory.

    In beam search, the hypotheses of a prompt share a row of the cache: each step appends one token
    per hypothesis, and `visible` selects the tokens of each hypothesis. So neither the cache nor
    the memory is copied when hypotheses are dropped or duplicated.
    """

    layers: StackState
    positions: Int[Tensor, "#B S"]  # of the cached tokens
    next_position: Int[Tensor, "#B 1"]
    visible: Bool[Tensor, "B beam S"] | None = None  # to each hypothesis; None: all tokens
    beam: int = 1  # hypotheses per row of the cache
    separate: bool = False  # whether each hypothesis has its own row, because there are many
    memory: StackState = ()
    memory_present: Bool[Tensor, "B M"] | None = None

    def extend(self, tokens: TokenIds, present: Present | None) -> tuple[TokenIds, "CausalState"]:
        """Return the positions of new tokens, and the state with them, except for their keys.

        With `beam` > 1, the new tokens of a row are one token of each hypothesis.
        """
        batch, count = tokens.shape
        added = None
        if self.beam > 1:
            positions, next_position = self.next_position.expand(-1, count), self.next_position + 1
            added = torch.eye(count, dtype=torch.bool, device=tokens.device)[None]
        elif present is None:
            positions = self.next_position + torch.arange(count, device=tokens.device)
            next_position = self.next_position + count
        else:
            positions = (self.next_position + present.cumsum(dim=1) - 1).clamp(min=0)
            next_position = self.next_position + present.sum(dim=1, keepdim=True)
            added = present[:, None]
        visible = self.visible
        if visible is not None or added is not None:
            visible = concatenate_columns(
                self.all_visible if visible is None else visible,
                tokens.new_ones(1, 1, count, dtype=torch.bool) if added is None else added,
                batch,
            )
        key_positions = concatenate_columns(self.positions, positions, 1)
        return positions, self._replace(
            positions=key_positions, next_position=next_position, visible=visible
        )

    def reorder(self, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool) -> "CausalState":
        """Select hypotheses, `beam` per prompt; see `Stepper.reorder`."""
        separate = self.separate or beam > MAX_SHARED
        shared = 1 if separate else beam
        prompts, state = rows[::shared] // self.beam, self
        if separate or not same_prompts:
            state = self._select(prompts, same_memory=same_prompts and self.batch == len(prompts))
        visible = state.visible
        if shared > 1 or self.beam > 1:
            if visible is None:
                visible = self.all_visible.expand(len(prompts), -1, -1)
            slots = (rows % self.beam).view(-1, shared, 1)
            visible = visible.take_along_dim(slots, dim=1)
        return state._replace(visible=visible, beam=shared, separate=separate)

    @property
    def batch(self) -> int:
        """The number of rows of the cache."""
        return self.layers[0].values.shape[0]

    @property
    def all_visible(self) -> Bool[Tensor, "1 1 S"]:
        return torch.ones_like(self.positions[:1, None], dtype=torch.bool)

    def without_padding(self) -> "CausalState":
        """Return the state without a mask of the memory if the memory has no padding."""
        if self.memory_present is None or not bool(self.memory_present.all()):
            return self
        return self._replace(memory_present=None)

    def _select(self, rows: Int[Tensor, "rows"], *, same_memory: bool) -> "CausalState":
        def select_if_many(part: Tensor) -> Tensor:  # a single row applies to the whole batch
            return part if len(part) == 1 else part.index_select(0, rows)

        selected = self._replace(
            layers=select_rows(self.layers, rows),
            positions=select_if_many(self.positions),
            next_position=select_if_many(self.next_position),
            visible=select_rows(self.visible, rows),
        )
        if same_memory:
            return selected
        memory, present = select_rows((self.memory, self.memory_present), rows)
        return selected._replace(memory=memory, memory_present=present)


def first_positions(device: torch.device) -> tuple[Int[Tensor, "1 0"], Int[Tensor, "1 1"]]:
    """Return `positions` and `next_position` of a state without tokens."""
    next_position = torch.zeros(1, 1, dtype=torch.long, device=device)
    return next_position[:, :0], next_position


def concatenate_columns(first: Tensor, second: Tensor, batch: int) -> Tensor:
    """Concatenate along the last axis; the other axes are expanded to the larger size."""
    if first.shape[:-1] == second.shape[:-1] and len(first) >= batch:
        return torch.cat((first, second), dim=-1)
    batch = max(batch, len(first), len(second))
    middle = first.shape[1:-1] if first.dim() == 2 or first.shape[1] > 1 else second.shape[1:-1]
    parts = (part.expand(batch, *middle, -1) for part in (first, second))
    return torch.cat(tuple(parts), dim=-1)


class CausalTransformer(nn.Module):
    """Token embeddings and causal blocks."""

    embedding: TokenEmbedding
    position: Position
    dropout: Dropout
    stack: Stack
    mask_kind: MaskKind = "causal"
    window: int | None = None

    def step(
        self, tokens: TokenIds, present: Present | None, state: CausalState
    ) -> tuple[Float[Tensor, "B T J"], CausalState]:
        """Return the states of new tokens and the state after them.

        `present` is false at padding; None means that there is none. If hypotheses share rows of
        the cache, `tokens` is one column, with the hypotheses of a prompt below each other.
        """
        rows, time = tokens.shape
        if state.beam > 1:
            assert time == 1, "a hypothesis is extended by one token at a time"
            tokens = tokens.view(-1, state.beam)
        positions, extended = state.extend(tokens, present)
        mask = self._mask(positions, extended, time)
        states, layers = self.run(tokens, positions, extended.positions, mask, extended)
        return states.view(rows, time, -1), extended._replace(layers=layers)

    def run(
        self,
        tokens: TokenIds,
        positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
        mask: Mask,
        state: CausalState | None = None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        """Return the last layer's states, and the keys and values of all layers."""
        context = attention_context(self.position, mask, positions, key_positions)
        embedded = self.dropout(self.position.embed(self.embedding(tokens), positions[..., None]))
        if state is None or not state.memory:
            states, layers = self.stack(embedded, context, state.layers if state else ())
            return states, layers
        # Token and memory positions are unrelated, so cross-attention has no rotation and no bias.
        length = state.memory[0].values.shape[2]
        cross = AttentionContext(
            mask=padding_mask(state.memory_present),
            query_positions=positions,
            key_positions=torch.arange(length, device=tokens.device)[None],
        )
        states, layers = self.stack(embedded, context, state.layers, state.memory, cross)
        return states, layers

    def _mask(self, positions: Int[Tensor, "#B T"], state: CausalState, time: int) -> Mask:
        """Return the mask of the last `time` tokens of the state, or of each hypothesis."""
        visible = None if state.visible is None else state.visible[:, None]
        if self.mask_kind == "causal" and self.window is None:
            if time == 1:  # every token in the cache is visible
                return Mask(visible=visible)
            if visible is None and state.positions.shape[1] == time:
                return CAUSAL
        mask = build_mask(self.mask_kind, positions, state.positions, window=self.window)
        if visible is None or mask.visible is None:
            return mask
        return Mask(visible=mask.visible & visible)
