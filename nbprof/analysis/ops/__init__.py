"""Time by framework op."""
