"""Whole models: batches of numbers in, scores out. They know nothing of files, losses or search."""
