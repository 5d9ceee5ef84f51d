"""Download public corpora."""
