"""The command line: one file a command. Only `run` functions import what computes."""
