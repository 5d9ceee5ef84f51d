"""Intercept the attention calls of a model.

In a model with `MultiHead` layers, the `with` block replaces the kernels of the named layers. In
other models, it intercepts every call of `scaled_dot_product_attention` in a `forward`, such as
those of `nn.MultiheadAttention`, `nn.TransformerEncoderLayer` and Hugging Face models with
`attn_implementation="sdpa"` (the default). The name of such a call is the path of the innermost
running module, such as `transformer.h.0.attn`.

The fused inference kernel of `nn.MultiheadAttention` is disabled inside the block, so outputs may
differ by rounding. With `need_weights=True`, `nn.MultiheadAttention` does not call
`scaled_dot_product_attention`. It then runs once for its usual result, and again without weights
for the intercepted call. Models that were compiled before the block and attention kernels of other
libraries are not intercepted.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from harken.attention.kernels import AttentionKernel, ScoreTerms
from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.attention.multihead import MultiHead
from harken.errors import UserError

SDPA = F.scaled_dot_product_attention
NO_CALL_FIX = (
    "load Hugging Face models with attn_implementation='sdpa', and do not compile the model"
)


class AttentionCall(NamedTuple):
    """One call of an attention layer: its path in the model, and the arguments of its kernel."""

    name: str
    terms: ScoreTerms
    values: Float[Tensor, "B kv_heads S I"]
    mask: Mask


Handler = Callable[[AttentionCall, Tensor], Tensor]
"""Function of a call and its output (B k T I) that returns the output to use instead."""


def has_multihead(model: nn.Module) -> bool:
    """Whether the model has a `MultiHead` layer."""
    return any(isinstance(module, MultiHead) for module in model.modules())


@contextmanager
def on_attention_calls(
    model: nn.Module, handle: Handler, *, names: Collection[str] = (), replaces: bool = False
) -> Iterator[None]:
    """Pass the outputs of attention calls to `handle`, and use the outputs that it returns.

    The calls are those of the named `MultiHead` layers. In a model without `MultiHead`, they are
    all calls of PyTorch's function; if the model runs without such a call, raises `UserError`. In
    such a model, `handle` may change outputs only with `replaces=True`.
    """
    if not has_multihead(model):
        with _on_sdpa(model, handle, replaces):
            yield
        return

    def intercepted(name: str, kernel: AttentionKernel) -> AttentionKernel:
        def attend(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
            output = kernel(terms, values, mask, dropout)
            return handle(AttentionCall(name, terms, values, mask), output)

        return attend

    with ExitStack() as cleanup:
        for name in names:
            module = model.get_submodule(name)
            assert isinstance(module, MultiHead)
            cleanup.callback(setattr, module, "kernel", module.kernel)
            module.kernel = intercepted(name, module.kernel)
        yield


@contextmanager
def _on_sdpa(model: nn.Module, handle: Handler, replaces: bool) -> Iterator[None]:
    running: list[str] = []
    mode, has_run = _InterceptionMode(running, handle, replaces), False

    def enter(name: str) -> None:
        nonlocal has_run
        has_run = True
        running.append(name)

    def leave(*_: Any) -> None:
        running.pop()

    with ExitStack() as cleanup:
        for name, module in model.named_modules():
            hook = module.register_forward_pre_hook(lambda *_, name=name: enter(name))
            cleanup.callback(hook.remove)
            cleanup.callback(module.register_forward_hook(leave, always_call=True).remove)
        mha = torch.backends.mha
        cleanup.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        cleanup.enter_context(mode)
        yield
    if has_run and not mode.calls:
        raise UserError(
            f"{type(model).__name__}: no attention intercepted (expected a harken.MultiHead in the "
            "model, or a call of torch.nn.functional.scaled_dot_product_attention)",
            fix=NO_CALL_FIX,
        )


class _InterceptionMode(TorchFunctionMode):
    """Intercept PyTorch's attention functions while the model runs."""

    def __init__(self, running: list[str], handle: Handler, replaces: bool) -> None:
        super().__init__()
        self._running, self._handle, self._replaces = running, handle, replaces
        self.calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if self._running and func is SDPA:
            return self._attend(SDPA, *args, **keywords)
        if self._running and func is F.multi_head_attention_forward:
            return self._run_multi_head(*args, **keywords)
        return func(*args, **keywords)

    def _run_multi_head(self, *args: Any, **keywords: Any) -> tuple[Tensor, Tensor | None]:
        """Run the function of `nn.MultiheadAttention`, whose inner calls bypass function modes."""
        inner = F.scaled_dot_product_attention

        def attend(*args: Any, **keywords: Any) -> Tensor:
            return self._attend(inner, *args, **keywords)

        with_weights = None
        if keywords.get("need_weights", True):
            # If `with` blocks are nested, the outer block must see one call: the second run.
            with torch._C.DisableTorchFunction():
                with_weights = F.multi_head_attention_forward(*args, **keywords)
            keywords["need_weights"] = False
            if not self._replaces:
                # Dropout in the second run would change the random numbers of later layers.
                keywords["training"] = False
        setattr(F, "scaled_dot_product_attention", attend)  # noqa: B010
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and with_weights is None):
                intercepted = F.multi_head_attention_forward(*args, **keywords)
        finally:
            setattr(F, "scaled_dot_product_attention", inner)  # noqa: B010
        if with_weights is None:
            return intercepted
        return (intercepted[0] if self._replaces else with_weights[0]), with_weights[1]

    def _attend(
        self,
        attend: Callable[..., Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        self.calls += 1
        output = attend(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        mask, bias = _mask_and_bias(query, key, attn_mask, is_causal)
        tensors = [_four_axes(tensor) for tensor in (query, key, value)]
        batch = max(map(len, tensors))
        queries, keys, values = (tensor.expand(batch, -1, -1, -1) for tensor in tensors)
        scale = queries.shape[-1] ** -0.5 if scale is None else scale
        terms = ScoreTerms(queries=queries, keys=keys, scale=scale, bias=bias)
        shaped = _four_axes(output)
        handled = self._handle(AttentionCall(self._running[-1], terms, values, mask), shaped)
        return output if handled is shaped else handled.reshape(output.shape)


def _mask_and_bias(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool
) -> tuple[Mask, Tensor | None]:
    lengths = query.shape[-2], key.shape[-2]
    if is_causal and lengths[0] == lengths[1]:
        return CAUSAL, None
    if is_causal:
        # In PyTorch, query i sees the keys t <= i. In `CAUSAL`, the last query sees the last key.
        return Mask(visible=query.new_ones(1, 1, *lengths, dtype=torch.bool).tril()), None
    if attn_mask is None:
        return NO_MASK, None
    table = attn_mask.reshape((1,) * (query.dim() - attn_mask.dim()) + attn_mask.shape)
    # `_four_axes` can flatten the leading axes only if they have the sizes of the query.
    leading = query.shape[:-2] if query.dim() > 4 else table.shape[:-2]
    table = _four_axes(table.expand(*leading, *lengths))
    if table.dtype == torch.bool:
        return Mask(visible=table), None
    # Softmax of a row of minus infinities would be NaN.
    return Mask(visible=~table.isneginf().all(dim=-1, keepdim=True)), table


def _four_axes(tensor: Tensor) -> Tensor:
    """Return B k T U from a tensor with any number of axes; B T U has one head."""
    if tensor.dim() == 3:
        return tensor[:, None]
    if tensor.dim() < 3:
        return tensor[None, None]
    return tensor if tensor.dim() == 4 else tensor.flatten(0, -4)
