"""Reads many hosts side by side: some files a task, on processes of this machine, an executor of
any kind, or a Dask cluster.

A file that cannot be read is missing from the run, which says so; it is no error for the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from pickle import PicklingError
from typing import Any

from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import Missing, RunFiles, some
from nbprof.core.units import duration_text, size_text
from nbprof.core.version import __version__
from nbprof.formats.register import by_name
from nbprof.run.partial import PartialError
from nbprof.run.processes import Processes, WorkerEndedError
from nbprof.run.progress import shown

Workers = Any
"""A `concurrent.futures.Executor`, a `dask.distributed.Client`, or how many processes of this
machine.
"""

MANY = 8
"""Runs of more files than this are read by several processes where nobody says how."""

_TELL_S = 0.25
_MOST_TOGETHER = 16
_MOST_BYTES = 32 << 20
"""Of files of so many bytes, what a group costs beside them is lost in what they cost; larger ones
would only need more memory.
"""
_TASKS, _SLOW_TASKS = 2, 4
"""How many groups each worker has at least. What a group costs beside its files is a few of them,
but not where one takes long to read.
"""
_WORKERS = 32
"""Of executors that somebody gives nobody says how many workers they have: fewer only have more to
do.
"""


Group = tuple[int, ...]
"""Files that are read together, by their numbers: what they cost beside their bytes is paid
once.
"""

How = tuple[Any, ...]
"""What `many.partial` takes beside files."""


def groups(files: RunFiles, workers: Workers | None) -> list[Group]:
    """The files of a run in groups of neighbours, several for each worker, so that none is long at
    work when all others are done.

    Raises
    ------
    NbprofError
        It is no number of workers.
    """
    if isinstance(workers, int) and workers < 1:
        raise NbprofError(f"executor= takes a number of processes of 1 or more, not {workers}.")
    tasks = _SLOW_TASKS if by_name(files.format).slow else _TASKS
    several = tasks * (
        workers if isinstance(workers, int) else _cores() if workers is None else _WORKERS
    )
    most = max(1, min(_MOST_TOGETHER, len(files.files) // several))
    out: list[list[int]] = []
    together = 0
    for number, file in enumerate(files.files):
        size = file.size or 0
        if not out or len(out[-1]) == most or together + size > _MOST_BYTES:
            out.append([])
            together = 0
        out[-1].append(number)
        together += size
    return [tuple(group) for group in out]


def read(
    files: RunFiles,
    together: Sequence[Group],
    how: How,
    readers: Readers,
    progress: Callable[[str], None] | None,
) -> tuple[dict[Group, bytes], list[Missing]]:
    """The partials of some groups of files, and the files that could not be read; what was asked
    for `ahead` is not read again.

    Where a group cannot be read, its files are read one by one.

    Raises
    ------
    ReadError
        None could be read: what was wrong with the first.
    NbprofError
        The workers have no nbprof, or another version.
    """
    sizes = {number: files.files[number].size or 0 for group in together for number in group}
    done: dict[Group, bytes] = {}
    missing: dict[int, Missing] = {}
    errors: dict[int, Exception] = {}
    began = told = time.perf_counter()
    with shown(progress) as tell, readers.executor(len(files.files)) as executor:
        asked = readers.expected(together, how) or _asked(executor, files, together, how)
        waiting = set(asked)
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    group = asked[future]
                    try:
                        done[group] = future.result()
                    except (ReadError, MemoryError, WorkerEndedError) as error:
                        if len(group) > 1:
                            more = _asked(executor, files, [(number,) for number in group], how)
                            asked |= more
                            waiting |= set(more)
                            continue
                        errors[group[0]] = error
                        missing[group[0]] = Missing(files.files[group[0]].name, _reason(error))
                now = time.perf_counter()
                if tell is not None and (now - told > _TELL_S or not waiting):
                    told = now
                    tell(
                        _progress(
                            [*missing, *(number for group in done for number in group)],
                            sizes,
                            now - began,
                        )
                    )
        except Exception as error:
            if (sentence := _of_workers(error)) is not None:
                raise sentence from error
            raise
        finally:
            # Nobody waits for the rest, also in an executor that somebody else goes on with.
            for future in waiting:
                future.cancel()
    if not done and errors:
        raise errors[min(errors)]
    return dict(sorted(done.items())), [missing[number] for number in sorted(missing)]


def ahead(files: RunFiles, together: Sequence[Group], how: How, readers: Readers) -> None:
    """Have workers read what will be asked for next, while this process goes on with what it has.

    One process alone does not: it would only wait here instead of then.
    """
    with readers.executor(len(files.files)) as executor:
        if not isinstance(executor, _Here):
            readers.expect(together, how, _asked(executor, files, together, how))


def _asked(
    executor: Executor, files: RunFiles, together: Sequence[Group], how: How
) -> dict[Future[bytes], Group]:
    return {
        executor.submit(hosts, __version__, some(files, group), *how): group for group in together
    }


def hosts(version: str, files: RunFiles, *how: Any) -> bytes:
    """What some hosts leave of their files. Runs in a worker.

    Raises
    ------
    ReadError
    PartialError
        The worker has another version of nbprof.
    """
    if version != __version__:
        raise PartialError(
            f"a worker has nbprof {__version__}, but the process that asked it has {version}:"
            " install the same version in both."
        )
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


class Readers:
    """Who reads the files of a run, pass after pass.

    Processes of our own are kept from one pass to the next: to start them takes as long as reading
    some hosts. They end when they have nothing to do, or with `close`.

    Parameters
    ----------
    workers : Workers, optional
        As many processes as there are cores when left out.
    """

    def __init__(self, workers: Workers | None) -> None:
        self._workers = workers
        self._own: Executor | None = None
        self._expected: list[tuple[list[Group], How, dict[Future[bytes], Group]]] = []

    def expect(
        self, together: Sequence[Group], how: How, asked: dict[Future[bytes], Group]
    ) -> None:
        """Keeps what was asked for ahead until somebody waits for it."""
        self._expected.append((list(together), how, asked))

    def expected(self, together: Sequence[Group], how: How) -> dict[Future[bytes], Group] | None:
        """What was asked for ahead, once; None if it was not."""
        for at, (groups, known, asked) in enumerate(self._expected):
            if groups == list(together) and known == how:
                del self._expected[at]
                return asked
        return None

    @contextmanager
    def executor(self, files: int) -> Iterator[Executor]:
        """The executor that somebody gave, which stays open, or our own, which does not outlive an
        error.
        """
        workers = self._workers
        if workers is None or (isinstance(workers, int) and not isinstance(workers, bool)):
            if self._own is None:
                count = min(workers if workers is not None else _cores(), files)
                self._own = Processes(count) if count > 1 else _Here()
            try:
                yield self._own
            except BaseException:
                self.close(wait=True)
                raise
            return
        made = getattr(workers, "get_executor", None)
        given = made(pure=False) if made is not None else workers
        if not callable(getattr(given, "submit", None)):
            what = (
                "a concurrent.futures.Executor, a dask.distributed.Client or a number of processes"
            )
            raise NbprofError(f"executor= takes {what}, not {type(workers).__name__}.")
        yield given

    def close(self, *, wait: bool = False) -> None:
        """Ends our own processes, whatever they are at, and wants nothing more of those of
        others.
        """
        while self._expected:
            for future in self._expected.pop()[-1]:
                future.cancel()
        if self._own is not None:
            self._own.shutdown(wait=wait, cancel_futures=True)
            self._own = None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _reason(error: BaseException) -> str:
    if isinstance(error, ReadError):
        return error.reason
    return (
        "there was not enough memory to read it." if isinstance(error, MemoryError) else str(error)
    )


def _of_workers(error: Exception) -> NbprofError | None:
    """What went wrong with the workers, in a sentence; None for what is no fault of theirs."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "nbprof":
        return NbprofError(
            f"a worker has no nbprof ({error}): install version {__version__} there."
        )
    old = isinstance(error, AttributeError) and "nbprof" in str(error) and "attribute" in str(error)
    if isinstance(error, ImportError) or old:
        return NbprofError(
            f"a worker cannot run nbprof {__version__} ({error}): install this version and its"
            " dependencies there."
        )
    if isinstance(error, (PicklingError, TypeError)) and "pickle" in str(error):
        return NbprofError(f"the files could not be sent to a worker: {error}")
    return None


def _progress(done: Sequence[int], sizes: Mapping[int, int], seconds: float) -> str:
    """`reading hosts: 12 of 64, 20 MiB of 104 MiB, 4 s left`."""
    read, whole = sum(sizes[number] for number in done), sum(sizes.values())
    left = seconds * (whole - read) / read if read else 0.0
    if len(done) == len(sizes):
        return f"{len(sizes):,} hosts read in {duration_text(seconds)}" + (
            f", {size_text(whole)}" if whole else ""
        )
    text = f"reading hosts: {len(done):,} of {len(sizes):,}"
    if whole:
        text += f", {size_text(read)} of {size_text(whole)}"
    return text + (f", {duration_text(left, 0)} left" if 0 < read < whole else "")
