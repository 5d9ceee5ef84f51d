"""All claims in the order of their numbers, and some of them by name."""

from collections.abc import Sequence

from harken.claims import (
    assignment,
    captioning,
    crosstalk,
    fragility,
    lecture,
    positions,
    problems,
    recurrence,
)
from harken.claims.claim import Claim
from harken.errors import UserError


def number(claim: Claim) -> tuple[str, int]:
    """A2 comes before A10."""
    return claim.id[0], int(claim.id[1:])


ALL: tuple[Claim, ...] = tuple(
    sorted(
        (
            *positions.CLAIMS,
            *crosstalk.CLAIMS,
            *lecture.CLAIMS,
            *recurrence.CLAIMS,
            *captioning.CLAIMS,
            *problems.CLAIMS,
            *assignment.CLAIMS,
            *fragility.CLAIMS,
        ),
        key=number,
    )
)


def chosen(names: Sequence[str]) -> tuple[Claim, ...]:
    """Those of these ids, whatever their case; all where none is named."""
    wanted = [name.upper() for name in names]
    known = [claim.id for claim in ALL]
    for name in wanted:
        if name not in known:
            raise UserError(
                f"claims: found {name!r}, wanted one of {', '.join(known)}",
                fix="leave out the names to run all of them",
            )
    return tuple(claim for claim in ALL if not wanted or claim.id in wanted)
