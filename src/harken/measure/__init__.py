"""Metrics with intervals and paired tests."""
