"""Unrecorded processes that the recorded code started and only waited for."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

_OWN, _WITH = 0.2, 0.5
"""It waited if this process used at most the one share of a core, and a process that it had started
was there for at least the other share of the time.
"""
_LEAST_S = 0.5
_LONGEST = 80
_HELPERS = ("multiprocessing.", "concurrent.futures.", "torch.utils.data.", "joblib.", "loky.")
"""Packages whose processes work for calls of this one: pools, workers of loaders, managers."""


def works_alone(process: Any) -> bool:
    """Return whether a new process of `multiprocessing` does other work than calls of this one.

    It must not have started, as it forgets its function then.
    """
    target = getattr(process, "_target", None) or type(process).run
    module = str(getattr(target, "__module__", "") or "")
    return not process.daemon and not f"{module}.".startswith(_HELPERS)


class ChildProcesses:
    """The processes that this one starts from now on; known on Linux alone."""

    def __init__(self) -> None:
        self._before = _children()
        self._began, self._cpu = time.monotonic(), _cpu_s()
        self._names: dict[int, str] = {}
        self._looks = self._with = 0

    def look(self) -> None:
        """Note those that run now. Never raises."""
        with contextlib.suppress(Exception):
            self._look()

    def _look(self) -> None:
        there = _children() - self._before
        started = _of_multiprocessing()
        names = {pid: started[pid] if pid in started else _command(pid) for pid in there}
        named = {pid: name for pid, name in names.items() if name}
        self._names |= named
        self._looks += 1
        self._with += bool(named)

    def waited_for(self) -> list[str]:
        """The names of those that it waited for until they ended, if that took most of the time."""
        waited = self._looks and self._with >= _WITH * self._looks
        if not waited or not self._idle():
            return []
        running = _children()
        return list(dict.fromkeys(n for pid, n in self._names.items() if pid not in running))

    def waited_with_ray(self) -> bool:
        """Return whether this process only waited, and has a cluster of Ray, which starts its
        workers by a program of its own.
        """
        ray = sys.modules.get("ray")
        return ray is not None and self._idle() and bool(ray.is_initialized())

    def _idle(self) -> bool:
        passed = time.monotonic() - self._began
        return passed >= _LEAST_S and _cpu_s() - self._cpu <= _OWN * passed


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def _children() -> set[int]:
    children: set[int] = set()
    with contextlib.suppress(OSError, ValueError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                children |= set(map(int, (thread / "children").read_text().split()))
    return children


def _of_multiprocessing() -> dict[int, str]:
    """The names of the running processes of `multiprocessing` by their numbers; "" for a helper."""
    module = sys.modules.get("multiprocessing.process")
    names = {}
    for process in list(getattr(module, "_children", ())):
        names[process.pid] = "" if process.daemon else str(process.name)
    executors = sys.modules.get("concurrent.futures.process")
    for thread in list(getattr(executors, "_threads_wakeups", ())):
        names |= dict.fromkeys(list(getattr(thread, "processes", None) or ()), "")
    return names


def _command(pid: int) -> str:
    """The command line of a process; "" for a helper, or one that has ended."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
        this_program = Path("/proc/self/cmdline").read_text(errors="replace").split("\0")[:-1]
        text = " ".join(words)
        if not words or words == this_program or "multiprocessing" in text or "loky" in text:
            return ""
        if len(words) > 2 and words[1] == "-c" and Path(words[0]).name in ("sh", "bash", "zsh"):
            text = words[2]
        else:
            text = " ".join([Path(words[0]).name, *words[1:]])
        text = " ".join(text.split())
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return ""
