"""Generate fictional people, their biographies, and questions about their birthplaces.

A model is pretrained on all biographies, finetuned on the questions about some people and tested on
those about the others. Biographies also contain up to three other places. Everything is a function
of the config and an index. The words are in `phrasings.py`.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from functools import lru_cache
from itertools import accumulate, permutations
from math import inf
from pathlib import Path

from harken.synthetic.draws import HashRNG, open_outputs, require_ranges, shuffled_index
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
    train_share: float = 0.5  # share of people whose question is for training
    places: int = 120
    biographies: int = 1  # per person
    facts: int = len(FACTS)  # per biography: the birthplace, and others in its order of facts
    rewrite: bool = True  # draw phrasings per biography, else per person
    permute: bool = True  # draw the order of facts per biography, else use the same for all
    earlier: int = 0  # without permute, the number of facts before the birthplace
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
        if not 0 < self.train_share < 1:
            raise ValueError(f"train_share must be a share between 0 and 1, got {self.train_share}")


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
def place_names(config: PeopleConfig) -> tuple[str, ...]:
    """Return the names of all places, most frequent first."""
    return tuple(
        HashRNG(config.seed, "place", rank).choice(PLACE_PREFIXES)
        + PLACE_STEMS[shuffled_index(rank, len(PLACE_STEMS), config.seed, "places")]
        for rank in range(config.places)
    )


@lru_cache
def _bounds(count: int) -> tuple[int, ...]:
    """Return cumulative integer weights: the weight of place r is bounds[r + 1] - bounds[r]."""
    return (0, *accumulate(10**9 // (rank + _ZIPF_OFFSET) for rank in range(count)))


def _draw_other_place(excluded: int, rng: HashRNG, bounds: tuple[int, ...]) -> int:
    """Draw a place other than `excluded`, by a number outside of its interval."""
    width = bounds[excluded + 1] - bounds[excluded]
    number = rng.randrange(bounds[-1] - width)
    if number >= bounds[excluded]:
        number += width
    return bisect_right(bounds, number) - 1


def draw_person(config: PeopleConfig, index: int) -> Person:
    """Return a person; those with indices from `config.people` on have no biographies."""
    if not 0 <= index < NAMES:
        raise IndexError(f"people are numbered from 0 to {NAMES - 1}, got {index}")
    name, pronoun = _draw_name(config.seed, index)
    rng = HashRNG(config.seed, "person", index)
    places, bounds = place_names(config), _bounds(config.places)
    place = bisect_right(bounds, rng.randrange(bounds[-1])) - 1
    return Person(
        name=name,
        pronoun=pronoun,
        birthplace=places[place],
        birth_date=date.fromordinal(_EARLIEST + rng.randrange(_LATEST - _EARLIEST)),
        profession=rng.choice(PROFESSIONS),
        university=f"{rng.choice(LAST_NAMES)} {rng.choice(SCHOOLS)}",
        studied_in=places[_draw_other_place(place, rng, bounds)],
        employer=f"{rng.choice(LAST_NAMES)} {rng.choice(FIRMS)}",
        works_in=places[_draw_other_place(place, rng, bounds)],
        lives_in=places[_draw_other_place(place, rng, bounds)],
    )


def _draw_name(seed: int, index: int) -> tuple[str, str]:
    """Read a shuffled index as one digit per part of the name, so that all names differ."""
    rest, last = divmod(shuffled_index(index, NAMES, seed, "names"), len(LAST_NAMES))
    rest, distance = divmod(rest, _FIRSTS - 1)  # of the middle name from the first name, minus 1
    gender, first = divmod(rest, _FIRSTS)
    pronoun = ("she", "he")[gender]
    firsts = FIRST_NAMES[pronoun]
    middle = (first + 1 + distance) % _FIRSTS
    return f"{firsts[first]} {firsts[middle]} {LAST_NAMES[last]}", pronoun


def biographies(config: PeopleConfig, index: int) -> tuple[str, ...]:
    """Return the biographies of a person, one line each."""
    person = draw_person(config, index)
    return tuple(
        _biography(config, index, person, version) for version in range(config.biographies)
    )


def _biography(config: PeopleConfig, index: int, person: Person, version: int) -> str:
    values = _template_values(person)
    wording = HashRNG(config.seed, "wording", index, version if config.rewrite else 0)
    sentences = [wording.choice(phrasings).format_map(values) for phrasings in FACTS]
    order = [fact for fact in range(len(FACTS)) if fact != _BIRTHPLACE]
    order.insert(config.earlier, _BIRTHPLACE)
    if config.permute:
        order = list(HashRNG(config.seed, "order", index, version).choice(_ORDERS))
    others = [fact for fact in order if fact != _BIRTHPLACE][: config.facts - 1]
    selected = [fact for fact in order if fact == _BIRTHPLACE or fact in others]
    return " ".join([f"{person.name}.", *(sentences[fact] for fact in selected)])


def _template_values(person: Person) -> dict[str, str]:
    possessive = "her" if person.pronoun == "she" else "his"
    day = person.birth_date
    return asdict(person) | {
        "last": person.name.rpartition(" ")[2],
        "she": person.pronoun,
        "She": person.pronoun.capitalize(),
        "her": possessive,
        "Her": possessive.capitalize(),
        "birth_date": f"{day.day} {MONTHS[day.month - 1]} {day.year}",
        "a_profession": f"{'an' if person.profession[0] in 'aeiou' else 'a'} {person.profession}",
    }


def question(person: Person) -> str:
    """Return the question about the birthplace."""
    return f"Where was {person.name} born?"


def is_training_question(config: PeopleConfig, index: int) -> bool:
    """Return whether the question about a person is for training (a share of `train_share` is)."""
    if not 0 <= index < config.people:
        raise IndexError(f"{config.people} people are numbered from 0, got {index}")
    count = min(max(round(config.train_share * config.people), 1), config.people - 1)
    return shuffled_index(index, config.people, config.seed, "asked") < count


def write_people(
    config: PeopleConfig, folder: Path, progress: Callable[[int], None] | None = None
) -> PeopleFiles:
    """Write biographies and questions; `progress` receives the number of biographies so far.

    people.txt has one biography of every person, then another of every person in another order, and
    so on.
    """
    names = ("people.txt", "questions.train.tsv", "questions.test.tsv")
    paths = [folder / name for name in names]
    files = PeopleFiles(texts=paths[0], train=paths[1], test=paths[2])
    with open_outputs(paths) as (texts, train, test):
        lines = config.people * config.biographies
        for line in range(lines):
            version, position = divmod(line, config.people)
            index = shuffled_index(position, config.people, config.seed, "round", version)
            person = draw_person(config, index)
            texts.write(_biography(config, index, person, version) + "\n")
            if version == 0:
                questions = train if is_training_question(config, index) else test
                questions.write(f"{question(person)}\t{person.birthplace}\n")
            if progress and ((line + 1) % _PROGRESS_EVERY == 0 or line + 1 == lines):
                progress(line + 1)
    return files
