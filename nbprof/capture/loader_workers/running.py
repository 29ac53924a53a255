"""Records a worker of a DataLoader that ran before the recording began.

The next request that the loader sends to the worker is pickled so that the worker, as it unpickles
it, begins to record itself. The request arrives as it is.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from nbprof.capture.loader_workers.entry import LOOP, MODULE
from nbprof.capture.loader_workers.folder import Folder

_RESTORE = (
    "__import__('nbprof.capture.loader_workers.running', fromlist=['received'])"
    ".received(request, *about)"
    " if __import__('importlib.util', fromlist=['util']).find_spec('nbprof') else request"
)
"""A worker that finds no nbprof would be lost with its request, so it does not even look for this
module.
"""
_DEEPEST = 20


class About(NamedTuple):
    """The recording that a worker reports to.

    Attributes
    ----------
    folder : str
    loader : int
        Number of the loader in the recording.
    samples : bool
        Whether to sample the stack.
    """

    folder: str
    loader: int
    samples: bool


class _Request:
    """A request on its way to a worker."""

    def __init__(self, request: Any, about: About) -> None:
        self._request, self._about = request, about

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (_RESTORE, {"request": self._request, "about": tuple(self._about)})


def reach(queue: Any, about: About) -> Callable[[], None]:
    """Send the recording along with the next request that is put into the queue of a worker.

    Returns
    -------
    callable
        Leaves the queue as it was, if nothing has been put into it since.
    """
    original = queue.put

    def put(request: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        leave()
        # The final signal is for the loop of the worker alone.
        sent = request if request is None else _Request(request, about)
        return original(sent, *args, **kwargs)

    def leave() -> None:
        if vars(queue).get("put") is put:
            del queue.put

    queue.put = put
    return leave


def received(request: Any, *about: Any) -> Any:
    """In the worker: begin to record it. Returns the request."""
    with contextlib.suppress(Exception):
        _record(About(*about))
    return request


def _record(about: About) -> None:
    from nbprof.capture.loader_workers.loader_worker import LoaderWorker

    frame = _frame_of_loop()
    if frame is None:
        return
    values = frame.f_locals
    folder = Folder(Path(about.folder))
    worker = values.get("worker_id", -1)
    # It did not start in the recording, so it took no time to.
    recorder = LoaderWorker(folder, about.loader, worker, time.time_ns(), about.samples)
    recorder.hook(values.get("index_queue"), values.get("data_queue"), ends=True)
    recorder.watch(values.get("fetcher"), values.get("dataset"))
    recorder.ready()
    recorder.start()


def _frame_of_loop() -> FrameType | None:
    """The frame of PyTorch's loop that waits for this request."""
    frame: FrameType | None = sys._getframe()
    for _ in range(_DEEPEST):
        if frame is None:
            break
        if frame.f_code.co_name == LOOP and frame.f_globals.get("__name__") == MODULE:
            return frame
        frame = frame.f_back
    return None
