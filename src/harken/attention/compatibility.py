"""Check that a score, a positional encoding and sizes are compatible; list the combinations."""

from typing import get_args

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import FourierConfig, PositionConfig, model_width
from harken.attention.relative import RotaryConfig
from harken.attention.scores import ScoreConfig

COMPATIBLE = "yes"


def conflict(score: ScoreConfig, position: PositionConfig) -> str | None:
    """Return why a score and a positional encoding conflict, or None if they are compatible."""
    return score.conflicts.get(position.kind)


def check_compatibility(
    attention: MultiHeadConfig, position: PositionConfig, width: int, length: int
) -> None:
    """Raise a ValueError if a model of this width and length cannot use these settings."""
    width = model_width(position, width)  # wider if the position vectors are concatenated
    if isinstance(position, FourierConfig) and position.span and position.span < length:
        raise ValueError(
            f"span {position.span} is shorter than the model's length {length}, so long offsets "
            "would be ambiguous; increase span, or leave it out"
        )
    attention.check(width)
    reason = conflict(attention.score, position)
    if reason is not None:
        raise ValueError(f"{reason}; choose another position or score")
    _, key_width = attention.head_widths(width)
    if isinstance(position, RotaryConfig) and key_width % 2:
        setting = "width" if attention.score.keys_are_tokens else "attention.key_width"
        raise ValueError(
            f"position 'rotary' rotates pairs (expected an even key width, got {key_width}); "
            f"make {setting} even"
        )


def compatibility_table() -> list[list[str]]:
    """Return a header of positional encodings, then a row per score: `yes`, or the conflict."""
    positions = [config() for config in get_args(PositionConfig)]
    scores = [config() for config in get_args(ScoreConfig)]
    return [
        ["score", *(position.kind for position in positions)],
        *(
            [score.kind, *(conflict(score, position) or COMPATIBLE for position in positions)]
            for score in scores
        ),
    ]
