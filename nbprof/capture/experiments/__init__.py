"""Experiments: a recorded program runs again with a change, in turns with itself as it is, and
everything is put back.

An experiment is declared in one module of this package and listed in `register`. The engine runs
it, compares results, and measures the gain.
"""
