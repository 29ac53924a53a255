"""Tides: all of it that is not analysis."""
