"""Examples to numbers."""
