"""Classes for embeddings and output projections, so that they can be found with `isinstance`."""

from torch import nn


class TokenEmbedding(nn.Embedding):
    """A vector for every token of the vocabulary, before positions are added."""


class SegmentEmbedding(nn.Embedding):
    """A vector for every segment, added to the token vectors, as in BERT."""


class OutputLinear(nn.Linear):
    """Map states to logits. `training/optimizer.py` never trains it with Muon."""
