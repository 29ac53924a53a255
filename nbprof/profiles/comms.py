"""Answers requests of pages: the comm target "nbprof" of saved outputs, and a thread for slow ones.

A message is {"id", "request"}; its answer {"id", "ok"} with one buffer, a container of
`nbprof.display.codec`. Before that, {"id", "news"} may say what a long request does. The first
request of an output is "hello" with the key of its profile. In JupyterLab 4.6 and later, comms are
answered on a separate thread while a cell runs; so nothing here uses a framework, and only finished
columns are read. Experiments run a cell again, where the kernel runs cells.
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
from nbprof.profiles import actions, trials
from nbprof.profiles.live import registry
from nbprof.timeline import serve

if TYPE_CHECKING:
    from nbprof.run.run import Run

HELLO = "hello"
_MOST_ID = 64
_MOST_WAITING = 64
"""Limit on requests of all outputs that wait for the thread; a view has a few in flight."""
_BUSY = "Too many requests are waiting. Try again in a moment."
_ACTIONS = (actions.REPORT, actions.RUNS, actions.COMPARE, actions.TRY, actions.EDITED)
# Answered by the thread, so that tiles of the timeline need not wait for them.
_SLOW = {HELLO, *_ACTIONS, "search", "range", "many", "locate", "gaps", "open"}

Send = Callable[[dict[str, Any], list[bytes]], None]


def open_comm(comm: Any, message: Any) -> None:  # noqa: ARG001  the key comes with the first request
    """Called when an output opens a comm."""
    registry.holds = True
    visitor = Visitor(lambda data, buffers: comm.send(data, buffers=buffers))
    comm.on_msg(lambda received: visitor.receive(received["content"].get("data")))
    comm.on_close(lambda _: visitor.leave())


class Visitor:
    """One output that shows a run.

    It holds only the key: a run that nothing else holds is freed when newer ones are shown, and
    opened again.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._key: object = None
        self._files: object = None
        self._here = True

    def leave(self) -> None:
        """Sends nothing more, as the output is gone."""
        self._here = False

    def receive(self, message: object) -> None:
        """Answers one message, if it is a request."""
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
    """The answer of a run that the page shows."""
    kind = request.get("ask")
    if kind == HELLO:
        return codec.contain({"ok": True})
    if kind in _ACTIONS:
        return actions.reply(run, request)
    return serve.reply(run, request)


def deliver(
    message: object,
    answer: Callable[[dict[str, Any]], bytes],
    send: Send,
    is_open: Callable[[], bool] = lambda: True,
) -> None:
    """Answers a message at once or, if that is slow, by the thread, if the page `is_open` then."""
    if not isinstance(message, dict):
        return
    ident, request = message.get("id"), message.get("request")
    if not isinstance(ident, str) or len(ident) > _MOST_ID or not isinstance(request, dict):
        return

    def reply(packed: bytes, ok: bool) -> None:
        # The page may be gone, and the kernel about to end.
        with contextlib.suppress(Exception):
            send({"id": ident, "ok": ok}, [packed])

    def report(text: str) -> None:
        with contextlib.suppress(Exception):
            send({"id": ident, "news": text}, [])

    def work() -> None:
        if not is_open():
            return
        try:
            packed, ok = answer(request), True
        except Exception as error:
            packed, ok = codec.contain(serve.refusal(error)), False
        reply(packed, ok)

    ask = request.get("ask")
    if ask == actions.TRY:
        # It runs a cell again, and reports while it does.
        context = contextvars.copy_context()
        context.run(actions.tell.set, report)
        trials.on_main_thread(lambda: context.run(work))
    elif not isinstance(ask, str) or ask not in _SLOW:
        work()
    elif _jobs.qsize() >= _MOST_WAITING:
        reply(codec.contain({"ok": False, "error": _BUSY}), False)
    else:
        try:
            _later(work)
        except RuntimeError:
            # No more threads can be started.
            work()


_jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_worker: threading.Thread | None = None
_starting = threading.Lock()


def _later(work: Callable[[], None]) -> None:
    global _worker
    with _starting:
        # A forked process has a copy of the variable, but not of the thread.
        if _worker is None or not _worker.is_alive():
            _worker = threading.Thread(target=_work, name="nbprof-answers", daemon=True)
            _worker.start()
    # The kernel sends nothing without its context variable for the message being answered.
    context = contextvars.copy_context()
    _jobs.put(lambda: context.run(quietly, work))


def _work() -> None:
    while True:
        _jobs.get()()
