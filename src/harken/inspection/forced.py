"""What a decoder looked at as it wrote a text that is known: one forced pass over it.

    told     <end> w_1 … w_{n-1}        decides        w_1 w_2 … w_n

The row of a symbol is the step that decided it. Only models that write from a memory (begin,
extend) have such rows; other attentions are in what `record` gives.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.decode.step import Writing
from harken.inspection.record import Choice, attentions, record
from harken.inspection.refs import is_cross_attention


@torch.inference_mode()
def forced_looks(
    model: Writing,
    memory: Float[Tensor, "B M H"],
    present: Bool[Tensor, "B M"],
    texts: Sequence[Sequence[int]],
    start: int,
) -> list[Float[Tensor, "k T S"]]:
    """For each row, what every head of the decoder's last layer looks at as it decides."""
    assert isinstance(model, nn.Module)
    last = [name for name in attentions(model) if is_cross_attention(name)][-1]
    weights = []
    for row, text in enumerate(texts):
        count = int(present[row].sum())
        told = torch.tensor([[start, *text]], device=memory.device)[:, : max(len(text), 1)]
        with record(model, Choice(paths=(last,))) as seen:
            state = model.begin(memory[[row], :count], present[[row], :count])
            model.extend(told, torch.ones_like(told, dtype=torch.bool), state)
        calls = [one.weights[0] for one in seen]
        weights.append(torch.cat(calls, dim=1)[:, : len(text)])
    return weights
