"""Options and help texts of the commands. PyTorch is not imported, so that `--help` is fast."""
