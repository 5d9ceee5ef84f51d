"""The depth of each parameter in a model of Transformer or Conformer blocks.

    0       parameters before the first block, such as embeddings
    1 … L   the blocks, from the lowest to the highest
    L + 1   parameters after the last block, such as a final norm or a classifier

Parameters between the two stacks of an encoder-decoder have the depth of the next block.
"""

from torch import nn

from harken.errors import UserError
from harken.layers.transformer import Block


def parameter_depths(model: nn.Module) -> dict[nn.Parameter, int]:
    """Return the depth of each parameter; all are 0 in a model without blocks."""
    number_of = {name: number for number, name in enumerate(_block_names(model), start=1)}
    depths: dict[nn.Parameter, int] = {}
    outside = 0  # depth of a parameter that belongs to no block
    for name, parameter in model.named_parameters():
        owners = (number for block, number in number_of.items() if name.startswith(f"{block}."))
        number = next(owners, None)
        outside = outside if number is None else number + 1
        depths[parameter] = outside if number is None else number
    return depths


def freeze_layers(model: nn.Module, layers: int) -> None:
    """Exclude the lowest `layers` blocks, and everything below them, from training."""
    if layers == 0:
        return
    blocks = len(_block_names(model))
    if layers > blocks:
        raise UserError(
            f"model.freeze = {layers}, but the model has {blocks} Transformer or Conformer blocks",
            fix=f"set model.freeze to at most {blocks}",
        )
    for parameter, depth in parameter_depths(model).items():
        if depth <= layers:
            parameter.requires_grad_(False)


def _block_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, Block)]
