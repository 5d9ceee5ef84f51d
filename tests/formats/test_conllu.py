import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.conllu import read_conllu
from harken.formats.examples import Sentence
from small_files import error_of

SAMPLE = """\
# sent_id = 1
# text = Vámonos al mar.
1-2	Vámonos	_	_	_	_	_	_	_	_
1	Vamos	ir	VERB	vm	Mood=Imp	0	root	_	_
2	nos	nosotros	PRON	pp	_	1	obj	_	_
3-4	al	_	_	_	_	_	_	_	_
3	a	a	ADP	sp	_	5	case	_	_
4	el	el	DET	da	_	5	det	_	_
5	mar	mar	NOUN	nc	_	1	obl	_	SpaceAfter=No
6	.	.	PUNCT	fp	_	1	punct	_	_

# text = 10 000 sail and others row
1	10 000	10 000	NUM	cd	_	2	nsubj	_	_
2	sail	sail	VERB	vb	_	0	root	_	_
3	and	and	CCONJ	cc	_	4	cc	_	_
4	others	other	NOUN	nns	_	2	conj	_	_
4.1	row	row	VERB	vb	_	_	_	_	_
"""
FIRST = Sentence(
    ("Vamos", "nos", "a", "el", "mar", "."), ("VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT")
)
SECOND = Sentence(("10 000", "sail", "and", "others"), ("NUM", "VERB", "CCONJ", "NOUN"))
CODES = (("vm", "pp", "sp", "da", "nc", "fp"), ("cd", "vb", "cc", "nns"))


def row(number: object, word: str = "word", tag: str = "X", code: str = "x") -> str:
    return "\t".join([str(number), word, "_", tag, code, "_", "_", "_", "_", "_"])


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "file.conllu"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def conllu_error(folder: Path, content: str | bytes, **column: str) -> UserError:
    return error_of(read_conllu, written(folder, content), **column)


# --- CoNLL-U


def test_words_and_tags_without_ranges_and_empty_nodes(tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE)
    assert read_conllu(path) == [FIRST, SECOND]
    codes = [Sentence(FIRST.words, CODES[0]), Sentence(SECOND.words, CODES[1])]
    assert read_conllu(path, column="xpos") == codes


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("tail", ["", "\n", "\n\n\n", "\n# no more\n"])
def test_line_ends(tmp_path: Path, mark: str, end: str, tail: str) -> None:
    text = mark + SAMPLE.removesuffix("\n") + tail
    assert read_conllu(written(tmp_path, text.replace("\n", end))) == [FIRST, SECOND]


@pytest.mark.parametrize("two", [False, True])
def test_words_are_unchanged(tmp_path: Path, two: bool) -> None:
    words = (
        *("שלום", "שָׁלוֹם", "مَرْحَبًا", "لا", "\u200fاً", "👩\u200d👩\u200d👧", "क्षि", "한글", "ﬁ"),
        *(unicodedata.normalize(form, "é ǘ å") for form in ("NFC", "NFD")),
        *("a\u2028b", "\u00a0", "x\u200d", "\u3000", " y ", "_", "#", '"', "\x1c"),
    )
    rows = [f"{word}\tX" if two else row(n, word) for n, word in enumerate(words, start=1)]
    (sentence,) = read_conllu(written(tmp_path, "\n".join(rows)))
    assert sentence.words == words


visible = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), min_size=1
).filter(lambda text: text.strip(" ") and text != "_")
tokens = st.lists(st.tuples(visible, visible), min_size=1, max_size=5)


@given(st.lists(tokens, min_size=1, max_size=4))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str, str]]]
) -> None:
    blocks = [
        "\n".join(row(number, word, tag) for number, (word, tag) in enumerate(pairs, start=1))
        for pairs in sentences
    ]
    path = written(tmp_path_factory.getbasetemp(), "\n\n".join(blocks))
    for sentence, pairs in zip(read_conllu(path), sentences, strict=True):
        assert list(zip(sentence.words, sentence.tags, strict=True)) == pairs


def test_a_sentence_of_ten_thousand_words(tmp_path: Path) -> None:
    rows = [row(number, f"w{number % 7}") for number in range(1, 10_001)]
    (sentence,) = read_conllu(written(tmp_path, "\n".join(rows)))
    assert len(sentence.words) == len(sentence.tags) == 10_000
    del rows[5002]  # the word 5003
    message = conllu_error(tmp_path, "\n".join(rows)).message
    assert "file.conllu:5003: expected id 5003" in message and "got '5004'" in message


@pytest.mark.parametrize("number", [1, 3, 0, "02", "٢", "2 ", "\ufeff2", "x", "2-", "2.x", "2–3"])
def test_wrong_ids(tmp_path: Path, number: object) -> None:
    error = conllu_error(tmp_path, f"# comment\n{row(1)}\n{row(number)}\n")
    assert f"{tmp_path / 'file.conllu'}:3: expected id 2" in error.message
    assert f"got {str(number)!r}" in error.message
    assert ("blank line between sentences" if number == 1 else "conll-u") in error.fix


@pytest.mark.parametrize(
    ("third", "message", "fix"),
    [
        ("a b c", "3: expected 10 tab-separated columns of CoNLL-U, got 1 in 'a b c'", "conll-u"),
        (row(2).replace("\t", "  "), "got 1 in '2  word", "replace runs of spaces by tabs"),
        (row(2) + "\t_", "got 11 in", "conll-u"),
        (row(2) + "\t", "got 11 in", "conll-u"),
        (row(2).rpartition("\t")[0], "got 9 in", "conll-u"),
        ("word\tX", "got 2 in 'word\\tX'", "conll-u"),
        ("2-3" + "\t_" * 8, "got 9 in", "conll-u"),
        (row("2-" + "9" * 5000), "3: expected id 2", "conll-u"),
        (row(2, ""), "3: empty word", "conll-u"),
        (row(2, " "), "3: empty word", "conll-u"),
        (row(2, tag="_"), "3: no UPOS for 'word'", 'data.column = "xpos"'),
        (row(2, tag=""), "3: no UPOS for 'word'", 'data.column = "xpos"'),
        (row("2-3"), "4: the sentence ends after word 1 (a range includes word 3)", "range"),
    ],
)
def test_wrong_lines(tmp_path: Path, third: str, message: str, fix: str) -> None:
    good = row(1)
    error = conllu_error(tmp_path, f"# comment\n{good}\n{third}\n# end\n\n{good}\n")
    assert message in error.message
    assert fix in error.fix
    assert len(error.message) < 400


def test_a_wrong_line_in_a_later_sentence(tmp_path: Path) -> None:
    lines = SAMPLE.replace("others\tother\tNOUN", "others\tother\t_").encode()
    assert "file.conllu:16: no UPOS for 'others'" in str(conllu_error(tmp_path, lines))
    assert read_conllu(tmp_path / "file.conllu", column="xpos")[1].tags == CODES[1]


def test_missing_xpos(tmp_path: Path) -> None:
    error = conllu_error(tmp_path, row(1, code="_"), column="xpos")
    assert ":1: no XPOS for 'word'" in error.message
    assert 'data.column = "upos"' in error.fix


def test_many_ranges_and_empty_nodes(tmp_path: Path) -> None:
    rows = [row("0.1"), row("1-3"), row(1), row("1.1"), row("1.10"), row(2), row(3), row("3.1")]
    (sentence,) = read_conllu(written(tmp_path, "\n".join(rows)))
    assert len(sentence.words) == 3


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"# only\n# comments\n", b"\xef\xbb\xbf", b"  \n"]
)
def test_files_without_sentences(tmp_path: Path, content: bytes) -> None:
    assert "file.conllu: no sentences" in conllu_error(tmp_path, content).message


# --- two columns


def test_two_columns(tmp_path: Path) -> None:
    text = "# text = they duck\nthey\tPRON\r\nduck\tVERB\n\n\n# next\nthe\tDET\na duck\tNOUN"
    expected = [
        Sentence(("they", "duck"), ("PRON", "VERB")),
        Sentence(("the", "a duck"), ("DET", "NOUN")),
    ]
    assert read_conllu(written(tmp_path, text)) == expected
    assert read_conllu(tmp_path / "file.conllu", column="xpos") == expected


def test_hash_tags_are_words(tmp_path: Path) -> None:
    text = "# a\tcomment\n#nlp\tX\n#\tSYM\n1\tNUM\n#end\n\n#2\tX\n"
    assert read_conllu(written(tmp_path, text)) == [
        Sentence(("#nlp", "#", "1"), ("X", "SYM", "NUM")),
        Sentence(("#2",), ("X",)),
    ]


@pytest.mark.parametrize(
    ("second", "message", "fix"),
    [
        ("duck", "2: expected 2 tab-separated columns of word<TAB>tag", "conll-u"),
        ("duck VERB", "got 1 in 'duck VERB'", "replace runs of spaces by tabs"),
        ("duck\tVERB\tx", "got 3 in", "conll-u"),
        (row(2), "got 10 in", "conll-u"),
        ("\tVERB", "2: empty word", "conll-u"),
        ("duck\t", "2: no tag for 'duck'", "tag the word"),
        ("duck\t_", "2: no tag for 'duck'", "tag the word"),
    ],
)
def test_wrong_lines_of_two_columns(tmp_path: Path, second: str, message: str, fix: str) -> None:
    error = conllu_error(tmp_path, f"they\tPRON\n{second}\n")
    assert message in error.message
    assert fix in error.fix


def test_other_formats_are_reported_at_their_first_line(tmp_path: Path) -> None:
    message = conllu_error(tmp_path, "# comment\n\nEU B-ORG x\ty\tz\n").message
    assert "file.conllu:3: expected 10 tab-separated columns of CoNLL-U, got 3 in" in message


# --- columns separated by spaces

CONLL_2003 = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# # I-NP O

# id 7 domain=en
Peter  NNP\tB-NP B-PER
"""


def test_conll_2003(tmp_path: Path) -> None:
    """In the first block only comments precede the words; later, `#` is a word."""
    assert read_conllu(written(tmp_path, CONLL_2003)) == [
        Sentence(("EU", "rejects", "#"), ("B-ORG", "O", "O")),
        Sentence(("Peter",), ("B-PER",)),
    ]
    two = "EU B-ORG\n\n#nlp O\n"
    assert read_conllu(written(tmp_path, two)) == [
        Sentence(("EU",), ("B-ORG",)),
        Sentence(("#nlp",), ("O",)),
    ]
    tabs = "-DOCSTART-\tO\n\nEU\tB-ORG\n"
    assert read_conllu(written(tmp_path, tabs)) == [Sentence(("EU",), ("B-ORG",))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("They duck.\n\nDucks swim in the river.\n", "3: expected 2 columns, as in the first"),
        (CONLL_2003.replace(" I-NP", ""), "5: expected 4 columns, as in the first sentence, got 3"),
        ("EU NNP _\n", "1: no tag for 'EU'"),
        ("-DOCSTART- O\n", "no sentences"),
        (row(1).replace("\t", " "), "1: expected 10 tab-separated columns of CoNLL-U"),
        ("Ducks swim in the river .\n", "1: expected 10 tab-separated columns of CoNLL-U"),
    ],
)
def test_wrong_columns(tmp_path: Path, content: str, message: str) -> None:
    assert message in conllu_error(tmp_path, content).message


@pytest.mark.parametrize("white", ["", " ", "\t", "\t" * 9, " \t \u3000"])
@pytest.mark.parametrize("two", [True, False])
def test_blank_lines_separate_sentences(tmp_path: Path, white: str, two: bool) -> None:
    """As in the files of WNUT 2017, whose separators are tabs."""
    path = tmp_path / "words.conll"
    token = "word\tX" if two else row(1, "word")
    path.write_text(f"{white}\n{token}\n{white}\n{white}\n{token}\n{white}", encoding="utf-8")
    assert [sentence.words for sentence in read_conllu(path)] == [("word",)] * 2
