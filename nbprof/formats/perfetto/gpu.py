"""Records of GPU drivers: stages of work on hardware queues, and counters.

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
from nbprof.core.receipt import Receipt
from nbprof.core.runs import rows_by_value
from nbprof.core.trace import INT, TEXT, Int32s, Int64s
from nbprof.core.wire import FIXED64
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.chrome.part import Rows
from nbprof.formats.perfetto import fields as perfetto_fields
from nbprof.formats.perfetto import notes
from nbprof.formats.perfetto import sequences as perfetto_sequences
from nbprof.formats.perfetto.fields import NUMBER, Fields, Spec
from nbprof.formats.perfetto.sequences import Sequences, content, contents, integer, part, text
from nbprof.formats.perfetto.texts import Texts

STAGE, COUNTER = 53, 52
"""Where a packet has them."""
STAGE_SPEC: Spec = {
    **dict.fromkeys((2, 3, 4, 11, 13, 14, 20), NUMBER),
    **dict.fromkeys((1, 5, 6, 8, 9, 10, 12, 16, 17, 19, 21)),
}
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
            stage_names = self.sequences.lookup(
                table, row, ident, self.texts.of_table(self.sequences, table)
            )
            name = np.where(stage_names >= 0, stage_names, name)
        owner, start, end = f.spans(STAGE, 17)
        if len(owner):
            codes = np.full(f.count, -1, np.int32)
            codes[owner] = self.texts.spans(self.buf, start, end)
            name = np.where(codes[row] >= 0, codes[row], name)
        gpu = f.number(STAGE, 11)[row]
        listed = self.texts.listed
        pairs, inverse = np.unique(
            np.stack([gpu, queue.astype(np.int64)]), axis=1, return_inverse=True
        )
        numbers = []
        for number, code in pairs.T.tolist():
            device = f"GPU {number}"
            numbers.append(builder.lane(host, device, listed[code], labels=device, process_sort=-1))
        lane = np.array(numbers, np.int32)[inverse.reshape(-1)]
        args: dict[str, Values] = {"cat": CATEGORY, "device": gpu, "stage": Coded(stage)}
        stage_of = np.full(f.count, -1, np.int32)
        stage_of[row] = np.arange(len(row), dtype=np.int32)
        for number, key in _NUMBERS.items():
            stages, value = f.numbers(STAGE, number)
            stages = stage_of[stages]
            valid = stages >= 0
            if valid.any():
                args[key] = Rows(
                    stages[valid], np.full(int(valid.sum()), INT, np.uint8), value[valid]
                )
        args |= self._launches(stage_of) | self._extras(stage_of) | self._kinds(row)
        length = f.number(STAGE, 2)[row]
        builder.add(lane, name, self.time[row], length, args)

    def _name(self, numbers: tuple[int, int], row: Int32s, kind: str) -> Int32s:
        """The name of the queue or stage of each event: interned, or its number."""
        interned, plain = numbers
        table, f = perfetto_sequences.QUEUE, self.fields
        ident = f.number(STAGE, interned)[row]
        result = self.sequences.lookup(table, row, ident, self._specifications())
        by_number = np.where(ident == 0, f.number(STAGE, plain)[row], ident)
        unnamed = (ident == 0) | (result < 0)
        if unnamed.any():
            result[unnamed] = self.texts.numbered(kind, by_number[unnamed])
        return result

    def _specifications(self) -> list[int]:
        """The code of the name of each interned queue or stage; -1 for none."""
        result: list[int] = []
        for data in self.sequences.tables.get(perfetto_sequences.QUEUE, {}).values():
            try:
                specification = part(data)
            except ReadError:
                self.damaged += 1
                specification = {}
            name = text(specification, 2)
            result.append(self.texts.code(name) if name else -1)
        return result

    def _kinds(self, row: Int32s) -> dict[str, Values]:
        """Kind of each stage: graphics or compute."""
        kinds: list[int] = []
        for data in self.sequences.tables.get(perfetto_sequences.QUEUE, {}).values():
            try:
                kind = _CATEGORIES.get(integer(part(data), 4), "")
            except ReadError:
                kind = ""
            kinds.append(self.texts.code(kind) if kind else -1)
        code = self.sequences.lookup(
            perfetto_sequences.QUEUE, row, self.fields.number(STAGE, 14)[row], kinds
        )
        return {"stage category": Coded(code)} if (code >= 0).any() else {}

    def _launches(self, stage_of: Int32s) -> dict[str, Values]:
        """Grid and block of kernels, as Kineto writes them: `[64, 1, 1]`."""
        stages, start, end = self.fields.spans(STAGE, 21)
        valid = stage_of[stages] >= 0
        stages, start, end = stage_of[stages[valid]], start[valid], end[valid]
        if not len(stages):
            return {}
        inverse, launches = distinct(self.buf, start, end - start)
        result: dict[str, Values] = {}
        for key, number in (("grid", 1), ("block", 2)):
            codes = np.array([self._dimensions(launch, number) for launch in launches], np.int64)[
                inverse
            ]
            values = codes >= 0
            if values.any():
                result[key] = Rows(
                    stages[values], np.full(int(values.sum()), TEXT, np.uint8), codes[values]
                )
        return result

    def _dimensions(self, data: bytes, number: int) -> int:
        try:
            inner = content(part(data), number)
            size = part(inner) if inner is not None else None
        except ReadError:
            self.damaged += 1
            size = None
        if size is None:
            return -1
        return self.texts.code(str([integer(size, axis, 1) for axis in (1, 2, 3)]))

    def _extras(self, stage_of: Int32s) -> dict[str, Values]:
        """Further values that a driver states, by name."""
        stages, start, end = self.fields.spans(STAGE, 6)
        valid = stage_of[stages] >= 0
        stages, start, end = stage_of[stages[valid]], start[valid], end[valid]
        if not len(stages):
            return {}
        inverse, extras = distinct(self.buf, start, end - start)
        rows: dict[str, list[tuple[int, int]]] = {}
        for i, data in enumerate(extras):
            try:
                extra = part(data)
            except ReadError:
                self.damaged += 1
                continue
            rows.setdefault(text(extra, 1) or "extra", []).append(
                (i, self.texts.code(text(extra, 2)))
            )
        result: dict[str, Values] = {}
        for key, pairs in rows.items():
            table = np.full(len(extras), -1, np.int64)
            for i, code in pairs:
                table[i] = code
            is_stated = table[inverse] >= 0
            result[key] = Rows(
                stages[is_stated],
                np.full(int(is_stated.sum()), TEXT, np.uint8),
                table[inverse[is_stated]],
            )
        return result

    def _counters(self, builder: Builder, host: str) -> None:
        f = self.fields
        row, start, end = f.spans(COUNTER, 2)
        usable = self.usable[row]
        row, start, end = row[usable], start[usable], end[usable]
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
        lost = int((~there).sum())
        self.receipt.skip(notes.GPU_COUNTERS_WITHOUT_VALUE, lost, key="counters_without_value")
        some = np.flatnonzero(there)
        for group_rows in (some[group] for group in rows_by_value(key[some])):
            first_row = group_rows[0]
            number, gpu = int(counter[first_row]), int(gpus[first_row])
            if descriptor[first_row]:
                key_ = (int(state[first_row]), int(descriptor[first_row]))
                if key_ not in described:
                    described[key_] = self._interned(int(row[first_row]), key_[1])
                names, gpu = described[key_]
            else:
                names = plain
            if not names.get(number):
                unknown += len(group_rows)
                continue
            device = f"GPU {gpu}"
            lane = builder.lane(host, device, "counters", labels=device, process_sort=-1, sort=1)
            turn = group_rows[np.argsort(self.time[row[group_rows]], kind="stable")]
            times = self.time[row[turn]]
            # A sample tells of the time before it: it is drawn from the one before on. That of the
            # first is of unknown length.
            first += 1
            builder.counter(lane, names[number], times[:-1], value[turn][1:])
        self.receipt.skip(notes.UNDESCRIBED_COUNTERS, unknown, key="undescribed_counters")
        if first:
            self.receipt.add(notes.first_counter_samples(first))

    def _described(self) -> dict[int, str]:
        result: dict[int, str] = {}
        _, start, end = self.fields.spans(COUNTER, 1)
        for a, b in zip(start.tolist(), end.tolist(), strict=True):
            for number, name in self._counter_names(bytes(self.buf.data[a:b])).items():
                result.setdefault(number, name)
        return result

    def _interned(self, row: int, ident: int) -> tuple[dict[int, str], int]:
        """Names of the counters of an interned description, and its GPU."""
        data = self.sequences.entry(perfetto_sequences.GPU_COUNTERS, row, ident)
        try:
            description = part(data or b"")
        except ReadError:
            self.damaged += 1
            description = {}
        return self._counter_names(content(description, 2) or b""), integer(description, 3)

    def _counter_names(self, descriptor: bytes) -> dict[int, str]:
        result: dict[int, str] = {}
        try:
            for content in contents(part(descriptor), 1):
                spec = part(content)
                result.setdefault(integer(spec, 1), text(spec, 2))
        except ReadError:
            self.damaged += 1
        return result
