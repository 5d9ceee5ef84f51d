"""Record the outputs of modules and the residual stream of any model with forward hooks.

A layer of the residual stream is a member of an outermost `nn.ModuleList` whose output has the
shape of its input: `transformer.h.*` of GPT-2, `model.layers.*` of Llama, `encoder.layer.*`
of BERT, `stack.blocks.*` of Harken.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from torch import Tensor, nn

from harken.errors import UserError


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ActivationRecord:
    """The first input tensor, if any, and the first output tensor of one call of a module."""

    name: str
    input: Tensor | None
    output: Tensor

    def __repr__(self) -> str:
        return f"ActivationRecord(name={self.name!r}, output={tuple(self.output.shape)})"


def check_module(model: object) -> None:
    """Raise `UserError` unless `model` is an `nn.Module`."""
    if not isinstance(model, nn.Module):
        raise UserError(
            f"model: expected a torch.nn.Module, got {type(model).__name__}",
            fix="pass the module itself, such as `run.model` of a run",
        )


@contextmanager
def record_activations(
    model: nn.Module,
    patterns: Sequence[str],
    residual: bool,
    outputs: list[ActivationRecord],
    layer_outputs: list[ActivationRecord],
) -> Iterator[None]:
    """Append a record of every call inside the `with` block.

    Calls of modules whose paths match `patterns` are appended to `outputs`; if `residual`, calls of
    the layers of the residual stream are appended to `layer_outputs`.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in modules):
            raise UserError(
                f"outputs: {pattern!r} matches no module (expected a path or pattern such as "
                f"{next(reversed(modules), '')!r})",
                fix="print the paths with model.named_modules()",
            )
    layers = layer_names(model) if residual else []

    def store(name: str, module: nn.Module, args: Any, keywords: Any, output: Any) -> None:
        first_input, first_output = first_tensor((*args, *keywords.values())), first_tensor(output)
        if first_output is None:
            return
        input_tensor = None if first_input is None else first_input.detach()
        activation = ActivationRecord(name, input_tensor, first_output.detach())
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            outputs.append(activation)
        if name in layers and input_tensor is not None and input_tensor.shape == first_output.shape:
            layer_outputs.append(activation)

    with ExitStack() as cleanup:
        for name, module in model.named_modules():
            if name in layers or any(fnmatchcase(name, pattern) for pattern in patterns):
                hook = module.register_forward_hook(partial(store, name), with_kwargs=True)
                cleanup.callback(hook.remove)
        yield
    if residual and not layer_outputs:
        raise UserError(
            f"{type(model).__name__}: no residual stream recorded (expected calls of layers in an "
            "nn.ModuleList whose outputs have the shape of their inputs)",
            fix="run the model inside the `with` block, or select the layers with outputs=",
        )


def layer_names(model: nn.Module) -> list[str]:
    """Return the paths of those members of outermost `nn.ModuleList`s that have submodules."""
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    return [
        f"{name}.{number}" if name else number
        for name in lists
        if not any(name.startswith(f"{other}.") for other in lists if other)
        for number, member in model.get_submodule(name).named_children()
        if next(member.children(), None) is not None
    ]


def first_tensor(values: Any) -> Tensor | None:
    """Return the first floating-point tensor in nested arguments or results."""
    if isinstance(values, Tensor):
        return values if values.is_floating_point() else None
    if isinstance(values, dict):
        values = tuple(values.values())
    if not isinstance(values, tuple | list):
        return None
    return next((first for value in values if (first := first_tensor(value)) is not None), None)
