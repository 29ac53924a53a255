"""Decoded and computed values on disk, by the content of the files that they follow from.
`nbprof.cache` is the public interface.
"""
