"""Files that hold tables."""
