"""All choices of scores and positions, derived from their types so that new kinds are tested."""

from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

from harken.attention.compatibility import conflict
from harken.attention.positions import PositionConfig
from harken.attention.scores import ScoreConfig


def forms(kind: type) -> Iterator[Any]:
    """Yield a config for every combination of its literals and booleans."""
    hints, choices = get_type_hints(kind), {}
    for field in fields(kind):
        hint = hints[field.name]
        if get_origin(hint) is Literal:
            choices[field.name] = get_args(hint)
        elif hint is bool:
            choices[field.name] = (False, True)
    for values in product(*choices.values()):
        yield kind(**dict(zip(choices, values, strict=True)))


def name(config: Any) -> str:
    """Return the kind and the other choices of a config."""
    others = (getattr(config, field.name) for field in fields(config) if field.name != "kind")
    return " ".join(
        [config.kind, *(str(value) for value in others if isinstance(value, str | bool))]
    )


EVERY_SCORE = [form for kind in get_args(ScoreConfig) for form in forms(kind)]
EVERY_POSITION = [form for kind in get_args(PositionConfig) for form in forms(kind)]
EVERY_PAIR = [
    (score, position)
    for score in EVERY_SCORE
    for position in EVERY_POSITION
    if conflict(score, position) is None
]
