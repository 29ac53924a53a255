"""What makes a leading step one of the warm-up, for the analysis and while a cell is recorded."""

WARMUP_FACTOR = 4.0
"""A leading step that takes this many times the median of the others compiles or warms up."""
MOST_WARMUP = 3
"""Leading steps that may be warm-up."""
FOLLOWING = 4
"""With fewer steps behind it, a step is compared with each of them rather than with their median.
"""
FEW_FACTOR, ALIKE = 2.0, 1.25
"""What a first step must take of the longest of these to be warm-up if they are alike, within so
much of each other.
"""
