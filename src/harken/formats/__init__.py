"""Files -> examples."""
