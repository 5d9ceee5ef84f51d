"""A designed head as a picture: who looks at whom, and what one query gives to its keys.

    left    attention [queries, keys], darker is more, by the scale of `palette.py`
    right   attention of the last query that has right keys, around those, which are marked

Drawn by matplotlib, which is imported only when a file is asked for. The same head gives the same
bytes.
"""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harken.errors import UserError
from harken.files import replacing
from harken.report import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harken.design.promises import Designed

_INK, _MUTED, _LINE, _RIGHT = "#1b1e23", "#5d6672", "#2b70a8", "#c2570c"
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 11.0,
    "text.color": _INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _MUTED,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "harken",
}
_AROUND = 24  # steps on both sides of the right keys that the curve shows


def check_ending(path: Path) -> None:
    """Refuse a name that says no kind of picture, before any work is done."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise UserError(
            f"{path}: found the ending {path.suffix!r}, wanted .svg or .png",
            fix="name the picture after the kind of file that it shall be",
        )


def draw_design(designed: "Designed", path: Path, *, title: str) -> None:
    """SVG or PNG, as the name of `path` ends."""
    from harken.design.check import attended

    check_ending(path)
    promise = designed.promise
    weights = attended(designed.heads, promise.tokens(designed.length), promise).numpy()
    right = promise.right(designed.length).numpy()
    file = design_picture(weights, right, title=title, kind=path.suffix.lower()[1:])
    with replacing(path) as unfinished:
        unfinished.write_bytes(file)


def design_picture(
    weights: NDArray[np.float64], right: NDArray[np.bool_], *, title: str, kind: str
) -> bytes:
    """The file itself, of attention and of what was promised, both [queries, keys]."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(_STYLE, after_reset=True):
        figure = Figure(figsize=(10, 4.6), dpi=72, layout="constrained")
        figure.suptitle(title, x=0.02, ha="left", fontsize=15)
        one, other = figure.subplots(1, 2)
        _draw_map(one, weights)
        _draw_row(other, weights, right)
        file = BytesIO()
        svg = {"Title": title, "Date": None, "Creator": None}
        metadata = svg if kind == "svg" else {"Software": None}
        figure.savefig(file, format=kind, dpi=72 if kind == "svg" else 144, metadata=metadata)
    return file.getvalue()


def _draw_map(axes: "Axes", weights: NDArray[np.float64]) -> None:
    levels = np.rint(palette.strength(weights) * (palette.LEVELS - 1)).astype(int)
    axes.imshow(palette.scale(palette.LIGHT)[levels], interpolation="none", aspect="equal")
    axes.set(title="attention", xlabel="key", ylabel="query")
    axes.title.set_fontsize(11)


def _draw_row(axes: "Axes", weights: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
    """Of the last query that promises anything."""
    from matplotlib.ticker import MaxNLocator

    query = int(np.flatnonzero(right.any(axis=1))[-1])
    keys = np.flatnonzero(right[query])
    shown = np.arange(max(0, keys[0] - _AROUND), min(len(right), keys[-1] + _AROUND + 1))
    axes.vlines(shown, 0, weights[query, shown], color=_LINE, linewidth=2.5)
    axes.plot(shown, weights[query, shown], "o", color=_LINE, markersize=3.5)
    axes.plot(
        keys,
        weights[query, keys],
        "o",
        color=_RIGHT,
        markersize=5.5,
        label=f"right keys: {weights[query, keys].sum():.4f} in all",
    )
    axes.set(title=f"query {query}", xlabel="key", ylabel="attention")
    axes.title.set_fontsize(11)
    axes.set_ylim(0, 1.18 * float(weights[query].max()))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper left", frameon=False)
