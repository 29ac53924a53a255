"""Python's garbage collector, while nbprof imports, reads and computes.

What nbprof creates is freed by its reference counts, but the number of new objects makes Python
scan all objects of the process for cycles, again and again: in a kernel with a framework, each scan
takes a tenth of a second and more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No automatic collection in the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """No automatic collection while modules are imported in the block, nor right after it: objects
    of modules live as long as the process.
    """
    with collection_paused():
        yield
        if not gc.get_freeze_count():
            # Moves what is young to the oldest generation, without a scan: modules, and at most the
            # last few thousand objects from before.
            gc.freeze()
            gc.unfreeze()
