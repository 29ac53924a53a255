"""A `Trace` in the cache: each column, table and module is loaded when it is first used.

What the cache does not have, or has damaged, comes from the profile itself, which is then read
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from nbprof.core.codec.records import record
from nbprof.core.receipt import Cut, Note, Receipt
from nbprof.core.trace import ArgColumn, Events, Flows, Module, Plane, Table, Trace

for _cls in (ArgColumn, Cut, Flows, Note, Plane, Receipt, Table):
    record(_cls)

FACTS = "trace"
"""Name of the value that all others need."""

_SMALL = ("planes", "metadata", "late_ps", "counters", "aggregated")
_LARGE = ("names", "display", "name_args", "blobs", "flows", "tables")
_COLUMNS = ("lane", "name", "start", "duration")
_SINGLE_TEXTS_SHARE = 0.1
"""Decoding this share of the texts one by one takes as long as decoding all of them."""

Load = Callable[[str], Any]


class TraceToStore:
    """The parts of a trace that are stored, taken before a dialect replaces lanes and events.

    Parameters
    ----------
    trace : Trace
        As the reader of the format built it.
    labels : list of str
        Names of its files in the receipt; the same files may have other paths when they are opened
        again.
    """

    def __init__(self, trace: Trace, labels: list[str]) -> None:
        self._trace = trace
        self._events = trace.events
        self._args = trace.args
        self._hosts = list(trace.hosts)
        self._strings = trace.strings
        self._names = trace.names
        self._display = trace.display
        self._lanes = trace.lanes.copy()
        self._receipt = _relabelled(
            trace.receipt, {label: f"\0{i}\0" for i, label in enumerate(labels)}
        )

    def facts(self) -> Iterator[tuple[str, object]]:
        """Names and values of what is small and always needed."""
        trace = self._trace
        facts = {
            "hosts": self._hosts,
            "epoch_ns": trace.epoch_ns,
            "events": len(self._events),
            "args": list(self._args),
            "modules": [[module.name, module.ident, module.host] for module in trace.modules],
        }
        yield FACTS, facts
        yield "trace.lanes", self._lanes
        yield "trace.receipt", self._receipt
        for name in _SMALL:
            yield f"trace.{name}", getattr(trace, name)

    def columns(self) -> Iterator[tuple[str, object]]:
        """Names and values of what is large, without args that are not decoded yet."""
        trace = self._trace
        for name in _COLUMNS:
            yield f"events.{name}", getattr(self._events, name)
        yield "trace.names", self._names
        same = self._display is self._names or np.array_equal(self._display, self._names)
        yield "trace.display", None if same else self._display
        for name in ("name_args", "blobs", "flows", "tables"):
            yield f"trace.{name}", getattr(trace, name)
        yield "trace.strings", _packed_texts(self._strings)
        for name in list(getattr(self._args, "decoded", self._args)):
            yield f"arg.{name}", self._args[name]
        for number, module in enumerate(trace.modules):
            yield f"module.{number}", np.frombuffer(module.data, np.uint8)


def _relabelled(receipt: Receipt, replacements: Mapping[str, str]) -> Receipt:
    def replaced(text: str) -> str:
        for old, new in replacements.items():
            text = text.replace(old, new)
        return text

    notes = [Note(note.level, replaced(note.text), note.key) for note in receipt.entries]
    skipped = {replaced(reason): count for reason, count in receipt.skipped.items()}
    keys = {replaced(reason): key for reason, key in receipt.keys.items()}
    return Receipt(receipt.events, notes, skipped, keys, receipt.cut)


class _Source(NamedTuple):
    """The sources of the values of a stored trace: the cache, or the profile itself."""

    load: Load
    read: Callable[[], Trace]
    lock: threading.RLock

    def value(self, name: str, from_trace: Callable[[Trace], Any]) -> Any:
        try:
            return self.load(name)
        except KeyError:
            return from_trace(self.read())


class StoredTrace(Trace):
    """A trace out of the cache.

    Parameters
    ----------
    load : callable
        The stored value of a name; raises KeyError if there is none, or it is damaged.
    read : callable
        The trace as read from the profile itself.
    labels : list of str
        Current names of the files.
    """

    def __init__(self, load: Load, read: Callable[[], Trace], labels: list[str]) -> None:
        source = self._source = _Source(load, read, threading.RLock())
        facts = load(FACTS)
        self.hosts = facts["hosts"]
        self.epoch_ns = facts["epoch_ns"]
        self.lanes = load("trace.lanes")
        self.receipt = _relabelled(
            load("trace.receipt"), {f"\0{i}\0": label for i, label in enumerate(labels)}
        )
        self.events = _StoredEvents(facts["events"], source)
        self.args = _StoredArgs(facts["args"], source)
        self.modules = [
            _StoredModule(number, name, ident, host, source)
            for number, (name, ident, host) in enumerate(facts["modules"])
        ]

    def __getattr__(self, name: str) -> Any:
        # Only reached while the attribute has no value yet.
        if name not in (*_SMALL, *_LARGE, "strings"):
            raise AttributeError(name)
        with self._source.lock:
            if name not in self.__dict__:
                self.__dict__[name] = self._stored(name)
            return self.__dict__[name]

    def _stored(self, name: str) -> Any:
        value = self._source.value(f"trace.{name}", lambda trace: getattr(trace, name))
        if name == "display" and value is None:
            return self.names
        if name == "strings" and isinstance(value, tuple):
            return Texts(*value)
        return value


class _StoredEvents(Events):
    def __init__(self, count: int, source: _Source) -> None:
        self._count = count
        self._source = source

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS:
            raise AttributeError(name)
        with self._source.lock:
            if name not in self.__dict__:
                self.__dict__[name] = self._source.value(
                    f"events.{name}", lambda trace: getattr(trace.events, name)
                )
            return self.__dict__[name]


class _StoredArgs(Mapping[str, ArgColumn]):
    def __init__(self, names: list[str], source: _Source) -> None:
        self._names = dict.fromkeys(names)
        self._source = source
        self._columns: dict[str, ArgColumn] = {}

    def __getitem__(self, name: str) -> ArgColumn:
        if name not in self._names:
            raise KeyError(name)
        with self._source.lock:
            if name not in self._columns:
                self._columns[name] = self._source.value(
                    f"arg.{name}", lambda trace: trace.args[name]
                )
            return self._columns[name]

    def __contains__(self, name: object) -> bool:
        # The one of Mapping would load the column.
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _StoredModule(Module):
    def __init__(self, number: int, name: str, ident: int, host: int, source: _Source) -> None:
        self.name = name
        self.ident = ident
        self.host = host
        self._number = number
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name != "data":
            raise AttributeError(name)
        number = self._number
        data = self._source.value(f"module.{number}", lambda trace: trace.modules[number].data)
        self.__dict__["data"] = bytes(data)
        return self.__dict__["data"]


def _packed_texts(texts: Sequence[str]) -> object:
    """Texts as one block of UTF-8, each followed by a zero byte; a list if a text contains one."""
    joined = "".join(f"{text}\0" for text in texts)
    if joined.count("\0") != len(texts):
        return list(texts)
    return len(texts), np.frombuffer(joined.encode("utf-8", "surrogatepass"), np.uint8)


class Texts(Sequence[str]):
    """Texts by code, decoded when they are looked up: most of a million never are.

    Parameters
    ----------
    count : int
    data : uint8[bytes]
        UTF-8, each text followed by a zero byte.
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
            if self._looked_up <= _SINGLE_TEXTS_SHARE * self._count:
                return self._text(int(code))
        return self._list()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def _text(self, code: int) -> str:
        index = code + self._count if code < 0 else code
        if not 0 <= index < self._count:
            raise IndexError(f"there are {self._count} texts, none with code {code}")
        if self._ends is None:
            self._ends = np.flatnonzero(self._data == 0)
        start = int(self._ends[index - 1]) + 1 if index else 0
        data = self._data[start : int(self._ends[index])]
        return data.tobytes().decode("utf-8", "surrogatepass")

    def _list(self) -> list[str]:
        if self._all is None:
            texts = self._data.tobytes().decode("utf-8", "surrogatepass").split("\0")
            self._all = texts[: self._count]
        return self._all
