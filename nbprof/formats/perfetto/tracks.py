"""The tracks that events are on: threads, counters and named rows of a process, a thread or another
track.

Format: https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.formats.perfetto.fields import Fields
from nbprof.formats.perfetto.sequences import (
    Message,
    content,
    contents,
    integer,
    message,
    part,
    text,
)

_DEEPEST = 100
_MERGE_NONE, _MERGE_BY_KEY = 2, 3
Key = tuple[object, ...]


@dataclass
class Track:
    """The description of one track."""

    name: str = ""
    parent: int = 0
    pid: int | None = None
    tid: int | None = None
    order: int = 0
    merge: int = 0
    merge_key: object = ""
    counter: bool = False
    builtin: bool = False
    """Counts the time or the instructions of a thread."""
    unit: int = 1
    adds: bool = False


@dataclass
class Process:
    """The description of a process."""

    name: str = ""
    labels: str = ""
    sort: int = 0


@dataclass
class Place:
    """Position of a track. Tracks of one `key` are one row; those of one `group` share rows where
    they don't overlap.
    """

    key: Key
    process: str
    thread: str
    pid: str = ""
    tid: str = ""
    labels: str = ""
    process_sort: int = 0
    sort: int = 0
    group: Key | None = None


@dataclass
class Tracks:
    """All tracks, processes and threads of a file, by uuid, pid and tid."""

    tracks: dict[int, Track] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    damaged: int = 0

    def read(self, fields: Fields, buf: wire.Bytes) -> None:
        """Takes all descriptors of a file."""
        for number, take in (
            (2, self._tree),
            (43, self._process),
            (44, self._thread),
            (60, self._track),
        ):
            _, starts, ends = fields.spans(number)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                try:
                    take(message(buf.data, start, end))
                except ReadError:
                    self.damaged += 1

    def _tree(self, fields: Message) -> None:
        """ProcessTree, by the recorder of a whole system."""
        for value in contents(fields, 1):
            fields_of_process = part(value)
            if 1 in fields_of_process:
                pid = integer(fields_of_process, 1)
                process = self.processes.setdefault(pid, Process())
                self._name(process, text({3: fields_of_process.get(3, [])[:1]}, 3))
        for value in contents(fields, 2):
            thread = part(value)
            if 1 in thread:
                self.threads.setdefault((integer(thread, 3), integer(thread, 1)), text(thread, 2))

    def _process(self, fields: Message) -> int | None:
        if 1 not in fields:
            return None
        pid = integer(fields, 1)
        process = self.processes.setdefault(pid, Process())
        name = text(fields, 6) or text({2: fields.get(2, [])[:1]}, 2)
        self._name(process, name, over=6 in fields)
        labels = [label.decode("utf-8", "replace") for label in contents(fields, 8)]
        process.labels = ", ".join(labels) or process.labels
        process.sort = integer(fields, 3, process.sort)
        return pid

    @staticmethod
    def _name(process: Process, name: str, *, over: bool = False) -> None:
        if name and (over or not process.name):
            process.name = name

    def _thread(self, fields: Message) -> tuple[int, int] | None:
        if 1 not in fields or 2 not in fields:
            return None
        ids = integer(fields, 1), integer(fields, 2)
        if (name := text(fields, 5)) or ids not in self.threads:
            self.threads[ids] = name
        return ids

    def _track(self, fields: Message) -> None:
        track = self.tracks.setdefault(integer(fields, 1), Track())
        names = (text(fields, number) for number in (2, 10, 13))
        track.name = next(filter(None, names), track.name)
        track.parent = integer(fields, 5, track.parent)
        track.order = integer(fields, 12, track.order)
        track.merge = integer(fields, 15, track.merge)
        track.merge_key = text(fields, 16) or integer(fields, 17) or track.merge_key
        inner = content(fields, 3)
        if inner is not None:
            pid = self._process(part(inner))
            if pid is not None:
                track.pid = pid
        inner = content(fields, 4)
        if inner is not None:
            ids = self._thread(part(inner))
            if ids is not None:
                track.pid, track.tid = ids
        inner = content(fields, 8)
        if inner is not None:
            counter = part(inner)
            track.counter = True
            track.builtin = integer(counter, 1) in (1, 2)
            track.unit = integer(counter, 4, 1) or 1
            track.adds = bool(integer(counter, 5))

    def counter(self, uuid: int) -> Track | None:
        """The track of a counter; None where it is none."""
        track = self.tracks.get(uuid)
        return track if track is not None and track.counter else None

    def locate(self, uuid: int, first_event: str) -> Place:
        """Position of a track; one without a name goes by its first event."""
        track = self.tracks.get(uuid) or Track()
        if track.tid is not None and track.pid is not None:
            return self.of_thread(track.pid, track.tid)
        name = track.name or first_event or f"Track {uuid & 0xFFFFFFFFFFFFFFFF}"
        if uuid == 0 and not track.name:
            name = "Default track"
        above = list(self._above(uuid))
        pid = next((each.pid for each in (track, *above) if each.pid is not None), None)
        group: Key | None = ("track", track.parent, name)
        if track.merge == _MERGE_NONE:
            group = None
        elif track.merge == _MERGE_BY_KEY:
            group = ("track", track.parent, "key", track.merge_key)
        if pid is None:
            root = "Tracks"
            if above and above[-1].name:
                root = above[-1].name
            return Place(
                ("track", uuid),
                root,
                name,
                group=group,
                process_sort=1 << 30,
                sort=track.order,
            )
        process = self.processes.get(pid, Process())
        return Place(
            ("track", uuid),
            process.name or str(pid),
            name,
            str(pid),
            "",
            process.labels,
            process.sort,
            (1 << 30) + track.order,
            group,
        )

    def of_thread(self, pid: int, tid: int) -> Place:
        """Position of a thread."""
        process = self.processes.get(pid, Process())
        name = self.threads.get((pid, tid), "") or str(tid)
        return Place(
            ("thread", pid, tid),
            process.name or str(pid),
            name,
            str(pid),
            str(tid),
            process.labels,
            process.sort,
        )

    def _above(self, uuid: int) -> Iterable[Track]:
        """The tracks that a track is in, the nearest first."""
        seen = {uuid}
        track = self.tracks.get(uuid)
        while track is not None and track.parent not in seen and len(seen) < _DEEPEST:
            seen.add(track.parent)
            track = self.tracks.get(track.parent)
            if track is not None:
                yield track
