"""Operations and bytes of PyTorch's ops on the device that ran them, for the roofline.

Device work counts for the op that launched it; on a profile without a device the self time of an op
is that work. An op hands on what an op of the same kind inside it does (`aten::linear` to
`aten::addmm`, `aten::relu` to `aten::clamp_min`): the inner one counts. Of attention the outer one
does: inside, heads are padded.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import copies
from nbprof.activity.tables import CostParts, CostRuns
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import Intervals, one_at_a_time
from nbprof.core.trace import Int64s
from nbprof.dialects import tensorcores, torch_costs, torchnames
from nbprof.dialects.gpu.device import Work
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.lookups import names_that, text_of

Flags = npt.NDArray[np.bool_]
ARGS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
TRANSFER, COMMUNICATION, OTHER = "host transfer", "communication", "other"
_KINDS = ("", *torch_costs.KINDS, TRANSFER, COMMUNICATION, OTHER)
_CODE = {kind: code for code, kind in enumerate(_KINDS)}
_NOTHING = _CODE[torch_costs.NOTHING]
_PRODUCTS = [_CODE[kind] for kind in torch_costs.PRODUCTS]
# The engine of autograd, and the nodes that PyTorch generates: what they do is done by ops inside.
_HANDS_ON = re.compile(
    r"autograd::engine::evaluate_function:"
    r" |(?:torch::autograd::)?AccumulateGrad\Z|\w+Backward\d+\Z|detach_?\Z"
)
_SPACE = re.compile(r"\s+")


def recorded(links: Links) -> bool:
    """True if the file has shapes of inputs."""
    return ARGS[0] in links.trace.args


class Costs:
    """Runs of ops with what they cost.

    Parameters
    ----------
    links : Links
    work : Work
    """

    def __init__(self, links: Links, work: Work) -> None:
        self.links = links
        self.work = work
        self.ops = links.ops
        self.names = links.names
        """By the codes of `links.work_name`."""
        self.name: Int64s = links.trace.events.name[self.ops.rows].astype(np.int64)

    def tables(self, has_device: bool) -> tuple[CostParts, CostRuns]:
        """The `cost_parts` and `cost_runs` tables; empty where no shapes were recorded."""
        if not recorded(self.links) or not len(self.ops.rows):
            return CostParts.empty(), CostRuns.empty()
        kind = self._kinds()
        hands_on, inner = self._handed_on(kind)
        if not has_device:
            parts, runs = self._parts(self._on_host(kind, inner))
            # On its thread an op is alone.
            return parts, runs.with_(alone=np.where(np.isnan(runs.flops), runs.own, 0))
        device_runs, run = self._on_devices(kind, hands_on)
        parts, runs = self._parts(device_runs)
        unknown = np.isnan(runs.flops)
        alone = np.bincount(run, _alone(self.links, self.work.rows, unknown[run]), len(runs))
        return parts, runs.with_(alone=alone)

    def _kinds(self) -> Int64s:
        """By op: the kind of its formula, 0 for none; of attention within attention none."""
        names = self.links.trace.names
        table = np.zeros(len(names), np.int64)
        for code in pd.unique(self.name).tolist():
            table[code] = _CODE[torch_costs.kind(str(names[code]))]
        kind = table[self.name]
        attention = _CODE[torch_costs.ATTENTION]
        rows = np.flatnonzero(kind == attention)
        outer = self.ops.parent[rows]
        while len(rows):
            rows, outer = rows[outer >= 0], outer[outer >= 0]
            within = kind[outer] == attention
            kind[rows[within]] = 0
            rows, outer = rows[~within], self.ops.parent[outer[~within]]
        return kind

    def _handed_on(self, kind: Int64s) -> tuple[Flags, Flags]:
        """By op: True for products with a product inside, and for ops with one of their kind
        inside.
        """
        group = kind.copy()
        group[np.isin(kind, _PRODUCTS)] = _PRODUCTS[0]
        bit = np.where(kind == 0, 0, 1 << group)
        kinds_inside = np.zeros(len(kind), np.int64)
        parent = self.ops.parent
        for level in reversed(nesting.levels(parent)[1:]):
            np.bitwise_or.at(kinds_inside, parent[level], bit[level] | kinds_inside[level])
        inner = (kinds_inside & bit) != 0
        return inner & (group == _PRODUCTS[0]), inner

    def _recomputed(self) -> Flags:
        """By op: True if it ran a second time, for the backward pass.

        Autograd numbered it as in the forward pass, but within a node of the backward pass. That
        also happens for gradients of gradients.
        """
        trace, parent = self.links.trace, self.ops.parent
        number = trace.arg("Sequence number", rows=self.ops.rows)
        thread = trace.arg("Fwd thread id", rows=self.ops.rows)
        back = (number >= 0) & (thread > 0)
        forward = (number >= 0) & ~back
        within = back.copy()
        for level in nesting.levels(parent)[1:]:
            above = parent[level]
            within[level] |= within[above]
            # The nearest one around an op that is neither.
            open_ = level[~back[level] & ~forward[level]]
            forward[open_] = forward[parent[open_]]
        return forward & within

    def _owner(self, ops: Int64s, kind: Int64s) -> Int64s:
        """The innermost op with a formula from each op outwards; the op itself if there is none."""
        owner = ops.copy()
        open_ = np.flatnonzero(ops >= 0)
        climbed = ops.copy()
        while len(open_):
            has_formula = (kind[climbed[open_]] != 0) & (kind[climbed[open_]] != _NOTHING)
            owner[open_[has_formula]] = climbed[open_[has_formula]]
            open_ = open_[~has_formula]
            climbed[open_] = self.ops.parent[climbed[open_]]
            open_ = open_[climbed[open_] >= 0]
        return owner

    def _on_devices(self, kind: Int64s, hands_on: Flags) -> tuple[pd.DataFrame, Int64s]:
        """A run per op and device with the time of its work, and the run of each piece of work."""
        links, work = self.links, self.work
        events, names, rows = links.trace.events, self.names, work.rows
        elsewhere = self._leaves() | work.collective
        owner = np.where(elsewhere, links.work_op, self._owner(links.work_op, kind))
        of_op = owner >= 0
        # Work without an op counts for the annotation around it, else for its own name.
        label = np.where(links.work_name >= 0, links.work_name, len(names) + work.name)
        label = np.where(of_op, self.name[owner], label)
        # A second product in a product: what the outer one launched itself is not known to be one.
        category = np.where(of_op & ~hands_on[owner], kind[owner], 0)
        category[(category == 0) | (category == _NOTHING)] = _CODE[OTHER]
        category[elsewhere] = _CODE[TRANSFER]
        category[work.collective] = _CODE[COMMUNICATION]
        # Each piece of work without an op is a separate run.
        owner_or_work = np.where(of_op, owner, len(kind) + np.arange(len(rows)))
        host, device = links.host[rows], links.device[rows]
        first, run = unique_rows(
            owner_or_work, host.astype(np.int64), pd.factorize(device)[0], category, self._replays()
        )
        start = np.full(len(first), np.iinfo(np.int64).max)
        np.minimum.at(start, run, events.start[rows])
        matrix = np.zeros(len(names), np.bool_)
        for code in pd.unique(work.name[work.is_kernel]).tolist():
            # Of a product that Triton compiled the name does not tell: then it counts by the higher
            # of the two peaks.
            matrix[code] = tensorcores.uses_tensor_core(str(names[code])) != tensorcores.NO
        on_matrix = np.zeros(len(first), np.bool_)
        np.logical_or.at(
            on_matrix,
            run,
            matrix[work.name] & work.is_kernel & ~np.asarray(work.amd, np.bool_)[host],
        )
        op = owner[first]
        return (
            pd.DataFrame(
                {
                    "host": host[first],
                    "device": device[first],
                    "start": start,
                    "own": np.bincount(run, events.duration[rows], len(first)).astype(np.int64),
                    "op": op,
                    "label": label[first],
                    "category": category[first],
                    "recomputed": (op >= 0) & self._recomputed()[op],
                    "matrix": on_matrix,
                }
            ),
            run,
        )

    def _replays(self) -> Int64s:
        """By device work: the launch of its graph, -1: a captured op runs with each launch."""
        launch, trace = self.links.launch, self.links.trace
        graph = names_that(torchnames.launches_graph, trace.names)
        return np.where((launch >= 0) & graph[trace.events.name[launch]], launch, -1)

    def _leaves(self) -> Flags:
        """By device work: whether it is a copy from or to another memory than the device's."""
        work = self.work
        first, code = unique_rows(np.where(work.is_kernel, -1, work.name), work.direction)
        elsewhere = (copies.H2D, copies.D2H, copies.P2P, copies.H2H)
        leaves = np.zeros(len(first), np.bool_)
        for i, row in enumerate(first.tolist()):
            leaves[i] = not work.is_kernel[row] and work.transfer_kind(row) in elsewhere
        return leaves[code]

    def _on_host(self, kind: Int64s, inner: Flags) -> pd.DataFrame:
        """A run per op, with the self time of inner ops without a formula; wrappers do no work."""
        links, names = self.links, self.links.trace.names
        events, rows = links.trace.events, self.ops.rows
        kind = np.where(inner, _NOTHING, kind)
        hands_on = names_that(_HANDS_ON.match, names)
        kind[(kind == 0) & hands_on[self.name]] = _NOTHING
        owner = self._owner(np.arange(len(rows)), kind)
        self_time = np.bincount(
            owner,
            np.maximum(nesting.self_times(self.ops.parent, events.duration[rows]), 0),
            len(rows),
        ).astype(np.int64)
        op = np.unique(owner)
        category = np.where(kind[op] == 0, _CODE[OTHER], kind[op])
        return pd.DataFrame(
            {
                "host": links.host[rows[op]],
                "device": np.full(len(op), -1, np.int32),
                "start": events.start[rows[op]],
                "own": self_time[op],
                "op": op,
                "label": self.name[op],
                "category": category,
                "recomputed": self._recomputed()[op],
                "matrix": np.zeros(len(op), np.bool_),
            }
        )

    def _parts(self, runs: pd.DataFrame) -> tuple[CostParts, CostRuns]:
        """The `cost_parts`, ops with shapes and types of inputs, and the runs with their costs."""
        trace = self.links.trace
        op = runs["op"].to_numpy(np.int64)
        text = [np.where(op >= 0, trace.text_arg(arg, self.ops.rows)[op], -1) for arg in ARGS]
        label, category = runs["label"].to_numpy(np.int64), runs["category"].to_numpy(np.int64)
        first, call = unique_rows(label, category, *text)
        flops, moved = np.full(len(first), np.nan), np.full(len(first), np.nan)
        dtypes = np.full(len(first), "", object)
        free = category[first] == _NOTHING
        flops[free] = moved[free] = 0.0
        for i, row in enumerate(first.tolist()):
            if category[row] >= _CODE[TRANSFER] or free[i]:
                continue
            inputs = [text_of(trace.strings, codes[row]) for codes in text]
            cost = torch_costs.cost(str(trace.names[label[row]]), *inputs)
            if cost is not None:
                flops[i], moved[i], dtypes[i] = cost
        has_cost = ~np.isnan(flops)
        matrix = runs["matrix"].to_numpy(np.bool_)
        fits, part = unique_rows(
            label,
            category,
            text[0],
            text[1],
            has_cost[call].astype(np.int64),
            matrix.astype(np.int64),
            runs["host"].to_numpy(np.int64),
        )
        names = self.names[label[fits] % len(self.names)]
        parts = CostParts(
            name=list(map(str, names)),
            category=list(map(_KINDS.__getitem__, category[fits].tolist())),
            shapes=list(map(_shapes, trace.texts(text[0][fits]))),
            precision=list(map(_precision, dtypes[call[fits]], matrix[fits].tolist())),
            product=np.isin(category[fits], _PRODUCTS),
            host=runs["host"].to_numpy(np.int32)[fits],
        )
        return parts, CostRuns.of(
            runs.assign(part=part, flops=flops[call], bytes=moved[call], alone=0)
        )


def _shapes(text: str) -> str:
    return _SPACE.sub("", text).replace(",", ", ")


def _precision(dtype: str, matrix: bool) -> str:
    """The precision of an op, as data sheets name it; TF32 for float32 on Tensor Cores."""
    short = dtype.removeprefix("c10::").lower()
    if short == "float":
        return "tf32" if matrix else "float32"
    for family in ("float8", "complex"):
        if short.startswith(family):
            return family
    return _PRECISIONS.get(short, short)


_PRECISIONS = {
    "half": "float16",
    "double": "float64",
    "long int": "int64",
    "int": "int32",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
}


def _alone(links: Links, rows: Int64s, unknown: Flags) -> Int64s:
    """Time in which work of unknown cost was alone on its device, ps; 0 for other work."""
    events = links.trace.events
    alone = np.zeros(len(rows), np.int64)
    _, device = unique_rows(links.host[rows].astype(np.int64), pd.factorize(links.device[rows])[0])
    for device_index in range(int(device.max(initial=-1)) + 1):
        on_device = np.flatnonzero(device == device_index)
        on_device = on_device[np.argsort(events.start[rows[on_device]], kind="stable")]
        start, end = events.start[rows[on_device]], events.end[rows[on_device]]
        lost = unknown[on_device]
        # Only lengths count here, so it does not matter whether touching work is merged.
        known_work = Intervals.union(start[~lost], end[~lost])
        low, high = one_at_a_time(start[lost], end[lost])
        alone[on_device[lost]] = (high - low) - known_work.covered_within(low, high)
    return alone
