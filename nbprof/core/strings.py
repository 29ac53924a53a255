"""Text columns of Python strings while nbprof computes.

If pyarrow is installed, pandas 3 stores text in Arrow arrays. These are faster for long columns,
but the many short ones of a profile take up to half as long again. Both have the dtype `str`, and
frames of both kinds work together.
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
    """Text columns created in the block have Python strings.

    The option of pandas applies to all threads, so the last thread to leave a block restores it.
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
