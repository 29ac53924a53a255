"""What do the files of msprof, Ascend's profiler, say?"""
