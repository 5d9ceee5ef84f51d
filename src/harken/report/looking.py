"""What a model looked at while it met one input: as maps, figures, files, a page and numbers."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from harken.errors import Failure, UserError
from harken.inspection.record import AttentionRecord, Selection, attentions, record
from harken.inspection.refs import (
    AttentionRef,
    HeadPattern,
    HeadRef,
    layer_label,
    select_heads,
)
from harken.inspection.store import record_to_disk
from harken.report.attention_file import attention_png, attention_svg
from harken.report.heatmap import AttentionMaps, attention_figure
from harken.report.page import Section, page
from harken.report.picture import PictureMaps, picture_figure
from harken.report.picture_file import picture_png, picture_svg
from harken.report.sound import SoundMaps, sound_figure
from harken.report.sound_file import sound_png, sound_svg
from harken.tasks.attention_view import AttentionExample, AttentionView
from harken.version import __version__

TITLE = 120  # characters of an input that stand above its pictures


class Attention(NamedTuple):
    """One attention of a model, and its weights [heads, queries, keys]."""

    module: str
    heads: Sequence[int]  # counted from 1
    weights: np.ndarray

    def only(self, heads: Collection[int]) -> "Attention":
        kept = [index for index, head in enumerate(self.heads) if head in heads]
        return self._replace(
            heads=[self.heads[index] for index in kept], weights=self.weights[kept]
        )


class Looked(NamedTuple):
    """One view of a glimpse, and the attentions that it names."""

    view: AttentionView
    attentions: Sequence[Attention]

    @property
    def layers(self) -> list[np.ndarray]:
        return [one.weights for one in self.attentions]

    @property
    def layer_names(self) -> list[str]:
        return [layer_label(one.module) for one in self.attentions]

    @property
    def head_numbers(self) -> Sequence[Sequence[int]]:
        return [one.heads for one in self.attentions]


def look(
    model: nn.Module,
    glimpse: AttentionExample,
    layers: Collection[HeadPattern] = (),
    heads: Collection[HeadPattern] = (),
) -> list[Looked]:
    """Run it and keep what was looked at; views that no attention matches are left out.

    Without patterns everything is kept. A pattern that matches no head of the model is an error.
    """
    with torch.inference_mode(), record(model, _choice(model, layers)) as seen:
        glimpse.run()
    found = [Looked(view, _attentions(seen, view)) for view in glimpse.views]
    every = [
        HeadRef(one.module, head)
        for looked in found
        for one in looked.attentions
        for head in one.heads
    ]
    for pattern in heads:
        if every and not any(pattern.matches(head.module, head.head) for head in every):
            raise _not_there("heads", pattern, [head.label for head in every])
    kept = [looked._replace(attentions=_only(looked.attentions, layers, heads)) for looked in found]
    if every and not any(looked.attentions for looked in kept):
        names = ", ".join(map(str, heads))
        raise UserError(
            f"heads {names}: not in the chosen layers",
            fix="choose heads of these layers, or more layers",
        )
    return [looked for looked in kept if looked.attentions]


def save(
    model: nn.Module, glimpse: AttentionExample, folder: Path, layers: Collection[HeadPattern] = ()
) -> None:
    """The whole record on disk: weights, queries, keys and values of every head of these layers.

    Its tokens are the names of what looks and of what is looked at, view by view.
    """
    everything = replace(_choice(model, layers), queries=True, keys=True, values=True)
    names = [names for view in glimpse.views for names in (view.queries, view.keys)]
    with torch.inference_mode(), record_to_disk(model, folder, everything, names):
        glimpse.run()


def sound_maps(looked: Looked) -> SoundMaps | None:
    """The same over seconds; None where no sound was looked at."""
    sound = looked.view.sound
    if sound is None:
        return None
    heard = {one.name: getattr(sound, one.name) for one in fields(sound)}
    return SoundMaps(
        symbols=looked.view.queries,
        layers=looked.layers,
        layer_names=looked.layer_names,
        head_numbers=looked.head_numbers,
        **heard,
    )


def picture_maps(looked: Looked) -> PictureMaps | None:
    """The same over x and y; None where no picture was looked at."""
    picture = looked.view.picture
    if picture is None:
        return None
    seen = {one.name: getattr(picture, one.name) for one in fields(picture)}
    return PictureMaps(
        symbols=looked.view.queries,
        layers=looked.layers,
        layer_names=looked.layer_names,
        head_numbers=looked.head_numbers,
        **seen,
    )


def attention_maps(looked: Looked) -> AttentionMaps:
    """The same, token by token."""
    return AttentionMaps(
        query_tokens=looked.view.queries,
        key_tokens=looked.view.keys,
        layers=looked.layers,
        layer_names=looked.layer_names,
        head_numbers=looked.head_numbers,
    )


def title_of(glimpse: AttentionExample) -> str:
    """The title of an input above its pictures, with how much of it was read where it was cut."""
    title = shortened(glimpse.title)
    return title if glimpse.truncation is None else f"{title} [{glimpse.truncation}]"


def figure_of(looked: Looked, title: str, *, noted: bool = True) -> str:
    """For a page; without its note where the view's title stands above it."""
    note = looked.view.title if noted else ""
    over_seconds, over_places = sound_maps(looked), picture_maps(looked)
    if over_seconds is not None:
        return sound_figure(over_seconds, title=title, note=note)
    if over_places is not None:
        return picture_figure(over_places, title=title, note=note)
    return attention_figure(attention_maps(looked), title=title, note=note)


def files_of(looked: Looked, title: str) -> dict[str, bytes]:
    """For a folder: files by their endings."""
    title = f"{looked.view.title}: {title}"
    over_seconds, over_places = sound_maps(looked), picture_maps(looked)
    if over_seconds is not None:
        svg, png = sound_svg(over_seconds, title), sound_png(over_seconds, title)
    elif over_places is not None:
        svg, png = picture_svg(over_places, title), picture_png(over_places, title)
    else:
        maps = attention_maps(looked)
        svg, png = attention_svg(maps, title), attention_png(maps, title)
    return {"svg": svg.encode(), "png": png}


def looking_page(title: str, found: Sequence[Looked], facts: Mapping[str, str]) -> str:
    """One self-contained HTML document: every view of one input."""
    return page(
        "What was looked at",
        subtitle=title,
        facts=facts,
        sections=[
            Section(title=one.view.title, body=figure_of(one, title, noted=False)) for one in found
        ],
        footer=f"Written by Harken {__version__}. A row is what looks, a column what is looked at.",
    )


def numbers_of(looked: Looked) -> dict[str, Any]:
    """For a script: what there is, and where each query of each head looks most."""
    return {
        "title": looked.view.title,
        "queries": list(looked.view.queries),
        "keys": list(looked.view.keys),
        "attentions": [
            {
                **AttentionRef(one.module).to_json(),
                "shape": list(one.weights.shape),
                "heads": [
                    {
                        **HeadRef(one.module, head).to_json(),
                        "looks_at": weights.argmax(axis=1).tolist(),
                        "weights": [round(float(most), 6) for most in weights.max(axis=1)],
                    }
                    for head, weights in zip(one.heads, one.weights, strict=True)
                ],
            }
            for one in looked.attentions
        ],
    }


def shortened(title: str) -> str:
    """As much of an input as has room above a picture."""
    return textwrap.shorten(title, TITLE, placeholder=" …")


def _choice(model: nn.Module, layers: Collection[HeadPattern]) -> Selection:
    """Select by path: a layer that only one of two stacks has is selected there."""
    if not layers:
        return Selection()
    every = attentions(model)
    for pattern in layers:
        if not any(pattern.matches(path) for path in every):
            raise _not_there("layers", pattern, [layer_label(path) for path in every])
    return Selection(
        paths=tuple(path for path in every if any(pattern.matches(path) for pattern in layers))
    )


def _attentions(seen: Sequence[AttentionRecord], view: AttentionView) -> list[Attention]:
    """One that ran step by step is put together."""
    calls: dict[str, list[AttentionRecord]] = {}
    for one in seen:
        if view.matches(one.name):
            calls.setdefault(one.name, []).append(one)
    return [_joined(path, parts) for path, parts in calls.items()]


def _joined(path: str, parts: Sequence[AttentionRecord]) -> Attention:
    weights = np.concatenate([one.weights[0].float().cpu().numpy() for one in parts], axis=1)
    if not np.isfinite(weights).all():
        raise Failure(
            f"{path}: found attention that is no number, wanted weights between 0 and 1",
            fix="the model's weights are damaged or have diverged: restore or train them again",
        )
    return Attention(path, range(1, len(weights) + 1), weights)


def _only(
    attentions: Sequence[Attention],
    layers: Collection[HeadPattern],
    heads: Collection[HeadPattern],
) -> list[Attention]:
    found = [
        one.only(select_heads(one.module, len(one.heads), layers, heads)) for one in attentions
    ]
    return [one for one in found if one.heads]


def _not_there(option: str, pattern: HeadPattern, there: Sequence[str]) -> UserError:
    names = list(dict.fromkeys(there))
    listed = ", ".join(names) if len(names) <= 8 else f"{names[0]} to {names[-1]}"
    return UserError(
        f"{option} {pattern}: not in the model (expected some of {listed})",
        fix=f"choose among these, or name no {option} to see all",
    )
