"""The systems that `peers.py` compares: one file per group of rows, listed in `catalog.py`."""
