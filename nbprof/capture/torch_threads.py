"""Find threads that run PyTorch but that its profiler does not record.

With allocations, PyTorch records the thread that starts its profiler, and the backward passes of
that. Other threads leave no op, so their stacks are inspected several times a second.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from types import FrameType

from nbprof.frameworks.register import PYTORCH

LOOK_S = 0.05
"""Seconds between two inspections."""

_STARTS_THREADS = re.compile(
    r"\b(?:threading|Thread|ThreadPoolExecutor|ThreadPool|to_thread|run_in_executor)\b"
)
_NO_WORK = ("torch._inductor", "torch.utils.data", "torch.multiprocessing", "torch.distributed")
"""Modules whose threads load data, compile or keep watch."""
_MAX_DEPTH = 200


def starts_threads(source: str) -> bool:
    """Return whether the code of a cell mentions threads."""
    return _STARTS_THREADS.search(re.sub(r"#.*", "", source)) is not None


class OtherThreads:
    """Inspects the threads of a process other than the recorded one.

    Parameters
    ----------
    recorded : int
        `threading.get_ident()` of the thread that is recorded.
    """

    def __init__(self, recorded: int) -> None:
        self._recorded = recorded
        self._names: dict[int, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nbprof-threads", daemon=True)

    def start(self) -> OtherThreads:
        """Begin to look."""
        # A process that has no thread left to start is recorded without.
        with contextlib.suppress(RuntimeError):
            self._thread.start()
        return self

    def stop(self) -> list[str]:
        """End; returns the names of threads that ran PyTorch."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        return list(dict.fromkeys(self._names.values()))

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            with contextlib.suppress(RuntimeError):
                self._look()

    def _look(self) -> None:
        alive = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            other = (
                ident in alive
                and ident not in (self._recorded, self._thread.ident)
                and ident not in self._names
            )
            if other and _runs_torch(frame):
                self._names[ident] = alive[ident]


def _runs_torch(frame: FrameType | None) -> bool:
    """Return whether a thread is in code of PyTorch that computes."""
    in_torch = False
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_NO_WORK):
            return False
        in_torch = in_torch or module.partition(".")[0] == PYTORCH.recorder.module
        frame = frame.f_back
    return in_torch
