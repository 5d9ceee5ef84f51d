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

from harken.encode.vocabulary import Vocabulary
from harken.errors import UserError
from harken.formats.examples import SpokenWord
from harken.inspection.refs import is_encoder_attention
from harken.models.gpt import GPT
from harken.notebook import NotebookOutput
from harken.tasks.prediction import Truncation, truncation_of

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
    prompt: Sequence[int],
    output: ScoredOutput,
    title: str,
    truncation: Truncation | None,
) -> AttentionExample:
    """Return the attention over a text; a query is labeled with the token that it predicts."""
    tokens, count, token_texts = [*prompt, *output.targets], len(output.targets), output.token_texts
    assert token_texts is not None
    inputs = torch.tensor([tokens[:-1]], device=model.embedding.weight.device)
    name = "Self-attention: each output token to the tokens before it"
    view = AttentionView(name, any_path, token_texts(tokens[1:]), token_texts(tokens[:-1]))
    return AttentionExample(
        title=title,
        run=lambda: model.logits(model.states(inputs)[0, -count:]).float().log_softmax(dim=-1),
        views=[view],
        output=output,
        truncation=truncation,
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
    (name,) = token_texts([next_token])
    output = ScoredOutput(name, [next_token], token_texts)
    return causal_example(model, tokens, output, f"{text} → {name!r}", truncation)


def continued_example(
    model: GPT,
    tokens: Sequence[int],
    first: int,
    token_texts: TokenTexts,
    texts: tuple[str, str],
) -> AttentionExample:
    """Return the attention of a prompt and its continuation, the tokens from index `first`.

    Of a long text, the last tokens are read. The first token is the start, which is not counted.
    """
    cut = max(0, len(tokens) - 1 - model.max_length)
    tokens, first, total = tokens[cut:], max(first - cut, 1), len(tokens) - 1
    output = ScoredOutput(texts[1], tokens[first:], token_texts)
    title, truncation = f"{texts[0]} → {texts[1]!r}", truncation_of(total - cut, total, "last")
    return causal_example(model, tokens[:first], output, title, truncation)


def scored_output(
    tokens: Sequence[int],
    forced: str | None,
    vocabulary: Vocabulary,
    max_tokens: int | None = None,
) -> ScoredOutput:
    """Return the tokens of a search, or of a forced text, as the output of an example.

    With `max_tokens`, they are followed by <end> and cut; otherwise <end> replaces no tokens.
    """
    if forced is not None:
        tokens = vocabulary.encode([forced])[0].tolist()
    end = vocabulary.special.end
    targets = list(tokens) or [end] if max_tokens is None else [*tokens, end][:max_tokens]
    return ScoredOutput(vocabulary.decode([tokens])[0].strip(), targets, vocabulary.token_texts)


def named_output(
    names: Sequence[str], forced: Sequence[str] | None, known: Sequence[str]
) -> ScoredOutput:
    """Return the names that a model predicts, such as tags, or the `forced` ones."""
    if forced is not None and (len(forced) != len(names) or not {*forced} <= {*known}):
        listed = ", ".join(known[:8])
        raise UserError(
            f"output: expected {len(names)} of the names {listed}, got {' '.join(forced)[:60]!r}",
            fix="separate the names with spaces",
        )
    chosen = names if forced is None else forced
    indices = [known.index(name) for name in chosen]
    return ScoredOutput(" ".join(chosen), indices, lambda ids: [known[index] for index in ids])
