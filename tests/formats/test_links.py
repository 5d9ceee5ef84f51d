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


def test_sure_and_possible_links_count_from_nought(tmp_path: Path) -> None:
    path = written(tmp_path, "1-1 3p5 2-4 2p4 \n\n1p1\n")
    assert read_links(path, PAIRS) == [
        GoldLinks(frozenset({(0, 0), (1, 3)}), frozenset({(0, 0), (1, 3), (2, 4)})),
        GoldLinks(frozenset(), frozenset()),
        GoldLinks(frozenset(), frozenset({(0, 0)})),
    ]


def test_the_first_number_may_count_the_target(tmp_path: Path) -> None:
    path = written(tmp_path, "5-3 4p1\n\n1-1\n")
    assert read_links(path, PAIRS, "target")[0] == GoldLinks(
        frozenset({(2, 4)}), frozenset({(2, 4), (0, 3)})
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1-1\n\n1-1\n2-2\n", "found 4 lines of links for 3 pairs"),
        ("1-1 2:2\n\n1-1\n", "gold.talp:1: found '2:2', wanted links such as 3-4 or 3p4"),
        ("1-1\n\n0-1\n", "gold.talp:3: found word 0 of the source in '0-1', wanted one of 1 to 1"),
        ("5-3\n\n1-1\n", "gold.talp:1: found word 5 of the source in '5-3', wanted one of 1 to 3"),
        ("1-6\n\n1-1\n", "found word 6 of the target in '1-6', wanted one of 1 to 5; check"),
        ("1-1\n1-1\n1-1\n", "gold.talp:2: found word 1 of the source"),
    ],
)
def test_what_fits_no_pair_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        read_links(written(tmp_path, text), PAIRS)
