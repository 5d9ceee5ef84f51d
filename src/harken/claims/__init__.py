"""Statements of course documents that have a formula, executed: predicted against measured.

`claim.py` defines a claim and its verdict, `formulas.py` has the equations in plain numpy and
`random_layers.py` layers with random weights. Each course document has its file (`lecture29.py`
and `lecture29_rnn.py` share one). `experiments.py` and `truncation.py` compute the figures.
"""
