"""Embedding tables, with classes by which `inspection/readout.py` finds them in any model."""

from torch import nn


class TokenEmbedding(nn.Embedding):
    """A vector for every token of the vocabulary, before positions are added."""


class SegmentEmbedding(nn.Embedding):
    """A vector for every segment, added to the token vectors, as in BERT."""
