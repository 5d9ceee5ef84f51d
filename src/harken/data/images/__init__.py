"""Picture files -> pixels."""
