"""What a model looked at while it met one input, as maps and as figures."""

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from harken.inspection.record import Recorded, record
from harken.report.heatmap import AttentionMaps, attention_figure
from harken.report.picture import PictureMaps, picture_figure
from harken.report.picture_file import picture_png, picture_svg
from harken.report.sound import SoundMaps, sound_figure
from harken.report.sound_file import sound_png, sound_svg
from harken.tasks.task import Glimpse, View


class Looked(NamedTuple):
    """One view of a glimpse, and an array [heads, queries, keys] for each of its attentions."""

    view: View
    layers: list[np.ndarray]


def look(model: nn.Module, glimpse: Glimpse) -> list[Looked]:
    """Run it and keep what was looked at; views that no attention matches are left out."""
    with torch.inference_mode(), record(model) as seen:
        glimpse.run()
    found = [Looked(view, _layers(seen, view)) for view in glimpse.views]
    return [one for one in found if one.layers]


def sound_maps(looked: Looked) -> SoundMaps | None:
    """The same over seconds; None where no sound was looked at."""
    sound = looked.view.sound
    if sound is None:
        return None
    heard = {one.name: getattr(sound, one.name) for one in fields(sound)}
    return SoundMaps(symbols=looked.view.queries, layers=looked.layers, **heard)


def picture_maps(looked: Looked) -> PictureMaps | None:
    """The same over x and y; None where no picture was looked at."""
    picture = looked.view.picture
    if picture is None:
        return None
    seen = {one.name: getattr(picture, one.name) for one in fields(picture)}
    return PictureMaps(symbols=looked.view.queries, layers=looked.layers, **seen)


def figure_of(looked: Looked, title: str) -> str:
    """For a page."""
    view, over_seconds, over_places = looked.view, sound_maps(looked), picture_maps(looked)
    if over_seconds is not None:
        return sound_figure(over_seconds, title=title, note=view.title)
    if over_places is not None:
        return picture_figure(over_places, title=title, note=view.title)
    maps = AttentionMaps(query_tokens=view.queries, key_tokens=view.keys, layers=looked.layers)
    return attention_figure(maps, title=title, note=view.title)


def files_of(looked: Looked, title: str) -> dict[str, bytes]:
    """For a folder: files by their endings, of a view of sound or of a picture."""
    over_seconds, over_places = sound_maps(looked), picture_maps(looked)
    if over_seconds is not None:
        svg, png = sound_svg(over_seconds, title), sound_png(over_seconds, title)
    else:
        assert over_places is not None, "only what is heard or seen is drawn as a file"
        svg, png = picture_svg(over_places, title), picture_png(over_places, title)
    return {"svg": svg.encode(), "png": png}


def _layers(seen: Sequence[Recorded], view: View) -> list[np.ndarray]:
    """One array an attention; one that ran step by step is put together."""
    calls: dict[str, list[np.ndarray]] = {}
    for one in seen:
        if view.matches(one.name):
            calls.setdefault(one.name, []).append(one.weights[0].float().cpu().numpy())
    return [np.concatenate(parts, axis=1) for parts in calls.values()]
