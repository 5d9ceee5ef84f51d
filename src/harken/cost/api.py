"""Cost of any PyTorch module."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harken.cost.step import Cost, trace_step
from harken.cost.trace import tensors_in
from harken.models.huggingface import read_folder


def cost(module: nn.Module | str | Path, *inputs: Any, **keywords: Any) -> Cost:
    """Count operations, memory and depth of a training step of `module(*inputs, **keywords)`.

    The module is neither run nor changed: floating-point tensors are replaced by tensors without
    data, so a model of any size takes about a second. `module` may also be a Hugging Face folder.
    The gradient starts at the sum of the first floating-point tensor that the module returns, which
    is the loss of a `transformers` model called with `labels`.

        harken.cost(nn.LSTM(64, 64, 2, batch_first=True), torch.randn(4, 20, 64)).flops

    Without an optimizer, `held` counts weights and gradients.
    """
    model = read_folder(Path(module)).model if isinstance(module, str | Path) else module

    def loss(traced: nn.Module) -> Tensor:
        outputs = traced(*inputs, **keywords)
        floats = [output for output in tensors_in(outputs) if output.is_floating_point()]
        return floats[0].sum() if floats else torch.zeros(())

    return trace_step(lambda mode: mode.copy(model), loss)
