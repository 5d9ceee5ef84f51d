"""Where heads look, read from weights before any text is seen.

    s(i, t) = score of a random token at i with a random token at t
    profile(d) = mean over i and both tokens of s(i, i - d)       d > 0 looks back

The preferred offset T is the d of the highest profile, its band the run of offsets around T that
are at most `DROP` below it. Tokens are rows of the table of embeddings, drawn alike with a seed; a
model without one (sound, pictures) is asked with tokens of zeros. Whatever tells places takes part
through the model's own modules: vectors that enter, rotations (of random queries and keys), biases.
For positions that enter this is e_i . W~ e_{i-d} with what content adds on average: the reverse of
designing a head. W~ is query first; read from W_K W_Q^T, key first, T would come out as -T.

The variance of s over the keys of a query is a sum (total variance, in this order):

    position    of the mean over both tokens: known before anything is read
    mixed       of the rest of the mean over keys' tokens: which place, the query's token decides
    content     of the keys' tokens

Exact in the first layer, where a token is content and place and nothing else. Above, what earlier
layers write is missing: tokens come down the direct path, from the path through its norms.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.context import attention_context
from harken.attention.kernels import repeat_kv
from harken.attention.masks import NO_MASK, MaskKind
from harken.attention.multihead import AttentionContext, KeyValues, MultiHead
from harken.attention.positions import Position
from harken.layers.block import Block
from harken.layers.embedding import SegmentEmbedding, TokenEmbedding

DROP = 1.0  # nats: attention at the edge of a band is 1/e of that at its peak
TOKENS = 16  # drawn for queries, and as many for keys


@dataclass(frozen=True, kw_only=True, slots=True)
class InputPath:
    """How tokens come to a self-attention."""

    position: Position
    norms: tuple[nn.Module, ...]  # on the direct path, in order
    table: Float[Tensor, "V J"]  # of contents
    order: MaskKind
    window: int | None
    first: bool  # nothing else writes to what the attention reads


@dataclass(frozen=True, kw_only=True, slots=True)
class Readout:
    """What the weights of one attention say of each of its heads."""

    offsets: Int[Tensor, "offsets"]
    profile: Float[Tensor, "k offsets"]  # nats, their mean over offsets is zero
    expected: Float[Tensor, "k offsets"]  # attention by place alone
    preferred: Int[Tensor, "k"]  # T
    band: Int[Tensor, "k"]  # how many offsets
    position: Float[Tensor, "k"]  # shares of the score's variance, one with the next two
    mixed: Float[Tensor, "k"]
    content: Float[Tensor, "k"]
    exact: bool  # of the first layer

    @property
    def prefers(self) -> Bool[Tensor, "k"]:
        """Whether the profile falls at all: where the band is every offset, T says nothing."""
        return self.band < len(self.offsets)


def input_path(model: nn.Module, name: str) -> InputPath | None:
    """Of the attention at a path; None where there is no row of tokens: memories, pictures."""
    modules = dict(model.named_modules())
    steps = name.split(".")
    above = [".".join(steps[:depth]) for depth in range(len(steps) - 1, -1, -1)]
    block = modules[above[0]]
    owner = next((modules[one] for one in above if hasattr(modules[one], "position")), None)
    attention = modules[name]
    if not isinstance(block, Block) or owner is None:
        return None
    position = owner.position
    assert isinstance(attention, MultiHead) and isinstance(position, Position)
    if attention.kind == "cross" or position.axes > 1:
        return None
    blocks = modules[above[1]]
    assert isinstance(blocks, nn.ModuleList)
    before = [passed for passed in list(blocks)[: int(steps[-2])] if isinstance(passed, Block)]
    norms = [one for one in [getattr(owner, "norm", None)] if one is not None]
    norms += [norm for passed in before for norm in passed.residual_norms()]
    norms += block.norms_before_attention()
    return InputPath(
        position=position,
        norms=tuple(norms),
        table=_table(modules, above, position.token_width),
        order=getattr(owner, "order", "causal" if block.is_decoder else "any"),
        window=getattr(owner, "window", None),
        first=not before and block.attention_is_first,
    )


@torch.no_grad()
def read_out(
    attention: MultiHead, path: InputPath, *, length: int, tokens: int = TOKENS, seed: int = 0
) -> Readout:
    """Over rows of `length`; offsets go as far as all queries of the middle, or the end, have."""
    means, content = _scores(attention, path, length, tokens, seed)
    at, offsets = _compass(path, length)
    keys = at[:, None] - offsets
    # From tables over keys to tables over offsets: … k queries offsets.
    means, content = means[:, :, at[:, None], keys], content[:, at[:, None], keys]
    mean = means.mean(dim=0)
    by_position = mean.var(dim=-1, correction=0).mean(dim=-1)
    rest = (means - mean).var(dim=-1, correction=0).mean(dim=-1)
    by_both = rest.sum(dim=0) / max(len(rest) - 1, 1)
    by_content = content.mean(dim=(-2, -1))
    total = (by_position + by_both + by_content).clamp(min=torch.finfo(mean.dtype).tiny)
    profile = mean.mean(dim=1)
    peak = profile.argmax(dim=-1)
    return Readout(
        offsets=offsets,
        profile=profile - profile.mean(dim=-1, keepdim=True),
        expected=mean.softmax(dim=-1).mean(dim=1),
        preferred=offsets[peak],
        band=_run(profile >= profile.amax(dim=-1, keepdim=True) - DROP, peak),
        position=by_position / total,
        mixed=by_both / total,
        content=by_content / total,
        exact=path.first,
    )


def _scores(
    attention: MultiHead, path: InputPath, length: int, tokens: int, seed: int
) -> tuple[Float[Tensor, "tokens k T S"], Float[Tensor, "k T S"]]:
    """For each query's token the mean over keys' tokens; and the mean variance by keys' tokens.

    The keys are one long row in which several tokens stand at each place: a score knows only
    positions, as in a packed row, so nothing but the model's own code is needed.
    """
    position, slots = path.position, torch.arange(length, device=path.table.device)[None]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(path.table), (2, tokens), generator=generator)
    asking, asked = (_entered(path, one, slots) for one in drawn.to(slots.device))
    keys_at = slots.repeat(1, tokens)
    seen = attention.project_kv(
        asked.reshape(1, tokens * length, -1), position.rotation(keys_at[..., None])
    )
    context = attention_context(position, NO_MASK, slots, keys_at)
    means, variances = [], []
    for one in asking:
        row = _plain(attention, one[None], seen, context)
        scores = rearrange(row, "k T (tokens S) -> k T tokens S", tokens=tokens)
        means.append(scores.mean(dim=-2))
        variances.append(scores.var(dim=-2, correction=1 if tokens > 1 else 0))
    return torch.stack(means), torch.stack(variances).mean(dim=0)


def _entered(
    path: InputPath, drawn: Int[Tensor, "tokens"], slots: Int[Tensor, "1 T"]
) -> Float[Tensor, "tokens T J"]:
    """Each token at every place, as the attention reads it."""
    contents = path.table[drawn][:, None].expand(-1, slots.shape[1], -1)
    states = path.position.embed(contents, slots[..., None])
    for norm in path.norms:
        states = norm(states)
    return states


def _plain(
    attention: MultiHead, tokens: Tensor, seen: KeyValues, context: AttentionContext
) -> Float[Tensor, "k T S"]:
    """Scores of one row before any mask."""
    terms = attention.terms(tokens, seen, context)
    scores = tokens.new_zeros(()) if terms.bias is None else terms.bias[0]
    if terms.queries is not None and terms.keys is not None:
        queries = terms.queries[0] * terms.scale
        scores = scores + queries @ repeat_kv(len(queries), terms.keys)[0].mT
    return scores


def _compass(path: InputPath, length: int) -> tuple[Int[Tensor, "queries"], Int[Tensor, "offsets"]]:
    """Queries, and offsets at which each of them has a key: else offsets would compare queries.

    The first place is nobody's key: heads rest there, however far it is.
    """
    if path.order == "any":
        reach = (length - 1) // 3
        first, last = -reach, length - reach
    else:
        reach = (length - 1) // 2
        first, last = (1 if path.order == "strict" else 0), length
    at, offsets = torch.arange(reach + 1, last), torch.arange(first, reach + 1)
    if path.window is not None:
        offsets = offsets[offsets.abs() <= path.window]
    return at, offsets


def _run(high: Bool[Tensor, "k offsets"], peak: Int[Tensor, "k"]) -> Int[Tensor, "k"]:
    """How many neighbours in a row, the peak among them, are high."""
    widths = []
    for row, centre in zip(high.tolist(), peak.tolist(), strict=True):
        left, right = row[: centre + 1][::-1], row[centre:]
        widths.append(sum([*side, False].index(False) for side in (left, right)) - 1)
    return torch.tensor(widths)


def _table(modules: dict[str, nn.Module], above: list[str], width: int) -> Float[Tensor, "V J"]:
    """The embeddings nearest above the attention, with the segment that BERT adds; else zeros."""
    # An encoder may share its decoder's.
    for parent in [*(modules[name] for name in above), *modules.values()]:
        segments = [part for part in parent.children() if isinstance(part, SegmentEmbedding)]
        for table in parent.children():
            if isinstance(table, TokenEmbedding) and table.embedding_dim == width:
                first = segments[0].weight[0] if segments else 0.0
                return table.weight.detach() + first
    weight = next(modules[""].parameters())
    return weight.new_zeros(1, width)
