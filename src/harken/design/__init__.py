"""Attention heads whose weights are computed from a specification instead of learned.

`shift`, `band` and `content` compute heads, `head` their attention. `designs` compares predicted
and measured attention, and `install` writes heads into a layer or a model.
"""
