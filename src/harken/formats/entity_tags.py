"""Tags that mark entities of several words, such as B-person I-person.

    IOB2     B-X begins an entity, I-X continues it, O is outside        (CoNLL-2002, WNUT)
    IOB1     I-X also begins an entity; B-X only follows another X       (CoNLL-2003)
    IOBES    as IOB2, but E-X ends an entity and S-X is one of one word  (also called BIOES)

Entities are read from any sequence of tags by the rules of conlleval: an ill-formed I-X or E-X,
such as one after O, begins an entity.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

TagScheme = Literal["iob2", "iob1", "iobes"]
ENTITY_TAG = re.compile(r"([BIES])-(.+)")
OUTSIDE = "O"


class Entity(NamedTuple):
    """Words from `start` up to, but not including, `end`."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Return the prefix and the entity type, such as B and person; O for any other tag."""
    match = ENTITY_TAG.fullmatch(tag)
    return (match[1], match[2]) if match else (OUTSIDE, "")


def entities_of(tags: Iterable[str]) -> list[Entity]:
    """Return the entities of a sentence, in order."""
    entities: list[Entity] = []
    last_prefix, last_type = OUTSIDE, ""
    for index, tag in enumerate(tags):
        prefix, entity_type = split_tag(tag)
        if prefix in "BS" or (
            prefix != OUTSIDE and (last_prefix in "OES" or entity_type != last_type)
        ):
            entities.append(Entity(entity_type, index, index + 1))
        elif prefix != OUTSIDE:
            entities[-1] = entities[-1]._replace(end=index + 1)
        last_prefix, last_type = prefix, entity_type
    return entities


def tag_scheme(sentences: Sequence[Sequence[str]]) -> TagScheme | None:
    """Return the scheme of the tags of all sentences; None if they are not tags of entities."""
    tags = {tag for sentence in sentences for tag in sentence} - {OUTSIDE}
    if not tags or not all(map(ENTITY_TAG.fullmatch, tags)):
        return None
    if any(tag[0] in "ES" for tag in tags):
        return "iobes"
    # The first tags of entities decide, so that an annotation error does not.
    firsts = Counter(tags[entity.start][0] for tags in sentences for entity in entities_of(tags))
    return "iob2" if firsts["B"] >= firsts["I"] else "iob1"


def can_follow(scheme: TagScheme, tag: str, previous: str) -> bool:
    """Whether a tag may follow another one; O stands for the start and the end of a sentence."""
    (prefix, entity_type), (last_prefix, last_type) = split_tag(tag), split_tag(previous)
    same_entity = last_prefix != OUTSIDE and entity_type == last_type
    match scheme:
        case "iob2":
            return prefix != "I" or same_entity
        case "iob1":
            return prefix != "B" or same_entity
        case "iobes":
            is_inside = prefix in "IE"
            return is_inside == (last_prefix in "BI") and (same_entity or not is_inside)
