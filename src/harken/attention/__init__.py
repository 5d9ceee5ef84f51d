"""Attention as one thing with choices: who may look (masks), how alike two tokens are (scores),
where they stand (positions), how values are mixed (attend), and k of these side by side
(multihead).
"""
