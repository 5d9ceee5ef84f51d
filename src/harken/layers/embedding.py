"""Embedding tables and output projections, with classes by which other code finds them."""

from torch import nn


class TokenEmbedding(nn.Embedding):
    """A vector for every token of the vocabulary, before positions are added."""


class SegmentEmbedding(nn.Embedding):
    """A vector for every segment, added to the token vectors, as in BERT."""


class OutputLinear(nn.Linear):
    """Map states to logits. `training/optimizer.py` trains it like an embedding, not by Muon."""
