"""Options and help texts. Nothing heavy is imported, so that `--help` is fast."""
