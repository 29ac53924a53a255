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
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.notes import labelled
from nbprof.formats.rocprof import notes, results_json, rocpd, tables
from nbprof.formats.rocprof.headers import prefix_of
from nbprof.formats.rocprof.records import GPU, SHAPE, Agent, Recording

_HEAD = 256


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
    recordings = _recordings(files, progress)
    hosts = _hosts(recordings)
    builder = Builder(receipt)
    for host, (_, recording) in zip(hosts, recordings, strict=True):
        prefix = f"{host}: " if len(recordings) > 1 else ""
        receipt.add(*labelled(prefix, recording.notes))
        receipt.skip(notes.NO_TIMES, recording.bad, key="events_without_time")
        _Adding(builder, recording, host, prefix).add()
    if not len(builder):
        raise ReadError(
            "it has no kernel, copy, call or range with a time. Record with rocprofv3"
            " --runtime-trace (or --kernel-trace), which writes these beside counters.",
            path=files[0].label,
        )
    machines = {recording.machine for _, recording in recordings if recording.machine}
    if len(machines) > 1:
        receipt.add(notes.unrelated_clocks())
    return builder.trace(hosts, _metadata([recording for _, recording in recordings], hosts))


def _recordings(
    files: Sequence[SourceFile], progress: Callable[[str], None] | None
) -> list[tuple[str, Recording]]:
    """Recordings in the files, each with the prefix of its process; the tables of one process are
    read together.
    """
    result: list[tuple[str, Recording]] = []
    tables_of_process: dict[tuple[str, str], list[SourceFile]] = {}
    for file in files:
        head = file.head(_HEAD)
        if head.startswith(MAGIC) or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
            if progress:
                progress(f"reading {file.name}")
            recordings = rocpd.read(file) if head.startswith(MAGIC) else results_json.read(file)
            result += [(prefix_of(file.name), recording) for recording in recordings]
        else:
            process = file.label.rpartition("/")[0], prefix_of(file.name)
            tables_of_process.setdefault(process, []).append(file)
    for (_, prefix), table_files in tables_of_process.items():
        first = table_files[0].name
        if progress:
            more = f" and {len(table_files) - 1} more" if len(table_files) > 1 else ""
            progress(f"reading {first}{more}")
        result.append((prefix, tables.read(table_files, prefix or first)))
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
        gpus = [agent for agent in recording.agents if agent.type == GPU and agent.facts]
        facts.append({"deviceProperties": [_device_properties(gpu) for gpu in gpus]})
    if len(facts) == 1:
        return facts[0]
    return {**facts[0], "hosts": dict(zip(hosts[1:], facts[1:], strict=True))}


def _device_properties(gpu: Agent) -> dict[str, object]:
    banks = gpu.facts.get("mem_banks")
    sizes: list[object] = []
    if isinstance(banks, list):
        sizes = [bank.get("size_in_bytes") for bank in banks if isinstance(bank, dict)]
    names = (gpu.facts.get(key) for key in ("product_name", "name"))
    properties = {
        "name": next((name for name in names if isinstance(name, str) and name), None),
        "architecture": gpu.facts.get("name"),
        "totalGlobalMem": max((size for size in sizes if isinstance(size, int)), default=None),
        "maxComputeUnits": gpu.facts.get("cu_count"),
        "clockMHz": gpu.facts.get("max_engine_clk_fcompute"),
    }
    reported = {key: value for key, value in properties.items() if value not in (None, 0)}
    return {"id": gpu.number, **reported}


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
            of_domain = {str(name): _category(str(name)) for name in calls["domain"].cat.categories}
            args = {
                "cat": self._texts(calls["domain"].cat.rename_categories(str), of_domain),
                "domain": self._texts(calls["domain"]),
            }
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

    def _texts(self, column: pd.Series, table: dict[str, str] | None = None) -> Coded:
        """Texts of an arg; each replaced by its entry in a table, if one is given."""
        names = [str(name) for name in column.cat.categories]
        codes = self.builder.codes([(table or {}).get(name, name) for name in names])
        return Coded(np.append(codes, np.int32(-1))[column.cat.codes.to_numpy()])

    def _names(self, column: pd.Series, prefix: str = "") -> npt.NDArray[np.int32]:
        """Codes of the names of events, with the prefix that older versions leave out."""
        names = [str(name) for name in column.cat.categories]
        codes = self.builder.codes(
            [name if name.startswith(prefix) else prefix + name for name in names]
        )
        nameless = self.builder.texts["?"] if column.isna().any() else -1
        return np.append(codes, np.int32(nameless))[column.cat.codes.to_numpy()]

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
        threads = (
            frame["thread"].to_numpy(np.int64) if "thread" in frame else np.full(len(frame), -1)
        )
        first, inverse = np.unique(threads, return_inverse=True)
        lanes = []
        for thread in first.tolist():
            tid = str(thread) if thread >= 0 else "allocations"
            name = f"thread {tid}" if thread >= 0 else tid
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
        kinds = list(dict.fromkeys(titles))
        kind = np.array([kinds.index(title) for title in titles], np.int64)
        first, inverse = unique_rows(device, kind, number)
        lanes = []
        for row in first.tolist():
            gpu, lane_number, title = int(device[row]), int(number[row]), titles[row]
            # A stream goes by its number alone, as in PyTorch's traces.
            thread = f"{title} {lane_number}" if lane_number >= 0 else title
            tid = str(lane_number) if title == "Stream" else thread
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
        device: Int64s = (
            frame["device"].to_numpy(np.int64)
            if "device" in frame
            else np.full(len(frame), -1, np.int64)
        )
        if (device < 0).any():
            count = int((device < 0).sum())
            self.builder.receipt.add(notes.unlisted_gpu(self.prefix, count))
        return np.maximum(device, 0)

    def _kernels(self) -> None:
        frame = self.recording.frame("kernels")
        if not len(frame):
            return
        device, key = self._gpu(frame), "stream" if self.by_stream else "queue"
        number = frame[key].to_numpy(np.int64) if key in frame else np.full(len(frame), -1)
        lane = self._device_lanes(device, number, [key.capitalize()] * len(frame))
        args = _numbers(
            frame,
            stream="stream" if self.by_stream else "",
            queue="queue",
            **{
                "registers per thread": "vgpr",
                "shared memory": "lds",
                "scratch size": "scratch",
                "VGPR count": "vgpr",
            },
            **{
                "AccVGPR count": "accum_vgpr",
                "SGPR count": "sgpr",
                "dispatch id": "dispatch",
                "kernel id": "kernel",
            },
        )
        self._events(
            frame,
            lane,
            {
                "cat": "kernel",
                "device": device,
                **args,
                **self._shapes(frame),
                **self._counters(frame),
            },
        )
        if self.recording.rounded_lds and (frame["lds"] > 0).any():
            self.builder.receipt.add(notes.rounded_lds())

    def _shapes(self, frame: pd.DataFrame) -> dict[str, Values]:
        """`grid` in workgroups and `block` in work-items, as PyTorch's traces write them."""
        if not set(SHAPE) <= set(frame.columns):
            return {}
        group = [frame[f"group_{axis}"].to_numpy(np.int64) for axis in "xyz"]
        grid = [frame[f"grid_{axis}"].to_numpy(np.int64) for axis in "xyz"]
        first, inverse = unique_rows(*group, *grid)
        blocks, grids = [], []
        for row in first.tolist():
            size = [int(column[row]) for column in group]
            items = [int(column[row]) for column in grid]
            if min(size) <= 0 or min(items) < 0:
                blocks.append(-1)
                grids.append(-1)
                continue
            workgroups = [-(-count // per) for count, per in zip(items, size, strict=True)]
            blocks.append(self.builder.texts[str(size)])
            grids.append(self.builder.texts[str(workgroups)])
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
        if lost := int((~good).sum()):
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
        by_stream = streams and "stream" in frame and bool((frame["stream"] > 0).any())
        number = frame["stream"].to_numpy(np.int64) if by_stream else np.full(len(frame), -1)
        if by_stream:
            titles = ["Stream"] * len(frame)
        else:
            # Engines copy both ways at once.
            to_device = [str(name).startswith("GPU") for name in frame["target"].astype(object)]
            titles = [f"Copies {'to' if to else 'from'} the device" for to in to_device]
        lane = self._device_lanes(device, number, titles)
        if "bytes" not in frame:
            self.builder.receipt.add(notes.no_copy_sizes(self.prefix))
        ends = {
            name: self._texts(frame[key])
            for name, key in (("source", "source"), ("destination", "target"))
            if key in frame
        }
        args = _numbers(frame, stream="stream" if by_stream else "", bytes="bytes")
        self._events(
            frame, lane, {"cat": "gpu_memcpy", "device": device, **args, **ends}, "MEMORY_COPY_"
        )


def _category(domain: str) -> str:
    """`hip_runtime` for HIP_COMPILER_API: the runtime of a library, as PyTorch's traces call that
    of CUDA.
    """
    domain = domain.lower()
    library = "roctx" if domain.startswith("marker") else domain.partition("_")[0]
    return f"{library}_runtime"


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
    args = {arg: _masked(frame, name) for arg, name in columns.items()}
    return {arg: values for arg, values in args.items() if values is not None}
