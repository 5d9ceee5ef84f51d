"""Attention weights of a model for the views of one input."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from harken.errors import Failure, UserError
from harken.inspection.record import AttentionRecord, Selection, attention_layers, record
from harken.inspection.refs import AttentionRef, HeadPattern, HeadRef, layer_label, select_heads
from harken.inspection.store import record_to_disk
from harken.report.palette import Weights, max_pool
from harken.tasks.attention_view import AttentionExample, AttentionView


class NamedWeights(NamedTuple):
    """A head, or the mean of a layer: weights [queries, keys]."""

    name: str
    weights: Weights


class LayerAttention(NamedTuple):
    """The weights [heads, queries, keys] of one attention module."""

    module: str  # its path in the model
    heads: Sequence[int]  # counted from 1
    weights: Weights

    @property
    def name(self) -> str:
        return layer_label(self.module)

    def head_name(self, index: int) -> str:
        """Return the name of a head, such as L1.H3."""
        return f"{self.name}.H{self.heads[index]}"

    def mean_and_heads(self) -> list[NamedWeights]:
        """Return the mean over heads if there are several, then each head."""
        weights = np.clip(self.weights.astype(np.float64), 0, 1)
        heads = [NamedWeights(self.head_name(i), head) for i, head in enumerate(weights)]
        mean = NamedWeights(f"{self.name}, mean over {len(heads)} heads", weights.mean(axis=0))
        return heads if len(heads) == 1 else [mean, *heads]

    def select(self, heads: Collection[int]) -> "LayerAttention":
        indices = [index for index, head in enumerate(self.heads) if head in heads]
        return self._replace(heads=[self.heads[i] for i in indices], weights=self.weights[indices])


class ViewedAttention(NamedTuple):
    """One view of an example, with the weights of the attention modules that it matches."""

    view: AttentionView
    layers: Sequence[LayerAttention]

    @property
    def head_count(self) -> int:
        return sum(len(layer.heads) for layer in self.layers)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return len(self.view.queries), len(self.view.keys)

    @property
    def columns(self) -> list[int]:
        """All head numbers of the layers, which are the columns of the overview."""
        return sorted({head for layer in self.layers for head in layer.heads})

    def pooled(self, limit: int) -> "ViewedAttention":
        """Max-pool the weights to at most `limit` queries and keys; the labels do not change."""
        layers = [layer._replace(weights=max_pool(layer.weights, limit)) for layer in self.layers]
        return self._replace(layers=layers)


def view_attention(
    model: nn.Module,
    example: AttentionExample,
    layers: Collection[HeadPattern] = (),
    heads: Collection[HeadPattern] = (),
) -> list[ViewedAttention]:
    """Run the model on an example and return the views that have attention.

    Without patterns, all heads are returned. Raises `UserError` if a pattern matches no head.
    """
    with torch.inference_mode(), record(model, _selection(model, layers)) as records:
        example.run()
    views = [ViewedAttention(view, _layers(records, view)) for view in example.views]
    recorded = [layer for viewed in views for layer in viewed.layers]
    refs = [HeadRef(layer.module, head) for layer in recorded for head in layer.heads]
    for pattern in heads if refs else ():
        if not any(pattern.matches(ref.module, ref.head) for ref in refs):
            raise _unknown_pattern("heads", pattern, [ref.label for ref in refs])
    selected = []
    for viewed in views:
        filtered = [
            layer.select(select_heads(layer.module, len(layer.heads), layers, heads))
            for layer in viewed.layers
        ]
        if matching := [layer for layer in filtered if layer.heads]:
            selected.append(viewed._replace(layers=matching))
    return selected


def save_attention(
    model: nn.Module, example: AttentionExample, folder: Path, layers: Collection[HeadPattern] = ()
) -> None:
    """Write weights, queries, keys and values of `layers` (default: all), and the views' labels."""
    selection = replace(_selection(model, layers), queries=True, keys=True, values=True)
    labels = [labels for view in example.views for labels in (view.queries, view.keys)]
    with torch.inference_mode(), record_to_disk(model, folder, selection, labels):
        example.run()


def attention_json(viewed: ViewedAttention) -> dict[str, Any]:
    """Return labels, shapes, and the largest weight of each query and head."""
    return {
        "title": viewed.view.title,
        "queries": list(viewed.view.queries),
        "keys": list(viewed.view.keys),
        "attentions": [
            {
                **AttentionRef(layer.module).to_json(),
                "shape": list(layer.weights.shape),
                "heads": [
                    {
                        **HeadRef(layer.module, head).to_json(),
                        "argmax_keys": weights.argmax(axis=1).tolist(),
                        "weights": [round(float(weight), 6) for weight in weights.max(axis=1)],
                    }
                    for head, weights in zip(layer.heads, layer.weights, strict=True)
                ],
            }
            for layer in viewed.layers
        ],
    }


def _selection(model: nn.Module, layers: Collection[HeadPattern]) -> Selection:
    """Select modules by path, since layer numbers are ambiguous in an encoder-decoder."""
    if not layers:
        return Selection()
    paths = list(attention_layers(model))
    for pattern in layers:
        if not any(map(pattern.matches, paths)):
            raise _unknown_pattern("layers", pattern, list(map(layer_label, paths)))
    matching = [path for path in paths if any(pattern.matches(path) for pattern in layers)]
    return Selection(paths=tuple(matching))


def _layers(records: Sequence[AttentionRecord], view: AttentionView) -> list[LayerAttention]:
    """Return the weights of the modules of a view; calls of one module are concatenated."""
    calls: dict[str, list[Weights]] = {}
    for call in records:
        if view.matches(call.name):
            calls.setdefault(call.name, []).append(call.weights[0].float().cpu().numpy())
    layers = []
    for path, parts in calls.items():
        weights = np.concatenate(parts, axis=1)
        if not np.isfinite(weights).all():
            raise Failure(
                f"{path}: attention weights are not finite",
                fix="the weights of the model are damaged or diverged: restore them or train again",
            )
        shape = (len(weights), len(view.queries), len(view.keys))
        assert weights.shape == shape, (path, weights.shape, shape)
        layers.append(LayerAttention(path, range(1, len(weights) + 1), weights))
    return layers


def _unknown_pattern(option: str, pattern: HeadPattern, known: Sequence[str]) -> UserError:
    names = list(dict.fromkeys(known))
    listed = ", ".join(names) if len(names) <= 8 else f"{names[0]} to {names[-1]}"
    return UserError(
        f"{option} {pattern}: not in the model (expected one of {listed})",
        fix=f"choose one of these, or omit --{option} to see all",
    )
