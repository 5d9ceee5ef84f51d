"""What a head does, as two products of its weights, and its score as a sum of four.

    score(x, y)   = (L x + l) . (R y + r)     L = scale W_Q,   R = W_K     W~   = L^T R, query first
    written(y)    = L^T (R y + r)             L = W_O^T,       R = W_V     W_OV = L^T R

Both stay in factors, k U J: singular values and eigenvalues come from U x U matrices, and J x J is
made only by `whole`. Biases are the offsets l and r; the bias of W_O belongs to no head.

Where a token is content + place, its score with another is content-content + content-position +
position-content + position-position, the query's word first. A norm between path and attention
is linear once its scale is frozen at what the sum of both gave it. What is the same for every token
(biases, offsets of norms, u and v of `relative_product`) and what a position kind adds to scores
counts as position: it is known before any token is seen.

Not here: scores that are no product of two tokens (`additive`, `synthesizer`); each score says
itself what its factors are, or why it has none (`Score.factors`).
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.low_rank import LowRank, split_projection
from harken.attention.multihead import AttentionContext, MultiHead
from harken.attention.relative import rotate
from harken.attention.scores import Score
from harken.errors import UserError
from harken.layers.norm import RMSNorm


def query_key(attention: MultiHead) -> LowRank:
    """W~ with the scale inside; of `relative_product` the part that compares contents."""
    score = attention.score
    factors = score.factors()
    if factors is None:
        raise UserError(
            f"score {attention.score_kind!r} has no query-key matrix: {score.not_a_product}",
            fix="read its heads out of scores of random tokens (harken.inspection.readout)",
        )
    return factors


def output_value(attention: MultiHead) -> LowRank:
    """W_OV; a matrix that the attention does without is the identity."""
    heads, out_proj = attention.heads, attention.out_proj
    if attention.v_proj is None:
        if out_proj is None:
            raise UserError(
                "attention without value and output matrix has no value-output matrix",
                fix="it returns weighted means of its inputs, so there is nothing to read",
            )
        width = out_proj.in_features // heads
        own = torch.eye(width, dtype=out_proj.weight.dtype, device=out_proj.weight.device)
        right, right_offset = own.expand(heads, -1, -1), out_proj.weight.new_zeros(heads, width)
    else:
        right, right_offset = split_projection(attention.v_proj, attention.kv_heads, heads)
    joined = heads * right.shape[1]
    output = torch.eye(joined, dtype=right.dtype, device=right.device)
    if out_proj is not None:
        output = out_proj.weight
    left = rearrange(output, "J (k U) -> k U J", k=heads)
    return LowRank(left, right, torch.zeros_like(right_offset), right_offset)


def whole(product: LowRank) -> Float[Tensor, "k J memory"]:
    """The matrices themselves, for those who have the room."""
    return einsum(product.left, product.right, "k U J, k U memory -> k J memory")


def singular_values(product: LowRank) -> Float[Tensor, "k rank"]:
    """Of L^T R, falling: with L^T = Q_1 R_1 and R^T = Q_2 R_2 they are those of R_1 R_2^T."""
    first = torch.linalg.qr(product.left.mT, mode="r").R
    second = torch.linalg.qr(product.right.mT, mode="r").R
    values: Tensor = torch.linalg.svdvals(first @ second.mT)
    return values


def effective_rank(values: Float[Tensor, "k rank"]) -> Float[Tensor, "k"]:
    """exp of the entropy of the values' shares: n for n equal ones, 1 for a single one."""
    shares = values / values.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    rank: Tensor = torch.special.entr(shares).sum(dim=-1).exp()
    return rank


def copying(product: LowRank) -> Float[Tensor, "k"]:
    """Sum of eigenvalues over the sum of their sizes: 1 writes what it read, -1 its opposite.

    L^T R and R L^T have the same eigenvalues but for zeros.
    """
    eigenvalues = torch.linalg.eigvals(product.right @ product.left.mT)
    sizes = eigenvalues.abs().sum(dim=-1).clamp(min=torch.finfo(product.left.dtype).tiny)
    share: Tensor = eigenvalues.real.sum(dim=-1) / sizes
    return share


@dataclass(frozen=True, slots=True)
class Streams:
    """Tokens as a sum: what each is, and where it stands."""

    content: Float[Tensor, "B T J"]
    place: Float[Tensor, "B T J"]

    @property
    def tokens(self) -> Float[Tensor, "B T J"]:
        return self.content + self.place


def through(norm: nn.Module, streams: Streams) -> Streams:
    """Both behind a norm whose scale, one a token, is that of their sum."""
    content, place, tokens = streams.content, streams.place, streams.tokens
    if isinstance(norm, nn.Identity):
        return streams
    if isinstance(norm, RMSNorm):
        mean_square = tokens.square().mean(dim=-1, keepdim=True)
        gain = torch.rsqrt(mean_square + norm.eps) * norm.weight
        return Streams(content * gain, place * gain)
    assert isinstance(norm, nn.LayerNorm), f"no norm of Harken's: {type(norm)}"
    variance = tokens.var(dim=-1, keepdim=True, correction=0)
    gain = torch.rsqrt(variance + norm.eps) * norm.weight
    content = (content - content.mean(dim=-1, keepdim=True)) * gain
    place = (place - place.mean(dim=-1, keepdim=True)) * gain
    return Streams(content, place + norm.bias)


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """What makes a score, the query's part first; before any mask."""

    content_content: Float[Tensor, "B k T S"]
    content_position: Float[Tensor, "B k T S"]
    position_content: Float[Tensor, "B k T S"]
    position_position: Float[Tensor, "B k T S"]

    @property
    def total(self) -> Float[Tensor, "B k T S"]:
        about_content = self.content_content + self.position_content
        return about_content + self.content_position + self.position_position


def split_scores(attention: MultiHead, streams: Streams, context: AttentionContext) -> ScoreParts:
    """The parts of self-attention over these tokens; `Streams` are those behind its norm."""
    product = query_key(attention)

    def turned(heads: Tensor) -> Tensor:
        return heads if context.rotation is None else rotate(heads, context.rotation)

    asked = turned(_image(product.left, streams.content))
    asked_place = turned(_image(product.left, streams.place) + product.left_offset[:, None])
    heard = turned(_image(product.right, streams.content))
    heard_place = turned(_image(product.right, streams.place) + product.right_offset[:, None])
    content_position = asked @ heard_place.mT
    position_position = asked_place @ heard_place.mT
    distances = _distances(attention.score, streams, context)
    if distances is not None:
        content_position = content_position + distances[0]
        position_position = position_position + distances[1]
    if context.bias is not None:
        position_position = position_position + context.bias
    return ScoreParts(
        content_content=asked @ heard.mT,
        content_position=content_position,
        position_content=asked_place @ heard.mT,
        position_position=position_position,
    )


def _image(factor: Tensor, tokens: Tensor) -> Tensor:
    return einsum(tokens, factor, "B T J, k U J -> B k T U")


def _distances(
    score: Score, streams: Streams, context: AttentionContext
) -> tuple[Tensor, Tensor] | None:
    """The bias of a score by what the query holds and by the rest; it is linear in q.

    None where a score has no bias of its own, as all have but `relative_product`.
    """

    def bias_of(queries: Tensor | None) -> Tensor | None:
        at, keys_at = context.query_positions, context.key_positions
        return score.terms(streams.tokens, queries, queries, at, keys_at).bias

    alone, both = (bias_of(score.queries(part)) for part in (streams.place, streams.tokens))
    return None if alone is None or both is None else (both - alone, alone)
