"""Sequences to numbers, each with its interval."""
