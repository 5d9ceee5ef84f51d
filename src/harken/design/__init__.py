"""Heads written down instead of learned: what each must be, how sharp, and for how long a text.

waves (places as pairs of waves), subspaces (who lives where in the width), head (the record and
what it attends to), sharpness (from a tolerance), shift, band, content and matching (the heads),
check (a promise against the attention itself), install (into any layer), start (into a model).
"""
