"""Tagger over word pieces: a pretrained text encoder -> logits of a tag per word.

    [CLS] pieces of word 1, pieces of word 2, … [SEP]   --encoder-->   P(tag_t) = softmax(W h_t)

h_t is the state at the first piece of word t (Devlin et al., 2019). A vector for the case pattern
of a word (lower, title, upper, …) is added to its pieces, since an uncased tokenizer drops it. The
vectors are zero at first, so the encoder starts as it was pretrained.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear
from harken.models.encoders import TextEncoderConfig
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows, check_shape
from harken.models.start import StartConfig
from harken.models.tagger import CBOWConfig, CharactersPresent, NoCharactersConfig, Spellings

END_PIECES = 2  # [CLS] and [SEP]


@dataclass(frozen=True, kw_only=True, slots=True)
class PieceTaggerConfig(StartConfig):
    """A tagger that starts from a pretrained encoder of word pieces, such as BERT."""

    kind: Literal["pieces"] = "pieces"
    max_length: ClassVar[int | None] = None  # maximum number of words; `max_pieces` limits pieces
    characters: ClassVar[NoCharactersConfig] = NoCharactersConfig()
    # encoder over the pieces; `start_from` determines it, except for its dropout
    encoder: TextEncoderConfig = TextEncoderConfig(dropout=0.1)
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the states

    @property
    def max_pieces(self) -> int | None:
        """The maximum number of pieces of the words in a sequence."""
        return self.encoder.max_length - END_PIECES

    def build(
        self,
        *,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        cbow: CBOWConfig | None = None,
        cls: int = 0,
        sep: int = 0,
    ) -> "PieceTagger":
        """Build the model for `words` case patterns and `characters` pieces."""
        if cbow is not None:
            raise ValueError("kind 'pieces' has no word embeddings; set training.vectors.steps = 0")
        return PieceTagger(self, words, characters, tags, seed, (cls, sep))


class PieceRows(NamedTuple):
    """The pieces of sentences with their special tokens."""

    tokens: Int[Tensor, "B pieces"]
    present: Bool[Tensor, "B pieces"]
    first: Int[Tensor, "B T"]  # column of the first piece of each word
    word_of: Int[Tensor, "B pieces"]  # index of the word of each piece, T at special tokens


class PieceTagger(nn.Module):
    """The model: words as pieces -> logits of a tag per word."""

    def __init__(
        self,
        config: PieceTaggerConfig,
        cases: int,
        pieces: int,
        tags: int,
        seed: int,
        ends: tuple[int, int],
    ) -> None:
        super().__init__()
        self.cls, self.sep = ends
        self.encoder = config.encoder.build(pieces, seed)
        self.cases = nn.Embedding(cases, self.encoder.width)
        self.dropout = Dropout(config.dropout)
        self.classifier = OutputLinear(self.encoder.width, tags)
        self.max_length: int | None = None
        self.max_pieces = config.max_pieces
        initialize(self, config.encoder.layers, seed)
        nn.init.zeros_(self.cases.weight)

    def forward(
        self,
        words: TokenIds,
        forms: TokenIds,
        spellings: Spellings,
        pieces_present: CharactersPresent,
        present: Present,
    ) -> Float[Tensor, "B T tags"]:
        """Return the logits of each word's tag.

        Word (b, t) has the case pattern `words[b, t]` and the pieces `spellings[forms[b, t]]`.
        """
        check_rows("words", words)
        check_shape("forms", forms, *words.shape)
        check_shape("present", present, *words.shape)
        return self.tag_pieces(words, self.join_pieces(forms, spellings, pieces_present, present))

    def tag_pieces(self, words: TokenIds, rows: PieceRows) -> Float[Tensor, "B T tags"]:
        """Return the logits of words whose pieces are joined."""
        cases = nn.functional.pad(self.cases(words), (0, 0, 0, 1))  # zeros at special tokens
        extra = cases.gather(1, rows.word_of[..., None].expand(-1, -1, cases.shape[-1]))
        states: Tensor = self.encoder(rows.tokens, present=rows.present, extra=extra)
        first = states.gather(1, rows.first[..., None].expand(-1, -1, states.shape[-1]))
        return cast(Tensor, self.classifier(self.dropout(first)))

    def join_pieces(
        self,
        forms: TokenIds,
        spellings: Spellings,
        pieces_present: CharactersPresent,
        present: Present,
    ) -> PieceRows:
        """Concatenate the pieces of the words of each sentence, between [CLS] and [SEP]."""
        lengths = pieces_present.sum(dim=1)[forms] * present
        ends = 1 + lengths.cumsum(dim=1)
        first, last = ends - lengths, ends[:, -1:]
        size, count = int(last.max()) + 1, forms.shape[1]
        columns = torch.arange(size, device=forms.device)
        tokens = torch.full((len(forms), size), self.sep, device=forms.device)
        word_of = torch.full_like(tokens, count)
        is_piece = pieces_present[forms] & present[..., None]
        row, word, piece = is_piece.nonzero(as_tuple=True)
        column = first[row, word] + piece
        tokens[row, column] = spellings[forms[row, word], piece]
        word_of[row, column] = word
        tokens[:, 0] = self.cls
        return PieceRows(tokens, columns <= last, first.clamp(max=size - 1), word_of)
