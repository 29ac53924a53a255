"""Let PyTorch's own threads finish with Python before the interpreter goes.

A thread of Gloo runs the collectives of a rank and drops each when it is done, by which time the
rank may have gone on. With one that began in a backward pass it drops the `contextvars.Context`
that ``Tensor.backward`` leaves to threads (``torch.autograd.graph``), for which it needs the GIL.
Once the interpreter is ending, Python ends a thread that asks for the GIL; that unwinds through a
destructor, and the process aborts with ``terminate called without an active exception`` after all
its work is done. It happens without a profiler too, on a busy machine, and after
``destroy_process_group``, as a model that is distributed keeps the threads
(https://github.com/pytorch/pytorch/issues/190489).
"""

from __future__ import annotations

import atexit
import contextvars
import gc
import time
import weakref

LIMIT_S = 1.0
"""How long the end of the process may wait; other libraries may hold a context, too."""


def wait_at_exit() -> None:
    """Wait at exit until the contexts that PyTorch's threads hold are dropped; idempotent."""
    atexit.unregister(_wait)
    atexit.register(_wait)


def _wait() -> None:
    # Run in a copy of the context, so that Python refers to that of this thread.
    held = contextvars.copy_context().run(_held)
    end = time.monotonic() + LIMIT_S
    while any(ref() is not None for ref in held) and time.monotonic() < end:
        # This thread leaves the GIL to others while it sleeps.
        time.sleep(0.001)


def _held() -> list[weakref.ref[contextvars.Context]]:
    """The contexts that no object of Python refers to: native code holds them."""
    contexts = [weakref.ref(each) for each in gc.get_objects() if type(each) is contextvars.Context]
    return [ref for ref in contexts if not gc.get_referrers(ref())]
