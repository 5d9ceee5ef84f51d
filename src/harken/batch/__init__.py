"""Batches of token ids and features. Special tokens are arguments, so no vocabulary is needed."""
