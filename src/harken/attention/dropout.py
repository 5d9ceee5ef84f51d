"""Attention with dropout on a CPU, in blocks that stay in its cache.

    c_i = sum over t of a_it r_it v_t / P(keep),     r_it = 1 with probability P(keep), otherwise 0

A block has some queries of some rows of the batch. Its weights are saved for the backward pass with
the opposite sign where they are kept, so that the mask takes no memory of its own. With a causal
mask, a block ends at the last key that its queries see.

PyTorch generates a random number per element. In `keep_mask`, a number of 64 bits serves four
elements, so p is rounded to a multiple of 1 / 65,536.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

LEVELS = 1 << 16
BLOCK_QUERIES = 64
BLOCK_ELEMENTS = 1 << 18  # weights in a block


def keep_mask(
    shape: tuple[int, ...], p: float, device: torch.device
) -> tuple[Bool[Tensor, "*any"], float]:
    """Return a mask that is true with probability 1 - p, and 1 / (1 - p); p is rounded."""
    keep_levels, count = LEVELS - round(p * LEVELS), math.prod(shape)
    words = torch.empty((count + 3) // 4, dtype=torch.int64, device=device)
    bits = words.random_(-(1 << 63), None).view(torch.int16)[:count]
    return (bits < keep_levels - LEVELS // 2).view(shape), LEVELS / max(keep_levels, 1)


class BlockAttention(torch.autograd.Function):
    """Weighted means of the values with weights * keep * gain; `bias` gets no gradient.

    A bias of minus infinity hides a key. `no_key` is true for queries that see no
    key, or None if there are none.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B k T U"],
        keys: Float[Tensor, "B k S U"],
        values: Float[Tensor, "B k S I"],
        scale: float,
        bias: Float[Tensor, "#B #k #T S"] | None,
        no_key: Bool[Tensor, "#B #k #T 1"] | None,
        is_causal: bool,
        keep: Bool[Tensor, "B k T S"],
        gain: float,
    ) -> Float[Tensor, "B k T I"]:
        (batch, heads, length, _), num_keys = queries.shape, keys.shape[2]
        output = queries.new_empty(batch, length, heads, values.shape[3]).transpose(1, 2)
        weights: list[Tensor] = []
        for rows in _batch_slices(batch, heads * min(length, BLOCK_QUERIES) * num_keys):
            q, k, v = (_flat(tensor[rows]) for tensor in (queries, keys, values))
            q, v = q * scale, v * gain
            for part, end in _query_slices(length, num_keys, is_causal):
                scores = torch.bmm(q[:, part], k[:, :end].mT)
                by_head = _by_head(scores, heads)
                if bias is not None:
                    by_head += _part_of(bias, rows, part)[..., :end]
                if is_causal:
                    corner = scores[:, :, -scores.shape[1] :]
                    corner += torch.full_like(corner[0], float("-inf")).triu(1)
                flat_weights = scores.softmax(dim=-1)
                weight = _by_head(flat_weights, heads)
                if no_key is not None:  # where softmax gives NaN
                    weight.masked_fill_(_part_of(no_key, rows, part), 0.0)
                torch.mul(weight, keep[rows, :, part, :end], out=by_head)
                means = torch.bmm(scores, v[:, :end])
                output[rows, :, part] = _by_head(means, heads)
                flat_weights.sub_(scores, alpha=2.0)
                weights.append(flat_weights)
        ctx.save_for_backward(queries, keys, values, output, *weights)
        ctx.options = scale, is_causal, gain
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, output, *weights = ctx.saved_tensors
        scale, is_causal, gain = ctx.options
        (batch, heads, length, _), num_keys = queries.shape, keys.shape[2]
        # The gradient of a score is a_it (d_it - sum over t of a_it d_it), where d_it is the
        # gradient of the weight a_it.
        mean = (grad_output * output).sum(dim=-1, keepdim=True)
        gradients = [
            torch.empty_like(tensor.transpose(1, 2)).transpose(1, 2)
            for tensor in (queries, keys, values)
        ]
        blocks = iter(weights)
        for rows in _batch_slices(batch, heads * min(length, BLOCK_QUERIES) * num_keys):
            tensors = (queries, keys, values, grad_output, mean)
            q, k, v, grad, m = (_flat(tensor[rows]) for tensor in tensors)
            v = v * gain
            grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            for part, end in _query_slices(length, num_keys, is_causal):
                weight, grad_part = next(blocks), grad[:, part]
                minus_kept = weight.clamp_max(0.0)
                grad_v[:, :end].baddbmm_(minus_kept.mT, grad_part, alpha=-gain)
                minus_scores = torch.bmm(grad_part, v[:, :end].mT).mul_(minus_kept)
                minus_scores.addcmul_(torch.abs(weight, out=minus_kept), m[:, part])
                grad_q[:, part] = torch.bmm(minus_scores, k[:, :end])
                grad_k[:, :end].baddbmm_(minus_scores.mT, q[:, part], alpha=-scale)
            parts = (grad_q.mul_(-scale), grad_k, grad_v)
            for gradient, values_of_rows in zip(gradients, parts, strict=True):
                gradient[rows] = _by_head(values_of_rows, heads)
        return *gradients, None, None, None, None, None, None


def _batch_slices(batch: int, elements: int) -> list[slice]:
    """Divide the batch; `elements` is the size of a block with one row."""
    size = max(1, BLOCK_ELEMENTS // max(1, elements))
    return [slice(first, min(first + size, batch)) for first in range(0, batch, size)]


def _query_slices(length: int, num_keys: int, is_causal: bool) -> list[tuple[slice, int]]:
    """Divide the queries; return each part with the end of the keys that it sees."""
    ends = [min(first + BLOCK_QUERIES, length) for first in range(0, length, BLOCK_QUERIES)]
    return [
        (slice(first, end), num_keys - length + end if is_causal else num_keys)
        for first, end in zip(range(0, length, BLOCK_QUERIES), ends, strict=True)
    ]


def _part_of(table: Tensor, rows: slice, part: slice) -> Tensor:
    """Return some rows and queries of a table whose first and third axes may have size 1."""
    every = slice(None)
    return table[rows if len(table) > 1 else every, :, part if table.shape[2] > 1 else every]


def _flat(tensor: Float[Tensor, "B k T U"]) -> Float[Tensor, "rows T U"]:
    return tensor.reshape(-1, *tensor.shape[2:])


def _by_head(tensor: Float[Tensor, "rows T U"], heads: int) -> Float[Tensor, "B k T U"]:
    return tensor.view(-1, heads, *tensor.shape[1:])
