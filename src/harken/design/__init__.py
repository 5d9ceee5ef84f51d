"""Attention heads computed from a specification instead of learned.

`waves` has sinusoidal and Fourier positions, `subspaces` the parts of a token vector, `sharpness`
the scale of scores for a tolerance; `shift`, `band`, `content` and `matching` compute heads (`head`
runs them), `designs` checks them, `install` writes them into a layer and `start` into a model.
"""
