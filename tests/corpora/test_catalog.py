"""The list itself: what can be said of it without a network."""

import re
from urllib.parse import urlsplit

import pytest

from harken.corpora.catalog import CATALOG, Corpus, Item
from harken.corpora.download import is_safe

ITEMS = [item for corpus in CATALOG.values() for item in corpus.items]


@pytest.mark.parametrize("corpus", CATALOG.values(), ids=CATALOG)
def test_a_corpus_is_complete_and_its_names_are_unique(corpus: Corpus) -> None:
    assert CATALOG[corpus.name] is corpus
    assert re.fullmatch(r"[a-z0-9-]+", corpus.name)
    assert corpus.title and corpus.license.name
    assert urlsplit(corpus.license.url).scheme == urlsplit(corpus.page).scheme == "https"
    assert corpus.bytes == sum(item.bytes for item in corpus.items) > 0
    # Names must not collide, neither stored nor packed nor as unfinished downloads.
    names = {name for item in corpus.items for name in {item.stored, item.download_name}}
    unfinished = {
        f"{item.download_name}{end}" for item in corpus.items for end in (".part", ".part.from")
    }
    assert len({item.stored for item in corpus.items}) == len(corpus.items)
    assert len({item.download_name for item in corpus.items}) == len(corpus.items)
    assert not names & unfinished


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.stored)
def test_an_item_is_complete(item: Item) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", item.sha256)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", item.stored) and not item.stored.startswith(".")
    assert is_safe(item.url) and urlsplit(item.url).scheme == "https"
    # A commit cannot move; `master` and `main` can.
    assert re.search(r"/[0-9a-f]{40}(/|$)", item.url)
    assert bool(item.members) == (item.packing not in ("none", "gz"))


def test_names_while_packed_and_sizes_on_the_way() -> None:
    plain = Item(url="https://a/f", stored="f", sha256="", bytes=7)
    assert (plain.download_name, plain.max_bytes) == ("f", 7)
    packed = Item(url="https://a/f", stored="f", sha256="", bytes=800, packing="tar.gz")
    assert (packed.download_name, packed.max_bytes) == ("f.tar.gz", 800 + 100 + 2**20)
