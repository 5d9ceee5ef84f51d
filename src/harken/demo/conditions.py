"""The ways of telling that the study of exposure compares, and what was measured of each."""

from dataclasses import dataclass

from harken.measure.interval import Estimate

KINDS = {
    (False, False): "the same words and order",
    (True, False): "rewritten",
    (False, True): "permuted",
    (True, True): "rewritten and permuted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """How many biographies each person has, and what differs between them."""

    biographies: int
    rewrite: bool = False  # the words
    permute: bool = False  # the order of the sentences

    @property
    def kind(self) -> str:
        return KINDS[self.rewrite, self.permute]

    @property
    def name(self) -> str:
        if self.biographies == 1:
            return "1 biography"
        return f"{self.biographies} biographies, {self.kind}"

    @property
    def slug(self) -> str:
        """The name of its folders."""
        changed = [word for word, on in (("words", self.rewrite), ("order", self.permute)) if on]
        return "-".join([str(self.biographies), *(changed or ["same"])])


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Exact answers about people of whom a model had only read."""

    condition: Condition
    n: int
    metric: Estimate


CONDITIONS = (
    Condition(biographies=1),
    Condition(biographies=5),  # the control: as many texts as below, and nothing new in them
    Condition(biographies=5, rewrite=True),
    Condition(biographies=5, permute=True),
    Condition(biographies=2, rewrite=True, permute=True),
    Condition(biographies=5, rewrite=True, permute=True),
    Condition(biographies=10, rewrite=True, permute=True),
)
