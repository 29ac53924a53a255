"""One export of Nsight Systems on its way into the trace: its tables, texts, hosts, and the lanes
of its threads and streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.build import Builder
from nbprof.formats.nsys import notes
from nbprof.formats.nsys.facts import Facts
from nbprof.formats.nsys.tables import Rows, Tables

PID, TID = 0xFFFFFF, 0xFFFFFF
"""Masks of ids in the global ids of threads."""


@dataclass
class Report:
    """One export on its way into the trace.

    Attributes
    ----------
    tables : Tables
    name : str
        What errors and receipts call it.
    builder : Builder
    facts : Facts
    strings : dict of int to str
        Texts by the ids that stand for them.
    hosts : dict of int to str
        The host of each process that used a GPU.
    read : set of str
        The tables that were read.
    loaded : dict of str to Rows
        Tables that were read to know the processes.
    counts : dict of str to int
        Number of rows of each table that is not empty.
    nvtx : list of str
        Tables of NVTX events that were read.
    nvtx_unread : list of str
        Tables of NVTX events with unknown columns.
    places : dict of int to int
        Order of first appearance of threads, by their global ids: keeps the lanes of one together.
    """

    tables: Tables
    name: str
    builder: Builder
    facts: Facts
    strings: dict[int, str]
    hosts: dict[int, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    loaded: dict[str, Rows] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    nvtx: list[str] = field(default_factory=list)
    nvtx_unread: list[str] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)

    def rows(self, table: str, *columns: str) -> Rows:
        """Some columns of a table, which from then on counts as read."""
        self.read.add(table)
        if table in self.loaded:
            return self.loaded.pop(table)
        return Rows(self.tables, table, *columns)

    def events(self, table: str, *columns: str) -> Rows:
        """The rows of a table of events with a start and an end.

        The receipt counts the others, whose duration is unknown.
        """
        rows = self.rows(table, *columns)
        timed = ~rows.null("start") & ~rows.null("end")
        if timed.all():
            return rows
        self.builder.receipt.add(notes.untimed_events(table, int((~timed).sum())))
        return rows.only(timed)

    def host(self, pid: int) -> str:
        """The host that a process is shown on: its own, or the first of the file for one without a
        GPU.
        """
        return self.hosts.get(pid) or next(iter(self.hosts.values()))

    def names(self, ids: Int64s) -> Int32s:
        """Codes of texts by their ids in the file."""
        return self.by_code(ids, lambda ident: self.strings.get(ident, f"[{ident}]"))

    def by_code(self, values: Int64s, texts: Callable[[int], str]) -> Int32s:
        """Codes of texts that are made of numbers, each once."""
        codes, seen = pd.factorize(values)
        return self.builder.codes(list(map(texts, seen.tolist())))[codes]

    def threads(self, ids: Int64s) -> Int32s:
        """The lanes of threads by their global ids."""
        codes, seen = pd.factorize(ids)
        return np.array(list(map(self.thread, seen.tolist())), np.int32)[codes]

    def thread(self, ident: int, part: str = "") -> int:
        """The lane of a thread, or the lane below it of a part of its recording."""
        pid, tid = ident >> 24 & PID, ident & TID
        name = self.facts.threads.get(ident & (1 << 48) - 1, "")
        label = f"thread {tid} ({name})" if name else f"thread {tid}"
        title = str(tid)
        if part:
            title = f"main thread: {part}" if pid == tid else f"thread {tid}: {part}"
        number = self.places.setdefault(ident & (1 << 48) - 1, len(self.places))
        return self.builder.lane(
            self.host(pid),
            self.facts.processes.get(pid, str(pid)),
            label,
            pid=str(pid),
            tid=title,
            sort=number,
        )

    def sub_lanes(self, ids: Int64s, label: str) -> Int32s:
        """The lanes below those of threads, by their global ids."""
        codes, seen = pd.factorize(ids)
        return np.array([self.thread(ident, label) for ident in seen.tolist()], np.int32)[codes]

    def streams(self, rows: Rows) -> Int32s:
        """The lanes of streams."""
        pid = rows.ints("globalPid", 0) >> 24 & PID
        device, stream = rows.ints("deviceId"), rows.ints("streamId")
        first, code = unique_rows(pid, device, np.maximum(stream, -1))
        lanes = []
        for i in first.tolist():
            host, gpu, number = self.host(int(pid[i])), max(int(device[i]), 0), int(stream[i])
            if number >= 0xFFFFFFFF:
                number = -1
            # Calls that wait for a complete context state no stream, or the highest number.
            tid, name = str(max(number, -1)), f"GPU {gpu}"
            lanes.append(
                self.builder.lane(host, name, f"stream {tid}", pid=str(gpu), tid=tid, labels=name)
            )
        return np.array(lanes, np.int32)[code]
