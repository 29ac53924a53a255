"""Readers in C for the bytes of large files, and what calls them; none of the analysis."""
