"""How are the bytes of large files read fast? In C, by one library for every version of Python,
which knows nothing of nbprof.
"""
