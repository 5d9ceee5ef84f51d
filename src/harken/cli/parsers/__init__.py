"""Options and help texts of the commands: `train_options` for `train`, with its summary.

These modules import nothing heavy, so that `--help` and error messages appear at once.
"""
