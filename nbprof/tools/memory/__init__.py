"""Memory: all of it that is not analysis."""
