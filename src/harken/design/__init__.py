"""Attention heads computed from a specification instead of learned.

`waves` has positions; `shift`, `band` and `content` compute heads (`head` runs them), `designs`
checks them, and `start` writes them into a layer or a model.
"""
