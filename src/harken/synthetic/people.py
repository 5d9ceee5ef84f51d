"""Generate people and their biographies, for experiments on what a model remembers from reading.

A model reads biographies, learns to answer "Where was X born?" for the people who are asked about
in training, and is tested on the others: only reading can have told it. Three other places in each
biography keep it from answering with whichever place it saw.

Everything is a pure function of the seed and an index, so that millions of people stream in
constant memory and a shard is generated without the rest. The words are in `phrasings.py`.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import accumulate, permutations
from pathlib import Path

from harken.synthetic.draws import Dice, open_all, require_range, shuffled
from harken.synthetic.phrasings import (
    FACTS,
    FIRMS,
    FIRST_NAMES,
    LAST_NAMES,
    MONTHS,
    PLACE_PREFIXES,
    PLACE_STEMS,
    PROFESSIONS,
    SCHOOLS,
)

_FIRSTS = len(FIRST_NAMES["she"])
assert len(FIRST_NAMES["he"]) == _FIRSTS
# A middle name is another first name of the same gender.
NAMES = len(FIRST_NAMES) * _FIRSTS * (_FIRSTS - 1) * len(LAST_NAMES)

# Place number r (from 0) has the share 1 / (r + 16): Zipf without its steep head, so that always
# naming the commonest of 100 places is right 3 times in 100.
_ZIPF_OFFSET = 16
_EARLIEST, _LATEST = date(1930, 1, 1).toordinal(), date(2000, 1, 1).toordinal()
_ORDERS = tuple(permutations(range(len(FACTS))))
_BIRTHPLACE = 0  # the fact that is asked about, and so told in every biography
_PROGRESS_EVERY = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class PeopleConfig:
    """How many people, what is told of them, and how often each time in other words."""

    people: int = 1000
    asked: float = 0.5  # share of the people who have a training question
    places: int = 120  # where people are born, study, work and live
    biographies: int = 1  # of each person
    facts: int = len(FACTS)  # told in each biography: the birthplace, and others drawn anew
    rewrite: bool = True  # each biography has phrasings of its own, else each person has
    permute: bool = True  # each biography has an order of sentences of its own, else one for all
    earlier: int = 0  # facts told before the birthplace in the one order for all
    seed: int = 0

    def __post_init__(self) -> None:
        require_range("people", self.people, 2, NAMES)
        if not 0 < self.asked < 1:
            raise ValueError(f"asked must be a share between 0 and 1, got {self.asked}")
        require_range("places", self.places, 2, len(PLACE_STEMS))
        require_range("facts", self.facts, 1, len(FACTS))
        if self.biographies < 1:
            raise ValueError(f"biographies must be at least 1, got {self.biographies}")
        require_range("earlier", self.earlier, 0, self.facts - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """What there is to know; the other places are never the birthplace."""

    name: str  # first, middle and last; only all three together tell people apart
    pronoun: str  # "she" or "he"
    birthplace: str
    birth_date: date
    profession: str
    university: str
    studied_in: str
    employer: str
    works_in: str
    lives_in: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PeopleFiles:
    """Where `write_people` has put its text and its questions."""

    read: Path
    train: Path
    test: Path


def birthplaces(config: PeopleConfig) -> tuple[str, ...]:
    """List every place, the likeliest first; the seed and the number decide it."""
    return _places(config.seed, config.places)


@lru_cache
def _places(seed: int, count: int) -> tuple[str, ...]:
    return tuple(
        Dice(seed, "place", rank).pick(PLACE_PREFIXES)
        + PLACE_STEMS[shuffled(rank, len(PLACE_STEMS), seed, "places")]
        for rank in range(count)
    )


@lru_cache
def _bounds(count: int) -> tuple[int, ...]:
    """Give place r the tickets from bounds[r] to bounds[r + 1], in whole numbers to be exact."""
    return (0, *accumulate(10**9 // (rank + _ZIPF_OFFSET) for rank in range(count)))


def _place(dice: Dice, bounds: tuple[int, ...]) -> int:
    return bisect_right(bounds, dice.below(bounds[-1])) - 1


def _place_besides(taken: int, dice: Dice, bounds: tuple[int, ...]) -> int:
    width = bounds[taken + 1] - bounds[taken]
    ticket = dice.below(bounds[-1] - width)
    return bisect_right(bounds, ticket if ticket < bounds[taken] else ticket + width) - 1


def person(config: PeopleConfig, index: int) -> Person:
    """Make one person; an index from `config.people` on gives someone of whom nothing is told."""
    if not 0 <= index < NAMES:
        raise IndexError(f"people are numbered from 0 to {NAMES - 1}, got {index}")
    name, pronoun = _name(config.seed, index)
    dice = Dice(config.seed, "person", index)
    places, bounds = birthplaces(config), _bounds(config.places)
    born = _place(dice, bounds)
    return Person(
        name=name,
        pronoun=pronoun,
        birthplace=places[born],
        birth_date=date.fromordinal(_EARLIEST + dice.below(_LATEST - _EARLIEST)),
        profession=dice.pick(PROFESSIONS),
        university=f"{dice.pick(LAST_NAMES)} {dice.pick(SCHOOLS)}",
        studied_in=places[_place_besides(born, dice, bounds)],
        employer=f"{dice.pick(LAST_NAMES)} {dice.pick(FIRMS)}",
        works_in=places[_place_besides(born, dice, bounds)],
        lives_in=places[_place_besides(born, dice, bounds)],
    )


def _name(seed: int, index: int) -> tuple[str, str]:
    """Read a shuffled index as digits, one for each part, so that no name comes twice."""
    rest, last = divmod(shuffled(index, NAMES, seed, "names"), len(LAST_NAMES))
    rest, step = divmod(rest, _FIRSTS - 1)
    gender, first = divmod(rest, _FIRSTS)
    pronoun = ("she", "he")[gender]
    firsts = FIRST_NAMES[pronoun]
    middle = (first + 1 + step) % _FIRSTS
    return f"{firsts[first]} {firsts[middle]} {LAST_NAMES[last]}", pronoun


def biographies(config: PeopleConfig, index: int) -> tuple[str, ...]:
    """Tell one person's facts as often as the config says, each time in one line."""
    who = person(config, index)
    return tuple(_biography(config, index, who, copy) for copy in range(config.biographies))


def _biography(config: PeopleConfig, index: int, who: Person, copy: int) -> str:
    words = _words(who)
    wording = Dice(config.seed, "wording", index, copy if config.rewrite else 0)
    sentences = [wording.pick(phrasings).format_map(words) for phrasings in FACTS]
    order: Sequence[int] = _one_order(config.earlier)
    if config.permute:
        order = Dice(config.seed, "order", index, copy).pick(_ORDERS)
    others = [fact for fact in order if fact != _BIRTHPLACE][: config.facts - 1]
    told = [fact for fact in order if fact == _BIRTHPLACE or fact in others]
    return " ".join([f"{who.name}.", *(sentences[fact] for fact in told)])


def _one_order(earlier: int) -> list[int]:
    order = [fact for fact in _ORDERS[0] if fact != _BIRTHPLACE]
    order.insert(earlier, _BIRTHPLACE)
    return order


def _words(who: Person) -> dict[str, str]:
    possessive = "her" if who.pronoun == "she" else "his"
    day = who.birth_date
    return {
        "name": who.name,
        "last": who.name.rpartition(" ")[2],
        "she": who.pronoun,
        "She": who.pronoun.capitalize(),
        "her": possessive,
        "Her": possessive.capitalize(),
        "birthplace": who.birthplace,
        "birth_date": f"{day.day} {MONTHS[day.month - 1]} {day.year}",
        "a_profession": f"{'an' if who.profession[0] in 'aeiou' else 'a'} {who.profession}",
        "university": who.university,
        "studied_in": who.studied_in,
        "employer": who.employer,
        "works_in": who.works_in,
        "lives_in": who.lives_in,
    }


def question(who: Person) -> str:
    """Ask for the birthplace."""
    return f"Where was {who.name} born?"


def asked(config: PeopleConfig, index: int) -> bool:
    """Say whether a person's question is for training; the share is exact, no part is empty."""
    if not 0 <= index < config.people:
        raise IndexError(f"{config.people} people are numbered from 0, got {index}")
    count = min(max(round(config.asked * config.people), 1), config.people - 1)
    return shuffled(index, config.people, config.seed, "asked") < count


def write_people(
    config: PeopleConfig, folder: Path, progress: Callable[[int], None] | None = None
) -> PeopleFiles:
    """Write the biographies and both parts of the questions; `progress` hears the lines so far.

    Everyone's first biography comes before anyone's second, and each round has an order of its own:
    were the neighbors always the same, a model could remember a person by the one before.
    """
    files = PeopleFiles(
        read=folder / "people.txt",
        train=folder / "questions.train.tsv",
        test=folder / "questions.test.tsv",
    )
    with open_all((files.read, files.train, files.test)) as (read, train, test):
        lines = config.people * config.biographies
        for line in range(lines):
            copy, position = divmod(line, config.people)
            index = shuffled(position, config.people, config.seed, "round", copy)
            who = person(config, index)
            read.write(_biography(config, index, who, copy) + "\n")
            if copy == 0:
                part = train if asked(config, index) else test
                part.write(f"{question(who)}\t{who.birthplace}\n")
            if progress and ((line + 1) % _PROGRESS_EVERY == 0 or line + 1 == lines):
                progress(line + 1)
    return files
