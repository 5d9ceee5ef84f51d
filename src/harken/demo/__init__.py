"""Whole experiments on people who never lived: one command each, from data to a page."""
