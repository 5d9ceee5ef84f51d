"""Entities compared with seqeval, and the schemes of tags with all possible sets of entities."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from harken.formats.entity_tags import TagScheme, can_follow, entities_of, tag_scheme

PREFIXES: dict[TagScheme, str] = {"iob1": "IB", "iob2": "BI", "iobes": "BIES"}
TAGS = ["O", *(f"{prefix}-{entity_type}" for prefix in "BIES" for entity_type in ("a", "b-c"))]


@given(st.lists(st.sampled_from(TAGS), max_size=12))
def test_entities_of_any_tags_equal_seqeval(tags: list[str]) -> None:
    expected = [(entity_type, start, end + 1) for entity_type, start, end in get_entities(tags)]
    assert entities_of(tags) == expected


def segmentations(words: int) -> Iterator[list[tuple[str, int]]]:
    """Yield all divisions of words into entities and single words outside (O), with lengths."""
    if words == 0:
        yield []
    for size in range(1, words + 1):
        for entity_type in ("a", "b-c", "O") if size == 1 else ("a", "b-c"):
            yield from ([(entity_type, size), *rest] for rest in segmentations(words - size))


def encoded(parts: list[tuple[str, int]], scheme: TagScheme) -> tuple[str, ...]:
    tags, last = [], "O"
    for entity_type, size in parts:
        if entity_type == "O":
            tags.append("O")
        elif scheme == "iobes":
            prefixes = "S" if size == 1 else "B" + "I" * (size - 2) + "E"
            tags += [f"{prefix}-{entity_type}" for prefix in prefixes]
        else:
            first = "B" if scheme == "iob2" or entity_type == last else "I"
            tags += [f"{first}-{entity_type}", *[f"I-{entity_type}"] * (size - 1)]
        last = entity_type
    return tuple(tags)


@pytest.mark.parametrize("scheme", PREFIXES)
def test_valid_sequences_are_those_of_some_entities(scheme: TagScheme) -> None:
    tags = [
        "O",
        *(f"{prefix}-{entity_type}" for prefix in PREFIXES[scheme] for entity_type in ("a", "b-c")),
    ]
    for words in range(1, 5):
        valid = {
            row
            for row in itertools.product(tags, repeat=words)
            if all(
                can_follow(scheme, tag, last) for last, tag in itertools.pairwise(["O", *row, "O"])
            )
        }
        assert valid == {encoded(parts, scheme) for parts in segmentations(words)}
        for parts in segmentations(words):
            sizes = [(entity_type, size) for entity_type, size in parts if entity_type != "O"]
            found = entities_of(encoded(parts, scheme))
            assert [(entity.type, entity.end - entity.start) for entity in found] == sizes
    rows = [encoded(parts, scheme) for parts in segmentations(4)]
    assert tag_scheme([*rows, ("I-a", "O")]) == scheme  # in spite of one error of IOB2 or IOBES


@pytest.mark.parametrize(
    "tags", [(), ("O",), ("O", "NOUN"), ("B-a", "X"), ("B", "I", "O"), ("B-",), ("L-a", "U-a")]
)
def test_tags_that_mark_no_entities(tags: tuple[str, ...]) -> None:
    assert tag_scheme([tags]) is None
