"""Query-key and output-value matrices of heads, as products of projection weights.

    score(x, y)   = (L x + l) . (R y + r)     L = scale W_Q,   R = W_K     W_QK = L^T R
    output(y)     = L^T (R y + r)             L = W_O^T,       R = W_V     W_OV = L^T R

W_QK and W_OV are kept as their factors L and R, each of shape (heads k, head width, model width J).
The offsets are the biases of the projections: l = scale b_Q, and r = b_K or b_V. The bias of W_O
belongs to no head. Terms that depend on positions are left out; with rotary positions, W_QK is that
of a query and a key at the same position. Scores without a product of query and key (additive,
synthesizer) have no W_QK.
"""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import LowRank, split_projection
from harken.attention.multihead import MultiHead
from harken.errors import UserError


def query_key(attention: MultiHead) -> LowRank:
    """Return W_QK with the scale; for Transformer-XL the content term, (q + u) . k / sqrt(U)."""
    score = attention.score
    factors = score.factors()
    if factors is None:
        raise UserError(
            f"score {attention.score_kind!r} has no query-key matrix: {score.not_bilinear}",
            fix="use the scores of random tokens instead (harken.inspection.offset_preferences)",
        )
    return factors


def output_value(attention: MultiHead) -> LowRank:
    """Return W_OV; a missing W_V or W_O is the identity, but the layer must have one of them."""
    heads, out_proj = attention.heads, attention.out_proj
    if attention.v_proj is not None:
        right, right_offset = split_projection(attention.v_proj, attention.kv_heads, heads)
    elif out_proj is None:
        raise UserError(
            "attention without v_proj and out_proj has no output-value matrix",
            fix="set v_proj or out_proj to true in the attention config",
        )
    else:
        width = out_proj.in_features // heads
        right, right_offset = _eye(width, out_proj.weight), out_proj.weight.new_zeros(heads, width)
        right = right.expand(heads, -1, -1)
    output = _eye(heads * right.shape[1], right) if out_proj is None else out_proj.weight
    left = rearrange(output, "J (k U) -> k U J", k=heads)
    return LowRank(left, right, torch.zeros_like(right_offset), right_offset)


def _eye(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def singular_values(product: LowRank) -> Float[Tensor, "k rank"]:
    """Return the singular values of L^T R in descending order, by two QR decompositions."""
    first = torch.linalg.qr(product.left.mT, mode="r").R
    second = torch.linalg.qr(product.right.mT, mode="r").R
    values: Tensor = torch.linalg.svdvals(first @ second.mT)
    return values


def effective_rank(values: Float[Tensor, "k rank"]) -> Float[Tensor, "k"]:
    """Return exp of the entropy of the normalized values: n for n equal values."""
    shares = values / values.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    rank: Tensor = torch.special.entr(shares).sum(dim=-1).exp()
    return rank


def copying_score(product: LowRank) -> Float[Tensor, "k"]:
    """Return the sum of the eigenvalues of L^T R over the sum of their absolute values, -1 to 1.

    1 if all eigenvalues are real and nonnegative, as for the identity (copying); -1 if all are real
    and nonpositive. R L^T has the same nonzero eigenvalues and is smaller.
    """
    eigenvalues = torch.linalg.eigvals(product.right @ product.left.mT)
    sizes = eigenvalues.abs().sum(dim=-1).clamp(min=torch.finfo(product.left.dtype).tiny)
    share: Tensor = eigenvalues.real.sum(dim=-1) / sizes
    return share
