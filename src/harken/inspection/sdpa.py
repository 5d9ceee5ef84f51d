"""Intercept the attention of models that Harken did not build.

`on_sdpa` calls a handler for every call of `scaled_dot_product_attention` in a `forward` of the
model: Hugging Face models with `attn_implementation="sdpa"` (their default),
`nn.MultiheadAttention`, `nn.TransformerEncoderLayer`, or a direct call. The name of a call is the
path of the innermost running module, such as `transformer.h.0.attn`.

The fused inference kernel of `nn.MultiheadAttention` is off within the block, so that outputs
change by rounding. Where it returns weights, its result is kept and the function is called in
addition. Models compiled before the block and kernels of other libraries are not intercepted.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from harken.attention.kernels import ScoreTerms
from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.errors import UserError

SDPA = F.scaled_dot_product_attention
FIX = (
    "load Hugging Face models with attn_implementation='sdpa', and do not compile the model before"
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SDPACall:
    """The arguments of one call, as Harken's kernels take them."""

    name: str
    terms: ScoreTerms
    values: Float[Tensor, "B groups S I"]
    mask: Mask
    sighted: Float[Tensor, "#B #k T 1"] | None  # 0 for queries that see no key, else 1


Handler = Callable[[SDPACall, Tensor], Tensor]
"""(call, its output B k T I) -> the output to use in its place."""


@contextmanager
def on_sdpa(model: nn.Module, handle: Handler, *, replaces: bool = False) -> Iterator[None]:
    """Pass every call in the model through `handle`, which may change outputs if `replaces`.

    Raises `UserError` at the end of the block if the model ran without any such call.
    """
    running: list[str] = []
    mode, has_run = _Mode(running, handle, replaces), False

    def enter(name: str) -> None:
        nonlocal has_run
        has_run = True
        running.append(name)

    def leave(*call: Any) -> None:
        running.pop()

    with ExitStack() as undo:
        for name, module in model.named_modules():
            hook = module.register_forward_pre_hook(lambda *call, name=name: enter(name))
            undo.callback(hook.remove)
            undo.callback(module.register_forward_hook(leave, always_call=True).remove)
        mha = torch.backends.mha
        undo.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        undo.enter_context(mode)
        yield
    if has_run and not mode.calls:
        raise UserError(
            f"{type(model).__name__}: no attention ran (expected a harken.MultiHead in the model, "
            "or a call of torch.nn.functional.scaled_dot_product_attention)",
            fix=FIX,
        )


@contextmanager
def with_head_outputs(
    model: nn.Module, changes: Mapping[str, Callable[[Tensor], Tensor]]
) -> Iterator[None]:
    """Pass the output B k T I of the named attentions through their changes."""
    ran: dict[str, None] = {}

    def handle(call: SDPACall, output: Tensor) -> Tensor:
        ran[call.name] = None
        change = changes.get(call.name)
        return output if change is None else change(output)

    with on_sdpa(model, handle, replaces=True):
        yield
    for name in changes:
        if ran and name not in ran:
            raise UserError(
                f"attention {name!r} did not run (expected one of {', '.join(ran)})",
                fix="name one of these",
            )


class _Mode(TorchFunctionMode):
    """Redirect two functions of PyTorch while the model runs."""

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
            return self._multi_head(*args, **keywords)
        return func(*args, **keywords)

    def _multi_head(self, *args: Any, **keywords: Any) -> tuple[Tensor, Tensor | None]:
        """Run the function of `nn.MultiheadAttention`, whose inner calls a mode does not see."""
        inner = F.scaled_dot_product_attention

        def attend(*args: Any, **keywords: Any) -> Tensor:
            return self._attend(inner, *args, **keywords)

        returned = None
        if keywords.get("need_weights", True):
            with torch._C.DisableTorchFunction():  # an outer recorder sees the other call
                returned = F.multi_head_attention_forward(*args, **keywords)
            keywords["need_weights"] = False
            if not self._replaces:
                keywords["training"] = False  # draws no dropout
        setattr(F, "scaled_dot_product_attention", attend)  # noqa: B010
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and returned is None):
                intercepted = F.multi_head_attention_forward(*args, **keywords)
        finally:
            setattr(F, "scaled_dot_product_attention", inner)  # noqa: B010
        if returned is None:
            return intercepted
        return (intercepted[0] if self._replaces else returned[0]), returned[1]

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
        mask, bias, sighted = _mask(query, key, attn_mask, is_causal)
        tensors = [_four_axes(tensor) for tensor in (query, key, value)]
        batch = max(map(len, tensors))
        queries, keys, values = (tensor.expand(batch, -1, -1, -1) for tensor in tensors)
        scale = queries.shape[-1] ** -0.5 if scale is None else scale
        terms = ScoreTerms(queries=queries, keys=keys, scale=scale, bias=bias)
        name, shaped = self._running[-1], _four_axes(output)
        call = SDPACall(name=name, terms=terms, values=values, mask=mask, sighted=sighted)
        handled = self._handle(call, shaped)
        return output if handled is shaped else handled.reshape(output.shape)


def _mask(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool
) -> tuple[Mask, Tensor | None, Tensor | None]:
    """Return mask, bias, and 0 for queries that see no key (else 1)."""
    times = query.shape[-2], key.shape[-2]
    if is_causal and times[0] == times[1]:
        return CAUSAL, None, None
    if is_causal:  # the first query is aligned with the first key, unlike in a cache
        visible = torch.ones(1, 1, *times, dtype=torch.bool, device=query.device).tril()
        return Mask(visible=visible), None, None
    if attn_mask is None:
        return NO_MASK, None, None
    table = attn_mask.reshape((1,) * (query.dim() - attn_mask.dim()) + attn_mask.shape)
    leading = query.shape[:-2] if query.dim() > 4 else table.shape[:-2]
    table = _four_axes(table.expand(*leading, *times))
    if table.dtype == torch.bool and table.shape[1] == 1:
        return Mask(visible=table), None, None
    if table.dtype == torch.bool:
        table = query.new_zeros(()).masked_fill(~table, -torch.inf)
    blind = table.isneginf().all(dim=-1, keepdim=True)
    return NO_MASK, table.masked_fill(blind, 0.0), (~blind).to(query)


def _four_axes(tensor: Tensor) -> Tensor:
    """Return B k T U from a tensor with any number of axes; B T U has one head."""
    if tensor.dim() == 3:
        return tensor[:, None]
    if tensor.dim() < 3:
        return tensor[None, None]
    return tensor if tensor.dim() == 4 else tensor.flatten(0, -4)
