"""Time by range that the program names."""
