"""The device side of a Kineto trace: classes of device work, kernels with their launch shapes,
copies, collectives, devices.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property

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

Flags = npt.NDArray[np.bool_]


class Work:
    """What the pieces of device work of a trace are; arrays are by position in `links.work`. Each
    is made when first needed.
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
        """By host: whether its devices are AMD's."""
        self.process_groups = process_groups
        """By host: what the program calls its process groups, by their names."""
        self.rows = links.work
        self.name: Int64s = links.trace.events.name[self.rows].astype(np.int64)
        self.is_kernel: Flags = links.kind[self.rows] == KERNEL

    @cached_property
    def input_type(self) -> Int64s:
        """String code of the `Input type` of the op that each comes from, -1."""
        return self._of_op("Input type")

    def _of_op(self, arg: str) -> Int64s:
        links = self.links
        out = np.full(len(self.rows), -1, np.int64)
        known = links.work_op >= 0
        out[known] = links.trace.text_arg(arg)[links.ops.rows[links.work_op[known]]]
        return out

    @cached_property
    def collective(self) -> Flags:
        """Kernels that communicate between devices: by their name, by the collective they state, or
        by the op that launched them.
        """
        links, trace = self.links, self.links.trace
        by_name = np.zeros(len(trace.names), np.bool_)
        for code in pd.unique(self.name[self.is_kernel]).tolist():
            by_name[code] = torchnames.is_collective(str(trace.names[code]))
        out = by_name[self.name]
        out |= trace.text_arg("Collective name")[self.rows] >= 0
        ops = np.zeros(len(links.names) + 1, np.bool_)
        for code in pd.unique(links.work_name).tolist():
            ops[code] = code >= 0 and torchnames.collective_op(str(links.names[code]))
        out |= ops[links.work_name]
        return out & self.is_kernel

    @cached_property
    def direction(self) -> Int64s:
        """String code of the direction that a copy of an MTIA states, -1."""
        dma = np.array(
            [str(name) == torchnames.MTIA_COPY for name in self.links.trace.names], np.bool_
        )[self.name]
        return np.where(dma, self.links.trace.text_arg("direction")[self.rows], -1)

    def transfer_kind(self, at: int) -> str:
        """The direction of a copy."""
        stated = self.direction[at]
        kind = torchnames.transfer_kind(
            str(self.links.trace.names[self.name[at]]),
            self.links.trace.strings[stated] if stated >= 0 else "",
        )
        # A fill is one by its category, too.
        return (
            copies.FILL if kind == copies.OTHER and self.links.kind[self.rows[at]] == FILL else kind
        )

    @cached_property
    def cls(self) -> Int64s:
        """Step class of each."""
        trace = self.links.trace
        first, code = unique_rows(
            self.name, self.input_type, self.direction, self.is_kernel.astype(np.int64)
        )
        table = np.zeros(len(first), np.int64)
        for i, row in enumerate(first.tolist()):
            name = str(trace.names[self.name[row]])
            types = trace.strings[self.input_type[row]] if self.input_type[row] >= 0 else ""
            table[i] = (
                _kernel_class(name, types)
                if self.is_kernel[row]
                else copies.CLASS[self.transfer_kind(row)]
            )
        out = table[code] if len(first) else np.zeros(0, np.int64)
        out[self.collective] = act.DEVICE_COLLECTIVES
        return out

    def kernels(self, out: act.Activity) -> tuple[Kernels, list[dict[str, object]]]:
        """The `kernels` table, and the launch shapes that its `details` count."""
        links, trace = self.links, self.links.trace
        at = np.flatnonzero(self.is_kernel)
        rows = self.rows[at]
        launch = links.launch[at]
        registers = trace.arg("registers per thread")[rows]
        shared, block, grid = (
            _or_launch(trace.arg("shared memory"), rows, launch),
            *self._shape_codes(rows, launch),
        )
        first, details = unique_rows(registers, shared, block, grid)
        shapes: list[dict[str, object]] = [
            {
                "registers": _known(registers[i]),
                # The file has the sum of both kinds of shared memory.
                "static_shared_bytes": _known(shared[i]),
                "dynamic_shared_bytes": None,
                "block": _dimensions(trace.strings, block[i]),
                "grid": _dimensions(trace.strings, grid[i]),
            }
            for i in first.tolist()
        ]
        # Tensor Cores, or matrix cores, are of GPUs; what kernels of other devices use their names
        # do not tell.
        gpu = self.on_gpu[at]
        eligible_op = self.eligible
        host = links.host[rows]
        pairs, code = unique_rows(
            self.name[at], links.work_name[at], self.input_type[at], host.astype(np.int64)
        )
        kernel, op = np.zeros(len(pairs), np.int32), np.zeros(len(pairs), np.int32)
        uses, whole = np.zeros(len(pairs), np.int8), np.zeros(len(pairs), np.bool_)
        for i, row in enumerate(pairs.tolist()):
            name = str(trace.names[self.name[at[row]]])
            kernel[i] = out.kernel_names.code(name)
            label = links.work_name[at[row]]
            op[i] = out.ops.code(str(links.names[label]) if label >= 0 else "")
            uses[i] = tensorcores.uses_tensor_core(name, self.amd[int(host[row])])
            types = self.input_type[at[row]]
            whole[i] = types >= 0 and torchnames.whole_numbers(trace.strings[types])
        used = (uses[code] == tensorcores.YES) & gpu
        # What communicates is no product, whatever op it was launched by.
        could = (eligible_op[at] & ~whole[code] & ~self.collective[at] & gpu) | used
        known = could | self.collective[at] | (gpu & self.of_op[at])
        frame = Kernels(
            event=rows,
            host=host,
            device=links.device[rows],
            duration=trace.events.duration[rows],
            kernel=kernel[code],
            op=op[code],
            details=details.astype(np.int32),
            eligible=np.where(known, could, tensorcores.UNKNOWN).astype(np.int8),
            tensor_core=np.where(gpu, uses[code], tensorcores.UNKNOWN).astype(np.int8),
            occupancy=_occupancy(self.links, rows),
            **self.origins.of_work(at, out),
        )
        return frame, shapes

    def graph_work(self, out: act.Activity) -> GraphWork:
        """The `graph_work` table: what replays of graphs ran."""
        links, graphs, events = self.links, self.links.graphs, self.links.trace.events
        at, rows = graphs.at, self.rows[graphs.at]
        nodes = graphs.nodes.iloc[graphs.node]
        kernel, op = (pd.factorize(codes[at]) for codes in (self.name, links.work_name))
        kernels = np.array(
            [out.kernel_names.code(str(links.trace.names[code])) for code in kernel[1].tolist()],
            np.int32,
        )
        ops = np.array(
            [out.ops.code(str(links.names[code]) if code >= 0 else "") for code in op[1].tolist()],
            np.int32,
        )
        return GraphWork(
            **located(events, rows, links.host[rows], device=links.device[rows]),
            **{key: nodes[key].to_numpy(np.int64) for key in ("graph", "node")},
            replay=graphs.replay,
            name=kernels[kernel[0]] if len(at) else 0,
            op=ops[op[0]] if len(at) else 0,
            **self.origins.of_work(at, out, instances=True),
        )

    def _shape_codes(self, rows: Int64s, launch: Int64s) -> tuple[Int64s, Int64s]:
        block, grid = (
            _or_launch(self.links.trace.text_arg(key), rows, launch) for key in ("block", "grid")
        )
        return block, grid

    @cached_property
    def on_gpu(self) -> Flags:
        """Whether each ran on a GPU, and on no other kind of device."""
        lanes = self.links.trace.lanes
        return (
            lanes["process"]
            .astype(str)
            .str.startswith("GPU")
            .to_numpy(np.bool_)[self.links.trace.events.lane[self.rows]]
        )

    @cached_property
    def eligible(self) -> Flags:
        """Whether the op of each does what Tensor Cores are for, or one around it that has no such
        op inside and launches nothing.

        What else runs in an op that leaves its products to another one (the bias of a convolution,
        the softmax of attention), or that launches them (the bias in the backward pass of a
        convolution), is no product.
        """
        links = self.links
        ops = links.ops
        if not len(links.work):
            return np.zeros(0, np.bool_)
        names = np.fromiter(
            (torchnames.tensor_core_eligible(n) for n in links.trace.names),
            np.bool_,
            len(links.trace.names),
        )
        flag = names[links.trace.events.name[ops.rows]]
        around = flag.copy()
        above = ops.parent[np.flatnonzero(flag)]
        while len(above := np.unique(above[above >= 0])):
            around[above] = False
            above = ops.parent[above]
        at = links.work_op.copy()
        around[np.unique(at[at >= 0])] = False
        out = np.zeros(len(at), np.bool_)
        out[at >= 0] = flag[at[at >= 0]]
        open_ = np.flatnonzero((at >= 0) & ~out)
        while len(open_):
            at[open_] = ops.parent[at[open_]]
            open_ = open_[at[open_] >= 0]
            out[open_] = around[at[open_]]
            open_ = open_[~out[open_]]
        return out

    @cached_property
    def of_op(self) -> Flags:
        """Whether a framework's op launched each: what a program calls a stretch of its own code
        does not tell what runs there.
        """
        links = self.links
        out = np.zeros(len(links.work_op), np.bool_)
        known = links.work_op >= 0
        out[known] = (links.kind == OP)[links.ops.rows[links.work_op[known]]]
        return out

    def device_ops(self, out: act.Activity, compiled: Flags) -> DeviceOps:
        """The `device_ops` table: each piece of work counts for the innermost op that launched it;
        one that has none, for its kernel.
        """
        links, trace = self.links, self.links.trace
        label = np.where(links.work_name >= 0, links.work_name, -2 - self.name)
        labels, code = np.unique(label, return_inverse=True)
        op, kind = np.zeros(len(labels), np.int32), np.zeros(len(labels), np.int32)
        for i, value in enumerate(labels.tolist()):
            name = str(links.names[value if value >= 0 else -2 - value])
            op[i] = out.ops.code(name)
            kind[i] = out.types.code(torchnames.op_type(name) if value >= 0 else "kernel")
        events = trace.events
        eager = np.ones(len(self.rows), np.bool_)
        known = links.work_op >= 0
        eager[known] = ~compiled[links.work_op[known]]
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

    def transfers(self, out: act.Activity) -> Transfers:
        """The `transfers` table; `pageable` tells that the memory on the host is not pinned.

        `rate` is the bytes a second that the file states: old files have whole microseconds, which
        do not tell that of a short copy.
        """
        links, trace = self.links, self.links.trace
        at = np.flatnonzero(~self.is_kernel)
        rows = self.rows[at]
        first, code = unique_rows(self.name[at], self.direction[at])
        kind = np.array(
            [out.texts.code(self.transfer_kind(int(at[i]))) for i in first.tolist()], np.int32
        )
        pageable = np.array(
            ["pageable" in str(trace.names[self.name[at[i]]]).lower() for i in first.tolist()],
            np.bool_,
        )
        size = trace.arg("bytes")[rows]
        if (self.direction[at] >= 0).any():
            size = np.where(self.direction[at] >= 0, trace.arg("size")[rows], size)
        events = trace.events
        return Transfers(
            **located(events, rows, links.host[rows], device=links.device[rows]),
            kind=kind[code] if len(first) else np.zeros(0, np.int32),
            bytes=size,
            pageable=pageable[code] if len(first) else np.zeros(0, np.bool_),
            rate=1e9 * _numbers(links, "memory bandwidth (GB/s)")[rows],
        )

    def launches(self) -> Launches:
        """The `launches` table: a row for each launch and device event of it, and one for each
        launch without.

        `came_of` is the op that the device event comes of: of a node of a graph, not the one that
        launched the graph.
        """
        links, trace = self.links, self.links.trace
        has = links.launch >= 0
        names = np.array([torchnames.call_kind(str(n)) for n in trace.names], object)
        starts = np.isin(names, torchnames.STARTS_WORK)
        # What was captured into a graph starts nothing.
        answered = links.captured.copy()
        answered[np.searchsorted(links.calls, links.launch[has])] = True
        alone = links.calls[starts[trace.events.name[links.calls]] & ~answered]
        event = np.concatenate([links.launch[has], alone])
        target = np.concatenate([self.rows[has], np.full(len(alone), -1, np.int64)])
        op = links.call_op[np.searchsorted(links.calls, event)]
        came = np.concatenate([links.work_op[has], np.full(len(alone), -1, np.int64)])
        order = np.lexsort((target, event))
        ops = {
            column: np.where(at >= 0, links.ops.rows[at], -1)
            if len(links.ops.rows)
            else np.full(len(event), -1, np.int64)
            for column, at in (("op", op), ("came_of", came))
        }
        return Launches(event=event, host=links.host[event], target=target, **ops).take(order)

    def collectives(self, out: act.Activity) -> Collectives:
        """The `collectives` table; `bytes` are those that each rank puts in, `out_bytes` those that
        it gets.

        `process_group`, `members` and `description` are codes into `texts`, `sequence` counts the
        collectives of a group; -1 where not stated.
        """
        links, trace = self.links, self.links.trace
        rows = self.rows[self.collective]
        stated, dtype = trace.text_arg("Collective name")[rows], trace.text_arg("dtype")[rows]
        first, code = unique_rows(trace.events.name[rows].astype(np.int64), stated, dtype)
        name, width = np.zeros(len(first), np.int32), np.zeros(len(first), np.int64)
        for i, row in enumerate(first.tolist()):
            given = trace.strings[stated[row]] if stated[row] >= 0 else ""
            name[i] = out.texts.code(
                given or torchnames.collective_name(str(trace.names[trace.events.name[rows[row]]]))
            )
            width[i] = (
                torchnames.DTYPE_BYTES.get(trace.strings[dtype[row]].lower(), 0)
                if dtype[row] >= 0
                else 0
            )
        size = width[code] if len(first) else np.zeros(0, np.int64)
        count = {key: trace.arg(f"{key} msg nelems")[rows] for key in ("In", "Out")}
        moved = {key: np.where((n >= 0) & (size > 0), n * size, -1) for key, n in count.items()}
        return Collectives(
            **located(trace.events, rows, links.host[rows], device=links.device[rows]),
            name=name[code] if len(first) else np.zeros(0, np.int32),
            bytes=moved["In"],
            group_size=trace.arg("Group size")[rows].astype(np.int32),
            out_bytes=moved["Out"],
            process_group=self._texts_of("Process Group Name", rows, out),
            description=self._descriptions(rows, out),
            members=self._texts_of("Process Group Ranks", rows, out),
            sequence=trace.arg("Seq")[rows],
        )

    def _descriptions(self, rows: Int64s, out: act.Activity) -> Int64s:
        """What the program calls the process group of each: as the event states it, else as the
        file lists its groups.
        """
        trace = self.links.trace
        stated, named = (
            trace.text_arg("Process Group Description")[rows],
            trace.text_arg("Process Group Name")[rows],
        )
        first, code = unique_rows(self.links.host[rows].astype(np.int64), stated, named)
        found = np.full(len(first), -1, np.int64)
        for i, row in enumerate(first.tolist()):
            said = str(trace.strings[stated[row]]) if stated[row] >= 0 else ""
            if said in ("", UNDESCRIBED) and named[row] >= 0:
                said = self.process_groups[int(self.links.host[rows[row]])].get(
                    str(trace.strings[named[row]]), ""
                )
            found[i] = out.texts.code(said) if said not in ("", UNDESCRIBED) else -1
        return found[code] if len(first) else np.zeros(0, np.int64)

    def _texts_of(self, key: str, rows: Int64s, out: act.Activity) -> Int64s:
        """An arg as codes into the texts of the activity, -1 where there is none."""
        trace = self.links.trace
        given = trace.text_arg(key)[rows]
        codes = given.copy()
        for one in pd.unique(given[given >= 0]).tolist():
            codes[given == one] = out.texts.code(str(trace.strings[one]))
        return codes

    def extents(self) -> Extents:
        """First start and last end of each device."""
        events = self.links.trace.events
        rows = self.rows
        return extents(
            self.links.host[rows], self.links.device[rows], events.start[rows], events.end[rows]
        )


def _kernel_class(name: str, types: str) -> int:
    """What the op's tensors say, unless they say both widths or nothing; then the kernel's name.
    One that only copies is a copy.
    """
    if copies.blit(name):
        return act.DEVICE_TO_DEVICE
    return act.COMPUTE_OF_BITS[
        torchnames.input_precision(types) or tensorcores.kernel_precision(name)
    ]


def _or_launch(values: Int64s, rows: Int64s, launch: Int64s) -> Int64s:
    """An arg of kernels; where a kernel lacks it (ROCm), that of its launch."""
    own = values[rows]
    return np.where((own < 0) & (launch >= 0), values[launch], own)


def _known(value: np.int64) -> int | None:
    return int(value) if value >= 0 else None


def _dimensions(strings: Sequence[str], code: np.int64) -> str:
    """`128,1,1` out of "[128, 1, 1]"; empty where it is no list of numbers."""
    if code < 0:
        return ""
    try:
        value = ast.literal_eval(strings[int(code)])
    except (ValueError, SyntaxError):
        return ""
    return (
        ",".join(str(int(v)) for v in value)
        if isinstance(value, list) and all(isinstance(v, int) for v in value)
        else ""
    )


def _occupancy(links: Links, rows: Int64s) -> npt.NDArray[np.float64]:
    """`est. achieved occupancy %`; NaN where the recorder did not know it, which it writes as 0."""
    value = _numbers(links, "est. achieved occupancy %")[rows]
    return np.where(value > 0, value, np.nan)


def _numbers(links: Links, arg: str) -> npt.NDArray[np.float64]:
    """The numbers of an arg for all events, NaN where there is none."""
    out = np.full(len(links.trace.events), np.nan)
    column = links.trace.args.get(arg)
    if column is not None:
        out[column.event] = column.floats()
    return out


def devices(links: Links, stated: Sequence[Sequence[dict[str, object]]]) -> pd.DataFrame:
    """One row per device with activity; if there is none, one per device that the file names.

    Parameters
    ----------
    stated : by host, the items of `deviceProperties`
    """
    lanes = links.trace.lanes
    used = lanes[(lanes["kind"] == "device") & (lanes["events"] > 0)]
    rows: list[dict[str, object]] = []
    for host, name in enumerate(links.trace.hosts):
        facts = {i: d for d in stated[host] if isinstance(i := d.get("id"), int)}
        mine = used[used["host"] == name]
        worked = {
            int(d): str(p).partition(" ")[0]
            for d, p in zip(mine["device"], mine["process"], strict=True)
        }
        for device in sorted(worked or facts):
            rows.append(_device(name, device, worked.get(device, "GPU"), facts.get(device, {})))
    return pd.DataFrame(rows, columns=act.DEVICES)


def _device(host: str, device: int, kind: str, facts: dict[str, object]) -> dict[str, object]:
    major, minor = facts.get("computeMajor"), facts.get("computeMinor")
    name = str(facts.get("name") or kind)
    amd = "AMD" in name or "Instinct" in name or "Radeon" in name
    peaks = device_peaks.by_name(name)
    capability = (
        f"{major}.{minor}"
        if isinstance(major, int) and isinstance(minor, int) and not amd
        else None
    )
    return {
        "host": host,
        "device": device,
        "kind": kind,
        "name": name,
        "compute_capability": capability,
        "memory_bytes": facts.get("totalGlobalMem")
        if isinstance(facts.get("totalGlobalMem"), int)
        else None,
        # Nsight Systems states it; of Kineto it is known by the name of the device.
        "memory_bytes_per_second": facts.get("memoryBandwidth") or peaks.get("memory", np.nan),
        # Kineto states none.
        "clock_khz": hertz // 1000 if isinstance(hertz := facts.get("clockRate"), int) else None,
        "peak_flops_per_second": peaks.get("float16", np.nan),
        "cores": facts.get("numSms")
        if isinstance(facts.get("numSms"), int)
        else facts.get("maxComputeUnits"),
    }
