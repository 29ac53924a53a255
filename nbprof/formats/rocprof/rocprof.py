"""Reads recordings of AMD's rocprofv3 into a `Trace`: kernels, copies, calls of HIP and HSA, ROCTx
ranges, counters, of any number of processes.

Args are called as PyTorch's traces call them where they are the same thing: `correlation`,
`device`, `stream`, `grid`, `block`, `bytes`. A grid is stated in work-items; here it counts
workgroups, as the last of them may be partly filled rounded up. Counters are args of their kernels
under their own names, the sum over their instances.

Times are ns since the machine began. They have no date, and those of different machines have
nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.factorize import unique_rows
from nbprof.core.files import SourceFile, printable
from nbprof.core.receipt import Receipt
from nbprof.core.sqlite import MAGIC
from nbprof.core.trace import Int64s, Trace
from nbprof.core.units import join_some
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.notes import labelled
from nbprof.formats.rocprof import notes, results_json, rocpd, tables
from nbprof.formats.rocprof.headers import prefix_of
from nbprof.formats.rocprof.records import SHAPE, Agent, Recording, gpus_of

_HEAD = 256
_KERNEL_ARGS = {
    "queue": "queue",
    "registers per thread": "vgpr",
    "shared memory": "lds",
    "scratch size": "scratch",
    "VGPR count": "vgpr",
    "AccVGPR count": "accum_vgpr",
    "SGPR count": "sgpr",
    "dispatch id": "dispatch",
    "kernel id": "kernel",
}


def read(files: Sequence[SourceFile], progress: Callable[[str], None] | None = None) -> Trace:
    """The trace of one run.

    Parameters
    ----------
    files : sequence of SourceFile
    progress : callable, optional
        Called with a sentence as each file is begun.

    Raises
    ------
    ReadError
        A file could not be read, or none of them holds an event.
    """
    receipt = Receipt()
    named = _recordings(files, progress)
    hosts = _hosts(named)
    recordings = [recording for _, recording in named]
    builder = Builder(receipt)
    prefix = ""
    for host, recording in zip(hosts, recordings, strict=True):
        if len(recordings) > 1:
            prefix = f"{host}: "
        receipt.add(*labelled(prefix, recording.notes))
        receipt.skip(notes.NO_TIMES, recording.bad, key="events_without_time")
        _Adding(builder, recording, host, prefix).add()
    if not len(builder):
        raise ReadError(
            "it has no kernel, copy, call or range with a time. Record with rocprofv3"
            " --runtime-trace (or --kernel-trace), which writes these beside counters.",
            path=files[0].label,
        )
    machines = {recording.machine for recording in recordings} - {""}
    if len(machines) > 1:
        receipt.add(notes.unrelated_clocks())
    return builder.trace(hosts, _metadata(recordings, hosts))


def _recordings(
    files: Sequence[SourceFile], progress: Callable[[str], None] | None
) -> list[tuple[str, Recording]]:
    """Recordings in the files, each with the prefix of its process; the tables of one process are
    read together.
    """
    result: list[tuple[str, Recording]] = []
    tables_of_process: dict[tuple[str, str], list[SourceFile]] = {}
    for file in files:
        prefix, head = prefix_of(file.name), file.head(_HEAD)
        if head.startswith(MAGIC):
            reader = rocpd.read
        elif head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            reader = results_json.read
        else:
            process = file.label.rpartition("/")[0], prefix
            tables_of_process.setdefault(process, []).append(file)
            continue
        if progress:
            progress(f"reading {file.name}")
        result += [(prefix, recording) for recording in reader(file)]
    for (_, prefix), table_files in tables_of_process.items():
        names = [file.name for file in table_files]
        if progress:
            progress(f"reading {join_some(names, 1)}")
        result.append((prefix, tables.read(table_files)))
    for prefix, recording in result:
        if recording.pid < 0 and prefix.isdecimal() and len(prefix) < 10:
            recording.pid = int(prefix)
    return result


def _hosts(recordings: Sequence[tuple[str, Recording]]) -> list[str]:
    """Name of each process: by its file if that was named by hand, else by its number."""
    result: list[str] = []
    machines = {recording.machine for _, recording in recordings}
    unique_prefixes = len({prefix for prefix, _ in recordings}) == len(recordings)
    for prefix, recording in recordings:
        if prefix and not prefix.isdecimal() and unique_prefixes:
            name = printable(prefix)
        elif recording.pid >= 0:
            name = f"process {recording.pid}"
        else:
            name = "process"
        if len(machines) > 1 and recording.machine:
            name = f"{printable(recording.machine)} {name}"
        while name in result:
            name += "'"
        result.append(name)
    return result


def _metadata(recordings: Sequence[Recording], hosts: Sequence[str]) -> dict[str, object]:
    """Properties of the GPUs, in the form of PyTorch's traces: of the first process, and of each
    other by its host.
    """
    facts: list[dict[str, object]] = []
    for recording in recordings:
        gpus = [gpu for gpu in gpus_of(recording.agents) if gpu.facts]
        facts.append({"deviceProperties": list(map(_device_properties, gpus))})
    if len(facts) == 1:
        return facts[0]
    return {**facts[0], "hosts": dict(zip(hosts[1:], facts[1:], strict=True))}


def _device_properties(gpu: Agent) -> dict[str, object]:
    result: dict[str, object] = {"id": gpu.number}
    for key in ("product_name", "name"):
        name = gpu.facts.get(key)
        if isinstance(name, str) and name:
            result.setdefault("name", name)
    properties = {
        "architecture": gpu.facts.get("name"),
        "totalGlobalMem": _memory_bytes(gpu.facts.get("mem_banks")),
        "maxComputeUnits": gpu.facts.get("cu_count"),
        "clockMHz": gpu.facts.get("max_engine_clk_fcompute"),
    }
    for key, value in properties.items():
        if value not in (None, 0):
            result[key] = value
    return result


def _memory_bytes(banks: object) -> int:
    """The size of the largest memory bank; 0 where none is stated."""
    largest = 0
    for bank in banks if isinstance(banks, list) else []:
        size = bank.get("size_in_bytes") if isinstance(bank, dict) else 0
        if isinstance(size, int):
            largest = max(largest, size)
    return largest


class _Adding:
    """One process on its way into a builder."""

    def __init__(self, builder: Builder, recording: Recording, host: str, prefix: str) -> None:
        self.builder = builder
        self.recording = recording
        self.host = host
        self.prefix = prefix
        self.pid = str(max(recording.pid, 0))

    def add(self) -> None:
        """Adds all that it recorded."""
        self._kernels()
        self._copies()
        calls = self.recording.frame("calls")
        if len(calls):
            domain = calls["domain"]
            args = {"cat": self._texts(domain, _category), "domain": self._texts(domain)}
            self._on_threads(calls, args)
        marks = self.recording.frame("marks")
        if len(marks):
            instant = (marks["start"] == marks["end"]).to_numpy()
            self._on_threads(marks[~instant], {"cat": "user_annotation"})
            self._on_threads(marks[instant], {"cat": "mark", "ph": "i"})
        allocations = self.recording.frame("allocations")
        if len(allocations):
            self._on_threads(
                allocations,
                {
                    "cat": self._texts(allocations["domain"]),
                    **_numbers(allocations, bytes="bytes", device="device", queue="queue"),
                },
            )

    def _texts(self, column: pd.Series, wording: Callable[[object], str] = str) -> Coded:
        """Texts of an arg, or what `wording` makes of them."""
        codes = self.builder.codes(list(map(wording, column.cat.categories)))
        return Coded(np.append(codes, np.int32(-1))[column.cat.codes.to_numpy()])

    def _names(self, column: pd.Series, prefix: str = "") -> npt.NDArray[np.int32]:
        """Codes of the names of events, with the prefix that older versions leave out."""
        names = [prefix + str(name).removeprefix(prefix) for name in column.cat.categories]
        nameless = -1
        if column.isna().any():
            nameless = self.builder.texts["?"]
        codes = np.append(self.builder.codes(names), np.int32(nameless))
        return codes[column.cat.codes.to_numpy()]

    def _events(
        self,
        frame: pd.DataFrame,
        lane: npt.NDArray[np.integer],
        args: Mapping[str, Values],
        prefix: str = "",
    ) -> None:
        begin, end = frame["start"].to_numpy(np.int64), frame["end"].to_numpy(np.int64)
        correlation = _masked(frame, "correlation", 1)
        if correlation is not None:
            args = {**args, "correlation": correlation}
        self.builder.add(lane, self._names(frame["name"], prefix), begin, end - begin, args)

    def _on_threads(self, frame: pd.DataFrame, args: Mapping[str, Values]) -> None:
        """Events of the host, on the lanes of their threads; of allocations the tables do not state
        it.
        """
        if not len(frame):
            return
        first, inverse = np.unique(_numbers_of(frame, "thread"), return_inverse=True)
        lanes = []
        for thread in first.tolist():
            tid, name = str(thread), f"thread {thread}"
            if thread < 0:
                tid = name = "allocations"
            lanes.append(
                self.builder.lane(
                    self.host, f"process {self.pid}", name, pid=self.pid, tid=tid, process_sort=1
                )
            )
        self._events(frame, np.array(lanes, np.int32)[inverse.reshape(-1)], args)

    def _device_lanes(
        self, device: Int64s, number: Int64s, titles: Sequence[str]
    ) -> npt.NDArray[np.int32]:
        """The lane of each event of a GPU, by the number of its stream or queue; `titles` names the
        kind of number by row.
        """
        kind, _ = pd.factorize(np.array(titles, object))
        first, inverse = unique_rows(device, kind, number)
        lanes = []
        for row in first.tolist():
            gpu, lane_number, title = int(device[row]), int(number[row]), titles[row]
            thread = title
            if lane_number >= 0:
                thread = f"{title} {lane_number}"
            tid = thread
            if title == "Stream":
                # A stream goes by its number alone, as in PyTorch's traces.
                tid = str(lane_number)
            lanes.append(
                self.builder.lane(
                    self.host,
                    f"GPU {gpu}",
                    thread,
                    pid=f"GPU {gpu}",
                    tid=tid,
                    labels=f"GPU {gpu}",
                    sort=lane_number,
                )
            )
        return np.array(lanes, np.int32)[inverse]

    @property
    def by_stream(self) -> bool:
        """True if HIP's streams are recorded; programs without HIP have queues only."""
        kernels = self.recording.frame("kernels")
        return "stream" in kernels and bool((kernels["stream"] > 0).any() or "queue" not in kernels)

    def _gpu(self, frame: pd.DataFrame) -> Int64s:
        device = _numbers_of(frame, "device")
        count = int((device < 0).sum())
        if count:
            self.builder.receipt.add(notes.unlisted_gpu(self.prefix, count))
        return np.maximum(device, 0)

    def _kernels(self) -> None:
        frame = self.recording.frame("kernels")
        if not len(frame):
            return
        device = self._gpu(frame)
        args: dict[str, Values] = {"cat": "kernel", "device": device}
        key = "queue"
        if self.by_stream:
            key = "stream"
            args |= _numbers(frame, stream="stream")
        lane = self._device_lanes(device, _numbers_of(frame, key), [key.capitalize()] * len(frame))
        args |= _numbers(frame, **_KERNEL_ARGS)
        args |= self._shapes(frame)
        args |= self._counters(frame)
        self._events(frame, lane, args)
        if self.recording.rounded_lds and (frame["lds"] > 0).any():
            self.builder.receipt.add(notes.rounded_lds())

    def _shapes(self, frame: pd.DataFrame) -> dict[str, Values]:
        """`grid` in workgroups and `block` in work-items, as PyTorch's traces write them."""
        if not set(SHAPE) <= set(frame.columns):
            return {}
        shape = frame[list(SHAPE)].to_numpy(np.int64)
        first, inverse = unique_rows(*shape.T)
        blocks, grids = [], []
        for row in first.tolist():
            size, items = shape[row, :3], shape[row, 3:]
            if size.min() <= 0 or items.min() < 0:
                blocks.append(-1)
                grids.append(-1)
                continue
            workgroups = -(-items // size)
            blocks.append(self.builder.texts[str(size.tolist())])
            grids.append(self.builder.texts[str(workgroups.tolist())])
        self.builder.receipt.add(notes.grids_in_workgroups())
        return {
            "block": Coded(np.array(blocks, np.int32)[inverse]),
            "grid": Coded(np.array(grids, np.int32)[inverse]),
        }

    def _counters(self, frame: pd.DataFrame) -> dict[str, Values]:
        """Counters by their names, summed over their instances; NaN for a kernel without."""
        counters = self.recording.frame("counters")
        if not len(counters) or "dispatch" not in frame:
            return {}
        dispatch = frame["dispatch"].to_numpy(np.int64)
        order = np.argsort(dispatch, kind="stable")
        dispatch_ids = counters["dispatch"].to_numpy(np.int64)
        position = np.minimum(np.searchsorted(dispatch[order], dispatch_ids), len(order) - 1)
        kernel = order[position]
        good = (
            (dispatch[kernel] == dispatch_ids)
            & counters["value"].notna().to_numpy()
            & (dispatch_ids >= 0)
        )
        lost = int((~good).sum())
        if lost:
            self.builder.receipt.add(notes.unmatched_counters(self.prefix, lost))
        result: dict[str, Values] = {}
        code, value = counters["name"].cat.codes.to_numpy(), counters["value"].to_numpy(np.float64)
        for number, name in enumerate(counters["name"].cat.categories):
            rows = np.flatnonzero(good & (code == number))
            if len(rows):
                sums, seen = np.zeros(len(frame)), np.zeros(len(frame), np.bool_)
                np.add.at(sums, kernel[rows], value[rows])
                seen[kernel[rows]] = True
                result[str(name)] = np.where(seen, sums, np.nan)
        return result

    def _copies(self) -> None:
        frame = self.recording.frame("copies")
        if not len(frame):
            return
        device = self._gpu(frame)
        streams = self.by_stream or not len(self.recording.frame("kernels"))
        args: dict[str, Values] = {"cat": "gpu_memcpy", "device": device}
        if streams and "stream" in frame and (frame["stream"] > 0).any():
            number = _numbers_of(frame, "stream")
            titles = ["Stream"] * len(frame)
            args |= _numbers(frame, stream="stream")
        else:
            # Engines copy both ways at once.
            number = np.full(len(frame), -1)
            to_device = frame["target"].astype(str).str.startswith("GPU")
            titles = np.where(to_device, "Copies to the device", "Copies from the device").tolist()
        lane = self._device_lanes(device, number, titles)
        if "bytes" not in frame:
            self.builder.receipt.add(notes.no_copy_sizes(self.prefix))
        args |= _numbers(frame, bytes="bytes")
        for name, key in (("source", "source"), ("destination", "target")):
            if key in frame:
                args[name] = self._texts(frame[key])
        self._events(frame, lane, args, "MEMORY_COPY_")


def _category(domain: object) -> str:
    """`hip_runtime` for HIP_COMPILER_API: the runtime of a library, as PyTorch's traces call that
    of CUDA.
    """
    library = str(domain).lower().partition("_")[0]
    if library.startswith("marker"):
        library = "roctx"
    return f"{library}_runtime"


def _numbers_of(frame: pd.DataFrame, name: str) -> Int64s:
    """A column of whole numbers; -1 where the file lacks it."""
    if name not in frame:
        return np.full(len(frame), -1, np.int64)
    return frame[name].to_numpy(np.int64)


def _masked(frame: pd.DataFrame, name: str, least: int = 0) -> Values | None:
    """A column of whole numbers, those below `least` unknown; None where none is known."""
    if name not in frame:
        return None
    column = frame[name].to_numpy(np.int64)
    unknown = column < least
    if unknown.all():
        return None
    return np.ma.MaskedArray(column, unknown) if unknown.any() else column


def _numbers(frame: pd.DataFrame, **columns: str) -> dict[str, Values]:
    """Args of whole numbers by their name here; those that the file does not state are missing."""
    result: dict[str, Values] = {}
    for arg, name in columns.items():
        values = _masked(frame, name)
        if values is not None:
            result[arg] = values
    return result
