"""Reads many hosts side by side: one file a task, on processes of this machine, an executor of any kind, or a Dask cluster.

A file that cannot be read is missing from the run, which says so; it is no error for the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pickle import PicklingError
from typing import Any

from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import RunFiles, alone, size_text
from nbprof.core.version import __version__
from nbprof.run.partial import PartialError
from nbprof.run.processes import Processes, WorkerEndedError

Workers = Any
"""A `concurrent.futures.Executor`, a `dask.distributed.Client`, or how many processes of this machine."""

MANY = 8
"""Runs of more files than this are read by several processes where nobody says how."""

_TELL_S = 0.25


@dataclass(frozen=True)
class Missing:
    """A file that is not in the run: its name, and why."""

    file: str
    reason: str


def read(
    files: RunFiles,
    numbers: Sequence[int],
    how: tuple[Any, ...],
    workers: Workers | None,
    progress: Callable[[str], None] | None,
) -> tuple[dict[int, bytes], list[Missing]]:
    """The partials of some files by their numbers, and those that could not be read; `how` is what `many.partial` takes beside a file.

    Raises
    ------
    ReadError
        None could be read: what was wrong with the first.
    NbprofError
        The workers have no nbprof, or another version.
    """
    sizes = [files.files[number].size or 0 for number in numbers]
    done: list[bytes | Missing | None] = [None] * len(sizes)
    first: Exception | None = None
    began = told = time.perf_counter()
    with _executor(workers, len(sizes)) as executor:
        futures = {executor.submit(host, __version__, alone(files, number), *how): at for at, number in enumerate(numbers)}
        waiting: set[Future[bytes]] = set(futures)
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    at = futures[future]
                    try:
                        done[at] = future.result()
                    except (ReadError, MemoryError, WorkerEndedError) as error:
                        first = first or error
                        done[at] = Missing(files.files[numbers[at]].name, _reason(error))
                now = time.perf_counter()
                if progress is not None and (now - told > _TELL_S or not waiting):
                    told = now
                    progress(_progress([one is not None for one in done], sizes, now - began))
        except Exception as error:
            raise _of_workers(error) from error
        finally:
            # Nobody waits for the rest, also in an executor that somebody else goes on with.
            for future in waiting:
                future.cancel()
    parts = {number: one for number, one in zip(numbers, done, strict=True) if isinstance(one, bytes)}
    if not parts and first is not None:
        raise first
    return parts, [one for one in done if isinstance(one, Missing)]


def host(version: str, files: RunFiles, *how: Any) -> bytes:
    """What one host leaves of its file. Runs in a worker.

    Raises
    ------
    ReadError
    PartialError
        The worker has another version of nbprof.
    """
    if version != __version__:
        raise PartialError(f"a worker has nbprof {__version__}, and {version} asked it: install the same version in both.")
    from nbprof.run import many

    return many.partial(files, *how)


class _Here(Executor):
    """The process itself, one task after the other."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _executor(workers: Workers | None, tasks: int) -> Iterator[Executor]:
    """The executor that somebody gave, which stays open, or one of our own, which ends with the block."""
    if workers is None or (isinstance(workers, int) and not isinstance(workers, bool)):
        count = min(workers if workers is not None else _cores(), tasks)
        if count < 1:
            raise NbprofError(f"executor= takes a number of processes of 1 or more, not {workers}.")
        own = Processes(count) if count > 1 else _Here()
        try:
            yield own
        except BaseException:
            own.shutdown(wait=True, cancel_futures=True)
            raise
        own.shutdown()
        return
    made = getattr(workers, "get_executor", None)
    given = made(pure=False) if made is not None else workers
    if not callable(getattr(given, "submit", None)):
        what = "a concurrent.futures.Executor, a dask.distributed.Client or a number of processes"
        raise NbprofError(f"executor= takes {what}, not {type(workers).__name__}.")
    yield given


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _reason(error: BaseException) -> str:
    if isinstance(error, ReadError):
        return error.reason
    return "there was not enough memory to read it." if isinstance(error, MemoryError) else str(error)


def _of_workers(error: Exception) -> Exception:
    """What went wrong with the workers, in a sentence."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "nbprof":
        return NbprofError(f"a worker has no nbprof ({error}): install version {__version__} there.")
    if isinstance(error, (PicklingError, TypeError)) and "pickle" in str(error):
        return NbprofError(f"the files could not be handed to a worker: {error}")
    return error


def _progress(done: list[bool], sizes: list[int], seconds: float) -> str:
    """`reading hosts: 12 of 64, 20 MiB of 104 MiB, 4 s left`."""
    read, whole = sum(size for size, ready in zip(sizes, done, strict=True) if ready), sum(sizes)
    left = seconds * (whole - read) / read if read else 0.0
    text = f"reading hosts: {sum(done):,} of {len(done):,}"
    if whole:
        text += f", {size_text(read)} of {size_text(whole)}"
    return text + (f", {left:.0f} s left" if 0 < read < whole else "")
