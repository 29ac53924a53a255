"""The bytes of large files in C: a library that is loaded where it fits; what has no sense of its
own for Python stays there.
"""
