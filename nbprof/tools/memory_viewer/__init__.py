"""Memory viewer: all of it that is not analysis."""
