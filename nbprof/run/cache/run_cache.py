"""Reading and writing the cache entry of one run; a `Run` uses no other part of the cache.

Problems of the cache never raise: with a full disk, a damaged entry, or another kernel writing the
same entry, values are computed as if there were no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar

from nbprof.core.codec.container import Damaged, Writer
from nbprof.core.codec.values import Unstorable
from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles, SourceFile
from nbprof.core.trace import Trace
from nbprof.run.cache import background
from nbprof.run.cache.folder import SUFFIX, Folder, usable
from nbprof.run.cache.identity import Location, key, watched
from nbprof.run.cache.part import Part
from nbprof.run.cache.stored import FACTS, StoredTrace, TraceToStore

T = TypeVar("T")

WORTH_S = 0.2
"""Reading and computing that takes less time than this is not cached."""

_AFTER_FRAME_S = 0.5
_AFTER_READING_S = 3.0
_PAUSE_S = 0.05
COLUMNS = "columns"


class _NotWritten(Exception):  # noqa: N818 -- never shown
    """The reason why values are not cached."""


class RunCache:
    """No cache: everything is read and computed.

    Attributes
    ----------
    pieces : tuple of SourceFile
        The files, for the reader of their format.
    """

    def __init__(self, pieces: Sequence[SourceFile]) -> None:
        self.pieces: tuple[SourceFile, ...] = tuple(pieces)

    def trace(self, read: Callable[[], Trace]) -> Trace:
        """The trace of the run; `read` reads it from `pieces`."""
        return read()

    def value(
        self,
        name: str,  # noqa: ARG002
        compute: Callable[[], T],
        sound: Callable[[], bool] = lambda: True,  # noqa: ARG002
    ) -> T:  # noqa: ARG002, RUF100
        """A value that depends on the files only. `sound` is called after `compute`; unless it
        returns True, the value is not cached.
        """
        return compute()


class DiskRunCache(RunCache):
    """The entry of a run in a folder.

    Parameters
    ----------
    folder : Folder
    pieces : sequence of SourceFile
    options : dict
        Plain values that change what is read, its format among them.
    write : bool
        False to use cached values without adding any.
    """

    def __init__(
        self,
        folder: Folder,
        pieces: Sequence[SourceFile],
        options: dict[str, Any],
        *,
        write: bool = True,
    ) -> None:
        both = [watched(piece) for piece in pieces]
        super().__init__([piece for _, piece in both])
        self._watched = [watch for watch, _ in both]
        self._folder = folder
        self._options = options
        self._location = Location(folder, self._watched, options)
        self._key: str | None = None
        self._noted = False
        self._parts: dict[str, Part] = {}
        self._index: dict[str, Part] = {}
        self._lock = threading.RLock()
        self._waiting: dict[str, object] = {}
        self._trace_to_store: TraceToStore | None = None
        self._source: Trace | None = None
        self._spent_s = 0.0
        self._computing = 0
        self._closed = not write

    # Reading.

    def trace(self, read: Callable[[], Trace]) -> Trace:
        """The cached trace, or the one that `read` returns, which is then cached.

        Raises
        ------
        ReadError
        """
        self._find()
        if FACTS in self._index:
            with contextlib.suppress(KeyError):
                stored_trace = StoredTrace(self._load, lambda: self._again(read), self._labels())
                # It was worth caching before.
                self._spent_s = WORTH_S
                return stored_trace
            self._miss()
        began = time.perf_counter()
        trace = read()
        self._spent_s += time.perf_counter() - began
        self._store_trace(trace)
        return trace

    def value(
        self, name: str, compute: Callable[[], T], sound: Callable[[], bool] = lambda: True
    ) -> T:
        """The cached value, or the computed one, which is then cached if it is sound."""
        name = f"value.{name}"
        if name in self._index:
            with contextlib.suppress(KeyError):
                cached: T = self._load(name)
                return cached
        began = time.perf_counter()
        with self._lock:
            self._computing += 1
        try:
            value = compute()
        finally:
            with self._lock:
                self._computing -= 1
        if not self._computing:
            self._spent_s += time.perf_counter() - began
        if sound():
            with self._lock:
                self._waiting[name] = value
            self._write_after(_AFTER_FRAME_S)
        return value

    def _find(self) -> None:
        """Open the entry of the files, if it exists."""
        self._key = self._location.key()
        self._noted = self._key is not None
        if self._key is None:
            sizes = [piece.size for piece in self._watched]
            if any(size is None for size in sizes) or not self._folder.has_size(
                sum(size or 0 for size in sizes)
            ):
                return
            # An entry has this size: the file may have been touched or moved.
            for piece in self._watched:
                piece.look(hold=len(self._watched) == 1)
            self._key = key(self._watched, self._options)
        self._open()
        if FACTS in self._index:
            for piece in self._watched:
                piece.forget()
            self._note()
            return
        self._miss()

    def _miss(self) -> None:
        # The next read may give other bytes, which have another entry.
        self._key, self._noted, self._parts, self._index = None, False, {}, {}
        for piece in self._watched:
            if not piece.holds:
                piece.forget()

    def _open(self) -> None:
        """Open the parts of the entry that are not open yet."""
        if self._key is None:
            return
        for path in self._folder.parts(self._key):
            if path.name in self._parts:
                continue
            try:
                part = self._parts[path.name] = Part(path)
            except Damaged:
                with contextlib.suppress(OSError):
                    path.unlink()
            except OSError:
                continue
            else:
                self._index.update(dict.fromkeys(part, part))

    def _load(self, name: str) -> Any:
        part = self._index[name]
        try:
            return part.load(name)
        except Damaged:
            with self._lock:
                self._drop(part)
            raise KeyError(name) from None

    def _drop(self, part: Part) -> None:
        """Forget a damaged part and remove it from the folder."""
        self._parts.pop(part.path.name, None)
        self._index = {name: p for name, p in self._index.items() if p is not part}
        with contextlib.suppress(OSError):
            part.path.unlink()

    def _again(self, read: Callable[[], Trace]) -> Trace:
        """The trace from the files themselves, for values that the entry does not have."""
        with self._lock:
            if self._source is None:
                for piece in self._watched:
                    piece.anew()
                trace = read()
                if key(self._watched, self._options) != self._key:
                    label = self.pieces[0].label
                    raise ReadError("changed since it was opened; load it again.", path=label)
                self._source = trace
                if FACTS not in self._index or COLUMNS + SUFFIX not in self._parts:
                    self._store_trace(trace)
            return self._source

    # Writing.

    def _store_trace(self, trace: Trace) -> None:
        self._trace_to_store = TraceToStore(trace, self._labels())
        self._write_after(_AFTER_READING_S)

    def _write_after(self, seconds: float) -> None:
        if not self._closed:
            background.write(self, seconds)

    @property
    def busy(self) -> bool:
        """True while a caller waits for a value."""
        return self._computing > 0

    def flush(self, stop: Callable[[], bool]) -> None:
        """Write the values that are not cached yet, until `stop` returns True."""
        if self._closed or self._spent_s < WORTH_S:
            return
        try:
            if self._trace_to_store is not None:
                complete = all(piece.complete(stop) for piece in self._watched)
                self._key = key(self._watched, self._options) if complete else None
            if self._key is None:
                raise _NotWritten("the files are not those that were read")
            self._flush(self._key, stop)
        except (OSError, ReadError, _NotWritten):
            # No space, no permission, no time, or other files by now: this run is not cached.
            self._closed = True
            with self._lock:
                self._waiting.clear()
                self._trace_to_store = None

    def _flush(self, entry_key: str, stop: Callable[[], bool]) -> None:
        with self._lock:
            self._open()
            waiting, self._waiting = self._waiting, {}
            trace_to_store = self._trace_to_store
        values: dict[str, object] = {
            name: value for name, value in waiting.items() if name not in self._index
        }
        if trace_to_store is not None and FACTS not in self._index:
            values.update(trace_to_store.facts())
        if values:
            name = hashlib.sha256("\n".join(sorted(values)).encode()).hexdigest()[:24]
            self._write(entry_key, name, values.items(), stop)
        self._note()
        if trace_to_store is not None:
            if COLUMNS + SUFFIX not in self._parts:
                self._write(entry_key, COLUMNS, trace_to_store.columns(), stop)
            with self._lock:
                self._trace_to_store = None

    def _write(
        self,
        entry_key: str,
        name: str,
        content: Iterable[tuple[str, object]],
        stop: Callable[[], bool],
    ) -> None:
        room = self._folder.room(entry_key)

        def fill(file: IO[bytes]) -> None:
            writer = Writer(file)
            for each, value in self._patiently(content, stop):
                # Values that cannot be stored are computed each time.
                with contextlib.suppress(Unstorable):
                    writer.add(each, value)
                if writer.size > room:
                    raise _NotWritten("it exceeds the size limit of the cache")
            writer.close()

        self._folder.add(entry_key, name, fill)

    def _patiently(
        self, content: Iterable[tuple[str, object]], stop: Callable[[], bool]
    ) -> Iterator[tuple[str, object]]:
        for item in content:
            # A user who has come back to work gets the processors.
            while self.busy and not stop():
                time.sleep(_PAUSE_S)
            if stop():
                raise _NotWritten("there is no time left")
            yield item

    def _note(self) -> None:
        if not self._noted and self._key is not None:
            self._noted = True
            self._location.note(self._key)

    def _labels(self) -> list[str]:
        return [piece.label for piece in self.pieces]


def open_run_cache(
    files: RunFiles, options: dict[str, Any] | None = None, *, keep: bool = True, write: bool = True
) -> RunCache:
    """The cache of a run.

    Parameters
    ----------
    files : RunFiles
    options : dict, optional
        Plain values that change what is read, besides the format and limit of the files.
    keep : bool
        False for files that nobody will open again.
    write : bool
        False to use cached values without adding any.
    """
    if keep and (folder := usable()) is not None:
        # A package that is being updated: a profile opens without a cache.
        with contextlib.suppress(OSError, RuntimeError):
            options = {"format": files.format, "limit_bytes": files.limit_bytes, **(options or {})}
            return DiskRunCache(folder, files.files, options, write=write)
    return RunCache(files.files)
