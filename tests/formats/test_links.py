import re
from pathlib import Path

import pytest

from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.links import GoldLinks, read_links

PAIRS = [Pair("a b c", "x y z u v"), Pair("", ""), Pair("d", "w")]


def written(folder: Path, text: str) -> Path:
    path = folder / "gold.talp"
    path.write_text(text, encoding="utf-8")
    return path


def test_sure_and_possible_links(tmp_path: Path) -> None:
    path = written(tmp_path, "1-1 3p5 2-4 2p4 \n\n1p1\n")
    assert read_links(path, PAIRS) == [
        GoldLinks(frozenset({(0, 0), (1, 3)}), frozenset({(0, 0), (1, 3), (2, 4)})),
        GoldLinks(frozenset(), frozenset()),
        GoldLinks(frozenset(), frozenset({(0, 0)})),
    ]


def test_first_number_is_a_target_word(tmp_path: Path) -> None:
    path = written(tmp_path, "5-3 4p1\n\n1-1\n")
    assert read_links(path, PAIRS, "target")[0] == GoldLinks(
        frozenset({(2, 4)}), frozenset({(2, 4), (0, 3)})
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-1\n\n1-1\n2-2\n", "expected one line of links per pair (3), got 4"),
        ("1-1 2:2\n\n1-1\n", "gold.talp:1: expected links such as 3-4 or 3p4, got '2:2'"),
        ("1-1\n\n0-1\n", "gold.talp:3: '0-1': the source has no word 0 (expected 1 to 1)"),
        ("5-3\n\n1-1\n", "gold.talp:1: '5-3': the source has no word 5 (expected 1 to 3)"),
        ("1-6\n\n1-1\n", "'1-6': the target has no word 6 (expected 1 to 5); check"),
        ("1-1\n1-1\n1-1\n", "gold.talp:2: '1-1': the source has no word 1"),
    ],
)
def test_wrong_links(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        read_links(written(tmp_path, text), PAIRS)
