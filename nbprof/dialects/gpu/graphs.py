"""Replays of CUDA and HIP graphs: the node of each piece of device work, and its captured call.

While a graph is captured, its calls are recorded with the ops and the Python code that make them,
and nothing runs. The work of a replay states the call that launched the graph and, with CUDA, graph
and node (`graph id`, `graph node id`). Nodes are numbered as they are captured, and keep their
numbers in the graph that runs; PyTorch's `torch.cuda._graph_annotations` relies on this as well. In
this order the work of a replay is the calls of the capture. HIP states no nodes: there the order of
the work counts, and the calls state their kernels. If several captures fit a graph, it gets only
the facts in which they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import copies
from nbprof.core.intervals import gaps_between
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects import torchnames
from nbprof.dialects.gpu.captures import Capture, Origin, Originate
from nbprof.dialects.gpu.lanes import COPY, FILL, KERNEL, Kinds
from nbprof.dialects.gpu.nest import Nest
from nbprof.dialects.lookups import names_that
from nbprof.formats.chrome.graph_annotations import MODULES, NAMES, Said

MOST_BETWEEN_NODES_PS = 10_000_000
"""The longest gap between nodes of a replay that recording causes."""
_KIND = {torchnames.LAUNCH: KERNEL, torchnames.COPY: COPY, torchnames.FILL: FILL}


class Launched(Protocol):
    """Device work and the calls that launched it: the part of `Links` that graphs need."""

    trace: Trace
    kind: Kinds

    @property
    def host(self) -> Int32s:
        """int32[events]: index into `trace.hosts`."""

    @property
    def device(self) -> Int32s:
        """int32[events]: ordinal of the device, -1 on a host."""

    @property
    def ops(self) -> Nest:
        """The framework ops, nested."""

    @property
    def work(self) -> Int64s:
        """int64[w]: kernels, copies and fills on devices."""

    @property
    def calls(self) -> Int64s:
        """int64[c]: calls into the runtime or driver."""

    @property
    def correlation(self) -> Int64s:
        """int64[events]: the launch that an event is or comes from, -1."""

    @property
    def launch(self) -> Int64s:
        """int64[w]: the call that launched each piece of device work, -1."""

    @property
    def captures(self) -> tuple[Int64s, Int64s, Int64s]:
        """Captures of graphs: the call that begins or ends each, begin and end."""

    @property
    def captured(self) -> npt.NDArray[np.bool_]:
        """bool[c]: calls that were captured."""

    @property
    def call_op(self) -> Int64s:
        """int64[c]: position in `ops` of the op that made each call, -1."""


def captures(links: Launched) -> list[Capture]:
    """The captures of a trace that are complete, and whose calls have an order."""
    trace, events = links.trace, links.trace.events
    rows, begin, end = links.captures
    if not len(rows):
        return []
    is_end = names_that(_ends_capture, trace.names)[events.name]
    complete = ~is_end[rows] & np.isin(end, events.end[links.calls[is_end[links.calls]]])
    call_kinds = map(torchnames.call_kind, map(str, trace.names))
    kinds = np.array([_KIND.get(kind, 0) for kind in call_kinds], np.int64)
    taken = links.calls[links.captured]
    op = links.call_op[links.captured]
    stated_kernel = trace.text_arg("kernel", taken)
    result = []
    for row, first, last in zip(
        rows[complete].tolist(), begin[complete].tolist(), end[complete].tolist(), strict=True
    ):
        in_capture = np.flatnonzero(
            (links.host[taken] == links.host[row])
            & (events.start[taken] >= first)
            & (events.start[taken] < last)
        )
        in_capture = in_capture[np.argsort(events.start[taken[in_capture]], kind="stable")]
        calls = taken[in_capture]
        lanes = events.lane[calls]
        at_once = (lanes[1:] != lanes[:-1]) & (events.start[calls][1:] < events.end[calls][:-1])
        # A nested graph has separate nodes, and simultaneous calls have no order.
        if not len(calls) or at_once.any() or (kinds[events.name[calls]] == 0).any():
            continue
        kinds_of_calls = kinds[events.name[calls]].tolist()
        kernels = trace.texts(stated_kernel[in_capture])
        for i, position in enumerate(op[in_capture].tolist()):
            # Triton's kernels are called as their ops.
            if not kernels[i] and position >= 0 and kinds_of_calls[i] == KERNEL:
                op_name = str(trace.names[events.name[links.ops.rows[position]]])
                if op_name.startswith("triton_"):
                    kernels[i] = op_name
        host = int(links.host[row])
        result.append(Capture(kinds_of_calls, kernels, host=host, end_ps=last, calls=calls))
    return result


def _ends_capture(name: str) -> bool:
    match = torchnames.CAPTURE.match(name)
    return match is not None and match[1] == "End"


class Graphs:
    """The replays of graphs in a trace.

    Parameters
    ----------
    links : Links
    originate : callable
        Finds the origins of calls of a trace.
    other_captures : sequence of Capture
        Captures of other traces.
    annotations : mapping of int to mapping of int to Said
        Annotations of nodes in files next to the trace, by host and by stated node.
    """

    def __init__(
        self,
        links: Launched,
        originate: Originate,
        other_captures: Sequence[Capture] = (),
        annotations: Mapping[int, Mapping[int, Said]] | None = None,
    ) -> None:
        self.links = links
        self._originate = originate
        self._other_captures = other_captures
        self._annotations = annotations or {}

    @cached_property
    def positions(self) -> Int64s:
        """int64[r]: positions in `links.work` of the work of replays."""
        links = self.links
        launched = np.zeros(len(links.work), np.bool_)
        graph = names_that(torchnames.launches_graph, links.trace.names)
        has_launch = links.launch >= 0
        launched[has_launch] = graph[links.trace.events.name[links.launch[has_launch]]]
        return np.flatnonzero(launched | (self._stated_node > 0))

    @cached_property
    def _stated_node(self) -> Int64s:
        return self.links.trace.arg("graph node id", rows=self.links.work)

    @cached_property
    def _table(self) -> tuple[pd.DataFrame, Int64s, Int64s]:
        """`nodes`, and the node and the replay of each of `positions`."""
        links, events = self.links, self.links.trace.events
        work = links.work[self.positions]
        host, node = links.host[work].astype(np.int64), self._stated_node[self.positions].copy()
        graph = links.trace.arg("graph id", rows=work)
        # CUPTI's id of a node is the id of its graph and its number in it.
        graph = np.where((graph < 0) & (node >= 1 << 32), node >> 32, graph)
        correlation = links.correlation[work]
        replay = np.asarray(pd.factorize(correlation + (host << 48))[0], np.int64)
        unstated = np.flatnonzero((node <= 0) & (correlation >= 0))
        if len(unstated):
            self._by_order(unstated, replay, events.name[work], events.start[work], graph, node)
        keys = pd.DataFrame({"host": host, "graph": graph, "node": node})
        keys["stated"] = self._stated_node[self.positions] > 0
        node_of_row = np.asarray(
            keys.groupby(["host", "stated", "graph", "node"], sort=True).ngroup(), np.int64
        )
        first = np.full(int(node_of_row.max(initial=-1)) + 1, -1, np.int64)
        first[node_of_row[::-1]] = np.arange(len(node_of_row))[::-1]
        nodes = keys.iloc[first].assign(first=self.positions[first]).reset_index(drop=True)
        return nodes, node_of_row, replay

    @staticmethod
    def _by_order(
        rows: Int64s,
        replay: Int64s,
        name: npt.NDArray[np.int32],
        start: Int64s,
        graph: Int64s,
        node: Int64s,
    ) -> None:
        """Numbers graphs and nodes in place that the file does not number.

        Replays of the same kernels in the same order belong to one graph.
        """
        order = rows[np.lexsort((start[rows], replay[rows]))]
        seen: dict[bytes, int] = {}
        for nodes in np.split(order, run_starts(replay[order])[1:]):
            graph[nodes] = seen.setdefault(name[nodes].tobytes(), len(seen) + 1)
            node[nodes] = np.arange(1, len(nodes) + 1)

    @property
    def nodes(self) -> pd.DataFrame:
        """One row per node: `host graph node stated first`.

        `first` is its first piece of work, a position in `links.work`.
        """
        return self._table[0]

    @property
    def node(self) -> Int64s:
        """int64[r]: the row of `nodes` of each of `positions`."""
        return self._table[1]

    @property
    def replay(self) -> Int64s:
        """int64[r]: the replay of each of `positions`."""
        return self._table[2]

    @cached_property
    def gaps(self) -> tuple[Int64s, Int64s, Int64s]:
        """Short gaps between the nodes of a replay: the node before each, begin and end.

        Recording each node by itself takes some microseconds between two; without it they follow
        each other at once. A longer gap is a wait of the graph itself.
        """
        events = self.links.trace.events
        work = self.links.work[self.positions]
        device = np.maximum(self.links.device[work].astype(np.int64), 0)
        order = np.lexsort((events.start[work], device, self.replay))
        rows, key = work[order], (self.replay << 16 | device)[order]
        gaps = gaps_between(events.start[rows], events.end[rows], key)
        short = np.flatnonzero(gaps.end - gaps.start <= MOST_BETWEEN_NODES_PS)
        return rows[gaps.following[short] - 1], gaps.start[short], gaps.end[short]

    @cached_property
    def _matched(self) -> tuple[Int64s, list[Origin], dict[str, int]]:
        """By node the captured call (-1), else its origin; and the number of graphs by outcome."""
        links = self.links
        nodes = self.nodes
        call = np.full(len(nodes), -1, np.int64)
        origins = [Origin()] * len(nodes)
        counts = dict.fromkeys(("captured", "several", "unknown"), 0)
        if not len(nodes):
            return call, origins, counts
        trace_captures = captures(links)
        names, events = links.trace.names, links.trace.events
        starts = pd.Series(events.start[links.work[self.positions]])
        begins = starts.groupby(self.node).min().to_numpy()
        for rows in self._rows_of_graphs():
            host = int(nodes["host"].iloc[rows[0]])
            work = links.work[nodes["first"].to_numpy()[rows]]
            kernels = list(map(str, names[events.name[work]]))
            kinds = list(map(_captured_kind, links.kind[work].tolist(), kernels))
            begun = begins[rows].min()
            earlier = [c for c in trace_captures if c.host == host and c.end_ps <= begun]
            fitting = _fitting(earlier, kinds, kernels)
            if not fitting:
                fitting = _fitting(self._other_captures, kinds, kernels)
            if not fitting:
                counts["unknown"] += 1
                continue
            origins_of_captures = self._origins_of(fitting)
            agree = all(origin == origins_of_captures[-1] for origin in origins_of_captures)
            if agree and not fitting[-1].origins:
                call[rows] = fitting[-1].calls
                counts["captured"] += 1
                continue
            outcome = "several"
            candidates_of_rows = zip(*origins_of_captures, strict=True)
            for row, candidates in zip(rows.tolist(), candidates_of_rows, strict=True):
                origins[row] = _common_origin(candidates)
                if origins[row].op:
                    outcome = "captured"
            counts[outcome] += 1
        return call, origins, counts

    def _rows_of_graphs(self) -> list[Int64s]:
        """The rows of `nodes` that each graph has."""
        keys = [self.nodes[key].to_numpy(np.int64) for key in ("host", "stated", "graph")]
        border = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        return np.split(np.arange(len(self.nodes)), np.flatnonzero(border) + 1)

    def _origins_of(self, fitting: Sequence[Capture]) -> list[list[Origin]]:
        """Origins of the calls of each capture; empty for a single one of this trace."""
        if len(fitting) == 1:
            return [fitting[0].origins]
        origins = []
        for capture in fitting:
            origins.append(capture.origins or self._originate(self.links, capture.calls))
        return origins

    @cached_property
    def call(self) -> Int64s:
        """int64[w]: the call that was captured as each piece of work, -1."""
        calls = np.full(len(self.links.work), -1, np.int64)
        calls[self.positions] = self._matched[0][self.node]
        return calls

    @cached_property
    def origin(self) -> npt.NDArray[np.object_]:
        """object[n]: the `Origin` of each node whose call is not in this trace."""
        result = np.empty(len(self.nodes), object)
        for row, origin in enumerate(self._matched[1]):
            result[row] = origin
        return result

    @property
    def counts(self) -> dict[str, int]:
        """Number of graphs that fit a capture, several that disagree ("several"), or none."""
        return self._matched[2]

    @cached_property
    def annotated(self) -> tuple[Int64s, list[Said]]:
        """PyTorch's annotations of each of `positions`: int64[r] indices into a list.

        The first of the list is empty. `torch.cuda._annotate_cuda_graph_trace` writes annotations
        into the args of a trace; files next to the trace fill in the rest.
        """
        of_node = self._from_sidecars[0]
        trace, rows = self.links.trace, self.links.work[self.positions]
        has_node_id = self._stated_node[self.positions] > 0
        keys = [key for key in (*NAMES, *MODULES) if key in trace.args]
        columns = [self.node]
        for key in keys:
            columns.append(np.where(has_node_id, trace.text_arg(key, rows=rows), -1))
        cases, case = np.unique(np.stack(columns), axis=1, return_inverse=True)
        numbers = {Said(): 0}
        number_of_case = []
        for node, *codes in cases.T.tolist():
            name, module = of_node[node].name, of_node[node].module
            # The first key that is stated counts.
            for key, code in reversed(list(zip(keys, codes, strict=True))):
                if code < 0:
                    continue
                if key in NAMES:
                    name = trace.strings[code]
                else:
                    module = trace.strings[code]
            number_of_case.append(numbers.setdefault(Said(name, module), len(numbers)))
        return np.array(number_of_case, np.int64)[case.reshape(-1)], list(numbers)

    @property
    def unmatched_graphs(self) -> int:
        """Number of replayed graphs whose annotation file has nodes that no replay has.

        Such a file is of another recording.
        """
        return self._from_sidecars[1]

    @cached_property
    def _from_sidecars(self) -> tuple[list[Said], int]:
        """Annotations of each of `nodes` in files next to the trace, and `unmatched_graphs`."""
        nodes = list(self.nodes[["host", "node", "stated"]].itertuples(index=False, name=None))
        replayed = {(host, node) for host, node, has_id in nodes if has_id}
        graphs = {(host, node >> 32) for host, node in replayed}
        unmatched: set[tuple[int, int]] = set()
        for host, of_nodes in self._annotations.items():
            for node in of_nodes:
                if (host, node >> 32) in graphs and (host, node) not in replayed:
                    unmatched.add((host, node >> 32))
        result = []
        for host, node, has_id in nodes:
            annotation = None
            if has_id and (host, node >> 32) not in unmatched:
                annotation = self._annotations.get(host, {}).get(node)
            result.append(annotation or Said())
        return result, len(unmatched)


def _captured_kind(kind: int, kernel: str) -> int:
    """The kind of the captured call: AMD's runtime copies and fills by kernels."""
    if kind != KERNEL or not copies.blit(kernel):
        return kind
    return FILL if "fill" in kernel else COPY


def _fitting(captures: Sequence[Capture], kinds: list[int], kernels: list[str]) -> list[Capture]:
    """The captures whose calls may have become these kinds of work and kernels."""
    return [capture for capture in captures if capture.fits(kinds, kernels)]


def _common_origin(origins: Sequence[Origin]) -> Origin:
    """The texts in which all origins agree; "" for the others."""
    common = []
    for texts in zip(*origins, strict=True):
        common.append(texts[0] if len(set(texts)) == 1 else "")
    return Origin(*common)
