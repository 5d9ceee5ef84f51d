"""What a head does, as two products of its weights, and its score as a sum of four.

    score(x, y)   = (L x + l) . (R y + r)     L = scale W_Q,   R = W_K     W~   = L^T R, query first
    written(y)    = L^T (R y + r)             L = W_O^T,       R = W_V     W_OV = L^T R

Both stay in factors, k U J: singular values and eigenvalues come from U x U matrices, and J x J is
made only by `whole`. Biases are the offsets l and r; the bias of W_O belongs to no head.

Where a token is content + place, its score with another is content-content + content-position +
position-content + position-position, the query's word first. A norm between entrance and attention
is linear once its scale is frozen at what the sum of both gave it. What is the same for every token
(biases, offsets of norms, u and v of `relative_product`) and what a position kind adds to scores
counts as position: it is known before any token is seen.

Not here: scores that are no product of two tokens (`additive`, `synthesizer`).
"""

from dataclasses import dataclass
from typing import cast

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.attend import serve
from harken.attention.multihead import Arrangement, MultiHead
from harken.attention.pair import Pair
from harken.attention.relative import rotate
from harken.attention.scores import Additive, Merged, Product
from harken.attention.transformer_xl import RelativeProduct
from harken.errors import UserError
from harken.layers.norm import RootMeanSquare


@dataclass(frozen=True, slots=True)
class Factors:
    """(left x + left_offset) . (right y + right_offset), for each head."""

    left: Float[Tensor, "k U J"]
    right: Float[Tensor, "k U memory"]
    left_offset: Float[Tensor, "k U"]
    right_offset: Float[Tensor, "k U"]


def query_key(attention: MultiHead) -> Factors:
    """W~ with the scale inside; of `relative_product` the part that compares contents."""
    score = attention.score
    if isinstance(score, Merged):
        merged = score.matrix
        own = torch.eye(merged.shape[2], dtype=merged.dtype, device=merged.device)
        nothing = merged.new_zeros(merged.shape[0], merged.shape[2])
        return Factors(merged.mT, own.expand(merged.shape[0], -1, -1), nothing, nothing)
    if not isinstance(score, Product | RelativeProduct):
        kind = "additive" if isinstance(score, Additive) else "synthesizer"
        raise UserError(
            f"found score {kind!r}, wanted one that is a product of query and key",
            fix="read its heads out of scores of random tokens (harken.inspection.readout)",
        )
    left, left_offset = _split(score.to_queries, score.heads)
    right, right_offset = _served(_split(score.to_keys, score.groups), score.heads)
    if isinstance(score, RelativeProduct):
        left_offset = left_offset + score.content_offset[:, 0]
    return Factors(left * score.scale, right, left_offset * score.scale, right_offset)


def output_value(attention: MultiHead) -> Factors:
    """W_OV; a matrix that the attention does without is the identity."""
    heads, join = heads_of(attention), attention.join
    if attention.to_values is None:
        if join is None:
            raise UserError(
                "found an attention without value and output matrix, wanted one of them",
                fix="it hands on tokens as they are: there is nothing to look at",
            )
        width = join.in_features // heads
        own = torch.eye(width, dtype=join.weight.dtype, device=join.weight.device)
        right, right_offset = own.expand(heads, -1, -1), join.weight.new_zeros(heads, width)
    else:
        values = _split(attention.to_values, attention.groups)
        right, right_offset = _served(values, heads)
    joined = heads * right.shape[1]
    output = torch.eye(joined, dtype=right.dtype, device=right.device)
    if join is not None:
        output = join.weight
    left = rearrange(output, "J (k U) -> k U J", k=heads)
    return Factors(left, right, torch.zeros_like(right_offset), right_offset)


def heads_of(attention: MultiHead) -> int:
    """How many heads look."""
    score = attention.score
    if isinstance(score, Pair):
        return score.heads
    table = score.matrix if isinstance(score, Merged) else getattr(score, "table", None)
    heads: int = (cast(Tensor, score.to_scores) if table is None else table).shape[0]
    return heads


def whole(product: Factors) -> Float[Tensor, "k J memory"]:
    """The matrices themselves, for those who have the room."""
    return einsum(product.left, product.right, "k U J, k U memory -> k J memory")


def singular_values(product: Factors) -> Float[Tensor, "k rank"]:
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


def copying(product: Factors) -> Float[Tensor, "k"]:
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
    if isinstance(norm, RootMeanSquare):
        mean_square = tokens.square().mean(dim=-1, keepdim=True)
        gain = torch.rsqrt(mean_square + norm.epsilon) * norm.weight
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


def split_scores(attention: MultiHead, streams: Streams, arrangement: Arrangement) -> ScoreParts:
    """The parts of self-attention over these tokens; `Streams` are those behind its norm."""
    product = query_key(attention)

    def turned(heads: Tensor) -> Tensor:
        return heads if arrangement.rotation is None else rotate(heads, arrangement.rotation)

    asked = turned(_image(product.left, streams.content))
    asked_place = turned(_image(product.left, streams.place) + product.left_offset[:, None])
    heard = turned(_image(product.right, streams.content))
    heard_place = turned(_image(product.right, streams.place) + product.right_offset[:, None])
    content_position = asked @ heard_place.mT
    position_position = asked_place @ heard_place.mT
    if isinstance(attention.score, RelativeProduct):
        by_content, alone = _distances(attention.score, streams, arrangement)
        content_position = content_position + by_content
        position_position = position_position + alone
    if arrangement.bias is not None:
        position_position = position_position + arrangement.bias
    return ScoreParts(
        content_content=asked @ heard.mT,
        content_position=content_position,
        position_content=asked_place @ heard.mT,
        position_position=position_position,
    )


def _image(factor: Tensor, tokens: Tensor) -> Tensor:
    return einsum(tokens, factor, "B T J, k U J -> B k T U")


def _distances(
    score: RelativeProduct, streams: Streams, arrangement: Arrangement
) -> tuple[Tensor, Tensor]:
    """(q + v) . r by what the query holds and by the rest, v with it; it is linear in q."""

    def compared(queries: Tensor) -> Tensor:
        at, keys_at = arrangement.query_positions, arrangement.key_positions
        bias = score.compare(streams.tokens, queries, queries, at, keys_at).bias
        assert bias is not None
        return bias

    place, both = score.queries(streams.place), score.queries(streams.tokens)
    alone = compared(place)
    return compared(both) - alone, alone


def _split(projection: nn.Linear, heads: int) -> tuple[Tensor, Tensor]:
    """Weight k U J and bias k U of a projection to several heads."""
    weight = rearrange(projection.weight, "(k U) J -> k U J", k=heads)
    bias = projection.bias
    return weight, weight.new_zeros(weight.shape[:2]) if bias is None else bias.view(heads, -1)


def _served(shared: tuple[Tensor, Tensor], heads: int) -> tuple[Tensor, Tensor]:
    """For every head those of its group."""
    weight, bias = shared
    return serve(heads, weight[None])[0], serve(heads, bias[None, :, None])[0, :, 0]
