"""Reads files of msprof, Ascend's profiler."""
