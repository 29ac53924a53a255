"""Op profile: all of it that is not analysis."""
