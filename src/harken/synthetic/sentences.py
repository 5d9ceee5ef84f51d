"""Made sentences, tagged, and translated into a language that nobody has ever spoken.

    the  old  duck  walks  to   a    river  .
    DET  ADJ  NOUN  VERB   ADP  DET  NOUN   PUNCT
    the  duck old   a    river  to   walks  .        (in words of its own)

What there is to learn:

    tagging      `duck` is a noun or a verb, `that` a determiner, a pronoun or a conjunction, `to`
                 a preposition or a particle: only the neighbors tell
    spelling     one inflected form in five stands in dev and test alone, though other forms of its
                 stem stand in train
    re-ordering  the verb comes last, what is said before the saying, adjectives and numbers behind
                 their noun, prepositions behind their phrase
    agreement    articles and adjectives have the vowel of their noun's class, and -n in the plural

Everything is a pure function of the seed and an index, so that any number of sentences streams in
constant memory. The words of a sentence alone decide which part it may stand
in, so no part has a sentence of another, whatever their seeds. The words are in `lexicon.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from harken.formats.split import Part, part_sizes
from harken.synthetic.draws import Dice, open_all, require_range
from harken.synthetic.lexicon import CLASSES, MAX_STEMS, Lexicon, lexicon
from harken.synthetic.phrasings import FIRST_NAMES

T = TypeVar("T")
Key = tuple[int | str, ...]  # of a draw: every phrase has dice of its own

_TENTHS: dict[Part, range] = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}

_NAMES = (*FIRST_NAMES["she"], *FIRST_NAMES["he"])
_ARTICLES = (
    ("the", "the", "l"),
    ("a", "some", "m"),
    ("this", "these", "t"),
    ("that", "those", "d"),
)
_PREPOSITIONS = (("to", "nor"), ("near", "til"), ("under", "vak"), ("from", "ros"), ("with", "sul"))
_NUMBERS = (("two", "dol"), ("three", "tir"), ("four", "kor"), ("five", "val"), ("six", "sik"))
_CONJUNCTIONS = (("and", "ol"), ("but", "mak"))
_SAYING = (("say", "says", "said", "lok"), ("know", "knows", "knew", "rov"))
_WANTING = (("want", "wants", "wanted", "tum"), ("try", "tries", "tried", "das"))
# Subject, object, the other language's word, one or many, and the class.
_PRONOUNS = (
    ("they", "them", "van", False, "a"),
    ("she", "her", "si", True, "i"),
    ("he", "him", "su", True, "u"),
    ("it", "it", "sa", True, "a"),
    ("we", "us", "vin", False, "i"),
    ("you", "you", "vun", False, "u"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentencesConfig:
    """How many sentences, a tenth each for dev and test, and how rich their language is."""

    sentences: int = 1000
    words: int = 400  # stems that are made, beside a few real words
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sentences < 3:
            raise ValueError(f"sentences must be at least 3, got {self.sentences}")
        require_range("words", self.words, 10, MAX_STEMS)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentencesFiles:
    """Where `write_sentences` has put each part, and all of them as one text."""

    train_conllu: Path
    train_source: Path
    train_target: Path
    dev_conllu: Path
    dev_source: Path
    dev_target: Path
    test_conllu: Path
    test_source: Path
    test_target: Path
    text: Path


class Phrase(NamedTuple):
    """Words with their tags, and the words of the other language."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    other: tuple[str, ...]


class Nominal(NamedTuple):
    """A noun phrase, and what agrees with it: one or many, and the ending of adjectives."""

    phrase: Phrase
    single: bool
    ending: str


NOTHING = Phrase((), (), ())


def sentence(config: SentencesConfig, part: Part, index: int) -> Phrase:
    """Draw until a sentence may stand in the part."""
    known = lexicon(config.seed, config.words)
    attempt = 0
    while True:
        drawn = _sentence(known, (config.seed, part, index, attempt))
        held_out = part == "train" and not known.held_out.isdisjoint(drawn.words)
        if Dice("part", *drawn.words).below(10) in _TENTHS[part] and not held_out:
            return drawn
        attempt += 1


def _sentence(known: Lexicon, key: Key) -> Phrase:
    dice = Dice(*key)
    kind = dice.below(10)
    if kind == 0:
        return _joined(_question(known, (*key, "first")), Phrase(("?",), ("PUNCT",), ("mo", "?")))
    body = _report(known, key) if kind == 1 else _clause(known, (*key, "first"))
    if kind == 2:
        word, other = dice.pick(_CONJUNCTIONS)
        body = _joined(body, _one(word, "CCONJ", other), _clause(known, (*key, "second")))
    return _joined(body, _one(".", "PUNCT", "."))


def _report(known: Lexicon, key: Key) -> Phrase:
    """Somebody says that something is so."""
    subject = _nominal(known, (*key, "subject"))
    saying = _irregular(Dice(*key, "saying"), _SAYING, subject.single)
    that, said = _one("that", "SCONJ", "ke"), _clause(known, (*key, "said"))
    return _arranged((subject.phrase, saying, that, said), (subject.phrase, said, that, saying))


def _clause(known: Lexicon, key: Key) -> Phrase:
    """Somebody does something, wants to do it, or is like something."""
    dice = Dice(*key)
    subject = _nominal(known, (*key, "subject"), within=True)
    kind = dice.below(8)
    if kind == 0:
        copula = _one("is" if subject.single else "are", "AUX", "esta")
        adjective = _adjective(dice, known, subject.ending)
        return _arranged((subject.phrase, copula, adjective), (subject.phrase, adjective, copula))
    rest = _rest(known, (*key, "rest"))
    if kind == 1:
        wish = _irregular(dice, _WANTING, subject.single)
        wished = _skewed(dice, known.verbs)
        to, verb = _one("to", "PART"), _one(wished.stem, "VERB", f"{wished.root}es")
        return _arranged((subject.phrase, wish, to, verb, rest), (subject.phrase, rest, verb, wish))
    auxiliary, main = _verb(known, (*key, "verb"), subject.single)
    return _arranged(
        (subject.phrase, auxiliary, main, rest), (subject.phrase, rest, auxiliary, main)
    )


def _question(known: Lexicon, key: Key) -> Phrase:
    subject = _nominal(known, (*key, "subject"), within=True)
    auxiliary, main = _verb(known, (*key, "verb"), subject.single, question=True)
    rest = _rest(known, (*key, "rest"))
    return _arranged(
        (auxiliary, subject.phrase, main, rest), (subject.phrase, rest, auxiliary, main)
    )


def _verb(
    known: Lexicon, key: Key, single: bool, *, question: bool = False
) -> tuple[Phrase, Phrase]:
    """An auxiliary, if there is one, and the verb; questions always have one."""
    dice = Dice(*key)
    stem, root = _skewed(dice, known.verbs)
    kind = dice.below(3) if question else dice.below(8)
    if kind == 0:
        return _one("will", "AUX"), _one(stem, "VERB", f"{root}eda")
    if kind == 1:
        return _one("is" if single else "are", "AUX"), _one(f"{stem}ing", "VERB", f"{root}eri")
    past = dice.below(2) == 0
    ending = "emo" if past else "e"
    if kind == 2:
        do = "did" if past else "does" if single else "do"
        denied = Phrase((do, "not"), ("AUX", "PART"), ("ne",))
        return _one(do, "AUX") if question else denied, _one(stem, "VERB", root + ending)
    form = f"{stem}ed" if past else f"{stem}s" if single else stem
    return NOTHING, _one(form, "VERB", root + ending)


def _irregular(dice: Dice, verbs: Sequence[tuple[str, str, str, str]], single: bool) -> Phrase:
    many, one, past, root = dice.pick(verbs)
    if dice.below(2) == 0:
        return _one(past, "VERB", f"{root}emo")
    return _one(one if single else many, "VERB", f"{root}e")


def _rest(known: Lexicon, key: Key) -> Phrase:
    """To whom, where and how; in the other language the other way round.

    The object has no phrase inside: `they paint the duck near the river` is to have one meaning.
    """
    dice = Dice(*key)
    parts = []
    if dice.below(5) < 3:
        parts.append(_nominal(known, (*key, "object"), is_object=True).phrase)
    if dice.below(4) == 0:
        parts.append(_place(known, (*key, "place")))
    if dice.below(5) == 0:
        stem, root = _skewed(dice, known.adjectives)
        parts.append(_one(f"{stem}ly", "ADV", f"{root}os"))
    return _arranged(parts, parts[::-1])


def _place(known: Lexicon, key: Key) -> Phrase:
    word, other = Dice(*key).pick(_PREPOSITIONS)
    preposition = _one(word, "ADP", other)
    where = _nominal(known, (*key, "of"), is_object=True).phrase
    return _arranged((preposition, where), (where, preposition))


def _nominal(known: Lexicon, key: Key, *, within: bool = False, is_object: bool = False) -> Nominal:
    """A pronoun, a name or a noun; `within` says whether it may have phrases inside."""
    dice = Dice(*key)
    kind = dice.below(10)
    if kind < 2:
        subject, object_, other, single, vowel = dice.pick(_PRONOUNS)
        said = _one(object_, "PRON", f"{other}m") if is_object else _one(subject, "PRON", other)
        return Nominal(said, single, vowel + "n" * (not single))
    if kind == 2:
        name = _skewed(dice, _NAMES)
        return Nominal(_one(name, "PROPN", name), True, CLASSES[0])
    noun, single = _skewed(dice, known.nouns), dice.below(5) < 3
    ending = noun.vowel + "n" * (not single)
    one, many, article = dice.pick(_ARTICLES)
    determiner = _one(one if single else many, "DET", article + ending)
    named = _one(noun.stem + "s" * (not single), "NOUN", noun.root + ending)
    qualities = []
    if not single and dice.below(4) == 0:
        word, other = dice.pick(_NUMBERS)
        qualities.append(_one(word, "NUM", other))
    if dice.below(3) == 0:
        qualities.append(_adjective(dice, known, ending))
    more = _more(known, (*key, "more"), single) if within else NOTHING
    said = _arranged(
        (determiner, *qualities, named, more), (determiner, named, *qualities[::-1], more)
    )
    return Nominal(said, single, ending)


def _more(known: Lexicon, key: Key, single: bool) -> Phrase:
    """Where a thing is, or what it does; mostly neither."""
    kind = Dice(*key).below(6)
    if kind == 0:
        return _place(known, (*key, "place"))
    if kind == 1:
        that = _one("that", "PRON", "ku")
        auxiliary, main = _verb(known, (*key, "verb"), single)
        rest = _rest(known, (*key, "rest"))
        return _arranged((that, auxiliary, main, rest), (that, rest, auxiliary, main))
    return NOTHING


def _adjective(dice: Dice, known: Lexicon, ending: str) -> Phrase:
    stem, root = _skewed(dice, known.adjectives)
    return _one(stem, "ADJ", root + ending)


def _skewed(dice: Dice, items: Sequence[T]) -> T:
    """Pick the first ones often and the last ones seldom, as languages do."""
    return items[dice.below(1 + dice.below(len(items)))]


def _one(word: str, tag: str, other: str | None = None) -> Phrase:
    return Phrase((word,), (tag,), () if other is None else (other,))


def _arranged(here: Sequence[Phrase], there: Sequence[Phrase]) -> Phrase:
    """The same phrases in the order of each language."""
    return Phrase(
        tuple(chain.from_iterable(phrase.words for phrase in here)),
        tuple(chain.from_iterable(phrase.tags for phrase in here)),
        tuple(chain.from_iterable(phrase.other for phrase in there)),
    )


def _joined(*phrases: Phrase) -> Phrase:
    return _arranged(phrases, phrases)


def write_sentences(config: SentencesConfig, folder: Path) -> SentencesFiles:
    """Write every part as CoNLL-U and as parallel text, and the sentences of all as one text."""
    suffixes = {"conllu": "conllu", "source": "en", "target": "xx"}
    paths = {
        f"{part}_{name}": folder / f"{part}.{suffix}"
        for part in _TENTHS
        for name, suffix in suffixes.items()
    }
    files = SentencesFiles(**paths, text=folder / "text.txt")
    sizes = part_sizes(config.sentences)
    with open_all([*paths.values(), files.text]) as handles:
        opened = dict(zip([*paths, "text"], handles, strict=True))
        for part, size in sizes.items():
            for index in range(size):
                words, tags, other = sentence(config, part, index)
                line = " ".join(words) + "\n"
                opened["text"].write(line)
                opened[f"{part}_source"].write(line)
                opened[f"{part}_target"].write(" ".join(other) + "\n")
                opened[f"{part}_conllu"].write(_conllu(f"{part}-{index + 1}", words, tags))
    return files


def _conllu(name: str, words: Sequence[str], tags: Sequence[str]) -> str:
    unknown = "_"  # lemma, features and tree
    lines = [f"# sent_id = {name}", f"# text = {' '.join(words)}"]
    for number, (word, tag) in enumerate(zip(words, tags, strict=True), start=1):
        lines.append("\t".join([str(number), word, unknown, tag, *[unknown] * 6]))
    return "\n".join([*lines, "", ""])
