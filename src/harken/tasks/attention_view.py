"""Attention of one input: a forward pass to record, and labels for its queries and keys.

    encoder     the label of a query is its input token
    decoder     the label of a query is the token that it predicts, not the token that it reads

The decoder reads the hypothesis of the search (teacher forcing), so one forward pass gives the
attention of every query, layer and head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import nn

from harken.formats.examples import SpokenWord
from harken.inspection.refs import is_encoder_attention
from harken.models.gpt import GPT
from harken.notebook import NotebookOutput
from harken.tasks.prediction import Truncation

TokenTexts = Callable[[Sequence[int]], list[str]]
"""A function that converts tokens to readable texts."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AudioView:
    """The frames of a sound, and the encoder states that are the keys; times are in seconds."""

    spectrogram: Float[np.ndarray, "S F"]
    frame_seconds: float  # between frames
    first_frame_seconds: float  # center of the first frame
    state_seconds: float  # between encoder states
    first_state_seconds: float  # center of the first encoder state
    words: Sequence[SpokenWord] = ()  # predicted times


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageView:
    """An image, and the grid of encoder states that are the keys, row by row."""

    image: UInt8[np.ndarray, "Y X K"] | None  # None if there is only a feature map
    columns: int  # of the grid
    rows: int
    offset: float  # pixel at the center of the first grid point, along both axes
    stride: float  # pixels between grid points


@dataclass(frozen=True, slots=True)
class AttentionView:
    """Labels of queries and keys for the attention layers whose path matches."""

    title: str
    matches: Callable[[str], bool]  # tests the path of a layer in the model
    queries: Sequence[str]
    keys: Sequence[str]
    sound: AudioView | None = None  # if the keys are parts of a sound
    picture: ImageView | None = None  # if the keys are parts of an image


class ScoredOutput(NamedTuple):
    """An output whose log-probabilities `AttentionExample.run` returns."""

    text: str
    targets: Sequence[int]  # column of each row of the log-probabilities
    token_texts: TokenTexts | None  # names of the columns; None if rows are not tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionExample(NotebookOutput):
    """An input with its output; `run` is the forward pass whose attention is shown.

    With an `output`, `run` returns log-probabilities T V, a row for each of its targets.
    """

    title: str
    run: Callable[[], object]
    views: Sequence[AttentionView]
    output: ScoredOutput | None = None
    truncation: Truncation | None = None  # None if the views show the whole input
    model: nn.Module | None = None  # to record in a notebook; None shows text only


def any_path(path: str) -> bool:
    """Match all attention layers of a model."""
    return True


def output_title(text: str) -> str:
    """Return the output without surrounding spaces, or a note that it is empty."""
    return text.strip() or "(empty output)"


def self_attention_view(
    unit: str, labels: Sequence[str], matches: Callable[[str], bool] = any_path
) -> AttentionView:
    """Return the view of self-attention over an input; `unit` names its tokens in the title."""
    kind = "Encoder self-attention" if matches is is_encoder_attention else "Self-attention"
    return AttentionView(f"{kind}: {unit}", matches, labels, labels)


def causal_example(
    model: GPT,
    tokens: Sequence[int],
    token_texts: TokenTexts,
    title: str,
    truncation: Truncation | None,
) -> AttentionExample:
    """Return the attention over a text; a query is labeled with the token that it predicts."""
    inputs = torch.tensor([tokens[:-1]], device=model.embedding.weight.device)
    name = "Self-attention: each output token to the tokens before it"
    view = AttentionView(name, any_path, token_texts(tokens[1:]), token_texts(tokens[:-1]))
    return AttentionExample(
        title=title, run=lambda: model.states(inputs), views=[view], truncation=truncation
    )


def next_token_example(
    model: GPT,
    tokens: Sequence[int],
    token_texts: TokenTexts,
    text: str,
    truncation: Truncation | None,
) -> AttentionExample:
    """Return the attention of a text and its most probable next token."""
    inputs = torch.tensor([tokens], device=model.embedding.weight.device)
    with torch.inference_mode():
        next_token = int(model.logits(model.states(inputs)[:, -1]).argmax())
    title = f"{text} → {token_texts([next_token])[0]!r}"
    return causal_example(model, [*tokens, next_token], token_texts, title, truncation)
