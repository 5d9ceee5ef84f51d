import re
from collections import Counter
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.synthetic.people import (
    NAMES,
    PeopleConfig,
    Person,
    _draw_name,
    biographies,
    draw_person,
    is_training_question,
    place_names,
    question,
    shuffled_index,
    write_people,
)
from harken.synthetic.phrasings import BIRTH, FACTS, FIRST_NAMES, LAST_NAMES, PLACE_STEMS
from small_files import peak_memory

seeds = st.integers(-(2**63), 2**63)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def other_places(person: Person) -> tuple[str, ...]:
    return person.studied_in, person.works_in, person.lives_in


def says(text: str, words: str) -> bool:
    return re.search(rf"\b({words})\b", text) is not None


# --- people


def test_people_of_a_seed_never_change() -> None:
    # Fixed values: published results name a seed, so a change here is a change of data.
    assert draw_person(PeopleConfig(seed=7), 123) == Person(
        name="Halissa Feneda Stavari",
        pronoun="she",
        birthplace="Malbury",
        birth_date=date(1994, 9, 14),
        profession="illustrator",
        university="Branett Institute",
        studied_in="Brimiburg",
        employer="Kestari Works",
        works_in="New Zelton",
        lives_in="Port Eldenvar",
    )
    person = draw_person(PeopleConfig(seed=7), 123)
    assert question(person) == "Where was Halissa Feneda Stavari born?"
    assert biographies(PeopleConfig(seed=7), 123) == (
        "Halissa Feneda Stavari. Born in Malbury, Stavari grew up there. By trade, she is "
        "an illustrator. She went to Brimiburg to study at Branett Institute. She moved "
        "to Port Eldenvar and still lives there. Halissa Feneda Stavari has a post at "
        "Kestari Works in New Zelton. Her date of birth is 14 September 1994.",
    )


@given(seed=seeds, indices=st.lists(st.integers(0, 10_000_000), min_size=2, max_size=5))
def test_people_do_not_depend_on_who_was_made_before(seed: int, indices: list[int]) -> None:
    small, large = PeopleConfig(seed=seed), PeopleConfig(seed=seed, people=NAMES, biographies=3)
    forwards = [draw_person(small, index) for index in indices]
    backwards = [draw_person(large, index) for index in reversed(indices)]
    assert forwards == backwards[::-1]


def test_numpy_indices_give_the_same_people() -> None:
    config = PeopleConfig()
    assert draw_person(config, np.int64(13)) == draw_person(config, 13)  # type: ignore[arg-type]
    assert is_training_question(config, np.int32(13)) == is_training_question(config, 13)  # type: ignore[arg-type]


def test_names_are_unique_in_a_long_run_and_share_their_parts() -> None:
    people = 20_000
    names = [_draw_name(0, index)[0] for index in range(people)]
    assert names[1234] == draw_person(PeopleConfig(), 1234).name
    assert NAMES >= 10_000_000
    assert len(set(names)) == people
    for part in range(3):
        assert len({name.split()[part] for name in names}) < 0.6 * people


def test_no_two_lists_spell_the_same_word() -> None:
    words = [*FIRST_NAMES["she"], *FIRST_NAMES["he"], *LAST_NAMES, *PLACE_STEMS]
    assert len(set(words)) == len(words)


def test_seeds_give_different_people() -> None:
    ours, theirs = PeopleConfig(seed=1), PeopleConfig(seed=2)
    pairs = [(draw_person(ours, index), draw_person(theirs, index)) for index in range(100)]
    assert not any(person.name == other.name for person, other in pairs)
    assert sum(person.birth_date == other.birth_date for person, other in pairs) < 5
    assert len(set(place_names(ours)) & set(place_names(theirs))) < 20


def test_wrong_indices() -> None:
    limits = ((draw_person, NAMES), (is_training_question, 1000))
    for get, index in ((get, index) for get, limit in limits for index in (-1, limit)):
        with pytest.raises(IndexError, match=str(index)):
            get(PeopleConfig(people=1000), index)


@given(size=st.integers(1, 400), key=seeds)
def test_shuffled_is_a_bijection(size: int, key: int) -> None:
    assert sorted(shuffled_index(position, size, key) for position in range(size)) == [*range(size)]


def test_shuffled_leaves_no_order() -> None:
    size = 10_007
    order = np.array([shuffled_index(position, size, 5) for position in range(size)])
    assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < 0.05
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.05
    steps = Counter(np.diff(order) % size)
    assert steps.most_common(1)[0][1] < 12  # a line through the square would repeat its step


# --- places


@given(seed=seeds)
def test_places_are_unique_and_mostly_one_word(seed: int) -> None:
    places = place_names(PeopleConfig(seed=seed, places=500))
    assert len(set(places)) == 500
    assert 0.1 < sum(" " in place for place in places) / 500 < 0.35


@pytest.mark.parametrize("places", [100, 120, 400])
@pytest.mark.parametrize("seed", range(3))
def test_no_place_is_a_good_guess(places: int, seed: int) -> None:
    config = PeopleConfig(seed=seed, places=places)
    born = Counter(draw_person(config, index).birthplace for index in range(2000))
    assert born.most_common(1)[0][1] <= 0.05 * 2000


@pytest.mark.parametrize("seed", range(3))
def test_every_place_is_in_use_but_not_equally(seed: int) -> None:
    config = PeopleConfig(seed=seed)
    places = place_names(config)
    born = [draw_person(config, index).birthplace for index in range(10_000)]
    assert len(set(born[:1000])) >= 100
    count = Counter(born)
    assert set(count) == set(places)
    frequent, rare = (sum(count[place] for place in part) for part in (places[:20], places[-20:]))
    assert frequent > 2 * rare


@given(seed=seeds, places=st.integers(2, 130), index=st.integers(0, 999))
def test_the_birthplace_is_none_of_the_other_places(seed: int, places: int, index: int) -> None:
    config = PeopleConfig(seed=seed, places=places)
    person = draw_person(config, index)
    assert person.birthplace not in other_places(person)
    assert {person.birthplace, *other_places(person)} <= set(place_names(config))


def test_other_places_have_the_shares_of_birthplaces() -> None:
    # Else a model could tell the birthplace from its being common, or from its being rare.
    config = PeopleConfig(places=5)
    people = [draw_person(config, index) for index in range(10_000)]
    born = Counter(person.birthplace for person in people)
    for field in ("studied_in", "works_in", "lives_in"):
        others = Counter(getattr(person, field) for person in people)
        for place in place_names(config):
            assert abs(born[place] - others[place]) < 400, (field, place)


# --- biographies


def told(config: PeopleConfig, index: int) -> list[list[str]]:
    return [re.findall(r"[A-Z0-9][^.]*\.", text) for text in biographies(config, index)]


def test_there_are_enough_phrasings() -> None:
    assert len(set(BIRTH)) >= 12
    assert all(len(set(phrasings)) >= 6 for phrasings in FACTS)
    assert all("{birthplace}" in phrasing for phrasing in BIRTH)
    assert sum(phrasing.startswith("Born in {birthplace}, ") for phrasing in BIRTH) >= 2


def test_biographies_tell_every_fact_in_proper_sentences() -> None:
    config = PeopleConfig(people=1000, biographies=2)
    sizes = []
    for index in range(config.people):
        person = draw_person(config, index)
        for text, sentences in zip(biographies(config, index), told(config, index), strict=True):
            assert text.startswith(f"{person.name}. ")
            facts = (person.birthplace, *other_places(person), person.profession)
            assert all(says(text, fact) for fact in facts)
            names = (person.university, person.employer, str(person.birth_date.year))
            assert all(name in text for name in names)
            assert not re.search(r"[\t\n\r{}]|  ", text)
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text)
            assert not says(text.lower(), "he|his" if person.pronoun == "she" else "she|her")
            assert " ".join(sentences) == text and len(sentences) == 1 + len(FACTS)
            sizes.append(len(text.split()))
    assert np.quantile(sizes, 0.01) >= 35
    assert np.quantile(sizes, 0.99) <= 60


@given(seed=seeds, index=st.integers(0, 999))
def test_permute_and_rewrite_vary_order_and_words(seed: int, index: int) -> None:
    fixed = PeopleConfig(seed=seed, biographies=10, rewrite=False, permute=False)
    texts = biographies(fixed, index)
    assert texts == (texts[0],) * 10
    permuted = told(replace(fixed, permute=True), index)
    assert len({frozenset(sentences) for sentences in permuted}) == 1
    assert len({tuple(sentences) for sentences in permuted}) > 1
    rewritten = told(replace(fixed, rewrite=True), index)
    born = draw_person(fixed, index).birthplace
    assert all(says(sentences[1], born) for sentences in rewritten)
    for fact in range(1, 1 + len(FACTS)):
        assert len({sentences[fact] for sentences in rewritten}) > 1


@pytest.mark.parametrize(("earlier", "facts"), [(0, 6), (1, 6), (5, 6), (2, 4), (3, 4)])
def test_the_birth_comes_later_in_the_one_order(earlier: int, facts: int) -> None:
    config = PeopleConfig(permute=False, earlier=earlier, facts=facts)
    first = replace(config, earlier=0)
    for index in range(50):
        born = draw_person(config, index).birthplace
        (later,), (sooner,) = told(config, index), told(first, index)
        assert [says(sentence, born) for sentence in later].index(True) == 1 + earlier
        assert sorted(later) == sorted(sooner)
        # Nothing but the birth has moved.
        later, sooner = (
            [text for text in texts if not says(text, born)] for texts in (later, sooner)
        )
        assert later == sooner


def test_each_person_has_phrasings_of_their_own_without_rewrite() -> None:
    config = PeopleConfig(rewrite=False, permute=False)
    shapes = set()
    for index in range(300):
        person = draw_person(config, index)
        birth = told(config, index)[0][1].replace(person.name, "N").replace(person.birthplace, "P")
        birth = birth.replace(person.name.split()[2], "L").replace(person.profession, "J")
        shapes.add(re.sub(r"\ban?\b", "a", birth.replace("His", "Her").replace("He ", "She ")))
    assert len(shapes) >= len(BIRTH)


def test_a_single_biography_is_varied_over_people() -> None:
    config = PeopleConfig()
    firsts = Counter(
        [
            says(text, draw_person(config, index).birthplace) for text in told(config, index)[0]
        ].index(True)
        for index in range(600)
    )
    assert set(firsts) == {1, 2, 3, 4, 5, 6}
    assert max(firsts.values()) < 150


# --- questions


@given(seed=seeds, people=st.integers(2, 300), share=st.floats(0.001, 0.999))
def test_the_share_of_training_questions_is_exact(seed: int, people: int, share: float) -> None:
    config = PeopleConfig(seed=seed, people=people, train_share=share)
    count = sum(is_training_question(config, index) for index in range(people))
    assert 1 <= count <= people - 1
    assert abs(count - share * people) <= 1


def test_training_questions_are_drawn_from_the_seed() -> None:
    configs = PeopleConfig(seed=1), PeopleConfig(seed=2)
    draws = np.array([[is_training_question(c, index) for index in range(1000)] for c in configs])
    assert 400 < (draws[0] == draws[1]).sum() < 600
    assert 200 < draws[0, :500].sum() < 300


# --- files


def test_files_hold_all_people(tmp_path: Path) -> None:
    config = PeopleConfig(people=701, biographies=3, train_share=0.3)
    progress: list[int] = []
    files = write_people(config, tmp_path / "new" / "folder", progress.append)
    assert progress == [1000, 2000, 2103]
    expected = {text for index in range(701) for text in biographies(config, index)}
    read, train, test = lines(files.texts), lines(files.train), lines(files.test)
    assert (len(read), len(train), len(test)) == (2103, 210, 491)
    assert set(read) == expected
    for index in range(701):
        person = draw_person(config, index)
        entry = f"{question(person)}\t{person.birthplace}"
        is_training = is_training_question(config, index)
        assert (entry in train, entry in test) == (is_training, not is_training)
    names = {path.name for path in files.texts.parent.iterdir()}
    assert names == {"people.txt", "questions.train.tsv", "questions.test.tsv"}


def test_rounds_keep_biographies_apart_and_change_neighbors(tmp_path: Path) -> None:
    config = PeopleConfig(people=500, biographies=4)
    names = [line.split(".")[0] for line in lines(write_people(config, tmp_path).texts)]
    rounds = [names[start : start + 500] for start in range(0, 2000, 500)]
    assert all(len(set(part)) == 500 for part in rounds)
    neighbors = Counter(pair for part in rounds for pair in pairwise(part))
    assert sum(count > 1 for count in neighbors.values()) < 20
    assert not any(name == following for name, following in pairwise(names))


def test_memory_does_not_grow_with_people(tmp_path: Path) -> None:
    few, many = (
        peak_memory(write_people, PeopleConfig(people=people), tmp_path) for people in (500, 4_000)
    )
    assert many < few + 2**17  # the names of 3,500 people would take 240 KiB


@pytest.mark.parametrize("facts", [1, 3, 6])
def test_facts_vary_and_include_the_birthplace(facts: int) -> None:
    config = PeopleConfig(people=50, biographies=8, facts=facts)
    employers = set()
    for index in range(50):
        person = draw_person(config, index)
        for text in biographies(config, index):
            assert person.birthplace in text
            assert text.count(". ") + 1 == facts + 1  # one sentence is the name
            employers.add(person.employer in text)
    assert employers == ({True} if facts == 6 else {False} if facts == 1 else {True, False})
