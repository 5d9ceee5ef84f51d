"""Tables of vectors for tokens, marked so that `inspection/readout.py` finds them in any model."""

from torch import nn


class TokenEmbedding(nn.Embedding):
    """A vector for every token of the vocabulary, before positions are added."""


class SegmentEmbedding(nn.Embedding):
    """A vector for every segment, added to those of the tokens beside it, as in BERT."""
