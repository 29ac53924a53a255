"""The device side of a Kineto trace: classes of work, kernels, copies, collectives, devices."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity import copies
from nbprof.activity.tables import (
    Collectives,
    DeviceOps,
    Extents,
    GraphWork,
    Kernels,
    Launches,
    Transfers,
    extents,
    located,
)
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.dialects import device_peaks, tensorcores, torchnames
from nbprof.dialects.gpu.hosts import UNDESCRIBED
from nbprof.dialects.gpu.lanes import FILL, KERNEL, OP
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.origins import Origins
from nbprof.dialects.lookups import names_that, text_of

Flags = npt.NDArray[np.bool_]


class Work:
    """The pieces of device work of a trace; arrays are by position in `links.work`.

    Each array is computed when it is first needed.
    """

    def __init__(
        self,
        links: Links,
        amd: Sequence[bool],
        origins: Origins,
        process_groups: Sequence[Mapping[str, str]],
    ) -> None:
        self.links = links
        self.origins = origins
        self.amd = amd
        """By host: True if its devices are AMD's."""
        self.process_groups = process_groups
        """By host: the program's descriptions of its process groups, by their names."""
        self.rows = links.work
        self.name: Int64s = links.trace.events.name[self.rows].astype(np.int64)
        self.is_kernel: Flags = links.kind[self.rows] == KERNEL

    @cached_property
    def input_type(self) -> Int64s:
        """String code of the `Input type` of the op that launched each, -1."""
        return self._of_op("Input type")

    def _of_op(self, arg: str) -> Int64s:
        links = self.links
        codes = np.full(len(self.rows), -1, np.int64)
        has_op = links.work_op >= 0
        codes[has_op] = links.trace.text_arg(arg)[links.ops.rows[links.work_op[has_op]]]
        return codes

    @cached_property
    def collective(self) -> Flags:
        """Kernels of collectives: by their name, the stated collective, or the op around them."""
        links, trace = self.links, self.links.trace
        by_name = np.zeros(len(trace.names), np.bool_)
        for code in pd.unique(self.name[self.is_kernel]).tolist():
            by_name[code] = torchnames.is_collective(str(trace.names[code]))
        is_collective = by_name[self.name]
        is_collective |= trace.text_arg("Collective name")[self.rows] >= 0
        ops = np.zeros(len(links.names) + 1, np.bool_)
        for code in pd.unique(links.work_name).tolist():
            ops[code] = code >= 0 and torchnames.collective_op(str(links.names[code]))
        is_collective |= ops[links.work_name]
        return is_collective & self.is_kernel

    @cached_property
    def direction(self) -> Int64s:
        """String code of the direction that a copy of an MTIA states, -1."""
        dma = names_that(torchnames.MTIA_COPY.__eq__, self.links.trace.names)[self.name]
        return np.where(dma, self.links.trace.text_arg("direction")[self.rows], -1)

    def transfer_kind(self, position: int) -> str:
        """The direction of a copy."""
        direction = int(self.direction[position])
        trace = self.links.trace
        name = str(trace.names[self.name[position]])
        kind = torchnames.transfer_kind(name, text_of(trace.strings, direction))
        if kind == copies.OTHER and self.links.kind[self.rows[position]] == FILL:
            return copies.FILL
        return kind

    @cached_property
    def cls(self) -> Int64s:
        """Step class of each."""
        trace = self.links.trace
        first, code = unique_rows(
            self.name, self.input_type, self.direction, self.is_kernel.astype(np.int64)
        )
        table = np.zeros(len(first), np.int64)
        for i, row in enumerate(first.tolist()):
            if self.is_kernel[row]:
                name = str(trace.names[self.name[row]])
                table[i] = _kernel_class(name, text_of(trace.strings, self.input_type[row]))
            else:
                table[i] = copies.CLASS[self.transfer_kind(row)]
        classes = table[code]
        classes[self.collective] = act.DEVICE_COLLECTIVES
        return classes

    def kernels(self, activity: act.Activity) -> tuple[Kernels, list[dict[str, object]]]:
        """The `kernels` table, and the launch shapes that its `details` count."""
        links, trace = self.links, self.links.trace
        positions = np.flatnonzero(self.is_kernel)
        rows = self.rows[positions]
        shapes, details = self._launch_shapes(rows, links.launch[positions])
        # Only GPUs have Tensor Cores or matrix cores; names of other kernels do not tell.
        gpu = self.on_gpu[positions]
        eligible_op = self.eligible
        host = links.host[rows]
        pairs, code = unique_rows(
            self.name[positions],
            links.work_name[positions],
            self.input_type[positions],
            host.astype(np.int64),
        )
        kernel, op = np.zeros(len(pairs), np.int32), np.zeros(len(pairs), np.int32)
        uses, integers = np.zeros(len(pairs), np.int8), np.zeros(len(pairs), np.bool_)
        for i, row in enumerate(pairs.tolist()):
            name = str(trace.names[self.name[positions[row]]])
            kernel[i] = activity.kernel_names.code(name)
            label = links.work_name[positions[row]]
            op[i] = activity.ops.code(text_of(links.names, label))
            uses[i] = tensorcores.uses_tensor_core(name, self.amd[int(host[row])])
            types = self.input_type[positions[row]]
            integers[i] = types >= 0 and torchnames.whole_numbers(trace.strings[types])
        used = (uses[code] == tensorcores.YES) & gpu
        # A collective is not a product, whatever op launched it.
        could = (
            eligible_op[positions] & ~integers[code] & ~self.collective[positions] & gpu
        ) | used
        is_known = could | self.collective[positions] | (gpu & self.of_op[positions])
        frame = Kernels(
            event=rows,
            host=host,
            device=links.device[rows],
            duration=trace.events.duration[rows],
            kernel=kernel[code],
            op=op[code],
            details=details,
            eligible=np.where(is_known, could, tensorcores.UNKNOWN).astype(np.int8),
            tensor_core=np.where(gpu, uses[code], tensorcores.UNKNOWN).astype(np.int8),
            occupancy=_occupancy(self.links, rows),
            **self.origins.of_work(positions, activity),
        )
        return frame, shapes

    def _launch_shapes(
        self, rows: Int64s, launch: Int64s
    ) -> tuple[list[dict[str, object]], npt.NDArray[np.int32]]:
        """The distinct launch shapes of kernels, and the index of each kernel's shape."""
        trace = self.links.trace
        registers = trace.arg("registers per thread")[rows]
        shared = _or_launch(trace.arg("shared memory"), rows, launch)
        block = _or_launch(trace.text_arg("block"), rows, launch)
        grid = _or_launch(trace.text_arg("grid"), rows, launch)
        first, shape = unique_rows(registers, shared, block, grid)
        shapes: list[dict[str, object]] = []
        for i in first.tolist():
            shapes.append(
                {
                    "registers": _or_none(registers[i]),
                    # The file has the sum of both kinds of shared memory.
                    "static_shared_bytes": _or_none(shared[i]),
                    "dynamic_shared_bytes": None,
                    "block": _dimensions(trace.strings, block[i]),
                    "grid": _dimensions(trace.strings, grid[i]),
                }
            )
        return shapes, shape.astype(np.int32)

    def graph_work(self, activity: act.Activity) -> GraphWork:
        """The `graph_work` table: device work of replays of graphs."""
        links, graphs, events = self.links, self.links.graphs, self.links.trace.events
        positions, rows = graphs.positions, self.rows[graphs.positions]
        nodes = graphs.nodes.iloc[graphs.node]
        kernel, kernel_codes = pd.factorize(self.name[positions])
        kernels = activity.kernel_names.encode(map(str, links.trace.names[kernel_codes]))
        op, op_codes = pd.factorize(links.work_name[positions])
        ops = activity.ops.encode(text_of(links.names, code) for code in op_codes.tolist())
        return GraphWork(
            **located(events, rows, links.host[rows], device=links.device[rows]),
            graph=nodes["graph"].to_numpy(np.int64),
            node=nodes["node"].to_numpy(np.int64),
            replay=graphs.replay,
            name=kernels[kernel],
            op=ops[op],
            **self.origins.of_work(positions, activity, instances=True),
        )

    @cached_property
    def on_gpu(self) -> Flags:
        """True where a piece ran on a GPU, not on another kind of device."""
        trace = self.links.trace
        of_gpu = trace.lanes["process"].astype(str).str.startswith("GPU").to_numpy(np.bool_)
        return of_gpu[trace.events.lane[self.rows]]

    @cached_property
    def eligible(self) -> Flags:
        """True where the op of a piece is a product, convolution or attention.

        An op around it counts as well if it has no such op inside and launches nothing. Other work
        of an op that leaves its products to an inner op (the bias of a convolution, the softmax of
        attention), or that launches them (the bias in the backward pass of a convolution), does not
        count.
        """
        links = self.links
        ops = links.ops
        if not len(links.work):
            return np.zeros(0, np.bool_)
        names = names_that(torchnames.tensor_core_eligible, links.trace.names)
        flag = names[links.trace.events.name[ops.rows]]
        around = flag.copy()
        above = ops.parent[np.flatnonzero(flag)]
        while len(above := np.unique(above[above >= 0])):
            around[above] = False
            above = ops.parent[above]
        op = links.work_op.copy()
        around[np.unique(op[op >= 0])] = False
        result = np.zeros(len(op), np.bool_)
        result[op >= 0] = flag[op[op >= 0]]
        open_ = np.flatnonzero((op >= 0) & ~result)
        while len(open_):
            op[open_] = ops.parent[op[open_]]
            open_ = open_[op[open_] >= 0]
            result[open_] = around[op[open_]]
            open_ = open_[~result[open_]]
        return result

    @cached_property
    def of_op(self) -> Flags:
        """True where a framework's op launched a piece, rather than a range of the program."""
        links = self.links
        result = np.zeros(len(links.work_op), np.bool_)
        has_op = links.work_op >= 0
        result[has_op] = (links.kind == OP)[links.ops.rows[links.work_op[has_op]]]
        return result

    def device_ops(self, activity: act.Activity, compiled: Flags) -> DeviceOps:
        """The `device_ops` table: work counts for the innermost op, or for its kernel."""
        links, trace = self.links, self.links.trace
        label = np.where(links.work_name >= 0, links.work_name, -2 - self.name)
        labels, code = np.unique(label, return_inverse=True)
        op, kind = np.zeros(len(labels), np.int32), np.zeros(len(labels), np.int32)
        for i, value in enumerate(labels.tolist()):
            if value >= 0:
                name = str(links.names[value])
                op_type = torchnames.op_type(name)
            else:
                name, op_type = str(links.names[-2 - value]), "kernel"
            op[i] = activity.ops.code(name)
            kind[i] = activity.types.code(op_type)
        events = trace.events
        eager = np.ones(len(self.rows), np.bool_)
        has_op = links.work_op >= 0
        eager[has_op] = ~compiled[links.work_op[has_op]]
        code = code.reshape(-1)
        return DeviceOps(
            **located(events, self.rows, links.host[self.rows], device=links.device[self.rows]),
            op=op[code],
            type=kind[code],
            eager=eager,
            own=events.duration[self.rows],
            # Kernels, copies and fills of an op are counted together: an op is one part.
            part=op[code],
            tensor_core=np.full(len(self.rows), -1, np.int8),
        )

    def transfers(self, activity: act.Activity) -> Transfers:
        """The `transfers` table; `pageable` marks copies whose host memory is not pinned.

        `rate` is the stated bytes per second: old files have whole microseconds, too coarse to
        compute the rate of a short copy.
        """
        links, trace = self.links, self.links.trace
        positions = np.flatnonzero(~self.is_kernel)
        rows = self.rows[positions]
        first, code = unique_rows(self.name[positions], self.direction[positions])
        kind = activity.texts.encode(map(self.transfer_kind, positions[first].tolist()))
        names = trace.names[self.name[positions[first]]]
        pageable = names_that(lambda name: "pageable" in name.lower(), names)
        size = trace.arg("bytes")[rows]
        if (self.direction[positions] >= 0).any():
            size = np.where(self.direction[positions] >= 0, trace.arg("size")[rows], size)
        events = trace.events
        return Transfers(
            **located(events, rows, links.host[rows], device=links.device[rows]),
            kind=kind[code],
            bytes=size,
            pageable=pageable[code],
            rate=1e9 * _numbers(links, "memory bandwidth (GB/s)")[rows],
        )

    def launches(self) -> Launches:
        """The `launches` table: a row per launch and device event, and per launch without events.

        `came_of` is the op of the device event: for a node of a graph, the op that was captured,
        not the one that launched the graph.
        """
        links, trace = self.links, self.links.trace
        has = links.launch >= 0
        starts = names_that(torchnames.starts_work, trace.names)
        # A call that was captured into a graph starts nothing.
        answered = links.captured.copy()
        answered[np.searchsorted(links.calls, links.launch[has])] = True
        alone = links.calls[starts[trace.events.name[links.calls]] & ~answered]
        event = np.concatenate([links.launch[has], alone])
        target = np.concatenate([self.rows[has], np.full(len(alone), -1, np.int64)])
        op = links.call_op[np.searchsorted(links.calls, event)]
        came = np.concatenate([links.work_op[has], np.full(len(alone), -1, np.int64)])
        order = np.lexsort((target, event))
        # The last one is for calls of no op.
        op_rows = np.append(links.ops.rows, -1)
        return Launches(
            event=event,
            host=links.host[event],
            target=target,
            op=op_rows[op],
            came_of=op_rows[came],
        ).take(order)

    def collectives(self, activity: act.Activity) -> Collectives:
        """The `collectives` table; each rank puts in `bytes` and gets `out_bytes`.

        `process_group`, `members` and `description` are codes into `texts`, `sequence` counts the
        collectives of a group; -1 if not stated.
        """
        links, trace = self.links, self.links.trace
        rows = self.rows[self.collective]
        stated_name, dtype = trace.text_arg("Collective name")[rows], trace.text_arg("dtype")[rows]
        first, code = unique_rows(trace.events.name[rows].astype(np.int64), stated_name, dtype)
        name, width = np.zeros(len(first), np.int32), np.zeros(len(first), np.int64)
        for i, row in enumerate(first.tolist()):
            if stated_name[row] >= 0:
                text = trace.strings[stated_name[row]]
            else:
                kernel = str(trace.names[trace.events.name[rows[row]]])
                text = torchnames.collective_name(kernel)
            name[i] = activity.texts.code(text)
            if dtype[row] >= 0:
                width[i] = torchnames.DTYPE_BYTES.get(trace.strings[dtype[row]].lower(), 0)
        width = width[code]
        return Collectives(
            **located(trace.events, rows, links.host[rows], device=links.device[rows]),
            name=name[code],
            bytes=_bytes(trace.arg("In msg nelems")[rows], width),
            group_size=trace.arg("Group size")[rows].astype(np.int32),
            out_bytes=_bytes(trace.arg("Out msg nelems")[rows], width),
            process_group=self._texts_of("Process Group Name", rows, activity),
            description=self._descriptions(rows, activity),
            members=self._texts_of("Process Group Ranks", rows, activity),
            sequence=trace.arg("Seq")[rows],
        )

    def _descriptions(self, rows: Int64s, activity: act.Activity) -> Int64s:
        """Description of the process group of each, from the event or the file's list of groups."""
        trace = self.links.trace
        described = trace.text_arg("Process Group Description")[rows]
        named = trace.text_arg("Process Group Name")[rows]
        host = self.links.host[rows].astype(np.int64)
        first, code = unique_rows(host, described, named)
        descriptions = np.full(len(first), -1, np.int64)
        for i, row in enumerate(first.tolist()):
            text = text_of(trace.strings, described[row])
            if text in ("", UNDESCRIBED):
                group = text_of(trace.strings, named[row])
                text = self.process_groups[host[row]].get(group, "")
            if text not in ("", UNDESCRIBED):
                descriptions[i] = activity.texts.code(text)
        return descriptions[code]

    def _texts_of(self, key: str, rows: Int64s, activity: act.Activity) -> Int64s:
        """An arg as codes into the texts of the activity, -1 for none."""
        trace = self.links.trace
        strings = trace.text_arg(key)[rows]
        codes = strings.copy()
        for string in pd.unique(strings[strings >= 0]).tolist():
            codes[strings == string] = activity.texts.code(str(trace.strings[string]))
        return codes

    def extents(self) -> Extents:
        """First start and last end of each device."""
        events = self.links.trace.events
        rows = self.rows
        return extents(
            self.links.host[rows], self.links.device[rows], events.start[rows], events.end[rows]
        )


def _kernel_class(name: str, types: str) -> int:
    """Step class by the op's tensors, or by the kernel's name if these have both widths or none.

    A kernel that only copies is a copy.
    """
    if copies.blit(name):
        return act.DEVICE_TO_DEVICE
    bits = torchnames.input_precision(types) or tensorcores.kernel_precision(name)
    return act.COMPUTE_OF_BITS[bits]


def _bytes(elements: Int64s, width: Int64s) -> Int64s:
    """Size of elements; -1 if number or width are unknown."""
    return np.where((elements >= 0) & (width > 0), elements * width, -1)


def _or_launch(values: Int64s, rows: Int64s, launch: Int64s) -> Int64s:
    """An arg of kernels; that of the launch if the kernel lacks it (ROCm)."""
    recorded = values[rows]
    return np.where((recorded < 0) & (launch >= 0), values[launch], recorded)


def _or_none(value: np.int64) -> int | None:
    return int(value) if value >= 0 else None


def _dimensions(strings: Sequence[str], code: np.int64) -> str:
    """`128,1,1` out of "[128, 1, 1]"; empty unless it is a list of numbers."""
    if code < 0:
        return ""
    try:
        value = ast.literal_eval(strings[int(code)])
    except (ValueError, SyntaxError):
        return ""
    if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
        return ""
    return ",".join(map(str, map(int, value)))


def _occupancy(links: Links, rows: Int64s) -> npt.NDArray[np.float64]:
    """`est. achieved occupancy %`; NaN if unknown, which recorders write as 0."""
    value = _numbers(links, "est. achieved occupancy %")[rows]
    return np.where(value > 0, value, np.nan)


def _numbers(links: Links, arg: str) -> npt.NDArray[np.float64]:
    """The numbers of an arg for all events, NaN where there is none."""
    numbers = np.full(len(links.trace.events), np.nan)
    column = links.trace.args.get(arg)
    if column is not None:
        numbers[column.event] = column.floats()
    return numbers


def devices(links: Links, properties: Sequence[Sequence[dict[str, object]]]) -> pd.DataFrame:
    """One row per device with activity; if there is none, one per device that the file names.

    Parameters
    ----------
    links : Links
    properties : sequence
        By host, the items of `deviceProperties`.
    """
    lanes = links.trace.lanes
    used = lanes[(lanes["kind"] == "device") & (lanes["events"] > 0)]
    rows: list[dict[str, object]] = []
    for host, name in enumerate(links.trace.hosts):
        facts: dict[int, dict[str, object]] = {}
        for described in properties[host]:
            ident = described.get("id")
            if isinstance(ident, int):
                facts[ident] = described
        host_lanes = used[used["host"] == name]
        families = [str(process).partition(" ")[0] for process in host_lanes["process"]]
        worked = dict(zip(host_lanes["device"].tolist(), families, strict=True))
        for device in sorted(worked or facts):
            rows.append(_device(name, device, worked.get(device, "GPU"), facts.get(device, {})))
    return pd.DataFrame(rows, columns=act.DEVICES)


def _device(host: str, device: int, kind: str, facts: dict[str, object]) -> dict[str, object]:
    major, minor = facts.get("computeMajor"), facts.get("computeMinor")
    name = str(facts.get("name") or kind)
    amd = "AMD" in name or "Instinct" in name or "Radeon" in name
    peaks = device_peaks.by_name(name)
    capability = None
    if isinstance(major, int) and isinstance(minor, int) and not amd:
        capability = f"{major}.{minor}"
    clock = _int(facts.get("clockRate"))
    return {
        "host": host,
        "device": device,
        "kind": kind,
        "name": name,
        "compute_capability": capability,
        "memory_bytes": _int(facts.get("totalGlobalMem")),
        # Nsight Systems states it; for Kineto it is looked up by the name of the device.
        "memory_bytes_per_second": facts.get("memoryBandwidth") or peaks.get("memory", np.nan),
        # Kineto states none.
        "clock_khz": None if clock is None else clock // 1000,
        "peak_flops_per_second": peaks.get("float16", np.nan),
        "cores": _int(facts.get("numSms"), facts.get("maxComputeUnits")),
    }


def _int(value: object, otherwise: Any = None) -> Any:
    """A stated number; something else if it is not a number."""
    return value if isinstance(value, int) else otherwise
