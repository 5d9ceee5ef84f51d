"""Quantitative statements of course documents: predicted values against measured values."""
