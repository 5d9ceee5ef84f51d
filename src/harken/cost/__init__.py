"""What a model costs, before any tensor of it is made: work, memory, depth, time.

A model is built on the meta device and its forward pass is followed on sizes alone (`tape.py`), one
kind of layer after the other (`operations.py`, `attention.py`, `layers.py`, `models.py`). Sizes are
expressions in T, J, k, L (`expression.py`), so one walk gives formulas and numbers alike.
"""
