"""Experiments on generated people, one command each, from data to report."""
