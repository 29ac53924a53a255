"""Other profilers of Python calls, which a recorder replaces, and which are restored at its end.

Python has one function at a time for ``sys.setprofile`` (and one for new threads), and one tool at
a time for each id of ``sys.monitoring``. PyTorch and JAX set theirs without keeping what was there,
and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nbprof.capture import notes
from nbprof.core.receipt import Note

_TOOLS = range(6)


class _Tool(NamedTuple):
    """A tool of ``sys.monitoring``: its name, its events, and its callback for each."""

    name: str
    events: int
    callbacks: dict[int, Callable[..., Any]]


class OtherProfilers:
    """The profilers of Python calls on this thread as they are now, before a recorder is started.

    Parameters
    ----------
    displaced : bool
        Whether the recorder records Python calls; one that does not leaves them alone, and nothing
        is looked at.
    """

    def __init__(self, *, displaced: bool) -> None:
        self._thread = threading.get_ident()
        self._profile: Any = None
        self._of_threads: Any = None
        self._tools: dict[int, _Tool] = {}
        if displaced:
            self._profile, self._of_threads = sys.getprofile(), _of_threads()
            self._tools = _tools()
        self._displaced: set[int] = set()

    def started(self) -> None:
        """The recorder runs: see which tools of `sys.monitoring` it has displaced."""
        now = self._tools_now()
        self._displaced = set()
        for number, tool in self._tools.items():
            if now.get(number) != tool:
                self._displaced.add(number)

    @contextlib.contextmanager
    def given_back(self, received: list[Note], hidden: bool = False) -> Iterator[None]:
        """Restore replaced profilers when the recorder ends; `received` gets a note about it.

        A profiler that the program ended meanwhile stays ended, unless the recorder is `hidden`:
        Python does not show that of JAX.
        """
        on_thread = threading.get_ident() == self._thread
        profiled = on_thread and (hidden or sys.getprofile() is not None)
        of_threads = hidden or _of_threads() is not None
        still = set(self._tools_now())
        try:
            yield
        finally:
            names: list[str] = []
            with contextlib.suppress(Exception):
                if profiled and self._profile is not None and sys.getprofile() is None:
                    _set_again(self._profile)
                    names.append(_name(self._profile))
                if of_threads and self._of_threads is not None and _of_threads() is None:
                    threading.setprofile(self._of_threads)
                names += self._tools_again(still)
            if names:
                received.append(notes.profiler_suspended(names))

    def _tools_now(self) -> dict[int, _Tool]:
        """The present tools; not looked for if there were none before."""
        if not self._tools:
            return {}
        return _tools()

    def _tools_again(self, still: set[int]) -> list[str]:
        """Give tools back that were displaced, or went with the recorder; their names."""
        names: list[str] = []
        now = self._tools_now()
        for number, tool in self._tools.items():
            ended = number not in still and number not in self._displaced
            replaced = number in now and now[number].name != tool.name
            if ended or replaced or now.get(number) == tool:
                continue
            monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
            if number not in now:
                monitoring.use_tool_id(number, tool.name)
            for event, callback in tool.callbacks.items():
                monitoring.register_callback(number, event, callback)
            monitoring.set_events(number, tool.events)
            names.append(tool.name)
        return names


def _of_threads() -> Any:
    """The argument of `threading.setprofile`."""
    getprofile = getattr(threading, "getprofile", lambda: None)
    return getprofile()


def _set_again(profile: Any) -> None:
    # A profiler written in C, such as cProfile, is not a function: it sets itself.
    if not callable(profile) and hasattr(profile, "enable"):
        profile.enable()
    else:
        sys.setprofile(profile)


def _name(profile: Any) -> str:
    kind = type(profile)
    name = getattr(profile, "__qualname__", "") or f"{kind.__module__}.{kind.__qualname__}"
    return str(name)


def _tools() -> dict[int, _Tool]:
    """The tools of `sys.monitoring`, by their ids; none before Python 3.12."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return {}
    result = {}
    for number in _TOOLS:
        name = monitoring.get_tool(number)
        if name is None or name == "nbprof":
            continue
        callbacks = {}
        for bit in range(20):
            event = 1 << bit
            # Only by setting another one does Python say which there is.
            with contextlib.suppress(ValueError):
                callback = monitoring.register_callback(number, event, None)
                monitoring.register_callback(number, event, callback)
                if callback is not None:
                    callbacks[event] = callback
        result[number] = _Tool(name, monitoring.get_events(number), callbacks)
    return result
