"""Keys of a recipe that another file determines, such as the architecture of loaded weights."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from harken.config.source import KeyPath, describe_value


@dataclass(frozen=True, kw_only=True, slots=True)
class Determined:
    """Values that a recipe need not repeat and must not contradict."""

    values: Mapping[str, Any]  # nested like the recipe
    origin: str  # the file that determines them
    defaults: Collection[str] = ()  # names of keys that a recipe may change

    def insert(self, tree: dict[str, Any], path: KeyPath) -> None:
        """Add the values to a parsed recipe; raise `UserError` for a key with another value."""
        self._insert(self.values, tree, path)

    def _insert(self, values: Mapping[str, Any], tree: dict[str, Any], path: KeyPath) -> None:
        for name, value in values.items():
            child, given = path.child(name), tree.get(name)
            if isinstance(value, dict) and isinstance(tree.setdefault(name, {}), dict):
                self._insert(value, tree[name], child)
            elif name in tree and name not in self.defaults and given != value:
                expected = "no value" if value is None else describe_value(value)
                raise child.error(
                    f"{child.dotted} is {describe_value(given)}, but model.start_from determines "
                    f"it (expected {expected}, from {self.origin})",
                    f"remove {child.dotted}",
                )
            elif value is not None:
                tree.setdefault(name, value)
