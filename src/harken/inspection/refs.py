"""References to the modules and heads of a model, and their names in JSON, pages and options.

Layers and heads are counted from 1. A head is written

    L1.H3           in a model with one stack of layers
    encoder.L1.H3   self-attention of an encoder
    decoder.L1.H3   self-attention of a decoder
    cross.L1.H3     cross-attention of a decoder

and in JSON {"label": "L1.H3", "layer": 1, "head": 3, "module": "stack.blocks.0.attention",
"attention": "self"}, where `module` is the path of `named_modules`.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from harken.errors import UserError

AttentionKind = Literal["self", "encoder", "decoder", "cross"]


def layer_of(module: str) -> int:
    """Return the layer number in the path of a module, counted from 1; 1 if there is none."""
    numbers = [int(part) for part in module.split(".") if part.isdigit()]
    return numbers[-1] + 1 if numbers else 1


def attention_kind(module: str) -> AttentionKind:
    """Return the kind of the layer at a path; `self` if no part of the path names another kind."""
    if module.endswith("cross") or module == "decoder.attention":
        return "cross"
    if module.startswith("encoder."):
        return "encoder"
    return "decoder" if module.startswith("decoder.") else "self"


def is_cross_attention(module: str) -> bool:
    """Whether the layer at a path attends from a decoder to an encoder's output."""
    return attention_kind(module) == "cross"


def is_self_attention(module: str) -> bool:
    """Whether the layer at a path is self-attention outside of an encoder-decoder."""
    return attention_kind(module) == "self"


def is_encoder_attention(module: str) -> bool:
    """Whether the layer at a path is self-attention inside a module named `encoder`."""
    return attention_kind(module) == "encoder"


def is_decoder_attention(module: str) -> bool:
    """Whether the layer at a path is self-attention inside a module named `decoder`."""
    return attention_kind(module) == "decoder"


def layer_label(module: str) -> str:
    """Return the name of the layer of a module, such as L1 or cross.L2."""
    kind = attention_kind(module)
    prefix = "" if kind == "self" else f"{kind}."
    return f"{prefix}L{layer_of(module)}"


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A module, by its path in the model."""

    module: str

    @property
    def layer(self) -> int:
        return layer_of(self.module)

    @property
    def label(self) -> str:
        return layer_label(self.module)

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "layer": self.layer, "module": self.module}


@dataclass(frozen=True, slots=True)
class LayerRef(ModuleRef):
    """A Transformer or Conformer block; in other models, a member of an `nn.ModuleList`."""


@dataclass(frozen=True, slots=True)
class FeedForwardRef(ModuleRef):
    """A feed-forward layer."""

    @property
    def label(self) -> str:
        return f"{layer_label(self.module)}.{self.module.rpartition('.')[2]}"


@dataclass(frozen=True, slots=True)
class AttentionRef(ModuleRef):
    """All heads of an attention layer."""

    @property
    def label(self) -> str:
        return f"{layer_label(self.module)}.attention"

    def to_json(self) -> dict[str, Any]:
        return ModuleRef.to_json(self) | {"attention": attention_kind(self.module)}


@dataclass(frozen=True, slots=True)
class HeadRef(ModuleRef):
    """One head of an attention layer, counted from 1."""

    head: int

    @property
    def label(self) -> str:
        return f"{layer_label(self.module)}.H{self.head}"

    def to_json(self) -> dict[str, Any]:
        fields = {"label": self.label, "layer": self.layer, "head": self.head}
        return fields | {"module": self.module, "attention": attention_kind(self.module)}


@dataclass(frozen=True, slots=True)
class PositionRef(ModuleRef):
    """A positional encoding."""

    @property
    def label(self) -> str:
        return self.module

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "module": self.module}


class HeadPattern(NamedTuple):
    """A pattern that matches heads, such as `cross.L2.H1`; None matches every value."""

    kind: AttentionKind | None = None
    layer: int | None = None
    head: int | None = None

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"L{self.layer}"
        head = "" if self.head is None else f"H{self.head}"
        return ".".join(part for part in (self.kind, layer, head) if part)

    def matches(self, module: str, head: int | None = None) -> bool:
        """Whether a head matches; if `head` is None, whether its attention layer matches."""
        return (
            self.kind in (None, attention_kind(module))
            and self.layer in (None, layer_of(module))
            and (head is None or self.head in (None, head))
        )


def select_heads(
    module: str, count: int, layers: Collection[HeadPattern], heads: Collection[HeadPattern]
) -> list[int]:
    """Return which of the `count` heads of an attention layer match, counted from 1.

    An empty collection of patterns matches all.
    """
    if layers and not any(pattern.matches(module) for pattern in layers):
        return []
    return [
        head
        for head in range(1, count + 1)
        if not heads or any(pattern.matches(module, head) for pattern in heads)
    ]


def parse_patterns(option: Literal["layers", "heads"], value: str) -> list[HeadPattern]:
    """Parse the option `--layers 1,L2,cross.L3` or `--heads 2,L1.H3,cross.L2.H1`.

    A number alone selects this layer of every stack, or this head of every layer.
    """
    number = "([1-9][0-9]{0,5})"
    label, example = f"L{number}", "L1"
    if option == "heads":
        label, example = rf"{label}\.H{number}", "L1.H3"
    patterns = []
    for text in value.split(",") if value.strip() else ():
        text = text.strip()
        if re.fullmatch(number, text):
            is_head = option == "heads"
            patterns.append(
                HeadPattern(head=int(text)) if is_head else HeadPattern(layer=int(text))
            )
        elif matched := re.fullmatch(rf"(?:(encoder|decoder|cross)\.)?{label}", text):
            kind, *numbers = matched.groups()
            patterns.append(HeadPattern(cast(AttentionKind | None, kind), *map(int, numbers)))
        else:
            raise UserError(
                f"--{option}: expected a number from 1 or a name such as {example}, got "
                f"{text[:60]!r}",
                fix=f"separate several with commas, such as --{option} 1,{example}",
            )
    return patterns
