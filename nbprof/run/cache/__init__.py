"""What was decoded and computed, kept on disk by the content of the files. `nbprof.cache` is the
public interface.
"""
