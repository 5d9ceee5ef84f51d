"""Generate sentences with tags, labels and translations into an artificial language.

    the  old  duck  walks  to   a    river  .
    DET  ADJ  NOUN  VERB   ADP  DET  NOUN   PUNCT
    the  duck old   a    river  to   walks  .        (the order of the translation)

A model has to learn:

    tagging      `duck` is a noun or a verb, `that` a determiner, a pronoun or a conjunction, and
                 `to` a preposition or a particle, depending on the context
    spelling     one in five inflected forms is only in dev and test
    reordering   verbs come last, adjectives and numbers after their noun, prepositions after their
                 noun phrase
    labels       a sentence is a question, reports speech, joins two clauses, or is a statement
    agreement    articles and adjectives have the vowel of the noun class, and -n in the plural

Everything is a function of the config, the split and an index. The words of a sentence determine
its split, so splits share no sentences, not even with different seeds. The words are in
`lexicon.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

from harken.formats.split import Split, split_sizes
from harken.synthetic.draws import HashRNG, open_outputs, require_ranges
from harken.synthetic.lexicon import CLASSES, MAX_STEMS, Lexicon, lexicon
from harken.synthetic.phrasings import FIRST_NAMES

T = TypeVar("T")
Key = tuple[int | str, ...]  # seed of the random choices of a phrase

# A sentence belongs to the split that contains the hash of its words modulo 10.
_HASHES: dict[Split, range] = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}

_NAMES = (*FIRST_NAMES["she"], *FIRST_NAMES["he"])
# Singular, plural, and the word of the target language.
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
# Subject, object, the word of the target language, whether it is singular, and the noun class.
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
    """Number of sentences, a tenth each for dev and test, and size of the vocabulary."""

    sentences: int = 1000
    words: int = 400  # generated stems, in addition to a few real words
    seed: int = 0

    def __post_init__(self) -> None:
        require_ranges(self, sentences=(3, inf), words=(10, MAX_STEMS))


@dataclass(frozen=True, kw_only=True, slots=True)
class SentencesFiles:
    """Paths of the files of each split, and of one text with all sentences."""

    train_conllu: Path
    train_source: Path
    train_target: Path
    train_labels: Path
    dev_conllu: Path
    dev_source: Path
    dev_target: Path
    dev_labels: Path
    test_conllu: Path
    test_source: Path
    test_target: Path
    test_labels: Path
    text: Path


class Phrase(NamedTuple):
    """Words with their tags, and the translation."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    translation: tuple[str, ...]


class Nominal(NamedTuple):
    """A noun phrase with its number and the ending of adjectives that agree with it."""

    phrase: Phrase
    is_singular: bool
    ending: str


EMPTY = Phrase((), (), ())


def sentence(config: SentencesConfig, split: Split, index: int) -> Phrase:
    """Draw sentences until one belongs to the split, and return it."""
    lex = lexicon(config.seed, config.words)
    for attempt in count():
        drawn = _sentence(lex, (config.seed, split, index, attempt))
        has_held_out_form = not lex.held_out.isdisjoint(drawn.words)
        if split == "train" and has_held_out_form:
            continue
        if HashRNG("part", *drawn.words).randrange(10) in _HASHES[split]:
            break
    return drawn


def _sentence(lex: Lexicon, key: Key) -> Phrase:
    rng = HashRNG(*key)
    kind = rng.randrange(10)
    if kind == 0:
        key = (*key, "first")
        subject = _nominal(lex, (*key, "subject"), modified=True)
        question = _predicate(lex, key, subject.phrase, subject.is_singular, is_question=True)
        return _concatenate(question, Phrase(("?",), ("PUNCT",), ("mo", "?")))
    body = _indirect_speech(lex, key) if kind == 1 else _clause(lex, (*key, "first"))
    if kind == 2:
        word, translation = rng.choice(_CONJUNCTIONS)
        second = _clause(lex, (*key, "second"))
        body = _concatenate(body, _word(word, "CCONJ", translation), second)
    return _concatenate(body, _word(".", "PUNCT", "."))


def _indirect_speech(lex: Lexicon, key: Key) -> Phrase:
    subject = _nominal(lex, (*key, "subject"))
    saying = _irregular(HashRNG(*key, "saying"), _SAYING, subject.is_singular)
    that, clause = _word("that", "SCONJ", "ke"), _clause(lex, (*key, "said"))
    return _reorder((subject.phrase, saying, that, clause), (subject.phrase, clause, that, saying))


def _clause(lex: Lexicon, key: Key) -> Phrase:
    """Return a subject with a verb, with "want to" and a verb, or with "is" and an adjective."""
    rng = HashRNG(*key)
    subject = _nominal(lex, (*key, "subject"), modified=True)
    kind = rng.randrange(8)
    if kind == 0:
        copula = _word("is" if subject.is_singular else "are", "AUX", "esta")
        adjective = _adjective(rng, lex, subject.ending)
        return _reorder((subject.phrase, copula, adjective), (subject.phrase, adjective, copula))
    if kind == 1:
        want = _irregular(rng, _WANTING, subject.is_singular)
        stem, target_stem, _ = _choose_skewed(rng, lex.verbs)
        to, verb = _word("to", "PART"), _word(stem, "VERB", f"{target_stem}es")
        complements = _complements(lex, (*key, "rest"))
        return _reorder(
            (subject.phrase, want, to, verb, complements), (subject.phrase, complements, verb, want)
        )
    return _predicate(lex, key, subject.phrase, subject.is_singular)


def _predicate(
    lex: Lexicon, key: Key, subject: Phrase, is_singular: bool, *, is_question: bool = False
) -> Phrase:
    """Add a verb and its complements to a subject."""
    auxiliary, main = _verb(lex, (*key, "verb"), is_singular, is_question=is_question)
    complements = _complements(lex, (*key, "rest"))
    first = (auxiliary, subject) if is_question else (subject, auxiliary)
    return _reorder((*first, main, complements), (subject, complements, auxiliary, main))


def _verb(
    lex: Lexicon, key: Key, is_singular: bool, *, is_question: bool = False
) -> tuple[Phrase, Phrase]:
    """Return an auxiliary, which may be empty except in questions, and the verb."""
    rng = HashRNG(*key)
    stem, target_stem, _ = _choose_skewed(rng, lex.verbs)
    kind = rng.randrange(3) if is_question else rng.randrange(8)
    if kind == 0:
        return _word("will", "AUX"), _word(stem, "VERB", f"{target_stem}eda")
    if kind == 1:
        be = _word("is" if is_singular else "are", "AUX")
        return be, _word(f"{stem}ing", "VERB", f"{target_stem}eri")
    past = rng.randrange(2) == 0
    ending = "emo" if past else "e"
    if kind == 2:
        do = "did" if past else "does" if is_singular else "do"
        negated = Phrase((do, "not"), ("AUX", "PART"), ("ne",))
        return _word(do, "AUX") if is_question else negated, _word(
            stem, "VERB", target_stem + ending
        )
    form = f"{stem}ed" if past else f"{stem}s" if is_singular else stem
    return EMPTY, _word(form, "VERB", target_stem + ending)


def _irregular(rng: HashRNG, verbs: Sequence[tuple[str, ...]], is_singular: bool) -> Phrase:
    plural, singular, past, target_stem = rng.choice(verbs)
    if rng.randrange(2) == 0:
        return _word(past, "VERB", f"{target_stem}emo")
    return _word(singular if is_singular else plural, "VERB", f"{target_stem}e")


def _complements(lex: Lexicon, key: Key) -> Phrase:
    """Return an object, a place and an adverb, all optional; the translation reverses their order.

    The object is not modified, so that `they paint the duck near the river` is unambiguous.
    """
    rng = HashRNG(*key)
    parts = []
    if rng.randrange(5) < 3:
        parts.append(_nominal(lex, (*key, "object"), is_object=True).phrase)
    if rng.randrange(4) == 0:
        parts.append(_prepositional_phrase(lex, (*key, "place")))
    if rng.randrange(5) == 0:
        stem, target_stem, _ = _choose_skewed(rng, lex.adjectives)
        parts.append(_word(f"{stem}ly", "ADV", f"{target_stem}os"))
    return _reorder(parts, parts[::-1])


def _prepositional_phrase(lex: Lexicon, key: Key) -> Phrase:
    word, translation = HashRNG(*key).choice(_PREPOSITIONS)
    preposition = _word(word, "ADP", translation)
    noun_phrase = _nominal(lex, (*key, "of"), is_object=True).phrase
    return _reorder((preposition, noun_phrase), (noun_phrase, preposition))


def _nominal(lex: Lexicon, key: Key, *, modified: bool = False, is_object: bool = False) -> Nominal:
    """Return a pronoun, a name or a noun phrase; `modified` allows a postmodifier."""
    rng = HashRNG(*key)
    kind = rng.randrange(10)
    if kind < 2:
        subject, object_, target_stem, is_singular, vowel = rng.choice(_PRONOUNS)
        word, translation = (object_, f"{target_stem}m") if is_object else (subject, target_stem)
        ending = vowel + "n" * (not is_singular)
        return Nominal(_word(word, "PRON", translation), is_singular, ending)
    if kind == 2:
        name = _choose_skewed(rng, _NAMES)
        return Nominal(_word(name, "PROPN", name), True, CLASSES[0])
    noun, is_singular = _choose_skewed(rng, lex.nouns), rng.randrange(5) < 3
    ending = noun.vowel + "n" * (not is_singular)
    singular, plural, article = rng.choice(_ARTICLES)
    determiner = _word(singular if is_singular else plural, "DET", article + ending)
    head = _word(noun.stem + "s" * (not is_singular), "NOUN", noun.target_stem + ending)
    modifiers = []
    if not is_singular and rng.randrange(4) == 0:
        number, translation = rng.choice(_NUMBERS)
        modifiers.append(_word(number, "NUM", translation))
    if rng.randrange(3) == 0:
        modifiers.append(_adjective(rng, lex, ending))
    postmodifier = _postmodifier(lex, (*key, "more"), is_singular) if modified else EMPTY
    phrase = _reorder(
        (determiner, *modifiers, head, postmodifier),
        (determiner, head, *modifiers[::-1], postmodifier),
    )
    return Nominal(phrase, is_singular, ending)


def _postmodifier(lex: Lexicon, key: Key, is_singular: bool) -> Phrase:
    """Return a prepositional phrase, a relative clause or, mostly, nothing."""
    kind = HashRNG(*key).randrange(6)
    if kind == 0:
        return _prepositional_phrase(lex, (*key, "place"))
    if kind == 1:
        return _predicate(lex, key, _word("that", "PRON", "ku"), is_singular)
    return EMPTY


def _adjective(rng: HashRNG, lex: Lexicon, ending: str) -> Phrase:
    stem, target_stem, _ = _choose_skewed(rng, lex.adjectives)
    return _word(stem, "ADJ", target_stem + ending)


def _choose_skewed(rng: HashRNG, items: Sequence[T]) -> T:
    """Choose an item; earlier items are more frequent."""
    return items[rng.randrange(1 + rng.randrange(len(items)))]


def _word(word: str, tag: str, translation: str | None = None) -> Phrase:
    return Phrase((word,), (tag,), () if translation is None else (translation,))


def _reorder(source: Sequence[Phrase], target: Sequence[Phrase]) -> Phrase:
    """Join the same phrases in source order and in target order."""
    return Phrase(
        tuple(chain.from_iterable(phrase.words for phrase in source)),
        tuple(chain.from_iterable(phrase.tags for phrase in source)),
        tuple(chain.from_iterable(phrase.translation for phrase in target)),
    )


def _concatenate(*phrases: Phrase) -> Phrase:
    return _reorder(phrases, phrases)


def write_sentences(config: SentencesConfig, folder: Path) -> SentencesFiles:
    """Write all splits as CoNLL-U, parallel and labeled text, and all sentences as one text."""
    suffixes = {"conllu": "conllu", "source": "en", "target": "xx", "labels": "tsv"}
    paths = {
        f"{split}_{name}": folder / f"{split}.{suffix}"
        for split in _HASHES
        for name, suffix in suffixes.items()
    }
    files = SentencesFiles(**paths, text=folder / "text.txt")
    sizes = split_sizes(config.sentences)
    with open_outputs([*paths.values(), files.text]) as handles:
        opened = dict(zip([*paths, "text"], handles, strict=True))
        for split, size in sizes.items():
            for index in range(size):
                phrase = sentence(config, split, index)
                words, tags, translation = phrase
                line = " ".join(words) + "\n"
                opened["text"].write(line)
                opened[f"{split}_source"].write(line)
                opened[f"{split}_target"].write(" ".join(translation) + "\n")
                opened[f"{split}_labels"].write(f"{line.strip()}\t{sentence_type(phrase)}\n")
                opened[f"{split}_conllu"].write(_conllu(f"{split}-{index + 1}", words, tags))
    return files


def sentence_type(phrase: Phrase) -> str:
    """Return the label of a sentence."""
    if phrase.words[-1] == "?":
        return "question"
    tags = {"SCONJ": "report", "CCONJ": "compound"}
    return next((label for tag, label in tags.items() if tag in phrase.tags), "statement")


def _conllu(name: str, words: Sequence[str], tags: Sequence[str]) -> str:
    lines = [f"# sent_id = {name}", f"# text = {' '.join(words)}"]
    for number, (word, tag) in enumerate(zip(words, tags, strict=True), start=1):
        lines.append("\t".join([str(number), word, "_", tag, *"_" * 6]))
    return "\n".join([*lines, "", ""])
