"""Preferred offsets of heads, computed from the parameters of a model without any input.

    s(i, t)    = score of a random token at i with a random token at t
    profile(d) = mean over i and both tokens of s(i, i - d)       d > 0 is an earlier key

The preferred offset is the d with the highest profile. Its band is the range of offsets around it
whose profile is at most `DROP` lower. Tokens are random rows of the embedding, or zeros for a model
without an embedding (speech). The variance of s over the keys of a query is the sum of

    position    variance of m, the mean of s over query and key tokens: independent of the input
    mixed       variance of n - m, where n is the mean of s over key tokens only: depends on the
                query token and the positions together
    content     variance of s over the key tokens at a position

All values are means over random tokens. In the first layer, the scores of these tokens are exact.
In later layers they cover the direct path of tokens, from the embedding through the norms, without
the outputs of earlier layers.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.context import attention_context
from harken.attention.kernels import repeat_kv
from harken.attention.masks import NO_MASK, MaskKind
from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.layers.embedding import SegmentEmbedding, TokenEmbedding
from harken.layers.transformer import Block

DROP = 1.0  # nats: attention at the edge of a band is at least 1/e of that at its peak
TOKENS = 16  # drawn for queries, and the same number for keys


@dataclass(frozen=True, kw_only=True, slots=True)
class InputPath:
    """The direct path of tokens to a self-attention layer."""

    position: Position
    norms: tuple[nn.Module, ...]  # in order
    table: Float[Tensor, "V J"]  # embeddings
    mask_kind: MaskKind
    window: int | None
    is_first_layer: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class OffsetPreferences:
    """Preferred offsets of each head of an attention layer."""

    offsets: Int[Tensor, "offsets"]
    profile: Float[Tensor, "k offsets"]  # nats, with a mean of 0
    attention_by_position: Float[Tensor, "k offsets"]  # softmax of m, mean over queries
    preferred: Int[Tensor, "k"]  # offset with the highest profile
    band: Int[Tensor, "k"]  # number of consecutive offsets around `preferred`
    position: Float[Tensor, "k"]  # shares of the variance of the score
    mixed: Float[Tensor, "k"]
    content: Float[Tensor, "k"]
    exact: bool  # whether the scores are exact, as in the first layer

    @property
    def has_preference(self) -> Bool[Tensor, "k"]:
        """Whether an offset is outside the band: the profile varies by more than `DROP`."""
        return self.band < len(self.offsets)


def input_path(model: nn.Module, name: str) -> InputPath | None:
    """Return the path to a layer; None for cross-attention, images and models not by Harken."""
    modules = dict(model.named_modules())
    parts = name.split(".")
    ancestors = [".".join(parts[:depth]) for depth in range(len(parts) - 1, -1, -1)]
    attention, block = modules[name], modules[ancestors[0]]
    parent = next((modules[path] for path in ancestors if hasattr(modules[path], "position")), None)
    if not isinstance(block, Block) or parent is None:
        return None
    position = parent.position
    assert isinstance(attention, MultiHead) and isinstance(position, Position)
    if attention.kind == "cross" or position.axes > 1:
        return None
    blocks = modules[ancestors[1]]
    assert isinstance(blocks, nn.ModuleList)
    earlier = [other for other in list(blocks)[: int(parts[-2])] if isinstance(other, Block)]
    first_norm = getattr(parent, "norm", None)
    norms = [] if first_norm is None else [first_norm]
    norms += [norm for other in earlier for norm in other.residual_norms()]
    norms += block.norms_before_attention()
    return InputPath(
        position=position,
        norms=tuple(norms),
        table=_embedding_table(modules, ancestors, position.token_width),
        mask_kind=getattr(parent, "mask_kind", "causal" if block.is_decoder else "bidirectional"),
        window=getattr(parent, "window", None),
        is_first_layer=not earlier and block.attention_is_first,
    )


@torch.no_grad()
def offset_preferences(
    attention: MultiHead, path: InputPath, *, length: int, tokens: int = TOKENS, seed: int = 0
) -> OffsetPreferences:
    """Compute the preferences for inputs of `length`, from queries with a key at every offset."""
    means, content = _score_random_tokens(attention, path, length, tokens, seed)
    queries, offsets = _choose_queries(path, length)
    # Index by offset instead of key: … k queries offsets.
    pairs = queries[:, None], queries[:, None] - offsets
    means, content = means[:, :, *pairs], content[:, *pairs]
    mean = means.mean(dim=0)
    by_position = mean.var(dim=-1, correction=0).mean(dim=-1)
    remaining = (means - mean).var(dim=-1, correction=0).mean(dim=-1)
    by_mixed = remaining.sum(dim=0) / max(len(remaining) - 1, 1)
    by_content = content.mean(dim=(-2, -1))
    total = (by_position + by_mixed + by_content).clamp(min=torch.finfo(mean.dtype).tiny)
    profile = mean.mean(dim=1)
    peak = profile.argmax(dim=-1)
    return OffsetPreferences(
        offsets=offsets,
        profile=profile - profile.mean(dim=-1, keepdim=True),
        attention_by_position=mean.softmax(dim=-1).mean(dim=1),
        preferred=offsets[peak],
        band=_run_length(profile >= profile.amax(dim=-1, keepdim=True) - DROP, peak),
        position=by_position / total,
        mixed=by_mixed / total,
        content=by_content / total,
        exact=path.is_first_layer,
    )


def _score_random_tokens(
    attention: MultiHead, path: InputPath, length: int, tokens: int, seed: int
) -> tuple[Float[Tensor, "tokens k T S"], Float[Tensor, "k T S"]]:
    """Return the mean score over key tokens for each query token, and the variance over key tokens.

    The keys are one row with several tokens at each position, as in a packed row.
    """
    position, positions = path.position, torch.arange(length, device=path.table.device)[None]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(path.table), (2, tokens), generator=generator).to(positions.device)

    def embed(token_ids: Int[Tensor, "tokens"]) -> Float[Tensor, "tokens T J"]:
        embeddings = path.table[token_ids][:, None].expand(-1, length, -1)
        states = position.embed(embeddings, positions[..., None])
        for norm in path.norms:
            states = norm(states)
        return states

    queries, keys = map(embed, drawn)
    key_positions = positions.repeat(1, tokens)
    cached = attention.project_kv(
        keys.reshape(1, tokens * length, -1), position.rotation(key_positions[..., None])
    )
    context = attention_context(position, NO_MASK, positions, key_positions)
    means, variances = [], []
    for query in queries:
        terms = attention.terms(query[None], cached, context)
        scores = query.new_zeros(()) if terms.bias is None else terms.bias[0]
        if terms.queries is not None and terms.keys is not None:
            scaled = terms.queries[0] * terms.scale
            scores = scores + scaled @ repeat_kv(len(scaled), terms.keys)[0].mT
        scores = rearrange(scores, "k T (tokens S) -> k T tokens S", tokens=tokens)
        means.append(scores.mean(dim=-2))
        variances.append(scores.var(dim=-2, correction=1 if tokens > 1 else 0))
    return torch.stack(means), torch.stack(variances).mean(dim=0)


def _choose_queries(
    path: InputPath, length: int
) -> tuple[Int[Tensor, "queries"], Int[Tensor, "offsets"]]:
    """Return the queries, and the offsets at which every query has a key.

    About a third of the positions are queries, for causal masks about half. The first position is
    not used as a key.
    """
    if path.mask_kind == "bidirectional":
        max_offset = (length - 1) // 3
        first, last = -max_offset, length - max_offset
    else:
        max_offset = (length - 1) // 2
        first, last = (1 if path.mask_kind == "strictly_causal" else 0), length
    offsets = torch.arange(first, max_offset + 1)
    if path.window is not None:
        offsets = offsets[offsets.abs() <= path.window]
    return torch.arange(max_offset + 1, last), offsets


def _run_length(high: Bool[Tensor, "k offsets"], peak: Int[Tensor, "k"]) -> Int[Tensor, "k"]:
    """Return the number of consecutive true values around the peak."""
    widths = []
    for row, center in zip(high.tolist(), peak.tolist(), strict=True):
        left, right = row[: center + 1][::-1], row[center:]
        widths.append(sum([*side, False].index(False) for side in (left, right)) - 1)
    return torch.tensor(widths)


def _embedding_table(
    modules: dict[str, nn.Module], ancestors: list[str], width: int
) -> Float[Tensor, "V J"]:
    """Return the nearest token embedding, plus the first segment embedding (BERT), or zeros."""
    # An encoder may share the embedding of its decoder, so search the other modules last.
    for parent in [*(modules[name] for name in ancestors), *modules.values()]:
        segments = [part for part in parent.children() if isinstance(part, SegmentEmbedding)]
        for table in parent.children():
            if isinstance(table, TokenEmbedding) and table.embedding_dim == width:
                first = segments[0].weight[0] if segments else 0.0
                return table.weight.detach() + first
    weight = next(modules[""].parameters())
    return weight.new_zeros(1, width)
