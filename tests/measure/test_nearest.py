import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.nearest_name_errors import (
    name_trigrams,
    nearest_by_embedding,
    nearest_by_string,
)

NAME = st.text(alphabet="abß ç愛", max_size=7)


def test_pieces_have_the_ends_of_the_name() -> None:
    assert name_trigrams("Ada") == {" ad", "ada", "da "}
    assert name_trigrams("A") == {" a "}
    assert name_trigrams("愛") == {" 愛 "}
    assert name_trigrams("") == {"  "}


def test_by_string_by_hand() -> None:
    known = ["Alan Turing", "Ada Lovelace", "Ida King", "Ada Loveless"]
    assert nearest_by_string(["ada lovelady", "Ida Kings", "Tur", "Zoë", "漢字"], known) == [
        1,  # as near as number 3, and before it
        2,
        0,
        None,
        None,
    ]


def test_nobody_is_his_own_neighbour() -> None:
    assert nearest_by_string(["Ada King", "Ada King"], ["Ada King", "Ada Kong"]) == [1, 1]
    assert nearest_by_string(["Ada King"], ["Ada King"]) == [None]
    assert nearest_by_string(["Ada King"], []) == [None]
    assert nearest_by_string([], ["Ada King"]) == []
    ones = np.ones((1, 3))
    assert nearest_by_embedding(["Ada"], ones, ["Ada"], ones) == [None]
    assert nearest_by_embedding(["Ada"], ones, [], np.zeros((0, 3))) == [None]


@given(st.lists(NAME, max_size=5), st.lists(NAME, max_size=11, unique=True))
def test_by_string_with_a_slow_loop(names: list[str], known: list[str]) -> None:
    wanted = []
    for name in names:
        best, best_at = 0.0, None
        for at, other in enumerate(known):
            one, two = name_trigrams(name), name_trigrams(other)
            likeness = len(one & two) / len(one | two)
            if other != name and likeness > best:
                best, best_at = likeness, at
        wanted.append(best_at)
    assert nearest_by_string(names, known) == wanted


def test_by_embedding_with_a_slow_loop() -> None:
    random = np.random.default_rng(3)
    vectors, known_vectors = random.normal(size=(307, 5)), random.normal(size=(41, 5))
    vectors *= random.uniform(0.1, 9, size=(307, 1))  # only the direction counts
    names = [str(at) for at in range(307)]
    known = [str(at) for at in range(300, 341)]  # seven of them are asked about
    wanted = []
    for name, vector in zip(names, vectors, strict=True):
        cosines = [
            -2.0 if other == name else vector @ one / np.linalg.norm(vector) / np.linalg.norm(one)
            for other, one in zip(known, known_vectors, strict=True)
        ]
        wanted.append(int(np.argmax(cosines)))
    assert nearest_by_embedding(names, vectors, known, known_vectors) == wanted


def test_vectors_of_nothing() -> None:
    zeros, known = np.zeros((2, 3)), np.eye(3)
    assert nearest_by_embedding(["a", "c"], zeros, ["c", "d", "e"], known) == [None, None]
    astray = np.full((1, 3), np.nan)
    assert nearest_by_embedding(["a"], astray, ["c", "d", "e"], known) == [None]
    assert nearest_by_embedding(["a"], -known[:1], ["c", "d"], np.zeros((2, 3))) == [0]
