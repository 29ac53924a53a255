"""What was compiled, how long that took, and why it was compiled again."""
