"""Where the weights of a model come from before training."""

from dataclasses import dataclass

MAX_NAMES = 3  # in a line of the summary


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorOrigin:
    """Whether a tensor of the model was loaded or initialized."""

    name: str
    shape: tuple[int, ...]
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsLoaded:
    """The model starts from the weights of another model."""

    folder: str
    tensors: tuple[TensorOrigin, ...]
    unused: tuple[str, ...]  # tensors of the other model

    def summary(self) -> list[str]:
        """Return a line for each origin with the number of tensors and some of their names."""
        names: dict[str, list[str]] = {}
        for tensor in self.tensors:
            names.setdefault(tensor.origin, []).append(tensor.name)
        names["not used"] = list(self.unused)
        return [
            f"{origin}: {len(group)} tensors ({', '.join(group[:MAX_NAMES])}"
            f"{', …' if len(group) > MAX_NAMES else ''})"
            for origin, group in names.items()
            if group
        ]
