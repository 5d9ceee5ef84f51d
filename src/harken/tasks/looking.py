"""What models of text look at: one input, the pass that meets it, and names for rows and columns.

    encoder     a row is a token that was read
    decoder     a row is the token that it decided; the token told last stands one place before it

Sound and pictures are in `listening.py` and `seeing.py`, which name their encoders and decoders by
the same two views. What a model wrote is forced through it once more, so every row of every layer
and head comes from one pass over the hypothesis that was kept.
"""

from collections.abc import Callable, Sequence

import torch

from harken.inspection.refs import is_decoder_attention
from harken.models.language_model import GPT
from harken.tasks.task import AttentionExample, AttentionView, everywhere

Pieces = Callable[[Sequence[int]], list[str]]
"""Token numbers as a person reads them."""


def output_title(text: str) -> str:
    """An output as it stands in a title; one that is empty is named."""
    return text.strip() or "(empty output)"


def reading(
    what: str, names: Sequence[str], matches: Callable[[str], bool] = everywhere
) -> AttentionView:
    """Attention to all that is read; `is_encoder_attention` where the model writes besides."""
    return AttentionView(
        title=f"{what}, looking at each other", matches=matches, queries=names, keys=names
    )


def writing(what: str, decided: Sequence[str], told: Sequence[str]) -> AttentionView:
    """A decoder that looks at what it has written."""
    return AttentionView(
        title=f"{what} written, looking at those before them",
        matches=is_decoder_attention,
        queries=decided,
        keys=told,
    )


def ahead(model: GPT, tokens: Sequence[int], pieces: Pieces, title: str) -> AttentionExample:
    """A text token by token: all but the last are told, all but the first decided."""
    told = torch.tensor([tokens[:-1]], device=model.embedding.weight.device)
    return AttentionExample(
        title=title,
        run=lambda: model.states(told),
        views=[
            AttentionView(
                title="Tokens, each as it was decided, looking at those before it",
                matches=everywhere,
                queries=pieces(tokens[1:]),
                keys=pieces(tokens[:-1]),
            )
        ],
    )


@torch.inference_mode()
def likeliest_next(model: GPT, tokens: Sequence[int]) -> int:
    """What the model would write behind these."""
    told = torch.tensor([tokens], device=model.embedding.weight.device)
    return int(model.logits(model.states(told)[:, -1]).argmax())
