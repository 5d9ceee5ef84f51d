"""Statements of course documents that have a formula, executed: predicted against measured."""
