"""HLO & roofline: all of it that is not analysis."""
