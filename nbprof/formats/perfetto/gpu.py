"""What drivers of GPUs record: stages of work on hardware queues, and counters.

Format: https://perfetto.dev/docs/reference/trace-packet-proto (`GpuRenderStageEvent`,
`GpuCounterEvent`)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import wire
from nbprof.core.distinct import distinct
from nbprof.core.errors import ReadError
from nbprof.core.runs import rows_by_value
from nbprof.core.trace import INT, TEXT, Int32s, Int64s, Receipt
from nbprof.core.wire import FIXED64
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.chrome.part import Rows
from nbprof.formats.perfetto import fields as perfetto_fields
from nbprof.formats.perfetto import sequences as perfetto_sequences
from nbprof.formats.perfetto.fields import Fields, Spec
from nbprof.formats.perfetto.sequences import Sequences, content, contents, part, text, whole
from nbprof.formats.perfetto.texts import Texts

STAGE, COUNTER = 53, 52
"""Where a packet has them."""
STAGE_SPEC: Spec = dict.fromkeys((1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20, 21))
COUNTER_SPEC: Spec = dict.fromkeys((1, 2, 3, 4))
CATEGORY = "gpu_render_stage"
_NUMBERS = {
    1: "event id",
    5: "context",
    8: "render target",
    9: "render pass",
    10: "submission id",
    12: "command buffer",
    16: "render pass instance",
    19: "kernel iid",
}
_CATEGORIES = {1: "graphics", 2: "compute"}


@dataclass
class Gpu:
    """The packets of GPUs of one file."""

    fields: Fields
    buf: wire.Bytes
    sequences: Sequences
    texts: Texts
    receipt: Receipt
    time: Int64s
    usable: npt.NDArray[np.bool_]
    """Of all packets, times in ns and whether they can be read."""
    damaged: int = 0
    """Descriptions and extras that could not be read."""

    def add_to(self, builder: Builder, host: str) -> None:
        """Puts stages and counters into a trace."""
        self._stages(builder, host)
        self._counters(builder, host)

    def _stages(self, builder: Builder, host: str) -> None:
        f = self.fields
        # A packet without the id of an event only lists queues and stages, as drivers wrote them
        # before 2021.
        row = np.flatnonzero(f.has(STAGE, 1) & self.usable).astype(np.int32)
        if not len(row):
            return
        queue = self._name((13, 3), row, "queue")
        stage = self._name((14, 4), row, "render stage")
        name = stage.copy()
        ident = f.number(STAGE, 20)[row]
        if ident.any():
            table = perfetto_sequences.NAME
            found = self.sequences.lookup(
                table, row, ident, self.texts.of_table(self.sequences, table)
            )
            name = np.where(found >= 0, found, name)
        own, start, end = f.spans(STAGE, 17)
        if len(own):
            codes = np.full(f.count, -1, np.int32)
            codes[own] = self.texts.spans(self.buf, start, end)
            name = np.where(codes[row] >= 0, codes[row], name)
        gpu = f.number(STAGE, 11)[row]
        listed = self.texts.listed
        pairs, which = np.unique(
            np.stack([gpu, queue.astype(np.int64)]), axis=1, return_inverse=True
        )
        numbers = []
        for number, code in pairs.T.tolist():
            device = f"GPU {number}"
            numbers.append(builder.lane(host, device, listed[code], labels=device, process_sort=-1))
        lane = np.array(numbers, np.int32)[which.reshape(-1)]
        args: dict[str, Values] = {"cat": CATEGORY, "device": gpu, "stage": Coded(stage)}
        place = np.full(f.count, -1, np.int32)
        place[row] = np.arange(len(row), dtype=np.int32)
        for number, key in _NUMBERS.items():
            at, value = f.numbers(STAGE, number)
            at = place[at]
            known = at >= 0
            if known.any():
                args[key] = Rows(at[known], np.full(int(known.sum()), INT, np.uint8), value[known])
        args |= self._launches(place) | self._extras(place) | self._kinds(row)
        length = f.number(STAGE, 2)[row]
        builder.add(lane, name, self.time[row], length, args)

    def _name(self, numbers: tuple[int, int], row: Int32s, kind: str) -> Int32s:
        """The name of the queue or stage of each event: interned, or its number."""
        interned, plain = numbers
        table, f = perfetto_sequences.QUEUE, self.fields
        ident = f.number(STAGE, interned)[row]
        out = self.sequences.lookup(table, row, ident, self._specifications())
        by_number = np.where(ident == 0, f.number(STAGE, plain)[row], ident)
        unnamed = (ident == 0) | (out < 0)
        if unnamed.any():
            out[unnamed] = self.texts.numbered(kind, by_number[unnamed])
        return out

    def _specifications(self) -> list[int]:
        """The code of the name of each interned queue or stage; -1 for none."""
        out: list[int] = []
        for data in self.sequences.tables.get(perfetto_sequences.QUEUE, {}).values():
            try:
                found = part(data)
            except ReadError:
                self.damaged += 1
                found = {}
            out.append(self.texts.code(name) if (name := text(found, 2)) else -1)
        return out

    def _kinds(self, row: Int32s) -> dict[str, Values]:
        """What stages say of themselves: graphics or compute."""
        kinds: list[int] = []
        for data in self.sequences.tables.get(perfetto_sequences.QUEUE, {}).values():
            try:
                kind = _CATEGORIES.get(whole(part(data), 4), "")
            except ReadError:
                kind = ""
            kinds.append(self.texts.code(kind) if kind else -1)
        code = self.sequences.lookup(
            perfetto_sequences.QUEUE, row, self.fields.number(STAGE, 14)[row], kinds
        )
        return {"stage category": Coded(code)} if (code >= 0).any() else {}

    def _launches(self, place: Int32s) -> dict[str, Values]:
        """Grid and block of kernels, as Kineto writes them: `[64, 1, 1]`."""
        at, start, end = self.fields.spans(STAGE, 21)
        known = place[at] >= 0
        at, start, end = place[at[known]], start[known], end[known]
        if not len(at):
            return {}
        which, launches = distinct(self.buf, start, end - start)
        out: dict[str, Values] = {}
        for key, number in (("grid", 1), ("block", 2)):
            codes = np.array([self._dimensions(one, number) for one in launches], np.int64)[which]
            given = codes >= 0
            if given.any():
                out[key] = Rows(at[given], np.full(int(given.sum()), TEXT, np.uint8), codes[given])
        return out

    def _dimensions(self, data: bytes, number: int) -> int:
        try:
            inner = content(part(data), number)
            size = part(inner) if inner is not None else None
        except ReadError:
            self.damaged += 1
            size = None
        return (
            -1
            if size is None
            else self.texts.code(str([whole(size, axis, 1) for axis in (1, 2, 3)]))
        )

    def _extras(self, place: Int32s) -> dict[str, Values]:
        """What a driver states beside these, by name."""
        at, start, end = self.fields.spans(STAGE, 6)
        known = place[at] >= 0
        at, start, end = place[at[known]], start[known], end[known]
        if not len(at):
            return {}
        which, extras = distinct(self.buf, start, end - start)
        rows: dict[str, list[tuple[int, int]]] = {}
        for i, data in enumerate(extras):
            try:
                found = part(data)
            except ReadError:
                self.damaged += 1
                continue
            rows.setdefault(text(found, 1) or "extra", []).append(
                (i, self.texts.code(text(found, 2)))
            )
        out: dict[str, Values] = {}
        for key, pairs in rows.items():
            table = np.full(len(extras), -1, np.int64)
            for i, code in pairs:
                table[i] = code
            given = table[which] >= 0
            out[key] = Rows(
                at[given], np.full(int(given.sum()), TEXT, np.uint8), table[which[given]]
            )
        return out

    def _counters(self, builder: Builder, host: str) -> None:
        f = self.fields
        row, start, end = f.spans(COUNTER, 2)
        given = self.usable[row]
        row, start, end = row[given], start[given], end[given]
        if not len(row):
            return
        samples = perfetto_fields.read(self.buf, start, end, dict.fromkeys((1, 2, 3)))
        double = samples.has(3)
        value = np.where(
            double,
            samples.number(3, kind=FIXED64).view(np.float64),
            samples.number(2).astype(np.float64),
        )
        counter, descriptor = samples.number(1), f.number(COUNTER, 4)[row]
        state = np.where(descriptor != 0, self.sequences.state[row], -1)
        gpus = f.number(COUNTER, 3)[row]
        key = pd.factorize(pd.MultiIndex.from_arrays([counter, descriptor, state, gpus]))[0]
        plain = self._described()
        described: dict[tuple[int, int], tuple[dict[int, str], int]] = {}
        unknown = first = 0
        there = ~samples.bad & (double | samples.has(2))
        self.receipt.skip(
            "left out: samples of GPU counters without a value, or damaged.", int((~there).sum())
        )
        some = np.flatnonzero(there)
        for mine in (some[group] for group in rows_by_value(key[some])):
            at = mine[0]
            number, gpu = int(counter[at]), int(gpus[at])
            if descriptor[at]:
                known = (int(state[at]), int(descriptor[at]))
                if known not in described:
                    described[known] = self._interned(int(row[at]), known[1])
                names, gpu = described[known]
            else:
                names = plain
            if not names.get(number):
                unknown += len(mine)
                continue
            device = f"GPU {gpu}"
            lane = builder.lane(host, device, "counters", labels=device, process_sort=-1, sort=1)
            turn = mine[np.argsort(self.time[row[mine]], kind="stable")]
            times = self.time[row[turn]]
            # A sample tells of the time before it: it is drawn from the one before on. That of the
            # first is of unknown length.
            first += 1
            builder.counter(lane, names[number], times[:-1], value[turn][1:])
        self.receipt.skip("left out: samples of GPU counters that are not described.", unknown)
        if first:
            self.receipt.info(
                "First samples of GPU counters, not shown because nothing says when their"
                f" intervals began: {first:,}."
            )

    def _described(self) -> dict[int, str]:
        out: dict[int, str] = {}
        _, start, end = self.fields.spans(COUNTER, 1)
        for a, b in zip(start.tolist(), end.tolist(), strict=True):
            for number, name in self._counter_names(bytes(self.buf.data[a:b])).items():
                out.setdefault(number, name)
        return out

    def _interned(self, row: int, ident: int) -> tuple[dict[int, str], int]:
        """Names of the counters of an interned description, and its GPU."""
        data = self.sequences.entry(perfetto_sequences.GPU_COUNTERS, row, ident)
        try:
            found = part(data or b"")
        except ReadError:
            self.damaged += 1
            found = {}
        return self._counter_names(content(found, 2) or b""), whole(found, 3)

    def _counter_names(self, descriptor: bytes) -> dict[int, str]:
        out: dict[int, str] = {}
        try:
            for one in contents(part(descriptor), 1):
                spec = part(one)
                out.setdefault(whole(spec, 1), text(spec, 2))
        except ReadError:
            self.damaged += 1
        return out
