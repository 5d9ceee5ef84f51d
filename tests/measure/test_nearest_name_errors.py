"""Nearest names against slow loops, and errors that belong to them."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure import nearest_name_errors as errors_module
from harken.measure.nearest_name_errors import (
    NearestNameError,
    cosine_similarities,
    known_answers,
    name_trigrams,
    nearest_name_errors,
    nearest_names,
    string_similarities,
)
from harken.measure.scored_answers import Answer

# Two answers about Bob, and Ada Kong twice.
KNOWN = known_answers(
    ["Ada Kong", "Bob", "Bob", "Cleo Vark", "Ada Kong"], ["Rome", "Oslo", " Bonn ", "Rome", "Rome"]
)
ANSWERS = [
    Answer("Ada King", "Rome", 0.9),  # wrong, and Ada Kong's
    Answer("Bobby", " Bonn", 0.7),  # wrong, and one of Bob's
    Answer("Cleo Varg", "Oslo", 0.8),  # wrong, and of another name
    Answer("Ada Konk", "Rome", 0.6),  # right
    Answer("Zoë", "Atlantis", 0.5),  # unknown
]
RIGHT = [False, False, False, True, False]
# The embedding of Ada King is nearest to Cleo, that of Bobby to Ada, that of Cleo to Bob.
VECTORS = {
    "Ada Kong": (1.0, 0.0, 0.0),
    "Bob": (0.0, 1.0, 0.0),
    "Cleo Vark": (0.0, 0.0, 1.0),
    "Ada King": (0.1, 0.0, 3.0),
    "Bobby": (5.0, 0.1, 0.0),
    "Cleo Varg": (0.0, 0.2, 0.1),
}


def embed(names: Sequence[str]) -> np.ndarray:
    return np.array([VECTORS[name] for name in names])


def test_known_answers() -> None:
    assert KNOWN.names == ["Ada Kong", "Bob", "Cleo Vark"]
    assert KNOWN.answers == [frozenset({"Rome"}), frozenset({"Oslo", "Bonn"}), frozenset({"Rome"})]
    assert KNOWN.counts == {"Rome": 3, "Oslo": 1, "Bonn": 1}


def test_errors_by_hand() -> None:
    by_string, by_embedding = nearest_name_errors(ANSWERS, RIGHT, KNOWN, embed, seed=0)
    assert by_string.similarity == "string"
    assert by_string.outcomes == [True, True, False, False, False]
    assert by_string.examples == [
        NearestNameError("Ada King", "Ada Kong", "Rome", 0.9),
        NearestNameError("Bobby", "Bob", "Bonn", 0.7),
    ]
    assert by_embedding.similarity == "embedding"
    assert by_embedding.outcomes == [True, False, True, False, False]
    assert [error.nearest for error in by_embedding.examples] == ["Cleo Vark", "Bob"]
    for errors in (by_string, by_embedding):
        assert errors.wrong == 4
        # Rome of two in three names, Bonn and Oslo of one each, Atlantis of none.
        assert errors.by_chance == pytest.approx(2 / 3 + 1 / 3 + 1 / 3)


def test_only_known_wrong_answers_are_embedded() -> None:
    embedded: list[list[str]] = []

    def spy(names: Sequence[str]) -> np.ndarray:
        embedded.append(list(names))
        return embed(names)

    nearest_name_errors(ANSWERS, RIGHT, KNOWN, spy, seed=0)
    assert embedded == [["Ada King", "Bobby", "Cleo Varg"], ["Ada Kong", "Bob", "Cleo Vark"]]
    embedded.clear()
    for errors in nearest_name_errors(ANSWERS, [True] * 5, KNOWN, spy, seed=0):
        assert not any((*errors.outcomes, errors.wrong, errors.by_chance, errors.examples))
    assert embedded == []


def test_of_many_known_names_some_are_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors_module, "MAX_EMBEDDED", 53)
    names = [f"name {at}" for at in range(97)]
    known = known_answers(names, [f"answer {at}" for at in range(97)])
    seen: list[list[str]] = []

    def spy(some: Sequence[str]) -> np.ndarray:
        seen.append(list(some))
        return np.eye(97)[[int(name.split()[1]) % 97 for name in some]]

    # Name 97 + n has the vector and the answer of name n.
    output = [Answer(f"name {97 + at}", f"answer {at}", 0.5) for at in range(97)]
    _, result = nearest_name_errors(output, [False] * 97, known, spy, seed=2)
    drawn = seen[1]
    assert len(set(drawn)) == 53
    assert drawn != names[:53]
    taken = {int(name.split()[1]) for name in drawn}
    # A name whose neighbor was not drawn takes the first of equals.
    assert [at for at, outcome in enumerate(result.outcomes) if outcome] == sorted(taken)
    assert len(result.examples) == errors_module.MAX_EXAMPLES
    nearest_name_errors(output, [False] * 97, known, spy, seed=2)
    assert seen[3] == drawn


def nearest_by_string(names: list[str], known: list[str]) -> list[int | None]:
    return nearest_names(names, known, string_similarities(names, known))


def nearest_by_embedding(
    names: list[str], vectors: np.ndarray, known: list[str], known_vectors: np.ndarray
) -> list[int | None]:
    return nearest_names(names, known, cosine_similarities(vectors, known_vectors))


NAME = st.text(alphabet="abß ç愛", max_size=7)


def test_trigrams_include_the_ends() -> None:
    assert name_trigrams("Ada") == {" ad", "ada", "da "}
    assert name_trigrams("A") == {" a "}
    assert name_trigrams("愛") == {" 愛 "}
    assert name_trigrams("") == {"  "}


def test_a_name_is_not_its_own_neighbor() -> None:
    assert nearest_by_string(["Ada King", "Ada King"], ["Ada King", "Ada Kong"]) == [1, 1]
    ones = np.ones((1, 3))
    assert nearest_by_embedding(["Ada"], ones, ["Ada"], ones) == [None]
    assert nearest_by_embedding(["Ada"], ones, [], np.zeros((0, 3))) == [None]


@given(st.lists(NAME, max_size=5), st.lists(NAME, max_size=11, unique=True))
def test_by_string_with_a_slow_loop(names: list[str], known: list[str]) -> None:
    expected = []
    for name in names:
        best, best_at = 0.0, None
        for at, other in enumerate(known):
            own, theirs = name_trigrams(name), name_trigrams(other)
            likeness = len(own & theirs) / len(own | theirs)
            if other != name and likeness > best:
                best, best_at = likeness, at
        expected.append(best_at)
    assert nearest_by_string(names, known) == expected


def test_by_embedding_with_a_slow_loop() -> None:
    random = np.random.default_rng(3)
    vectors, known_vectors = random.normal(size=(307, 5)), random.normal(size=(41, 5))
    vectors *= random.uniform(0.1, 9, size=(307, 1))  # only the direction counts
    names = [str(at) for at in range(307)]
    known = [str(at) for at in range(300, 341)]  # seven of them are asked about
    expected = []
    for name, vector in zip(names, vectors, strict=True):
        cosines = [
            -2.0
            if other == name
            else vector @ other_vector / np.linalg.norm(vector) / np.linalg.norm(other_vector)
            for other, other_vector in zip(known, known_vectors, strict=True)
        ]
        expected.append(int(np.argmax(cosines)))
    assert nearest_by_embedding(names, vectors, known, known_vectors) == expected


def test_zero_vectors_have_no_neighbor() -> None:
    zeros, known = np.zeros((2, 3)), np.eye(3)
    assert nearest_by_embedding(["a", "c"], zeros, ["c", "d", "e"], known) == [None, None]
    astray = np.full((1, 3), np.nan)
    assert nearest_by_embedding(["a"], astray, ["c", "d", "e"], known) == [None]
    assert nearest_by_embedding(["a"], -known[:1], ["c", "d"], np.zeros((2, 3))) == [0]
