"""Public corpora: the URL, digest and license of each file.

An item is one download. It is stored as a file, or as a folder without subfolders. Its `sha256` is
that of the decompressed data, because compressed bytes may differ between servers:

    file     sha256 of its bytes
    folder   sha256 of the lines "SHA256  NAME", sorted by name, as `sha256sum * | sha256sum` prints
"""

from dataclasses import dataclass
from typing import Literal

Packing = Literal["none", "gz", "zip"]

EXTRA_BYTES = 2**20  # allowance for headers and other members of an archive


@dataclass(frozen=True, kw_only=True, slots=True)
class License:
    """Name and URL of a license."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Item:
    """One download, and the file or folder that it is stored as."""

    url: str
    stored: str  # name of the file, or of the folder for the selected members of an archive
    sha256: str
    bytes: int  # of the stored file or folder
    packing: Packing = "none"
    members: str = ""  # FOLDER/PATTERN of the selected members of an archive

    @property
    def download_name(self) -> str:
        """The name of the download on a mirror, such as `train.en.gz`."""
        return self.stored if self.packing == "none" else f"{self.stored}.{self.packing}"

    @property
    def max_bytes(self) -> int:
        """The limit of the download, and also of the decompressed files.

        For a compressed download, it is the size of the stored files, an eighth more and
        `EXTRA_BYTES`.
        """
        return self.bytes if self.packing == "none" else self.bytes + self.bytes // 8 + EXTRA_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """A corpus of one or more items."""

    name: str
    title: str
    license: License
    page: str  # home page
    items: tuple[Item, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)


def _items(url: str, files: str, packing: Packing = "none") -> tuple[Item, ...]:
    """Return an item for each line "SHA256 BYTES NAME"; `url` contains `{name}`."""
    return tuple(
        Item(url.format(name=name), name, sha256, int(size), packing)
        for sha256, size, name in map(str.split, files.strip().splitlines())
    )


_CREATIVE_COMMONS = "https://creativecommons.org/"
CC_BY_SA = License(name="CC BY-SA 4.0", url=f"{_CREATIVE_COMMONS}licenses/by-sa/4.0/")

# URLs contain a commit if possible, because branches move. The comment on each corpus is the
# independent evidence for its digests.

# Dozens of public repositories list this URL with the same SHA-256.
TINYSHAKESPEARE = Corpus(
    name="tinyshakespeare",
    title="plays of Shakespeare, 1.1 million characters (lm)",
    license=License(name="public domain", url=f"{_CREATIVE_COMMONS}publicdomain/mark/1.0/"),
    page="https://github.com/karpathy/char-rnn",
    items=_items(
        "https://raw.githubusercontent.com/karpathy/char-rnn/"
        "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/{name}",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed 1115394 input.txt",
    ),
)

# Release r2.16 of May 2025. Two public programs contain the same SHA-256 of these files.
EWT = Corpus(
    name="ud-english-ewt",
    title="English Web Treebank, UD 2.16, 16,622 tagged sentences (tag)",
    license=CC_BY_SA,
    page="https://universaldependencies.org/treebanks/en_ewt/index.html",
    items=_items(
        "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/"
        "4c89b5833a70aa5ed3a00bad2f23f57992cc7df8/{name}",
        """
    3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b 14203025 en_ewt-ud-train.conllu
    531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6 1805545 en_ewt-ud-dev.conllu
    e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd 1804515 en_ewt-ud-test.conllu
        """,
    ),
)

# torchtext 0.9 contains the MD5 of each .gz. Compressing these files with the time stamps of 21
# December 2017 reproduces all eight MD5s.
MULTI30K = Corpus(
    name="multi30k",
    title="Multi30k, English and German captions, 29,000 pairs (translate)",
    license=License(
        name="research and teaching only", url="https://github.com/multi30k/dataset/issues/8"
    ),
    page="https://github.com/multi30k/dataset",
    items=_items(
        "https://raw.githubusercontent.com/multi30k/dataset/"
        "c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw/{name}.gz",
        """
    460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6 1801238 train.en
    2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72 2110398 train.de
    1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227 63297 val.en
    660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660 75981 val.de
    399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182 62076 test_2016_flickr.en
    4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16 70649 test_2016_flickr.de
    ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98 55242 test_2017_flickr.en
    c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081 64059 test_2017_flickr.de
        """,
        packing="gz",
    ),
)

# The tag v1.0.10. The digest of the names and bytes of the 3,000 recordings is equal to that in a
# public program. GitHub recreates the archive for each request, so its own digest may change.
_DIGITS = "d6938f9bf1545aa66d8489fc9f1385a7abd64282"
SPOKEN_DIGITS = Corpus(
    name="spoken-digits",
    title="Free Spoken Digit Dataset 1.0.10, 3,000 recordings of six speakers (transcribe)",
    license=CC_BY_SA,
    page="https://github.com/Jakobovski/free-spoken-digit-dataset",
    items=(
        Item(
            url="https://codeload.github.com/Jakobovski/free-spoken-digit-dataset/zip/" + _DIGITS,
            stored="recordings",
            sha256="1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959",
            bytes=21_128_848,
            packing="zip",
            members=f"free-spoken-digit-dataset-{_DIGITS}/recordings/*.wav",
        ),
    ),
)

CATALOG = {corpus.name: corpus for corpus in (TINYSHAKESPEARE, EWT, MULTI30K, SPOKEN_DIGITS)}
