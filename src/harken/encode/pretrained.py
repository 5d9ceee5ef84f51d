"""The tokenizer of a Hugging Face folder, with the ids that its model was trained with.

Spare rows of the model's embedding table, and special tokens that the tokenizer lacks but a task
needs, get tokens of their own, so that every row has a token. Other tokens do not change.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from tokenizers import Tokenizer

from harken.encode.tokenizer_file import (
    MAX_ADDED,
    MAX_TOKENS,
    build_tokenizer,
    load_tokenizer,
    tokenizer_errors,
)
from harken.encode.vocabulary import SpecialIds, Vocabulary
from harken.errors import UserError
from harken.inputs import is_file, short_path

TOKENIZER_FILE = "tokenizer.json"
MASKS = ("<mask>", "[MASK]")
UNKNOWNS = ("<unk>", "[UNK]", "<unknown>")
ENDS = ("<|endoftext|>", "</s>", "<end>")
MAX_PIECES = 32  # per word; further pieces are ignored


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainedTokenizerConfig:
    """The tokenizer of `model.start_from`, as it is."""

    kind: Literal["pretrained"] = "pretrained"

    def fit(self, examples: Iterable[object]) -> NoReturn:
        raise UserError(
            'encode.kind = "pretrained" needs a Hugging Face folder in model.start_from',
            fix="set model.start_from, or another encode.kind",
        )


def load_folder_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a Hugging Face folder."""
    path = folder / TOKENIZER_FILE
    if not is_file(path):
        raise UserError(
            f"{short_path(path)}: file not found (expected the model's tokenizer)",
            fix="download tokenizer.json; for a folder with only vocab.txt or tokenizer.model, run "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    return load_tokenizer(path)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainedTokenizer:
    """A tokenizer, the number of embeddings of its model, and the special tokens in its config."""

    path: Path
    tokenizer: Tokenizer
    rows: int  # of the embedding table
    token_ids: Mapping[str, int]  # such as "eos": 50256

    @classmethod
    def load(cls, folder: Path, rows: int, token_ids: Mapping[str, int]) -> "PretrainedTokenizer":
        """Load the tokenizer of a folder; raise `UserError` if it does not fit the model."""
        path, tokenizer = folder / TOKENIZER_FILE, load_folder_tokenizer(folder)
        ids = tokenizer.get_vocab(with_added_tokens=True).values()
        if sorted(ids) != list(range(len(ids))) or len(ids) > rows:
            raise UserError(
                f"{short_path(path)}: {len(ids):,} tokens with ids up to {max(ids):,} do not fit "
                f"the model (expected ids without gaps, below {rows:,})",
                fix="use the tokenizer that belongs to this model",
            )
        tokenizer.encode_special_tokens = True  # "[MASK]" in a text is encoded as text
        return cls(path=path, tokenizer=tokenizer, rows=rows, token_ids=token_ids)

    def vocabulary(self, *, mask: bool) -> Vocabulary:
        """Return the vocabulary of a language model; with `mask`, it has a mask token."""
        around = self.ids_around_text()
        end = around[1] if len(around) == 2 else self.token_ids.get("eos", self._find(ENDS))
        end = self._add(ENDS[-1]) if end is None else end
        unknown = self._find(UNKNOWNS)
        masked = self._find(MASKS)
        masked = self._add(MASKS[0]) if masked is None and mask else masked
        spare = range(self.tokenizer.get_vocab_size(), self.rows)
        if len(spare) > MAX_ADDED:
            raise UserError(
                f"{short_path(self.path)}: the model has {len(spare):,} more embeddings than the "
                f"tokenizer has tokens (expected at most {MAX_ADDED:,})",
                fix="use the tokenizer that belongs to this model",
            )
        self.tokenizer.add_special_tokens([f"<unused {number}>" for number in spare])
        special = SpecialIds(
            pad=self.token_ids.get("pad", end),
            unknown=end if unknown is None else unknown,
            mask=end if masked is None else masked,
            end=end,
        )
        start = around[0] if around else self.token_ids.get("bos", end)
        return Vocabulary(self.tokenizer, special, start)

    def ids_around_text(self) -> list[int]:
        """Return the special tokens that the tokenizer adds, such as [CLS] and [SEP]."""
        with tokenizer_errors(f"{short_path(self.path)}: a text cannot be encoded"):
            ids: list[int] = self.tokenizer.encode("").ids
        return ids

    def _find(self, names: Iterable[str]) -> int | None:
        ids = (self.tokenizer.token_to_id(name) for name in names)
        return next((number for number in ids if number is not None), None)

    def _add(self, name: str) -> int:
        self.tokenizer.add_special_tokens([name])
        number = self._find((name,))
        assert number is not None
        return number


@dataclass(frozen=True, slots=True)
class WordPieces:
    """Split words into the pieces of a pretrained tokenizer, such as BERT's WordPiece."""

    tokenizer: Tokenizer
    rows: int  # of the embedding table
    cls: int  # token before a sentence
    sep: int  # token after a sentence

    @classmethod
    def of(cls, pretrained: PretrainedTokenizer) -> "WordPieces":
        """Return the pieces of a tokenizer that puts one special token at each end of a text."""
        ids = pretrained.ids_around_text()
        if len(ids) != 2:
            raise UserError(
                f"{short_path(pretrained.path)}: the tokenizer adds {len(ids)} special tokens to a "
                "text (expected 2, as [CLS] and [SEP] of BERT)",
                fix="use the tokenizer.json that belongs to a model of type bert",
            )
        return cls(pretrained.tokenizer, pretrained.rows, *ids)

    def encode(self, words: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of the pieces of each word; a word without pieces is [SEP]."""
        with tokenizer_errors("a word cannot be encoded"):
            encoded = self.tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
        pieces = (encoding.ids[:MAX_PIECES] or [self.sep] for encoding in encoded)
        return [np.array(ids, dtype=np.int64) for ids in pieces]

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        return [str(self.tokenizer.id_to_token(token)) for token in tokens]

    def to_plain(self) -> dict[str, Any]:
        """Return the JSON of the tokenizer, and `rows`."""
        content = json.loads(self.tokenizer.to_str())
        return {"rows": self.rows, "tokenizer": content}

    @classmethod
    def from_plain(cls, stored: Any, path: Path) -> "WordPieces":
        """Rebuild what `to_plain` returned."""
        tokenizer, rows = build_tokenizer(stored["tokenizer"], path), stored["rows"]
        if type(rows) is not int or not 0 < tokenizer.get_vocab_size() <= rows <= MAX_TOKENS:
            raise ValueError("'rows' is not the number of embeddings of its tokenizer")
        tokenizer.encode_special_tokens = True
        return cls.of(PretrainedTokenizer(path=path, tokenizer=tokenizer, rows=rows, token_ids={}))
