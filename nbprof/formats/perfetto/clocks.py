"""One clock for all packets: time stamps of other clocks are moved by the snapshots that show
several clocks at one moment.

Format: https://perfetto.dev/docs/concepts/clock-sync
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.runs import rows_by_value
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.perfetto.fields import Fields
from nbprof.formats.perfetto.sequences import Sequences, contents, integer, message, part

REALTIME, BOOTTIME = 1, 6
_OF_SEQUENCE = range(64, 128)
"""Clocks that each sequence has for itself."""
Clock = tuple[int, int]
"""Its id, and for one of a sequence which."""
_MOST_NS = 1 << 62


class Clocks:
    """The clocks of a file.

    Attributes
    ----------
    trace : int
        The clock that times count on.
    damaged : int
        Snapshots that could not be read.
    """

    def __init__(self, fields: Fields, buf: wire.Bytes, sequences: Sequences) -> None:
        self.trace, self.damaged = BOOTTIME, 0
        self._unit: dict[Clock, int] = {}
        self._adds: set[Clock] = set()
        self._shots: dict[Clock, dict[int, int]] = {}
        """By clock and snapshot what it showed, ns."""
        self._rows: list[int] = []
        row, start, end = fields.spans(6)
        primary = 0
        for packet, a, b in zip(row.tolist(), start.tolist(), end.tolist(), strict=True):
            try:
                snapshot = message(buf.data, a, b)
                clocks = [part(content) for content in contents(snapshot, 1)]
            except ReadError:
                self.damaged += 1
                continue
            primary = primary or integer(snapshot, 2)
            number = len(self._rows)
            self._rows.append(packet)
            for entry in clocks:
                clock = self._clock(integer(entry, 1), int(sequences.code[packet]))
                unit = integer(entry, 4, 1)
                if not 0 < unit < 1 << 32:
                    unit = 1
                self._unit[clock] = unit
                if integer(entry, 3):
                    self._adds.add(clock)
                time = (integer(entry, 2) & 0xFFFFFFFFFFFFFFFF) * unit
                if time < _MOST_NS:
                    self._shots.setdefault(clock, {})[number] = time
        self.trace = primary or BOOTTIME
        self._ways: dict[tuple[Clock, Clock], list[Clock] | None] = {}
        self._clocks_of: dict[int, list[Clock]] = {}
        for clock, shots in self._shots.items():
            for shot in shots:
                self._clocks_of.setdefault(shot, []).append(clock)

    @staticmethod
    def _clock(ident: int, sequence: int) -> Clock:
        return ident, sequence if ident in _OF_SEQUENCE else -1

    def on_trace(
        self, time: Int64s, ident: Int32s, sequence: Int32s, rows: Int64s
    ) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Times of packets in ns on the clock of the trace, and which of them could be moved there.

        Parameters
        ----------
        time, ident, sequence : integers[k]
            Time stamps, the ids of their clocks (0: that of the trace), and sequences.
        rows : int64[k]
            The packets, ascending.
        """
        valid = (time >= 0) & (time < _MOST_NS)
        used = np.unique(ident)
        if all(code in (0, self.trace) and (code, -1) not in self._adds for code in used.tolist()):
            return time, valid
        result = time.copy()
        of_sequence = (ident >= _OF_SEQUENCE.start) & (ident < _OF_SEQUENCE.stop)
        key = ident.astype(np.int64) * (int(sequence.max(initial=0)) + 2) + np.where(
            of_sequence, sequence, -1
        )
        # If no snapshot relates clocks to each other, the one in use is the clock of the trace.
        alone = not self._shots and len(used) == 1
        for packets in rows_by_value(key):
            clock = self._clock(int(ident[packets[0]]), int(sequence[packets[0]]))
            if clock[0] == 0 or alone:
                continue
            unit = self._unit.get(clock, 1)
            if unit > 1:
                valid[packets] &= result[packets] < _MOST_NS // unit
                result[packets] = np.where(valid[packets], result[packets] * unit, 0)
            if clock in self._adds:
                result[packets], fits = self._added(clock, result[packets], rows[packets])
                valid[packets] &= fits
            way = self._way(clock, (self.trace, -1))
            if way is None:
                valid[packets] = False
            else:
                result[packets] = self._moved(result[packets], way)
        valid &= (result > -_MOST_NS) & (result < _MOST_NS)
        return result, valid

    def _added(
        self, clock: Clock, steps: Int64s, rows: Int64s
    ) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Times of a clock of which packets state the time since the one before; each snapshot
        states the time itself.
        """
        shots = self._shots.get(clock, {})
        snapshot_rows = np.array([self._rows[i] for i in shots], np.int64)
        base = np.array(list(shots.values()), np.int64)
        latest = np.searchsorted(snapshot_rows, rows, side="right") - 1
        total = np.cumsum(steps)
        # The sums that had been added when the snapshot of each was taken.
        first = np.searchsorted(rows, snapshot_rows)
        before = np.append(0, total)[first]
        if not len(snapshot_rows):
            return steps, np.zeros(len(steps), np.bool_)
        return total - before[latest] + base[latest], latest >= 0

    def _way(self, start: Clock, target: Clock) -> list[Clock] | None:
        """The clocks from one to another, each sharing a snapshot with the next; None where no
        snapshots connect them.
        """
        if (start, target) not in self._ways:
            self._ways[start, target] = self._search(start, target)
        return self._ways[start, target]

    def _search(self, start: Clock, target: Clock) -> list[Clock] | None:
        came: dict[Clock, Clock | None] = {start: None}
        open_ = deque([start])
        seen: set[int] = set()
        while open_:
            here = open_.popleft()
            if here == target:
                way = [here]
                while (before := came[way[-1]]) is not None:
                    way.append(before)
                return way[::-1]
            for number in self._shots.get(here, {}):
                # Each snapshot is looked at once; the clock that is wanted is in nearly all of
                # them.
                if target in came or number in seen:
                    continue
                seen.add(number)
                for clock in self._clocks_of[number]:
                    if clock not in came:
                        came[clock] = here
                        open_.append(clock)
        return None

    def _moved(self, time: Int64s, way: list[Clock]) -> Int64s:
        for here, there in pairwise(way):
            rows, theirs = self._shots[here], self._shots[there]
            shared = {(rows[shot], theirs[shot]) for shot in rows.keys() & theirs.keys()}
            pairs = np.array(sorted(shared), np.int64).reshape(-1, 2)
            # By the last snapshot before each time, or the first one.
            shot = np.maximum(np.searchsorted(pairs[:, 0], time, side="right") - 1, 0)
            time = time - pairs[shot, 0] + pairs[shot, 1]
        return time

    def since_1970(self) -> int:
        """Offset of times of the trace from ns since 1970; 0 where no snapshot states it."""
        way = self._way((self.trace, -1), (REALTIME, -1))
        if not way:
            return 0
        first = np.array([min(self._shots[way[0]].values())], np.int64)
        return int((self._moved(first, way) - first)[0])
