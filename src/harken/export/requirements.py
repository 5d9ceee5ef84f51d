"""What exports require of a recipe: keys of [model] and the values that a format can represent."""

from typing import Any

from harken.attention.multihead import MultiHeadConfig
from harken.errors import UserError
from harken.export.format import unsupported

ALTERNATIVE = "export to format onnx, which can represent every model"


class Requirements:
    """Checks of one model; each method raises the error that names the offending key."""

    def __init__(self, format_name: str, alternative: str = ALTERNATIVE) -> None:
        self.format_name, self.alternative = format_name, alternative

    def refuse(self, choice: str) -> UserError:
        return unsupported(self.format_name, choice, self.alternative)

    def require(self, key: str, value: Any, *expected: Any, where: str = "") -> None:
        """Require one of some values, in the class of the format that `where` names."""
        if not any(value == choice and type(value) is type(choice) for choice in expected):
            shown = " or ".join(map(_toml, expected))
            place = f" in {where}" if where else ""
            raise self.refuse(f"{key} = {_toml(value)}{place} (expected {shown})")

    def attention(
        self, key: str, config: MultiHeadConfig, width: int, *, is_llama: bool = False
    ) -> None:
        """Require scaled dot products with projections.

        As in Llama, heads may have another width than `width` / `heads`, and share keys and values.
        """
        self.require(f"{key}.score.kind", config.score.kind, "scaled")
        self.require(f"{key}.v_proj", config.v_proj, True)
        self.require(f"{key}.out_proj", config.out_proj, True)
        head_width, key_width = config.head_widths(width)
        self.require(f"{key}.key_width", key_width, head_width)
        if not is_llama:
            self.require(f"{key}.head_width", head_width, width // config.heads)
            self.require(f"{key}.kv_heads", config.kv_heads or config.heads, config.heads)

    def rotary(self, key: str, fraction: float, key_width: int, *, partial: bool) -> None:
        """Require rotary positions whose rotated features are an even number."""
        if not partial:
            self.require(f"{key}.fraction", fraction, 1.0)
        elif int(fraction * key_width) % 2:
            raise self.refuse(f"{key}.fraction = {fraction}, an odd number of rotated features")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
