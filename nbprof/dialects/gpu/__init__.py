"""What do recordings of GPUs have in common? Calls, launched device work, ops, steps."""
