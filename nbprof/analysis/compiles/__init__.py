"""Compilations of a cell: their times, and the causes of those that happen again."""
