"""Sound files -> samples."""
