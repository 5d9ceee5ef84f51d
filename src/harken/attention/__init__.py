"""Attention as one mechanism with choices: masks, scores, positions, kernels and heads."""
