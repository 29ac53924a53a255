"""Columns of text in Python's own strings while nbprof computes.

Where pyarrow is installed, pandas 3 stores text in Arrow's. That pays for long columns; ours are
short and many, and the analysis of a profile takes up to half as long again. Both are the dtype
`str`, and a frame of one kind works with frames of the other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OPTION = "mode.string_storage"
_lock = threading.Lock()
_within = 0
_before = ""


@contextmanager
def python_strings() -> Iterator[None]:
    """What is made inside has Python's strings. The option is pandas' own, for all threads: the
    last one out puts it back.
    """
    import pandas as pd  # not by those who only look for files

    global _within, _before
    with _lock:
        if not _within:
            _before = pd.get_option(_OPTION)
            pd.set_option(_OPTION, "python")
        _within += 1
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if not _within:
                pd.set_option(_OPTION, _before)
