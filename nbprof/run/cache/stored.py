"""A Trace as the cache keeps it: each column, table and module is read when it is first asked for.

What was not kept, or turns out damaged, comes from the profile itself, which is then read again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import (
    ArgColumn,
    Cut,
    Events,
    Flows,
    Module,
    Note,
    Plane,
    Receipt,
    Table,
    Trace,
)
from nbprof.run.cache import values

for _cls in (ArgColumn, Cut, Flows, Note, Plane, Receipt, Table):
    values.record(_cls)

FACTS = "trace"
"""The value without which nothing else is of use."""

_SMALL = ("planes", "metadata", "late_ps", "counters", "aggregated")
_LARGE = ("names", "display", "name_args", "blobs", "flows", "tables")
_COLUMNS = ("lane", "name", "start", "duration")
# Looking up this share of the texts one by one takes as long as making all of them.
_ONE_BY_ONE = 0.1

Load = Callable[[str], Any]


class TraceToStore:
    """What of a trace is to be kept, taken before a dialect makes lanes and events of its own of
    it.

    Parameters
    ----------
    trace : Trace
        As the reader of the format made it.
    labels : list of str
        What the receipt may call its files; the same files may lie elsewhere when they are opened
        again.
    """

    def __init__(self, trace: Trace, labels: list[str]) -> None:
        self._trace = trace
        # Dialects put others in their place.
        self._events, self._args, self._hosts, self._strings = (
            trace.events,
            trace.args,
            list(trace.hosts),
            trace.strings,
        )
        self._texts = {"names": trace.names, "display": trace.display}
        self._lanes = trace.lanes.copy()
        notes = [Note(note.level, _without(note.text, labels)) for note in trace.receipt.notes]
        skipped = {
            _without(reason, labels): count for reason, count in trace.receipt.skipped.items()
        }
        self._receipt = Receipt(trace.receipt.events, notes, skipped, trace.receipt.cut)

    def facts(self) -> Iterator[tuple[str, object]]:
        """Names and values of what is small and always needed."""
        trace = self._trace
        yield (
            FACTS,
            {
                "hosts": self._hosts,
                "epoch_ns": trace.epoch_ns,
                "events": len(self._events),
                "args": list(self._args),
                "modules": [[m.name, m.ident, m.host] for m in trace.modules],
            },
        )
        yield "trace.lanes", self._lanes
        yield "trace.receipt", self._receipt
        for name in _SMALL:
            yield f"trace.{name}", getattr(trace, name)

    def columns(self) -> Iterator[tuple[str, object]]:
        """Names and values of what is large. An arg that nobody has asked for, and that the reader
        has not decoded, is left out.
        """
        trace = self._trace
        for name in _COLUMNS:
            yield f"events.{name}", getattr(self._events, name)
        for name in _LARGE:
            value = self._texts[name] if name in self._texts else getattr(trace, name)
            if name == "display" and (
                value is self._texts["names"] or np.array_equal(value, self._texts["names"])
            ):
                value = None
            yield f"trace.{name}", value
        yield "trace.strings", _packed(self._strings)
        decoded = getattr(self._args, "decoded", self._args)
        for name in list(decoded):
            yield f"arg.{name}", self._args[name]
        for i, module in enumerate(trace.modules):
            yield f"module.{i}", np.frombuffer(module.data, np.uint8)


def _without(text: str, labels: list[str]) -> str:
    for i, label in enumerate(labels):
        text = text.replace(label, f"\0{i}\0")
    return text


def _with(text: str, labels: list[str]) -> str:
    for i, label in enumerate(labels):
        text = text.replace(f"\0{i}\0", label)
    return text


class StoredTrace(Trace):
    """A trace out of the cache.

    Parameters
    ----------
    load : callable
        The stored value of a name; raises KeyError where there is none that can be used.
    source : callable
        The trace as read from the profile itself.
    labels : list of str
        What the files are called where they lie now.
    """

    def __init__(self, load: Load, source: Callable[[], Trace], labels: list[str]) -> None:
        self._load = load
        self._source = source
        self._lock = threading.RLock()
        facts = load(FACTS)
        self.hosts = facts["hosts"]
        self.epoch_ns = facts["epoch_ns"]
        self.lanes = load("trace.lanes")
        receipt = load("trace.receipt")
        notes = [Note(note.level, _with(note.text, labels)) for note in receipt.notes]
        skipped = {_with(reason, labels): count for reason, count in receipt.skipped.items()}
        self.receipt = Receipt(receipt.events, notes, skipped, receipt.cut)
        self.events = _StoredEvents(facts["events"], self._lock, load, source)
        self.args = _StoredArgs(facts["args"], self._lock, load, source)
        self.modules = [
            _StoredModule(i, name, ident, host, load, source)
            for i, (name, ident, host) in enumerate(facts["modules"])
        ]

    def __getattr__(self, name: str) -> Any:
        # Only reached while the attribute has no value yet.
        if name not in (*_SMALL, *_LARGE, "strings"):
            raise AttributeError(name)
        with self._lock:
            if name not in self.__dict__:
                self.__dict__[name] = self._made(name)
            return self.__dict__[name]

    def _made(self, name: str) -> Any:
        try:
            value = self._load(f"trace.{name}")
        except KeyError:
            return getattr(self._source(), name)
        if name == "display" and value is None:
            return self.names
        return Texts(*value) if name == "strings" and isinstance(value, tuple) else value


class _StoredEvents(Events):
    def __init__(
        self, count: int, lock: threading.RLock, load: Load, source: Callable[[], Trace]
    ) -> None:
        self._count = count
        self._lock = lock
        self._load = load
        self._source = source

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS:
            raise AttributeError(name)
        with self._lock:
            if name not in self.__dict__:
                try:
                    self.__dict__[name] = self._load(f"events.{name}")
                except KeyError:
                    self.__dict__[name] = getattr(self._source().events, name)
            return self.__dict__[name]


class _StoredArgs(Mapping[str, ArgColumn]):
    def __init__(
        self, names: list[str], lock: threading.RLock, load: Load, source: Callable[[], Trace]
    ) -> None:
        self._names = dict.fromkeys(names)
        self._lock = lock
        self._load = load
        self._source = source
        self._columns: dict[str, ArgColumn] = {}

    def __getitem__(self, name: str) -> ArgColumn:
        if name not in self._names:
            raise KeyError(name)
        with self._lock:
            if name not in self._columns:
                try:
                    self._columns[name] = self._load(f"arg.{name}")
                except KeyError:
                    self._columns[name] = self._source().args[name]
            return self._columns[name]

    def __contains__(self, name: object) -> bool:
        # Mapping's own would read the column to find out.
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _StoredModule(Module):
    def __init__(
        self, number: int, name: str, ident: int, host: int, load: Load, source: Callable[[], Trace]
    ) -> None:
        self.name = name
        self.ident = ident
        self.host = host
        self._number = number
        self._load = load
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name != "data":
            raise AttributeError(name)
        try:
            data = self._load(f"module.{self._number}").tobytes()
        except KeyError:
            data = self._source().modules[self._number].data
        self.__dict__["data"] = data
        return data


def _packed(strings: Sequence[str]) -> object:
    """Texts as one block of UTF-8 in which a zero byte follows each; as a list where one holds such
    a byte.
    """
    joined = "".join(f"{text}\0" for text in strings)
    if joined.count("\0") != len(strings):
        return list(strings)
    return len(strings), np.frombuffer(joined.encode("utf-8", "surrogatepass"), np.uint8)


class Texts(Sequence[str]):
    """Texts by code, out of one block of UTF-8 in which a zero byte follows each. One is made when
    it is looked up; a million are not.

    Parameters
    ----------
    count : int
    data : uint8[bytes]
    """

    def __init__(self, count: int, data: npt.NDArray[np.uint8]) -> None:
        self._count = count
        self._data = data
        self._ends: npt.NDArray[np.int64] | None = None
        self._all: list[str] | None = None
        self._looked_up = 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, code: int) -> str: ...

    @overload
    def __getitem__(self, code: slice) -> list[str]: ...

    def __getitem__(self, code: int | slice) -> str | list[str]:
        if self._all is None and not isinstance(code, slice):
            self._looked_up += 1
            if self._looked_up <= _ONE_BY_ONE * self._count:
                return self._one(int(code))
        return self._list()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def _one(self, code: int) -> str:
        at = code + self._count if code < 0 else code
        if not 0 <= at < self._count:
            raise IndexError(f"there are {self._count} texts, none with code {code}")
        if self._ends is None:
            self._ends = np.flatnonzero(self._data == 0)
        first = int(self._ends[at - 1]) + 1 if at else 0
        return self._data[first : int(self._ends[at])].tobytes().decode("utf-8", "surrogatepass")

    def _list(self) -> list[str]:
        if self._all is None:
            self._all = (
                self._data.tobytes().decode("utf-8", "surrogatepass").split("\0")[: self._count]
            )
        return self._all
