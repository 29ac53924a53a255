"""What to change: the findings, each with its evidence and its gain."""
