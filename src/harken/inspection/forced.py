"""Cross-attention of a decoder over a known text, by one teacher-forced pass.

    input     <end> w_1 … w_{n-1}        predicts        w_1 w_2 … w_n

The row of a token is the step that predicted it.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.decode.stepper import Seq2SeqModel
from harken.inspection.record import Selection, attentions, record
from harken.inspection.refs import is_cross_attention


@torch.inference_mode()
def forced_cross_attention(
    model: Seq2SeqModel,
    memory: Float[Tensor, "B M H"],
    present: Bool[Tensor, "B M"],
    texts: Sequence[Sequence[int]],
    start: int,
) -> list[Float[Tensor, "k T S"]]:
    """Return the cross-attention of the decoder's last layer for each row of the batch."""
    assert isinstance(model, nn.Module)
    last = [name for name in attentions(model) if is_cross_attention(name)][-1]
    weights = []
    for row, text in enumerate(texts):
        count = int(present[row].sum())
        told = torch.tensor([[start, *text]], device=memory.device)[:, : max(len(text), 1)]
        with record(model, Selection(paths=(last,))) as records:
            state = model.init_state(memory[[row], :count], present[[row], :count])
            model.step(told, torch.ones_like(told, dtype=torch.bool), state)
        calls = [call.weights[0] for call in records]
        weights.append(torch.cat(calls, dim=1)[:, : len(text)])
    return weights
