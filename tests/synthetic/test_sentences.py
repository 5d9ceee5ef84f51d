import re
from collections import Counter, defaultdict
from itertools import pairwise, product
from pathlib import Path

import pytest

from harken.cli.main import main
from harken.formats.conllu import read_conllu
from harken.formats.examples import Pair, Sentence
from harken.formats.pairs import ParallelFiles, find_pairs
from harken.synthetic import sentences as grammar
from harken.synthetic.lexicon import _STEM, _TARGET_STEM, MAX_STEMS, Lexicon, lexicon
from harken.synthetic.sentences import (
    Phrase,
    SentencesConfig,
    SentencesFiles,
    Split,
    sentence,
    write_sentences,
)
from small_files import peak_memory

SPLITS: tuple[Split, ...] = ("train", "dev", "test")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def drawn(config: SentencesConfig, count: int, split: Split = "train") -> list[Phrase]:
    return [sentence(config, split, index) for index in range(count)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SentencesFiles:
    return write_sentences(SentencesConfig(sentences=1009), tmp_path_factory.mktemp("sentences"))


# --- words


def test_no_two_stems_or_roots_are_alike() -> None:
    known = lexicon(5, MAX_STEMS)
    for words in (known.nouns, known.verbs, known.adjectives):
        assert len({word.stem for word in words}) == len(words)
    roots = [word.target_stem for words in known[:3] for word in words]
    assert len(set(roots)) == len(roots)
    forms = defaultdict(set)
    for tag, words, endings in (
        ("NOUN", known.nouns, ("", "s")),
        ("VERB", known.verbs, ("", "s", "ed", "ing")),
        ("ADJ", known.adjectives, ("",)),
        ("ADV", known.adjectives, ("ly",)),
    ):
        for word in words:
            for ending in endings:
                forms[word.stem + ending].add(tag)
    ambiguous = {frozenset(tags) for tags in forms.values() if len(tags) > 1}
    assert ambiguous == {frozenset({"NOUN", "VERB"})}
    assert len(forms) > MAX_STEMS
    both = {word.stem for word in known.nouns} & {word.stem for word in known.verbs}
    assert {"duck", "cook", "hammer"} <= both and len(both) > 40


def test_there_are_enough_spellings_and_none_twice() -> None:
    for syllables, count in ((_STEM, MAX_STEMS), (_TARGET_STEM, 2 * MAX_STEMS + 100)):
        spellings = [
            "".join(parts) for parts in product(*(options.split() for options in syllables))
        ]
        assert len(set(spellings)) == len(spellings) >= count


def test_the_other_language_has_no_word_twice() -> None:
    pairs = grammar._PREPOSITIONS + grammar._NUMBERS + grammar._CONJUNCTIONS
    articles = (article[-1] for article in grammar._ARTICLES)
    roots = (verb[-1] for verb in grammar._SAYING + grammar._WANTING)
    own = [
        *map("".join, product(articles, "aiu", ("", "n"))),
        *(translation for _, translation in pairs),
        *(pronoun[2] + case for pronoun in grammar._PRONOUNS for case in ("", "m")),
        *map("".join, product(roots, ("e", "emo"))),
        *("esta", "ke", "ku", "mo", "ne"),
    ]
    assert Counter(own).most_common(1)[0][1] == 1
    assert max(map(len, own)) < 7
    nouns = [noun.target_stem + noun.vowel for noun in lexicon(0, 400).nouns]
    assert not set(nouns) & set(own)


def test_one_inflected_form_in_five_is_held_out() -> None:
    known = lexicon(0, 2000)
    inflected = len({f"{word.stem}s" for word in [*known.nouns, *known.verbs]})
    inflected += 2 * len(known.verbs) + len(known.adjectives)
    assert abs(len(known.held_out) / inflected - 0.2) < 0.02
    stems = {word.stem for words in known[:3] for word in words}
    assert not known.held_out & stems  # so that train can have the stem itself


# --- sentences


def test_a_seed_keeps_its_sentences_for_ever() -> None:
    # Fixed values: published results name a seed, so a change here is a change of data.
    phrase = sentence(SentencesConfig(seed=7), "test", 11)
    assert [" ".join(side) for side in phrase] == [
        "Nerana does not trirbow us near us flurmelly .",
        "PROPN AUX PART VERB PRON ADP PRON ADV PUNCT",
        "Nerana votisos vinm til vinm ne nolose .",
    ]


TAGS = {
    "DET": "the a some this these that those",
    "PRON": "they them she her he him it we us you that",
    "AUX": "is are will do does did",
    "PART": "to not",
    "ADP": "to near under from with",
    "NUM": "two three four five six",
    "CCONJ": "and but",
    "SCONJ": "that",
    "PUNCT": ". ?",
}


def test_tags_are_those_of_the_words() -> None:
    config = SentencesConfig()
    known = lexicon(config.seed, config.words)
    verbs, nouns = ({word.stem for word in words} for words in (known.verbs, known.nouns))
    adjectives = {word.stem for word in known.adjectives}
    irregular = {form for row in grammar._SAYING + grammar._WANTING for form in row[:3]}
    allowed = {tag: set(words.split()) for tag, words in TAGS.items()}
    allowed["NOUN"] = nouns | {f"{stem}s" for stem in nouns}
    allowed["ADJ"], allowed["ADV"] = adjectives, {f"{stem}ly" for stem in adjectives}
    allowed["VERB"] = irregular | {stem + end for stem in verbs for end in ("", "s", "ed", "ing")}
    allowed["PROPN"] = set(grammar._NAMES)
    seen = Counter()
    for phrase in drawn(config, 700):
        assert len(phrase.words) == len(phrase.tags) > 0
        assert not re.search(r"[\t\n\r]|  ", " ".join([*phrase.words, *phrase.translation]))
        for word, tag in zip(phrase.words, phrase.tags, strict=True):
            assert word in allowed[tag], (word, tag)
            seen[tag] += 1
    assert set(seen) == set(allowed)
    assert min(seen.values()) > 20


def test_words_have_the_tag_that_their_neighbors_ask_for() -> None:
    """Rules of thumb that the grammar does not know of."""
    seen = Counter()
    for phrase in drawn(SentencesConfig(), 500):
        tokens = [("", "START"), *zip(phrase.words, phrase.tags, strict=True)]
        for (before, left), (word, tag) in pairwise(tokens):
            if left in ("DET", "NUM"):
                assert tag in ("NUM", "ADJ", "NOUN"), phrase.words
            if left == "PART" or before in ("will", "they", "we"):
                assert tag in ("VERB", "AUX", "PRON", "DET", "PROPN") or word == "not", phrase.words
            if word == "that":
                seen[tag] += 1
                if tag == "PRON":
                    assert left == "NOUN"
                elif tag == "SCONJ":
                    assert before in ("say", "says", "said", "know", "knows", "knew")
            if word == "to" and tag == "PART":
                assert before in ("want", "wants", "wanted", "try", "tries", "tried")
        assert phrase.tags.count("PUNCT") == 1
        mark = "?" if phrase.tags[0] == "AUX" else "."
        assert phrase.words[-1] == phrase.translation[-1] == mark
    assert set(seen) == {"DET", "PRON", "SCONJ"}


def test_equal_words_have_equal_tags_and_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags and translation must be a function of the words.

    A language of one noun and one verb, which are alike, of one article, `that`, and one of
    everything else says much twice.
    """
    lists = "NAMES ARTICLES PREPOSITIONS NUMBERS PRONOUNS CONJUNCTIONS SAYING WANTING"
    for name in lists.split():
        monkeypatch.setattr(grammar, f"_{name}", getattr(grammar, f"_{name}")[-1:])
    known = lexicon(3, 10)
    known = Lexicon(known.nouns[:1], known.verbs[:1], known.adjectives[:1], frozenset())
    assert known.nouns[0].stem == known.verbs[0].stem == "duck"
    meanings = defaultdict(set)
    for index in range(7000):
        phrase = grammar._sentence(known, (3, index))
        meanings[phrase.words].add((phrase.tags, phrase.translation))
    assert 2000 < len(meanings) < 5000
    assert {len(meant) for meant in meanings.values()} == {1}


def test_majority_tags_are_not_enough(files: SentencesFiles) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for tagged in read_conllu(files.train_conllu):
        for word, tag in zip(tagged.words, tagged.tags, strict=True):
            counts[word][tag] += 1
    test = [
        (word, tag)
        for tagged in read_conllu(files.test_conllu)
        for word, tag in zip(tagged.words, tagged.tags, strict=True)
    ]
    known = [(word, tag) for word, tag in test if word in counts]
    right = sum(counts[word].most_common(1)[0][0] == tag for word, tag in known)
    assert 0.85 < right / len(known) < 0.95


def test_some_test_words_are_unknown_but_akin_to_known_ones(files: SentencesFiles) -> None:
    train = {word for tagged in read_conllu(files.train_conllu) for word in tagged.words}
    held_out = lexicon(0, 400).held_out
    assert not held_out & train
    for path in (files.dev_conllu, files.test_conllu):
        words = [word for tagged in read_conllu(path) for word in tagged.words]
        unknown = [word for word in words if word not in train]
        assert 0.03 < len(unknown) / len(words) < 0.12
        held = [word for word in unknown if word in held_out]
        assert len(held) > 0.015 * len(words)
        stems = {re.sub("(s|ed|ing|ly)$", "", word) for word in train}
        akin = sum(re.sub("(s|ed|ing|ly)$", "", word) in stems for word in held)
        assert akin > 0.8 * len(held)


def test_parts_of_different_seeds_share_no_sentence() -> None:
    # The smallest language, in which sentences do come again.
    configs = [SentencesConfig(words=10, seed=seed) for seed in range(2)]
    splits = [{phrase.words for c in configs for phrase in drawn(c, 80, split)} for split in SPLITS]
    assert len(set.union(*splits)) == sum(map(len, splits)) > 400


# --- translation


def oracle(phrase: Phrase, config: SentencesConfig) -> Counter[str]:
    """Count the roots of a word-for-word dictionary, without order and endings."""
    known = lexicon(config.seed, config.words)
    by_tag = {
        "NOUN": {word.stem: word.target_stem for word in known.nouns},
        "VERB": {word.stem: word.target_stem for word in known.verbs},
        "ADJ": {word.stem: word.target_stem for word in known.adjectives},
        "ADV": {f"{word.stem}ly": word.target_stem for word in known.adjectives},
    }
    roots: Counter[str] = Counter()
    for word, tag in zip(phrase.words, phrase.tags, strict=True):
        stems = by_tag.get(tag, {})
        for ending in ("", "s", "ed", "ing"):
            if word.endswith(ending) and word.removesuffix(ending) in stems:
                roots[stems[word.removesuffix(ending)]] += 1
                break
    return roots


def test_every_word_is_translated_once() -> None:
    config = SentencesConfig()
    for phrase in drawn(config, 300):
        pattern = re.compile(r"([dklmnrstv][aiou]){2}[dklmnrstv]")
        roots = Counter(word[:5] for word in phrase.translation if pattern.match(word))
        assert roots == oracle(phrase, config), phrase
        tokens = zip(phrase.words, phrase.tags, strict=True)
        names = sorted(word for word, tag in tokens if tag == "PROPN")
        assert names == sorted(word for word in phrase.translation if word[0].isupper())


def test_articles_and_adjectives_agree_and_stand_around_their_noun() -> None:
    config = SentencesConfig()
    known = lexicon(config.seed, config.words)
    nouns = {noun.target_stem: noun.vowel for noun in known.nouns}
    adjectives = {adjective.target_stem for adjective in known.adjectives}
    agreeing = 0
    for phrase in drawn(config, 300):
        for article, noun, modifier in zip(
            phrase.translation, phrase.translation[1:], phrase.translation[2:], strict=False
        ):
            if noun[:5] in nouns:
                assert re.fullmatch(rf"{nouns[noun[:5]]}n?", noun[5:])
                assert article[1:] == noun[5:]
                if modifier[:5] in adjectives and not modifier.endswith("os"):
                    agreeing += modifier[5:] == noun[5:]
    assert agreeing > 60


def test_verbs_come_last_and_order_does_change() -> None:
    config = SentencesConfig()
    known = lexicon(config.seed, config.words)
    verbs = {verb.target_stem for verb in known.verbs}
    other_verbs = re.compile(r"(lok|rov|tum|das)e(mo)?|esta")
    moved = 0
    for phrase in drawn(config, 300):
        last = [word for word in phrase.translation if word not in ("?", ".", "mo")][-1]
        assert last[:5] in verbs or other_verbs.fullmatch(last), phrase
        if phrase.words[-2:-1] and phrase.tags[-2] in ("NOUN", "PRON", "PROPN"):
            moved += 1
    assert moved > 120  # of 300: here English ends in a thing, the other language in a verb


# --- files


def test_files_agree_with_each_other(files: SentencesFiles) -> None:
    everything = []
    for split, size in (("train", 809), ("dev", 100), ("test", 100)):
        tagged = read_conllu(getattr(files, f"{split}_conllu"))
        sides = (getattr(files, f"{split}_{side}") for side in ("source", "target"))
        pairs = list(find_pairs(ParallelFiles(source=next(sides), target=next(sides))).pairs())
        assert len(tagged) == len(pairs) == size
        assert [" ".join(example.words) for example in tagged] == [pair.source for pair in pairs]
        labeled = [line.split("\t") for line in lines(getattr(files, f"{split}_labels"))]
        assert [text for text, _ in labeled] == [pair.source for pair in pairs]
        assert {label for _, label in labeled} == {"statement", "question", "report", "compound"}
        everything += [pair.source for pair in pairs]
        for index in (0, 13, size - 1):
            phrase = sentence(SentencesConfig(), split, index)  # type: ignore[arg-type]
            assert tagged[index] == Sentence(phrase.words, phrase.tags)
            assert pairs[index] == Pair(" ".join(phrase.words), " ".join(phrase.translation))
    assert lines(files.text) == everything
    phrase = sentence(SentencesConfig(), "dev", 0)
    assert lines(files.dev_conllu)[:3] == [
        "# sent_id = dev-1",
        f"# text = {' '.join(phrase.words)}",
        f"1\t{phrase.words[0]}\t_\t{phrase.tags[0]}" + "\t_" * 6,
    ]
    assert {path.name for path in files.text.parent.iterdir()} == {
        "text.txt",
        *(f"{split}.{suffix}" for split in SPLITS for suffix in ("conllu", "en", "xx", "tsv")),
    }


@pytest.mark.parametrize(
    ("sentences", "sizes"), [(3, (1, 1, 1)), (19, (17, 1, 1)), (20, (16, 2, 2))]
)
def test_no_part_is_empty(tmp_path: Path, sentences: int, sizes: tuple[int, int, int]) -> None:
    files = write_sentences(SentencesConfig(sentences=sentences), tmp_path / "new" / "folder")
    sources = (files.train_source, files.dev_source, files.test_source)
    assert tuple(len(lines(path)) for path in sources) == sizes


def test_memory_does_not_grow_with_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Drawing is slow under tracemalloc, so long words replace the sentences.
    monkeypatch.setattr(
        grammar, "sentence", lambda config, split, index: Phrase((f"{index:03000}",), ("X",), ("",))
    )
    few, many = (
        peak_memory(write_sentences, SentencesConfig(sentences=count), tmp_path)
        for count in (200, 700)
    )
    assert many < few + 2**18  # five hundred would take 1.5 MiB


def test_the_command_names_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "sentences", "--sentences", "11", "--words", "17", "--seed", "3"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 13
    assert {Path(line) for line in printed} == set(tmp_path.iterdir())
    config = SentencesConfig(sentences=11, words=17, seed=3)
    phrase = [" ".join(sentence(config, "train", index).words) for index in range(9)]
    assert lines(tmp_path / "train.en") == phrase
