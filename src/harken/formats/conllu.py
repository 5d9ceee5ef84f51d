"""Sentences of tagged words: CoNLL-U, or the two columns `word<TAB>tag`.

    # text = They duck.
    1<TAB>They<TAB>they<TAB>PRON<TAB>…          ->   Sentence(("They", "duck", "."),
    2<TAB>duck<TAB>duck<TAB>VERB<TAB>…                        ("PRON", "VERB", "PUNCT"))
    3<TAB>.<TAB>.<TAB>PUNCT<TAB>…

A line of white space alone ends a sentence. The first line that is no comment decides which of the
two formats a file has. Ranges (`2-3`, a written word that is two syntactic ones) and empty nodes
(`5.1`) carry no tag of their own and are left out. Words are kept letter for letter, spaces within
them included. Trees are not read.
"""

import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from harken.errors import UserError
from harken.formats.examples import Sentence
from harken.formats.text import Line, named, open_text, read_every_line

Column = Literal["upos", "xpos"]

COLUMNS = 10
WORD, TAG = 1, {"upos": 3, "xpos": 4}
RANGE = re.compile(r"[0-9]{1,9}-([0-9]{1,9})")
EMPTY_NODE = re.compile(r"[0-9]+\.[0-9]+")
SEE = "see docs/formats.md#conll-u"

Token = tuple[str, str]  # a word and its tag


def read_conllu(path: Path, column: Column = "upos") -> list[Sentence]:
    """All sentences of a file, in its order; two columns leave no choice of `column`."""
    sentences = list(_sentences(path, column))
    if not sentences:
        raise UserError(
            f"{named(path)}: found no sentence, wanted at least one",
            fix="check that the file was written or downloaded whole",
        )
    words = [word for sentence in sentences for word in sentence.words]
    long = sum(len(word.split()) > 2 for word in words)
    if len(words) >= 10 and long > len(words) / 2:
        raise UserError(
            f"{named(path)}: the first column holds whole sentences ({words[0][:40]!r}), not words",
            fix="write word<TAB>tag, one word per line, with a blank line after each sentence",
        )
    return sentences


def _sentences(path: Path, column: Column) -> Iterator[Sentence]:
    with open_text(path) as file:
        lines = read_every_line(file, path)
        # A line of two columns may begin with `#` as comments do, so it is judged only when the
        # format is known.
        head: list[Line] = []
        for line in lines:
            head.append(line)
            if not _blank(line) and not line.text.startswith("#"):
                break
        two = bool(head) and head[-1].text.count("\t") == 1
        tokens = _two_columns if two else _ten_columns
        for block in _blocks(chain(head, lines)):
            if found := list(tokens(block, column)):
                words, tags = zip(*found, strict=True)
                yield Sentence(words, tags)


def _blank(line: Line) -> bool:
    return not line.text.strip()


def _blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Lines between blank ones."""
    block: list[Line] = []
    for line in lines:
        if not _blank(line):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _ten_columns(block: list[Line], column: Column) -> Iterator[Token]:
    read, promised = 0, 0  # words so far, and the last one that a range speaks of
    for line in block:
        if line.text.startswith("#"):
            continue
        cells = _cells(line, COLUMNS)
        if covered := RANGE.fullmatch(cells[0]):
            promised = max(promised, int(covered[1]))
        elif not EMPTY_NODE.fullmatch(cells[0]):
            read += 1
            _check_id(line, cells[0], read)
            yield _token(line, cells[WORD], cells[TAG[column]], column.upper())
    if read < promised:
        raise UserError(
            f"{block[-1].where}: found the end of a sentence after word {read}, wanted word "
            f"{promised}, which a range speaks of",
            fix="mend the range, or check that the file is whole",
        )


def _two_columns(block: list[Line], column: Column) -> Iterator[Token]:
    for line in block:
        # A hash tag is a word, `# text = …` is none.
        if line.text.startswith("#") and ("\t" not in line.text or line.text.startswith("# ")):
            continue
        word, tag = _cells(line, 2)
        yield _token(line, word, tag, "tag")


def _cells(line: Line, wanted: int) -> list[str]:
    cells = line.text.split("\t")
    if len(cells) == wanted:
        return cells
    columns = "CoNLL-U" if wanted == COLUMNS else "word<TAB>tag, as this file began"
    spaces = len(cells) < wanted and len(line.text.split()) >= wanted
    raise UserError(
        f"{line.where}: found {len(cells)} tab-separated column{'s' * (len(cells) > 1)} in "
        f"{line.text[:60]!r}, wanted {wanted} of {columns}",
        fix="replace runs of spaces by tabs" if spaces else SEE,
    )


def _check_id(line: Line, found: str, wanted: int) -> None:
    if found != str(wanted):
        raise UserError(
            f"{line.where}: found id {found[:20]!r}, wanted {wanted}: the words of a sentence are "
            "counted 1, 2, 3, …",
            fix="put a blank line between sentences" if found == "1" else SEE,
        )


def _token(line: Line, word: str, tag: str, name: str) -> Token:
    if not word.strip(" "):
        raise UserError(f"{line.where}: found an empty word, wanted one with a tag", fix=SEE)
    if not tag.strip(" ") or tag == "_":
        other = {"UPOS": "xpos", "XPOS": "upos"}.get(name)
        fix = "tag the word" + (f', or set data.column = "{other}"' if other else "")
        raise UserError(f"{line.where}: found no {name} for {word[:60]!r}, wanted one", fix=fix)
    # A corpus says the same few words over and over; keep each once.
    return sys.intern(word), sys.intern(tag)
