"""The reference of recipe keys is generated from the config dataclasses."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
REFERENCE = runpy.run_path(str(ROOT / "tools" / "reference.py"))["Reference"]()


def test_every_key_has_a_description() -> None:
    assert REFERENCE.undescribed_keys() == []


def test_pages_are_up_to_date() -> None:
    """Run `python tools/reference.py` after a change of a config dataclass."""
    pages = [ROOT / "docs" / "reference.md", *(ROOT / "docs" / "reference").glob("*.md")]
    texts = {str(page.relative_to(ROOT / "docs")): page.read_text() for page in pages}
    assert texts == REFERENCE.files()


def test_headings_of_a_page_differ() -> None:
    """Links name a heading, and GitHub numbers equal ones."""
    for text in REFERENCE.files().values():
        headings = [line for line in text.splitlines() if line.startswith("#")]
        assert len(set(headings)) == len(headings)
