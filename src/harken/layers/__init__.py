"""Blocks of a model, each B T J -> B T J."""
