"""Attention heads computed from a specification instead of learned.

`shift`, `band` and `content` compute heads, `head` computes their attention, `designs` checks them,
and `install` writes them into a layer or a model.
"""
