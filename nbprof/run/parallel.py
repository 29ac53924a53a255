"""Reads many hosts in parallel: some files per task, by processes of this machine, an executor of
any kind, or a Dask cluster.

A file that cannot be read is missing from the run, and the receipt names it; it does not affect the
others.
"""

from __future__ import annotations

import os
import sys
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
from nbprof.run.processes import Processes, WorkerEndedError

Workers = Any
"""A `concurrent.futures.Executor`, a `dask.distributed.Client`, or a number of processes."""

MANY = 8
"""By default, runs of more files than this are read by several processes."""

_PROGRESS_DELAY_S = 1.0
"""Nothing is shown for what takes less than this."""
_PROGRESS_S = 0.25
"""Seconds between two messages on progress."""
_MAX_GROUP_FILES = 16
_MAX_GROUP_BYTES = 32 << 20
"""Larger groups need more memory, and the fixed cost of a group no longer matters."""
_GROUPS_PER_WORKER, _GROUPS_PER_WORKER_IF_SLOW = 2, 4
"""More groups balance the load better; each has a fixed cost, which matters for fast formats."""
_UNKNOWN_WORKERS = 32
"""Assumed for executors of the caller, whose number of workers is unknown."""

Show = Callable[[str], None]

Group = tuple[int, ...]
"""Numbers of files that are read together, so that their fixed cost is paid once."""

Arguments = tuple[Any, ...]
"""Arguments of the function that reads a group of files, after its files."""

Asked = dict[Future[bytes], Group]
"""The groups that workers read, by future."""


def groups(files: RunFiles, workers: Workers | None) -> list[Group]:
    """The files of a run in groups of neighbours, several for each worker to balance the load.

    Raises
    ------
    NbprofError
        `workers` is not a positive number.
    """
    count = _UNKNOWN_WORKERS
    if workers is None:
        count = _cores()
    elif isinstance(workers, int):
        if workers < 1:
            raise NbprofError(f"executor= takes a number of processes of 1 or more, not {workers}.")
        count = workers
    slow = by_name(files.format).slow
    count *= _GROUPS_PER_WORKER_IF_SLOW if slow else _GROUPS_PER_WORKER
    max_files = max(1, min(_MAX_GROUP_FILES, len(files.files) // count))
    result: list[list[int]] = []
    group_bytes = 0
    for number, file in enumerate(files.files):
        size = file.size or 0
        if not result or len(result[-1]) == max_files or group_bytes + size > _MAX_GROUP_BYTES:
            result.append([])
            group_bytes = 0
        result[-1].append(number)
        group_bytes += size
    return [tuple(group) for group in result]


def read(
    files: RunFiles,
    groups: Sequence[Group],
    arguments: Arguments,
    readers: Readers,
    progress: Callable[[str], None] | None,
) -> tuple[dict[Group, bytes], list[Missing]]:
    """The partials of some groups of files, and the files that could not be read.

    Groups that were prefetched are not read again. If a group cannot be read, its files are read
    one by one.

    Raises
    ------
    ReadError
        None could be read: the error of the first file.
    NbprofError
        The workers have no nbprof, or another version.
    """
    sizes = {number: files.files[number].size or 0 for group in groups for number in group}
    partials: dict[Group, bytes] = {}
    errors: dict[int, Exception] = {}
    with _progress_shown(progress) as show, readers.executor(len(files.files)) as executor:
        asked = readers.take_prefetched(groups, arguments)
        if asked is None:
            asked = readers.submit(executor, files, groups, arguments)
        report = _Progress(show, sizes)
        waiting = set(asked)
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    group = asked[future]
                    try:
                        partials[group] = future.result()
                    except (ReadError, MemoryError, WorkerEndedError) as error:
                        if len(group) == 1:
                            errors[group[0]] = error
                            continue
                        alone = [(number,) for number in group]
                        again = readers.submit(executor, files, alone, arguments)
                        asked |= again
                        waiting |= set(again)
                done = [number for group in partials for number in group]
                report([*errors, *done], last=not waiting)
        except Exception as error:
            worker_error = _worker_error(error)
            if worker_error is not None:
                raise worker_error from error
            raise
        finally:
            # The executor may belong to the caller, and would compute what nobody waits for.
            for future in waiting:
                future.cancel()
    if not partials and errors:
        raise errors[min(errors)]
    missing = [
        Missing(files.files[number].name, _reason(errors[number])) for number in sorted(errors)
    ]
    return dict(sorted(partials.items())), missing


def ahead(files: RunFiles, groups: Sequence[Group], arguments: Arguments, readers: Readers) -> None:
    """Has workers read what will be needed next, while this process goes on.

    Does nothing without workers: this process would only wait now instead of later.
    """
    with readers.executor(len(files.files)) as executor:
        if not isinstance(executor, _Here):
            asked = readers.submit(executor, files, groups, arguments)
            readers.expect(groups, arguments, asked)


class _Here(Executor):
    """Runs tasks in this process, one after the other."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Readers:
    """Reads the files of a run in several passes.

    Its own processes are reused from one pass to the next, as starting them takes as long as
    reading some hosts. They end after a while without work, or with `close`.

    Parameters
    ----------
    workers : Workers, optional
        By default, as many processes as there are cores.
    read_hosts : callable
        Reads a group of files in a worker, given the version of nbprof, the files and `Arguments`.
    """

    def __init__(self, workers: Workers | None, read_hosts: Callable[..., bytes]) -> None:
        self._workers = workers
        self._read_hosts = read_hosts
        self._processes: Executor | None = None
        self._expected: list[tuple[list[Group], Arguments, Asked]] = []

    def submit(
        self, executor: Executor, files: RunFiles, groups: Sequence[Group], arguments: Arguments
    ) -> Asked:
        """Has an executor read some groups of files."""
        return {
            executor.submit(self._read_hosts, __version__, some(files, group), *arguments): group
            for group in groups
        }

    def expect(self, groups: Sequence[Group], arguments: Arguments, asked: Asked) -> None:
        """Remembers what was prefetched until it is needed."""
        self._expected.append((list(groups), arguments, asked))

    def take_prefetched(self, groups: Sequence[Group], arguments: Arguments) -> Asked | None:
        """The futures of groups that were prefetched, once; None if they were not."""
        for index, (expected_groups, expected_arguments, asked) in enumerate(self._expected):
            if expected_groups == list(groups) and expected_arguments == arguments:
                del self._expected[index]
                return asked
        return None

    @contextmanager
    def executor(self, files: int) -> Iterator[Executor]:
        """The executor of the caller, which stays open, or our own, which an error ends.

        Raises
        ------
        NbprofError
            `workers` is not an executor.
        """
        workers = self._workers
        if workers is None or (isinstance(workers, int) and not isinstance(workers, bool)):
            if self._processes is None:
                count = min(workers if workers is not None else _cores(), files)
                self._processes = Processes(count) if count > 1 else _Here()
            try:
                yield self._processes
            except BaseException:
                self.close(wait=True)
                raise
            return
        get_executor = getattr(workers, "get_executor", None)
        executor = get_executor(pure=False) if get_executor is not None else workers
        if not callable(getattr(executor, "submit", None)):
            raise NbprofError(
                "executor= takes a concurrent.futures.Executor, a dask.distributed.Client or a"
                f" number of processes, not {type(workers).__name__}."
            )
        yield executor

    def close(self, *, wait: bool = False) -> None:
        """Ends our own processes at once, and cancels what executors of the caller prefetch."""
        while self._expected:
            for future in self._expected.pop()[-1]:
                future.cancel()
        if self._processes is not None:
            self._processes.shutdown(wait=wait, cancel_futures=True)
            self._processes = None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _reason(error: BaseException) -> str:
    if isinstance(error, ReadError):
        return error.reason
    if isinstance(error, MemoryError):
        return "there was not enough memory to read it."
    return str(error)


def _worker_error(error: Exception) -> NbprofError | None:
    """The error to raise for one that is the fault of the workers; None for other errors."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "nbprof":
        return NbprofError(
            f"a worker has no nbprof ({error}): install version {__version__} there."
        )
    lacks_attribute = (
        isinstance(error, AttributeError) and "nbprof" in str(error) and "attribute" in str(error)
    )
    if isinstance(error, ImportError) or lacks_attribute:
        return NbprofError(
            f"a worker cannot run nbprof {__version__} ({error}): install this version and its"
            " dependencies there."
        )
    if isinstance(error, (PicklingError, TypeError)) and "pickle" in str(error):
        return NbprofError(f"the files could not be sent to a worker: {error}")
    return None


class _Progress:
    """Shows how many hosts are read: `reading hosts: 12 of 64, 20 MiB of 104 MiB, 4 s left`.

    Parameters
    ----------
    show : callable, optional
        Gets each message.
    sizes : dict of int to int
        The bytes of each file.
    """

    def __init__(self, show: Callable[[str], None] | None, sizes: Mapping[int, int]) -> None:
        self._show, self._sizes = show, sizes
        self._began = self._written = time.perf_counter()

    def __call__(self, done: Sequence[int], *, last: bool) -> None:
        """Shows a message, but not too often; the last one always."""
        now = time.perf_counter()
        if self._show is not None and (last or now - self._written > _PROGRESS_S):
            self._written = now
            self._show(progress_text(done, self._sizes, now - self._began))


def progress_text(done: Sequence[int], sizes: Mapping[int, int], seconds: float) -> str:
    """How many hosts are read, and how long the others will take."""
    done_bytes = sum(sizes[number] for number in done)
    total_bytes = sum(sizes.values())
    if len(done) == len(sizes):
        text = f"{len(sizes):,} hosts read in {duration_text(seconds)}"
        return f"{text}, {size_text(total_bytes)}" if total_bytes else text
    text = f"reading hosts: {len(done):,} of {len(sizes):,}"
    if total_bytes:
        text += f", {size_text(done_bytes)} of {size_text(total_bytes)}"
    if 0 < done_bytes < total_bytes:
        left = seconds * (total_bytes - done_bytes) / done_bytes
        text += f", {duration_text(left, 0)} left"
    return text


@contextmanager
def _progress_shown(progress: Show | None) -> Iterator[Show | None]:
    """A function that shows messages: `progress` if given, else one that overwrites a line.

    None if nobody would see them.
    """
    write = None if progress is not None else _writer()
    if write is None:
        yield progress
        return
    began, width = time.monotonic(), 0

    def show(text: str) -> None:
        nonlocal width
        if time.monotonic() - began >= _PROGRESS_DELAY_S:
            write(text.ljust(width))
            width = len(text)

    yield show


def _writer() -> Show | None:
    """Overwrites a line in the output of a cell or on a terminal; None elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return _notebook_writer()
    if sys.stderr is None or not sys.stderr.isatty():
        return None

    def write(text: str) -> None:
        sys.stderr.write("\r" + text)
        sys.stderr.flush()

    return write


def _notebook_writer() -> Show:
    from IPython.display import display

    handle: Any = None

    def write(text: str) -> None:
        nonlocal handle
        data = {"text/plain": text.rstrip()}
        if handle is None:
            handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            handle.update(data, raw=True)

    return write
