"""How a page asks this kernel: the comm target "nbprof" of saved outputs, and the thread that works
on what takes long.

A message is {"id", "request"}; its answer {"id", "ok"} with one buffer, a container of
`nbprof.display.codec`. The first request of an output is "hello" with the key of its profile. In
JupyterLab 4.6 and later a comm is answered on a thread of its own while a cell runs; so nothing
here touches a framework, and only finished columns are read.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbprof.core.quiet import quietly
from nbprof.display import codec
from nbprof.profiles import actions
from nbprof.profiles.live import registry
from nbprof.timeline import serve

if TYPE_CHECKING:
    from nbprof.run.run import Run

HELLO = "hello"
_MOST_ID = 64
_MOST_WAITING = 64
"""Requests of all outputs that wait for the thread: a view has a few in flight."""
_BUSY = "Too many requests are waiting. Try again in a moment."
_ACTIONS = (actions.REPORT, actions.RUNS, actions.COMPARE)
# What may take longer than a user waits for the picture to move, so that tiles need not wait for
# it.
_SLOW = {HELLO, *_ACTIONS, "search", "range", "many", "locate", "gaps", "open"}

Send = Callable[[dict[str, Any], list[bytes]], None]


def open_comm(comm: Any, message: Any) -> None:  # noqa: ARG001  what it says comes with the first request
    """An output opened a comm."""
    registry.holds = True
    visitor = Visitor(lambda data, buffers: comm.send(data, buffers=buffers))
    comm.on_msg(lambda came: visitor.receive(came["content"].get("data")))
    comm.on_close(lambda _: visitor.leave())


class Visitor:
    """One output that looks at a run. It holds only the key: a run that nobody else has goes when
    newer ones come, and is opened again.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._key: object = None
        self._files: object = None
        self._here = True

    def leave(self) -> None:
        """The output is gone; nothing is sent to it any more."""
        self._here = False

    def receive(self, message: object) -> None:
        """Answers one message; what is no request is left alone."""
        deliver(message, self._answer, self._reply, lambda: self._here)

    def _reply(self, data: dict[str, Any], buffers: list[bytes]) -> None:
        if self._here:
            self._send(data, buffers)

    def _answer(self, request: dict[str, Any]) -> bytes:
        if request.get("ask") == HELLO:
            self._key, self._files = request.get("key"), request.get("files")
            registry.open(self._key, self._files)
            return codec.contain({"ok": True, "key": self._key})
        return answer(registry.open(self._key, self._files), request)


def answer(run: Run, request: dict[str, Any]) -> bytes:
    """The answer of a run that the asking page is known to show."""
    asked = request.get("ask")
    if asked == HELLO:
        return codec.contain({"ok": True})
    return actions.reply(run, request) if asked in _ACTIONS else serve.reply(run, request)


def deliver(
    message: object,
    answer: Callable[[dict[str, Any]], bytes],
    send: Send,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Has a message answered: at once, or by the thread for what takes long, if it is still
    `wanted` then.
    """
    if not isinstance(message, dict):
        return
    ident, request = message.get("id"), message.get("request")
    if not isinstance(ident, str) or len(ident) > _MOST_ID or not isinstance(request, dict):
        return

    def reply(packed: bytes, ok: bool) -> None:
        # The page may be gone, and the kernel about to end.
        with contextlib.suppress(Exception):
            send({"id": ident, "ok": ok}, [packed])

    def work() -> None:
        if not wanted():
            return
        try:
            packed, ok = answer(request), True
        except Exception as error:
            packed, ok = codec.contain(serve.refusal(error)), False
        reply(packed, ok)

    ask = request.get("ask")
    # Nothing but a text can be looked up among the names.
    if isinstance(ask, str) and ask in _SLOW:
        if _jobs.qsize() >= _MOST_WAITING:
            reply(codec.contain({"ok": False, "error": _BUSY}), False)
        else:
            try:
                _later(work)
            except RuntimeError:
                # The process may have no more threads.
                work()
    else:
        work()


_jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_worker: threading.Thread | None = None
_starting = threading.Lock()


def _later(work: Callable[[], None]) -> None:
    global _worker
    with _starting:
        # A process that was forked has the name of the thread, but not the thread.
        if _worker is None or not _worker.is_alive():
            _worker = threading.Thread(target=_work, name="nbprof-answers", daemon=True)
            _worker.start()
    # The kernel keeps in the context which message is answered, and sends nothing without.
    context = contextvars.copy_context()
    _jobs.put(lambda: context.run(quietly, work))


def _work() -> None:
    while True:
        _jobs.get()()
