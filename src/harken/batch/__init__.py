"""Numbers to batches. Special tokens are arguments: nothing here knows a vocabulary."""
