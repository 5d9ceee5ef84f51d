"""Generate fictional people, their biographies, and questions about their birthplaces.

A model is pretrained on all biographies, finetuned on the questions about some people and tested on
those about the others. Biographies also contain three other places. Everything is a function of the
seed and an index. The words are in `phrasings.py`.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from functools import lru_cache
from itertools import accumulate, permutations
from math import inf
from pathlib import Path

from harken.synthetic.draws import Dice, open_all, require_ranges, shuffled
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

# The frequency of place r (from 0) is proportional to 1 / (r + 16), a Zipf distribution without its
# head: always answering the most frequent of 100 places is correct for 3 % of the people.
_ZIPF_OFFSET = 16
_EARLIEST, _LATEST = date(1930, 1, 1).toordinal(), date(2000, 1, 1).toordinal()
_ORDERS = tuple(permutations(range(len(FACTS))))
_BIRTHPLACE = 0  # the fact of the questions, which is in every biography
_PROGRESS_EVERY = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class PeopleConfig:
    """Number of people and biographies, and how biographies vary."""

    people: int = 1000
    question_ratio: float = 0.5  # share of people with a training question
    places: int = 120
    biographies: int = 1  # per person
    facts: int = len(FACTS)  # per biography: the birthplace and random others
    rewrite: bool = True  # draw phrasings per biography, else per person
    permute: bool = True  # draw the order of sentences per biography, else use one order
    earlier: int = 0  # number of facts before the birthplace in this one order
    seed: int = 0

    def __post_init__(self) -> None:
        require_ranges(
            self,
            people=(2, NAMES),
            places=(2, len(PLACE_STEMS)),
            biographies=(1, inf),
            facts=(1, len(FACTS)),
            earlier=(0, self.facts - 1),
        )
        if not 0 < self.question_ratio < 1:
            raise ValueError(
                f"question_ratio must be a share between 0 and 1, got {self.question_ratio}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """The facts about a person; the other places differ from the birthplace."""

    name: str  # first, middle and last; only the combination is unique
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
    """Paths of the biographies and the questions."""

    texts: Path
    train: Path
    test: Path


@lru_cache
def birthplaces(config: PeopleConfig) -> tuple[str, ...]:
    """Return all places, most frequent first."""
    return tuple(
        Dice(config.seed, "place", rank).pick(PLACE_PREFIXES)
        + PLACE_STEMS[shuffled(rank, len(PLACE_STEMS), config.seed, "places")]
        for rank in range(config.places)
    )


@lru_cache
def _bounds(count: int) -> tuple[int, ...]:
    """Return cumulative integer weights: place r has those from bounds[r] to bounds[r + 1]."""
    return (0, *accumulate(10**9 // (rank + _ZIPF_OFFSET) for rank in range(count)))


def _other_place(excluded: int, dice: Dice, bounds: tuple[int, ...]) -> int:
    width = bounds[excluded + 1] - bounds[excluded]
    ticket = dice.below(bounds[-1] - width)
    return bisect_right(bounds, ticket if ticket < bounds[excluded] else ticket + width) - 1


def person(config: PeopleConfig, index: int) -> Person:
    """Return a person; indices from `config.people` on are people without biographies."""
    if not 0 <= index < NAMES:
        raise IndexError(f"people are numbered from 0 to {NAMES - 1}, got {index}")
    name, pronoun = _name(config.seed, index)
    dice = Dice(config.seed, "person", index)
    places, bounds = birthplaces(config), _bounds(config.places)
    born = bisect_right(bounds, dice.below(bounds[-1])) - 1
    return Person(
        name=name,
        pronoun=pronoun,
        birthplace=places[born],
        birth_date=date.fromordinal(_EARLIEST + dice.below(_LATEST - _EARLIEST)),
        profession=dice.pick(PROFESSIONS),
        university=f"{dice.pick(LAST_NAMES)} {dice.pick(SCHOOLS)}",
        studied_in=places[_other_place(born, dice, bounds)],
        employer=f"{dice.pick(LAST_NAMES)} {dice.pick(FIRMS)}",
        works_in=places[_other_place(born, dice, bounds)],
        lives_in=places[_other_place(born, dice, bounds)],
    )


def _name(seed: int, index: int) -> tuple[str, str]:
    """Read a shuffled index as one digit per part of the name, so that all names differ."""
    rest, last = divmod(shuffled(index, NAMES, seed, "names"), len(LAST_NAMES))
    rest, step = divmod(rest, _FIRSTS - 1)
    gender, first = divmod(rest, _FIRSTS)
    pronoun = ("she", "he")[gender]
    firsts = FIRST_NAMES[pronoun]
    middle = (first + 1 + step) % _FIRSTS
    return f"{firsts[first]} {firsts[middle]} {LAST_NAMES[last]}", pronoun


def biographies(config: PeopleConfig, index: int) -> tuple[str, ...]:
    """Return the biographies of a person, one line each."""
    who = person(config, index)
    return tuple(_biography(config, index, who, copy) for copy in range(config.biographies))


def _biography(config: PeopleConfig, index: int, who: Person, copy: int) -> str:
    values = _template_values(who)
    wording = Dice(config.seed, "wording", index, copy if config.rewrite else 0)
    sentences = [wording.pick(phrasings).format_map(values) for phrasings in FACTS]
    order = [fact for fact in range(len(FACTS)) if fact != _BIRTHPLACE]
    order.insert(config.earlier, _BIRTHPLACE)
    if config.permute:
        order = list(Dice(config.seed, "order", index, copy).pick(_ORDERS))
    others = [fact for fact in order if fact != _BIRTHPLACE][: config.facts - 1]
    selected = [fact for fact in order if fact == _BIRTHPLACE or fact in others]
    return " ".join([f"{who.name}.", *(sentences[fact] for fact in selected)])


def _template_values(who: Person) -> dict[str, str]:
    possessive = "her" if who.pronoun == "she" else "his"
    day = who.birth_date
    return asdict(who) | {
        "last": who.name.rpartition(" ")[2],
        "she": who.pronoun,
        "She": who.pronoun.capitalize(),
        "her": possessive,
        "Her": possessive.capitalize(),
        "birth_date": f"{day.day} {MONTHS[day.month - 1]} {day.year}",
        "a_profession": f"{'an' if who.profession[0] in 'aeiou' else 'a'} {who.profession}",
    }


def question(who: Person) -> str:
    """Return the question about the birthplace."""
    return f"Where was {who.name} born?"


def is_training_question(config: PeopleConfig, index: int) -> bool:
    """Return whether the question about a person is for training; the share is exact."""
    if not 0 <= index < config.people:
        raise IndexError(f"{config.people} people are numbered from 0, got {index}")
    count = min(max(round(config.question_ratio * config.people), 1), config.people - 1)
    return shuffled(index, config.people, config.seed, "asked") < count


def write_people(
    config: PeopleConfig, folder: Path, progress: Callable[[int], None] | None = None
) -> PeopleFiles:
    """Write the biographies and the questions; `progress` receives the number of lines so far.

    The first biographies of all people come before the second ones, in another order.
    """
    names = ("people.txt", "questions.train.tsv", "questions.test.tsv")
    paths = [folder / name for name in names]
    files = PeopleFiles(texts=paths[0], train=paths[1], test=paths[2])
    with open_all(paths) as (texts, train, test):
        lines = config.people * config.biographies
        for line in range(lines):
            copy, position = divmod(line, config.people)
            index = shuffled(position, config.people, config.seed, "round", copy)
            who = person(config, index)
            texts.write(_biography(config, index, who, copy) + "\n")
            if copy == 0:
                part = train if is_training_question(config, index) else test
                part.write(f"{question(who)}\t{who.birthplace}\n")
            if progress and ((line + 1) % _PROGRESS_EVERY == 0 or line + 1 == lines):
                progress(line + 1)
    return files
