"""Replays of CUDA and HIP graphs: the node of a graph that each piece of device work is, and the
call that was captured as that node.

While a graph is captured, its calls are recorded with the ops and the Python code that make them,
and nothing runs. What a replay runs states the call that launched the graph and, with CUDA, graph
and node (`graph id`, `graph node id`). Nodes are numbered as they are captured, and keep their
numbers in the graph that runs, on which PyTorch's `torch.cuda._graph_annotations` relies, too: in
this order the work of a replay is the calls of the capture. HIP states no nodes: there the order of
the work counts, and the calls state their kernels. Where several captures fit a graph, only that in
which they agree is said of it.
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
from nbprof.formats.chrome.graph_annotations import MODULES, NAMES, Said

MOST_BETWEEN_NODES_PS = 10_000_000
"""A longer gap between nodes of a replay is none that recording makes."""
_KIND = {torchnames.LAUNCH: KERNEL, torchnames.COPY: COPY, torchnames.FILL: FILL}


class Launched(Protocol):
    """Device work and the calls that launched it: what is needed of `Links`."""

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
    """The captures of a trace that were recorded whole, and whose order is known."""
    trace, events = links.trace, links.trace.events
    rows, begin, end = links.captures
    if not len(rows):
        return []
    ends = [
        found is not None and found[1] == "End"
        for found in (torchnames.CAPTURE.match(str(name)) for name in trace.names)
    ]
    is_end = np.array(ends, np.bool_)[events.name]
    whole = ~is_end[rows] & np.isin(end, events.end[links.calls[is_end[links.calls]]])
    kinds = np.array(
        [_KIND.get(torchnames.call_kind(str(name)), 0) for name in trace.names], np.int64
    )
    taken = links.calls[links.captured]
    op = links.call_op[links.captured]
    stated = trace.text_arg("kernel", taken)
    out = []
    for row, first, last in zip(
        rows[whole].tolist(), begin[whole].tolist(), end[whole].tolist(), strict=True
    ):
        mine = np.flatnonzero(
            (links.host[taken] == links.host[row])
            & (events.start[taken] >= first)
            & (events.start[taken] < last)
        )
        mine = mine[np.argsort(events.start[taken[mine]], kind="stable")]
        calls = taken[mine]
        lanes = events.lane[calls]
        at_once = (lanes[1:] != lanes[:-1]) & (events.start[calls][1:] < events.end[calls][:-1])
        # A graph within the graph has nodes of its own, and calls at the same time have no order.
        if not len(calls) or at_once.any() or (kinds[events.name[calls]] == 0).any():
            continue
        ops = [
            "" if at < 0 else str(trace.names[events.name[links.ops.rows[at]]])
            for at in op[mine].tolist()
        ]
        kernels = [
            trace.strings[code]
            if code >= 0
            else name
            if name.startswith("triton_") and kind == KERNEL
            else ""
            for code, name, kind in zip(
                stated[mine].tolist(), ops, kinds[events.name[calls]].tolist(), strict=True
            )
        ]
        out.append(
            Capture(
                kinds[events.name[calls]].tolist(),
                kernels,
                host=int(links.host[row]),
                end_ps=last,
                calls=calls,
            )
        )
    return out


class Graphs:
    """The replays of graphs in a trace.

    Parameters
    ----------
    links : Links
    originate : callable
        Finds where calls of a trace come from.
    given : sequence of Capture
        Of other traces.
    annotations : mapping of int to mapping of int to Said
        What files beside the trace say of nodes, by host and by node as a replay states it.
    """

    def __init__(
        self,
        links: Launched,
        originate: Originate,
        given: Sequence[Capture] = (),
        annotations: Mapping[int, Mapping[int, Said]] | None = None,
    ) -> None:
        self.links = links
        self._originate = originate
        self._given = given
        self._annotations = annotations or {}

    @cached_property
    def at(self) -> Int64s:
        """int64[r]: positions in `links.work` of what replays ran."""
        links = self.links
        launched = np.zeros(len(links.work), np.bool_)
        graph = np.array(
            [torchnames.call_kind(str(name)) == torchnames.GRAPH for name in links.trace.names],
            np.bool_,
        )
        known = links.launch >= 0
        launched[known] = graph[links.trace.events.name[links.launch[known]]]
        return np.flatnonzero(launched | (self._stated_node > 0))

    @cached_property
    def _stated_node(self) -> Int64s:
        return self.links.trace.arg("graph node id", rows=self.links.work)

    @cached_property
    def _table(self) -> tuple[pd.DataFrame, Int64s, Int64s]:
        """One row a node: host, graph, node, first piece of work; and the node and the replay of
        each of `at`.
        """
        links, events = self.links, self.links.trace.events
        work = links.work[self.at]
        host, node = links.host[work].astype(np.int64), self._stated_node[self.at].copy()
        graph = links.trace.arg("graph id", rows=work)
        # What CUPTI calls the id of a node is that of its graph and its number in it.
        graph = np.where((graph < 0) & (node >= 1 << 32), node >> 32, graph)
        correlation = links.correlation[work]
        replay = np.asarray(pd.factorize(correlation + (host << 48))[0], np.int64)
        unstated = np.flatnonzero((node <= 0) & (correlation >= 0))
        if len(unstated):
            self._by_order(unstated, replay, events.name[work], events.start[work], graph, node)
        keys = pd.DataFrame({"host": host, "graph": graph, "node": node})
        keys["stated"] = self._stated_node[self.at] > 0
        of = np.asarray(
            keys.groupby(["host", "stated", "graph", "node"], sort=True).ngroup(), np.int64
        )
        first = np.full(int(of.max(initial=-1)) + 1, -1, np.int64)
        first[of[::-1]] = np.arange(len(of))[::-1]
        return keys.iloc[first].assign(at=self.at[first]).reset_index(drop=True), of, replay

    @staticmethod
    def _by_order(
        rows: Int64s,
        replay: Int64s,
        name: npt.NDArray[np.int32],
        start: Int64s,
        graph: Int64s,
        node: Int64s,
    ) -> None:
        """Numbers graphs and nodes that the file does not: replays of the same kernels in the same
        order are of one graph.
        """
        order = rows[np.lexsort((start[rows], replay[rows]))]
        seen: dict[bytes, int] = {}
        for nodes in np.split(order, run_starts(replay[order])[1:]):
            graph[nodes] = seen.setdefault(name[nodes].tobytes(), len(seen) + 1)
            node[nodes] = np.arange(1, len(nodes) + 1)

    @property
    def nodes(self) -> pd.DataFrame:
        """One row a node: `host graph node stated at`; `at` is the first piece of work that was it,
        a position in `links.work`.
        """
        return self._table[0]

    @property
    def node(self) -> Int64s:
        """int64[r]: the row of `nodes` that each of `at` is."""
        return self._table[1]

    @property
    def replay(self) -> Int64s:
        """int64[r]: which replay each of `at` is of."""
        return self._table[2]

    @cached_property
    def gaps(self) -> tuple[Int64s, Int64s, Int64s]:
        """Moments between nodes of one replay in which none of them runs: the node before each,
        begin and end.

        Recording each node by itself takes some microseconds between two; without that they follow
        each other at once. What takes longer is a wait of the graph itself.
        """
        events = self.links.trace.events
        work = self.links.work[self.at]
        device = np.maximum(self.links.device[work].astype(np.int64), 0)
        order = np.lexsort((events.start[work], device, self.replay))
        rows, key = work[order], (self.replay << 16 | device)[order]
        gaps = gaps_between(events.start[rows], events.end[rows], key)
        short = np.flatnonzero(gaps.end - gaps.start <= MOST_BETWEEN_NODES_PS)
        return rows[gaps.following[short] - 1], gaps.start[short], gaps.end[short]

    @cached_property
    def _matched(self) -> tuple[Int64s, list[Origin], dict[str, int]]:
        """By node the captured call (-1) and the origin where that is not a call of this trace; and
        how many graphs went how.
        """
        links = self.links
        nodes = self.nodes
        call = np.full(len(nodes), -1, np.int64)
        origins = [Origin()] * len(nodes)
        counts = dict.fromkeys(("captured", "several", "unknown"), 0)
        if not len(nodes):
            return call, origins, counts
        own = captures(links)
        names, events = links.trace.names, links.trace.events
        begins = pd.Series(events.start[links.work[self.at]]).groupby(self.node).min().to_numpy()
        for rows in self._rows_of_graphs():
            host = int(nodes["host"].iloc[rows[0]])
            work = links.work[nodes["at"].to_numpy()[rows]]
            kernels = [str(name) for name in names[events.name[work]]]
            # AMD's runtime has kernels that do what was captured as a copy or a fill.
            of_kernels = [
                (FILL if "fill" in name else COPY) if copies.blit(name) else KERNEL
                for name in kernels
            ]
            kinds = [
                of if kind == KERNEL else kind
                for kind, of in zip(links.kind[work].tolist(), of_kernels, strict=True)
            ]
            begun = begins[rows].min()
            fitting = [
                one
                for one in own
                if one.host == host and one.end_ps <= begun and one.fits(kinds, kernels)
            ]
            fitting = fitting or [one for one in self._given if one.fits(kinds, kernels)]
            if not fitting:
                counts["unknown"] += 1
                continue
            said = self._said(fitting)
            if not fitting[-1].origins and all(one == said[-1] for one in said):
                call[rows] = fitting[-1].calls
                counts["captured"] += 1
                continue
            for row, each in zip(rows.tolist(), zip(*said, strict=True), strict=True):
                origins[row] = Origin(
                    *(texts[0] if len(set(texts)) == 1 else "" for texts in zip(*each, strict=True))
                )
            counts["captured" if any(origins[row].op for row in rows.tolist()) else "several"] += 1
        return call, origins, counts

    def _rows_of_graphs(self) -> list[Int64s]:
        """The rows of `nodes` that each graph has."""
        keys = [self.nodes[key].to_numpy(np.int64) for key in ("host", "stated", "graph")]
        border = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        return np.split(np.arange(len(self.nodes)), np.flatnonzero(border) + 1)

    def _said(self, fitting: Sequence[Capture]) -> list[list[Origin]]:
        """The origins of the calls of each of some captures; one alone that is of this trace need
        not say them.
        """
        if len(fitting) == 1:
            return [fitting[0].origins]
        return [one.origins or self._originate(self.links, one.calls) for one in fitting]

    @cached_property
    def call(self) -> Int64s:
        """int64[w]: the call that was captured as each piece of work, -1."""
        out = np.full(len(self.links.work), -1, np.int64)
        out[self.at] = self._matched[0][self.node]
        return out

    @cached_property
    def origin(self) -> npt.NDArray[np.object_]:
        """object[n]: what is known of each node beside its call, an `Origin`."""
        out = np.empty(len(self.nodes), object)
        for row, origin in enumerate(self._matched[1]):
            out[row] = origin
        return out

    @property
    def counts(self) -> dict[str, int]:
        """How many graphs go by what was captured, how many fit several captures that do not agree,
        and of how many none was found.
        """
        return self._matched[2]

    @cached_property
    def annotated(self) -> tuple[Int64s, list[Said]]:
        """What PyTorch's annotations say of each of `at`: int64[r] places in a list, of which the
        first says nothing.

        `torch.cuda._annotate_cuda_graph_trace` writes them into the args of a trace; what these do
        not say, files beside it may.
        """
        of_node = self._beside[0]
        trace, rows = self.links.trace, self.links.work[self.at]
        stated = self._stated_node[self.at] > 0
        keys = [key for key in (*NAMES, *MODULES) if key in trace.args]
        told = np.stack(
            [self.node, *(np.where(stated, trace.text_arg(key, rows=rows), -1) for key in keys)]
        )
        cases, case = np.unique(told, axis=1, return_inverse=True)
        known_as = {Said(): 0}
        places = []
        for node, *codes in cases.T.tolist():
            texts = {
                key: trace.strings[code] for key, code in zip(keys, codes, strict=True) if code >= 0
            }
            name = next((texts[key] for key in NAMES if key in texts), of_node[node].name)
            module = next((texts[key] for key in MODULES if key in texts), of_node[node].module)
            places.append(known_as.setdefault(Said(name, module), len(known_as)))
        return np.array(places, np.int64)[case.reshape(-1)], list(known_as)

    @property
    def strangers(self) -> int:
        """How many graphs files beside the trace annotate by nodes that no replay has, and are of
        another recording then.
        """
        return self._beside[1]

    @cached_property
    def _beside(self) -> tuple[list[Said], int]:
        """What files beside the trace say of each of `nodes`, and `strangers`."""
        nodes = self.nodes
        host, node, stated = (
            nodes["host"].tolist(),
            nodes["node"].tolist(),
            nodes["stated"].tolist(),
        )
        ran = {(of, one) for of, one, known in zip(host, node, stated, strict=True) if known}
        replayed = {(of, one >> 32) for of, one in ran}
        lacks = {
            (of, one >> 32)
            for of, said in self._annotations.items()
            for one in said
            if (of, one >> 32) in replayed and (of, one) not in ran
        }
        out = [
            self._annotations.get(of, {}).get(one, Said())
            if known and (of, one >> 32) not in lacks
            else Said()
            for of, one, known in zip(host, node, stated, strict=True)
        ]
        return out, len(lacks)
