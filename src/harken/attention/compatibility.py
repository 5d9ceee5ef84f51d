"""Which scores, positions and sizes work together. The table in the docs is generated from it."""

from typing import get_args

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import FourierConfig, PositionConfig, model_width
from harken.attention.relative import RotaryConfig
from harken.attention.scores import ScoreConfig

YES = "yes"


def conflict(score: ScoreConfig, position: PositionConfig) -> str | None:
    """Return why a score and a position kind do not work together, or None if they do."""
    return score.conflicts.get(position.kind)


def check_choices(
    attention: MultiHeadConfig, position: PositionConfig, width: int, length: int
) -> None:
    """Raise a ValueError with the reason if a model of this width cannot have these choices."""
    width = model_width(position, width)
    if isinstance(position, FourierConfig) and position.span and position.span < length:
        raise ValueError(
            f"span {position.span} is shorter than the model's length {length}, so offsets would "
            "be ambiguous; make it as long, or leave it out"
        )
    attention.check(width)
    reason = conflict(attention.score, position)
    if reason is not None:
        raise ValueError(f"{reason}; choose another position or score")
    _, key_width = attention.head_widths(width)
    if isinstance(position, RotaryConfig) and key_width % 2:
        even = "width" if attention.score.keys_are_tokens else "attention.key_width"
        raise ValueError(
            f"position 'rotary' rotates pairs (expected an even key width, got {key_width}); "
            f"make {even} even"
        )


def compatibility_table() -> list[list[str]]:
    """Return a header of position kinds, then a row per score: `yes`, or why not."""
    positions = [kind() for kind in get_args(PositionConfig)]
    scores = [kind() for kind in get_args(ScoreConfig)]
    return [
        ["score", *(position.kind for position in positions)],
        *(
            [score.kind, *(conflict(score, position) or YES for position in positions)]
            for score in scores
        ),
    ]
