"""Config classes with every supported type, and functions to load them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, Optional

import pytest

from harken.config import bounded, loads
from harken.errors import UserError

BASE = Path("/recipes")


@dataclass(frozen=True, kw_only=True)
class Scaled:
    kind: Literal["scaled"] = "scaled"
    heads: int = bounded(4, at_least=1, at_most=64)
    dropout: float = bounded(0.0, at_least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Dense:
    kind: Literal["dense"] = "dense"
    hidden: int


@dataclass(frozen=True, kw_only=True)
class Random:
    kind: Literal["random"] = "random"
    length: int = 5
    hidden: int = 7


@dataclass(frozen=True, kw_only=True)
class Plain:
    kind: Literal["plain"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Layer:
    width: int
    score: Scaled | Dense | Plain | None


@dataclass(frozen=True, kw_only=True)
class Model:
    layers: int = bounded(2, at_least=1)
    width: int = 64
    norm: Literal["layer", "rms", "none"] = "layer"
    bits: Literal[8, 16] = 8
    bias: bool = True
    attention: Scaled | Dense | Random | Plain = Scaled(heads=8, dropout=0.25)
    stack: tuple[Layer, ...] = ()

    def __post_init__(self) -> None:
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd")
        if self.width == 666:
            raise UserError("an error of the config", fix="its fix")


@dataclass(frozen=True, kw_only=True)
class Data:
    train: Path
    dev: Path | float = field(default=0.1, metadata={"above": 0, "below": 1})
    test: Optional[Path] = None  # noqa: UP045 (the old spelling works too)
    words: tuple[str, ...] = ("one", "two")
    grid: tuple[tuple[float, ...], ...] = ()
    weights: tuple[float, ...] = bounded((), at_least=0)


@dataclass(frozen=True, kw_only=True)
class Tag:
    task: Literal["tag"] = "tag"
    name: str = "nameless"
    seed: int = 0
    rate: float = 1e-5
    minutes: float | None = None
    data: Data
    model: Model = field(default_factory=lambda: Model(layers=6))


@dataclass(frozen=True, kw_only=True)
class Answer:
    task: Literal["answer"] = "answer"
    read: Path


@dataclass(frozen=True, kw_only=True)
class First:
    version: Literal["1"] = "1"
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Second:
    version: Literal["2"] = "2"


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: First = First(size=3)
    data: Data = Data(train=Path("t"))

    def __post_init__(self) -> None:
        if self.data.dev == 0.5:
            raise ValueError("half is not enough")


DATA = '[data]\ntrain = "t.txt"\n'


def load_tag(text: str = DATA, *overrides: str) -> Tag:
    return loads(Tag, dedent(text), name="recipe.toml", base=BASE, overrides=overrides)


def error_of(text: str, *overrides: str, kind: Any = Tag) -> str:
    """Return the message and the fix."""
    with pytest.raises(UserError) as caught:
        loads(kind, dedent(text), name="recipe.toml", base=BASE, overrides=overrides)
    return f"{caught.value.message}; {caught.value.fix}"
