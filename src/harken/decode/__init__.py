"""Decoding: greedy search, beam search, sampling, CTC, and joint CTC and attention search."""
