"""Device time: all of it that is not analysis."""
