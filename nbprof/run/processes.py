"""An executor of processes of this machine that works wherever nbprof does.

`ProcessPoolExecutor` either forks, which fails in processes with threads of TensorFlow or CUDA, or
imports the caller's main module again, which restarts scripts without a guard. These processes only
import nbprof. Ctrl-C in a terminal does not reach them; they end after a while without work, or
with the process that started them, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from nbprof.core.errors import NbprofError

T = TypeVar("T")

IDLE_S = 20.0
"""A process ends after this time without work; users request the next view sooner."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from nbprof.run.processes import"
    " main; main()"
)
_LENGTH = struct.Struct("<Q")


class WorkerEndedError(NbprofError):
    """A process ended twice before it gave a result: it was killed, or ran out of memory."""

    def __init__(self) -> None:
        super().__init__(
            "the process that read it ended twice: it was killed, or ran out of memory. Use fewer"
            " processes: executor=1."
        )


class _Task(NamedTuple):
    future: Future[Any]
    request: bytes


class Processes(Executor):
    """Runs functions in processes; if a process ends before it has a result, it is tried once more.

    Parameters
    ----------
    count : int
        Number of processes.
    idle_s : float
        A process ends after this time without work; another is started when it is needed.
    """

    def __init__(self, count: int, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = False
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._threads = [
            threading.Thread(target=self._work, args=(i,), name=f"nbprof process {i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Calls a function in a process, which must be able to import it."""
        if self._closed:
            raise RuntimeError("the processes were ended")
        future: Future[T] = Future()
        self._tasks.put(_Task(future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes when they are done; with `cancel_futures`, at once."""
        self._closed = True
        if cancel_futures:
            with contextlib.suppress(queue.Empty):
                while (task := self._tasks.get_nowait()) is not None:
                    task.future.cancel()
            for process in list(self._running.values()):
                process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self, number: int) -> None:
        try:
            while (task := self._next(number)) is not None:
                if task.future.set_running_or_notify_cancel():
                    self._run(number, task)
        finally:
            self._end(number)

    def _next(self, number: int) -> _Task | None:
        if number in self._running:
            with contextlib.suppress(queue.Empty):
                return self._tasks.get(timeout=self._idle_s)
            self._end(number)
        return self._tasks.get()

    def _run(self, number: int, task: _Task) -> None:
        for _ in range(2):
            if self._closed and number not in self._running:
                break
            try:
                answer = self._answer(number, task.request)
            except (OSError, EOFError):
                self._end(number)
                continue
            succeeded, value = pickle.loads(answer)  # noqa: S301 -- of a process of our own
            if succeeded:
                task.future.set_result(value)
            else:
                task.future.set_exception(value)
            return
        task.future.set_exception(WorkerEndedError())

    def _answer(self, number: int, request: bytes) -> bytes:
        process = self._running.get(number)
        if process is None:
            process = self._running[number] = _start()
        _send(cast(BinaryIO, process.stdin), request)
        return _receive(cast(BinaryIO, process.stdout))

    def _end(self, number: int) -> None:
        process = self._running.pop(number, None)
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close() if process.stdin else None
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def _start() -> subprocess.Popen[bytes]:
    folders = [os.path.abspath(folder) for folder in sys.path]  # noqa: PTH100 -- also of ""
    command = [sys.executable, "-c", _START, json.dumps(folders)]
    return subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )  # noqa: RUF100, S603


def _send(pipe: BinaryIO, data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> bytes:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


def main() -> None:
    """Answers requests until there are no more: the main function of a process."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Printed text must not mix with the answers.
    os.dup2(2, 1)
    while True:
        try:
            request = _receive(requests)
        except EOFError:
            return
        try:
            # Sent by the process that started this one.
            function, args, kwargs = pickle.loads(request)  # noqa: S301
            answer = pickle.dumps((True, function(*args, **kwargs)))
        except BaseException as error:
            answer = _pickled_error(error)
        try:
            _send(answers, answer)
        except OSError:
            return


def _pickled_error(error: BaseException) -> bytes:
    with contextlib.suppress(Exception):
        answer = pickle.dumps((False, error))
        # Some errors can be pickled but not unpickled.
        pickle.loads(answer)  # noqa: S301
        return answer
    return pickle.dumps((False, NbprofError(f"{type(error).__name__}: {error}")))
