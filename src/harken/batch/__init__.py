"""Numbers to batches. Special symbols come as arguments: nothing here knows a vocabulary."""
