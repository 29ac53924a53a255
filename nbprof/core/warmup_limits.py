"""Limits by which leading steps are warm-up, for the analysis and while a cell is recorded."""

WARMUP_FACTOR = 4.0
"""A leading step that takes this many times the median of the others compiles or warms up."""
MOST_WARMUP = 3
"""Leading steps that may be warm-up."""
FOLLOWING = 4
"""With fewer steps behind it, a step is compared with each of them rather than with their median.
"""
FEW_FACTOR, ALIKE = 2.0, 1.25
"""A first step is warm-up if it takes this many times the longest of these, where they are alike:
within so much of each other.
"""
