"""Read tagged sentences from CoNLL-U or CoNLL-2003, two columns, or lists in JSON lines or Parquet.

    # text = They duck.
    1<TAB>They<TAB>they<TAB>PRON<TAB>…          ->   Sentence(("They", "duck", "."),
    2<TAB>duck<TAB>duck<TAB>VERB<TAB>…                        ("PRON", "VERB", "PUNCT"))
    3<TAB>.<TAB>.<TAB>PUNCT<TAB>…

    {"words": ["They", "duck", "."], "tags": ["PRON", "VERB", "PUNCT"]}

A blank line ends a sentence. The first line with text that does not start with `#` determines the
format. In columns separated by spaces, as in CoNLL-2003, the first is the word and the last the
tag. Multiword-token ranges (`2-3`), empty nodes (`5.1`) and `-DOCSTART-` are skipped. Words are
unchanged, including spaces within them. Trees are not read.
"""

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, dropwhile, groupby
from pathlib import Path
from typing import Literal

from harken.errors import UserError
from harken.formats.examples import Sentence
from harken.formats.records import require_unicode
from harken.formats.table import Columns, cell_text, has_lists, read_values
from harken.formats.text import Line, display_path, read_lines
from harken.strict_json import wrong_value

Column = Literal["upos", "xpos"]

COLUMNS = 10
MAX_SPACED_COLUMNS = 5  # CoNLL-2003 in German; a line with more words is probably a text
WORD, TAG = 1, {"upos": 3, "xpos": 4}
RANGE = re.compile(r"[0-9]{1,9}-([0-9]{1,9})")
EMPTY_NODE = re.compile(r"[0-9]+\.[0-9]+")
DOCUMENT_START = "-DOCSTART-"  # of CoNLL-2003
LISTS = {"words": "words", "tags": "tags"}
SEE = "see docs/formats.md#conll-u"

Token = tuple[str, str]  # a word and its tag
TokenReader = Callable[[list[Line], Column], Iterator[Token]]


def read_conllu(path: Path, column: Column = "upos", columns: Columns = LISTS) -> list[Sentence]:
    """Read all sentences of a file in order.

    column: the column of the tags in CoNLL-U
    columns: the keys of JSON lines, or the columns of Parquet, for `words` and `tags`
    """
    sentences = list(_rows(path, columns) if has_lists(path) else _sentences(path, column))
    if not sentences:
        message = f"{display_path(path)}: no sentences (expected at least one)"
        raise UserError(message, fix="check that the file was written or downloaded completely")
    words = [word for sentence in sentences for word in sentence.words]
    phrases = [word for word in words if len(word.split()) > 2]
    if len(words) >= 10 and len(phrases) > len(words) / 2:
        problem = f"expected one word per line, got texts such as {phrases[0][:40]!r}"
        fix = "write word<TAB>tag, one word per line, with a blank line after each sentence"
        raise UserError(f"{display_path(path)}: {problem}", fix=fix)
    return sentences


def _rows(path: Path, columns: Columns) -> Iterator[Sentence]:
    for number, lists in read_values(path, columns):
        where, parts = f"{display_path(path)}:{number}", list[tuple[str, ...]]()
        for column, values in zip(columns.values(), lists, strict=True):
            if not isinstance(values, list) or not values:
                raise wrong_value(where, column, values, "a list of texts")
            texts = tuple(cell_text(where, column, value) for value in values)
            if not all(map(str.strip, texts)):
                raise wrong_value(where, column, values, "a list of texts that are not empty")
            require_unicode(where, *texts)
            parts.append(texts)
        words, tags = parts
        if len(words) != len(tags):
            problem = f"{where}: expected a tag for each word, got {len(words)} words and "
            raise UserError(f"{problem}{len(tags)} tags", fix="correct or remove the row")
        yield Sentence(words, tags)


def _sentences(path: Path, column: Column) -> Iterator[Sentence]:
    lines = read_lines(path, keep_blank=True)
    # Words of two columns may start with `#`, so comments are skipped once the format is known.
    start: list[Line] = []
    for line in lines:
        start.append(line)
        if line.text.strip() and not line.text.startswith("#"):
            break
    first = start[-1].text if start else ""
    tokens: TokenReader = _ten_columns
    if first.count("\t") == 1:
        tokens = _two_columns
    elif "\t" not in first and 2 <= len(first.split()) <= MAX_SPACED_COLUMNS:
        tokens = partial(_spaced_columns, count=len(first.split()))
    for is_text, block in groupby(chain(start, lines), lambda line: bool(line.text.strip())):
        if is_text and (pairs := list(tokens(list(block), column))):
            words, tags = zip(*pairs, strict=True)
            yield Sentence(words, tags)


def _ten_columns(block: list[Line], column: Column) -> Iterator[Token]:
    count, range_end = 0, 0  # number of words, and the last word that a range includes
    for line in block:
        if line.text.startswith("#"):
            continue
        cells = _cells(line, COLUMNS)
        if match := RANGE.fullmatch(cells[0]):
            range_end = max(range_end, int(match[1]))
        elif not EMPTY_NODE.fullmatch(cells[0]):
            count += 1
            if cells[0] != str(count):
                fix = "put a blank line between sentences" if cells[0] == "1" else SEE
                problem = f"expected id {count} (words are counted 1, 2, 3, …)"
                raise line.error(f"{problem}, got {cells[0][:20]!r}", fix)
            yield _token(line, cells[WORD], cells[TAG[column]], column.upper())
    if count < range_end:
        problem = f"the sentence ends after word {count} (a range includes word {range_end})"
        raise block[-1].error(problem, "correct the range, or check that the file is complete")


def _two_columns(block: list[Line], column: Column) -> Iterator[Token]:
    for line in block:
        # `#tag<TAB>X` is a word, `# text = …` is a comment.
        if line.text.startswith("#") and ("\t" not in line.text or line.text.startswith("# ")):
            continue
        word, tag = _cells(line, 2)
        if word != DOCUMENT_START:
            yield _token(line, word, tag, "tag")


def _spaced_columns(block: list[Line], column: Column, count: int) -> Iterator[Token]:
    # In CoNLL-2003, `#` is also a word: only lines before the first word are comments.
    for line in dropwhile(lambda line: line.text.startswith("# "), block):
        cells = line.text.split()
        if len(cells) != count:
            problem = f"expected {count} columns, as in the first sentence, got {len(cells)}"
            got = f"{problem} in {line.text[:60]!r}"
            raise line.error(got, "write one word and its tag per line, separated by a tab")
        if cells[0] != DOCUMENT_START:
            yield _token(line, cells[0], cells[-1], "tag")


def _cells(line: Line, count: int) -> list[str]:
    cells = line.text.split("\t")
    if len(cells) == count:
        return cells
    layout = "CoNLL-U" if count == COLUMNS else "word<TAB>tag, as in the first sentence"
    has_spaces = len(cells) < count and len(line.text.split()) >= count
    got = f"{len(cells)} in {line.text[:60]!r}"
    problem = f"expected {count} tab-separated columns of {layout}, got {got}"
    raise line.error(problem, "replace runs of spaces by tabs" if has_spaces else SEE)


def _token(line: Line, word: str, tag: str, name: str) -> Token:
    if not word.strip(" "):
        raise line.error("empty word (expected a word with a tag)", SEE)
    if not tag.strip(" ") or tag == "_":
        other = {"UPOS": "xpos", "XPOS": "upos"}.get(name)
        fix = "tag the word" + (f', or set data.column = "{other}"' if other else "")
        raise line.error(f"no {name} for {word[:60]!r}", fix)
    return sys.intern(word), sys.intern(tag)  # a corpus repeats the same words
