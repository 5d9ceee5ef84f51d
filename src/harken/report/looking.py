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
from harken.inspection.record import Choice, Recorded, attentions, layer_of, record
from harken.inspection.store import storing
from harken.report.attention_file import attention_png, attention_svg
from harken.report.heatmap import AttentionMaps, attention_figure
from harken.report.page import Section, page
from harken.report.picture import PictureMaps, picture_figure
from harken.report.picture_file import picture_png, picture_svg
from harken.report.sound import SoundMaps, sound_figure
from harken.report.sound_file import sound_png, sound_svg
from harken.tasks.task import Glimpse, View
from harken.version import __version__

TITLE = 120  # characters of an input that stand above its pictures


class Attention(NamedTuple):
    """One attention of a model, and its weights [heads, queries, keys]."""

    path: str
    layer: int  # of an encoder, or of a decoder, from 1
    heads: Sequence[int]  # from 1
    weights: np.ndarray

    def only(self, heads: Collection[int]) -> "Attention":
        kept = [at for at, head in enumerate(self.heads) if head in heads]
        return self._replace(heads=[self.heads[at] for at in kept], weights=self.weights[kept])


class Looked(NamedTuple):
    """One view of a glimpse, and the attentions that it names."""

    view: View
    attentions: Sequence[Attention]

    @property
    def layers(self) -> list[np.ndarray]:
        return [one.weights for one in self.attentions]

    @property
    def layer_names(self) -> list[str]:
        return [f"layer {one.layer}" for one in self.attentions]

    @property
    def head_numbers(self) -> Sequence[int]:
        """Of the layer with most; one with fewer lacks the last of these."""
        return max((one.heads for one in self.attentions), key=len, default=())


def look(
    model: nn.Module, glimpse: Glimpse, layers: Collection[int] = (), heads: Collection[int] = ()
) -> list[Looked]:
    """Run it and keep what was looked at; views that no attention matches are left out.

    Layers and heads are counted from 1; where none are given, all are kept.
    """
    with torch.inference_mode(), record(model, _choice(model, layers)) as seen:
        glimpse.run()
    found = [Looked(view, _attentions(seen, view)) for view in glimpse.views]
    if heads:
        most = max((len(one.heads) for looked in found for one in looked.attentions), default=0)
        found = [looked._replace(attentions=_only(looked.attentions, heads)) for looked in found]
        if most and not any(looked.attentions for looked in found):
            raise _not_there("head", heads, most)
    return [one for one in found if one.attentions]


def save(model: nn.Module, glimpse: Glimpse, folder: Path, layers: Collection[int] = ()) -> None:
    """The whole record on disk: weights, queries, keys and values of every head of these layers.

    Its tokens are the names of what looks and of what is looked at, view by view.
    """
    everything = replace(_choice(model, layers), queries=True, keys=True, values=True)
    names = [names for view in glimpse.views for names in (view.queries, view.keys)]
    with torch.inference_mode(), storing(model, folder, everything, names):
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
    title = shortened(f"{looked.view.title}: {title}")
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
    title = shortened(title)
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
                "layer": one.layer,
                "path": one.path,
                "shape": list(one.weights.shape),
                "heads": [
                    {
                        "head": head,
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


def _choice(model: nn.Module, layers: Collection[int]) -> Choice:
    """By path: in a model of two stacks, a layer that only one of them has is chosen there."""
    every = attentions(model)
    paths = tuple(path for path in every if layer_of(path) + 1 in layers)
    if layers and every and not paths:
        raise _not_there("layer", layers, max(map(layer_of, every)) + 1)
    return Choice(paths=paths or None)


def _attentions(seen: Sequence[Recorded], view: View) -> list[Attention]:
    """One that ran step by step is put together."""
    calls: dict[str, list[Recorded]] = {}
    for one in seen:
        if view.matches(one.name):
            calls.setdefault(one.name, []).append(one)
    return [_joined(path, parts) for path, parts in calls.items()]


def _joined(path: str, parts: Sequence[Recorded]) -> Attention:
    weights = np.concatenate([one.weights[0].float().cpu().numpy() for one in parts], axis=1)
    if not np.isfinite(weights).all():
        raise Failure(
            f"{path}: found attention that is no number, wanted weights between 0 and 1",
            fix="the model's weights are damaged or have diverged: restore or train them again",
        )
    return Attention(path, layer_of(path) + 1, range(1, len(weights) + 1), weights)


def _only(attentions: Sequence[Attention], heads: Collection[int]) -> list[Attention]:
    return [kept for one in attentions if (kept := one.only(heads)).heads]


def _not_there(what: str, wanted: Collection[int], most: int) -> UserError:
    return UserError(
        f"found no {what} {', '.join(map(str, sorted(wanted)))} in the model, wanted some of 1 to "
        f"{most}",
        fix=f"choose among these, or leave out --{what}s to see all",
    )
