"""Notes on a PyTorch profile: unlinked, overlapping and dropped events."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from nbprof.core.files import printable
from nbprof.core.intervals import ends_before
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.dialects import notes as shared_notes
from nbprof.dialects import sanity, torchnames
from nbprof.dialects.gpu import absent
from nbprof.dialects.gpu import memory as gpu_memory
from nbprof.dialects.gpu import notes as gpu_notes
from nbprof.dialects.gpu.hosts import Hosts
from nbprof.dialects.gpu.lanes import (
    ANNOTATION,
    CALL,
    DEVICE_NOTE,
    KERNEL,
    OP,
    OVERHEAD,
    SLACK_PS,
    UNKNOWN,
    category,
)
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.origins import Origins
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import names_that
from nbprof.display import wording
from nbprof.display.wording import plural

_MOST_MESSAGES = 10
_MOST_LANES = 3
_SAME = 0.9
"""Least share of steps with the usual number of batches for a note on that number."""


def notes(
    links: Links,
    steps: Steps,
    hosts: Hosts,
    launches: pd.DataFrame,
    origins: Origins,
    lost: str = absent.LOST,
) -> list[Note]:
    """Notes for the receipt, in order of importance.

    `launches` is the table of the activity, `lost` the reason and remedy if all kernels are lost.
    """
    return [
        *steps.notes,
        *_batches(links, steps),
        *_ranks(hosts),
        *_other_vendors(links),
        *_images(links),
        *absent.lost_note(links, lost),
        *_linked(links, launches),
        *_graphs(links),
        *_attributed(origins),
        *_overlaps(links),
        *_recorder(links, hosts),
        *_memory(links),
    ]


def batches_of(links: Links, steps: Steps) -> dict[tuple[int, int], int]:
    """Number of batches that each step requested from DataLoaders, by host and group, if any."""
    trace = links.trace
    rows = links.rows(OP, ANNOTATION, UNKNOWN)
    loader = names_that(torchnames.LOADER.match, trace.names)
    rows = rows[loader[trace.events.name[rows]]]
    if not len(rows):
        return {}
    host = links.host[rows]
    group = steps.group_at(host, trace.events.start[rows])
    return dict(Counter(zip(host[group >= 0].tolist(), group[group >= 0].tolist(), strict=True)))


def _batches(links: Links, steps: Steps) -> list[Note]:
    """Number of batches per step, if more than one."""
    taken = pd.Series(list(batches_of(links, steps).values()), dtype=np.int64)
    if not len(taken):
        return []
    count = int(taken.mode().iloc[0])
    if count < 2 or (taken == count).sum() < _SAME * len(steps.host):
        return []
    return [gpu_notes.batches_per_step(count)]


def _ranks(hosts: Hosts) -> list[Note]:
    result = []
    twice = sorted({r for r in hosts.ranks if r is not None and hosts.ranks.count(r) > 1})
    for rank in twice:
        files = [f for f, r in zip(hosts.files, hosts.ranks, strict=True) if r == rank]
        result.append(gpu_notes.equal_ranks(rank, files))
    for first, copies in hosts.identical().items():
        result.append(gpu_notes.copied_files(first, copies))
    return result


def _linked(links: Links, launches: pd.DataFrame) -> list[Note]:
    """Launches without device work, and device work without a launch or an op."""
    trace, work = links.trace, links.work
    result = _captured(links)
    name = trace.events.name[launches["event"].to_numpy(np.int64)]
    starts_work = names_that(torchnames.launches_work, trace.names)[name]
    if not len(work):
        return result
    if (links.kind == KERNEL).any():
        result += sanity.lost_launches(launches, starts_work)
    moves = names_that(torchnames.copies_or_fills, trace.names)[name]
    moves &= (launches["target"] < 0).to_numpy()
    if moves.any():
        result.append(gpu_notes.copies_without_work(int(moves.sum())))
    # The runtime of MTIA records no calls that copy.
    copied = names_that(torchnames.MTIA_COPY.__eq__, trace.names)[trace.events.name[work]]
    if copied.any():
        result.append(gpu_notes.mtia_copies(int(copied.sum())))
    unlaunched = int(((links.launch < 0) & ~links.earlier & ~copied).sum())
    if unlaunched and not len(links.calls):
        result.append(gpu_notes.no_runtime_calls())
    elif unlaunched:
        result.append(shared_notes.unlaunched_work(unlaunched, len(work)))
    nameless = int(((links.work_name < 0) & ~copied).sum())
    if nameless and len(links.ops.rows):
        result.append(gpu_notes.work_without_op(nameless, len(work)))
    return result


def _other_vendors(links: Links) -> list[Note]:
    """Device work of categories that only the place of their events tells to be that."""
    trace = links.trace
    codes = trace.text_arg("cat")[links.work]
    result = []
    for code in pd.unique(codes[codes >= 0]).tolist():
        name = trace.strings[code]
        if category(name) == UNKNOWN:
            count = int((codes == code).sum())
            result.append(gpu_notes.unknown_category(printable(name), count))
    return result


def _images(links: Links) -> list[Note]:
    """Events of devices that are named like a launching call and stand for all that it launched."""
    trace, events = links.trace, links.trace.events
    rows = links.rows(DEVICE_NOTE)
    named = names_that(torchnames.launches_work, trace.names)
    rows = rows[named[events.name[rows]]]
    if not len(rows):
        return []
    codes = pd.unique(events.name[rows])
    lanes = trace.lanes.iloc[pd.unique(events.lane[rows])[:_MOST_LANES]]
    places = (lanes["process"] + ", " + lanes["thread"]).tolist()
    took = wording.millis(int(events.duration[rows].sum()) / 1e9)
    names = ", ".join(str(trace.names[code]) for code in codes[:_MOST_LANES].tolist())
    return [gpu_notes.launch_spans(len(rows), names, took, "; ".join(places))]


def _captured(links: Links) -> list[Note]:
    """Calls that were captured into graphs: their missing work is not lost."""
    rows, start, end = links.captures
    if not len(rows):
        return []
    took_ms = int((end - start).sum()) / 1e9
    return [gpu_notes.captured_calls(int(links.captured.sum()), len(rows), took_ms)]


def _graphs(links: Links) -> list[Note]:
    """Number of replayed graphs, and of those with known captures."""
    graphs = links.graphs
    nodes = len(graphs.nodes)
    if not nodes:
        return []
    remedy = ""
    if _of_pytorch(links):
        remedy = ": give a trace of it, nbprof.load(..., graph_capture=PATH)"
    counts = graphs.counts
    facts = []
    if counts["captured"]:
        matched = plural(counts["captured"], "graph")
        facts.append(f"the nodes of {matched} are attributed to the captured ops")
    if counts["unknown"]:
        unknown = plural(counts["unknown"], "graph")
        facts.append(f"for {unknown} no matching capture was found{remedy}")
    if counts["several"]:
        ambiguous = plural(counts["several"], "graph")
        facts.append(f"for {ambiguous} several captures match, of different ops")
    annotated = len(np.unique(graphs.node[graphs.annotated[0] > 0]))
    if annotated:
        facts.append(f"{plural(annotated, 'node has', 'nodes have')} annotations of PyTorch")
    replays = int(np.unique(graphs.replay).size)
    result = [gpu_notes.graph_replays(replays, sum(counts.values()), nodes, facts)]
    if graphs.unmatched_graphs:
        result.append(gpu_notes.unmatched_annotations(graphs.unmatched_graphs))
    return result


def _attributed(origins: Origins) -> list[Note]:
    """Share of time with a known op, module and line of code; only PyTorch records modules."""
    shares = origins.shares() if _of_pytorch(origins.links) else None
    if shares is None:
        return []
    origins_of = {"op": "an op", "module": "an nn.Module", "line": "a line of code"}
    shares_by_origin = {origins_of[key]: shares[key] for key in origins_of if key in shares}
    subject = "Kernel time" if "op" in shares else "Op time"
    remedy = " Modules and lines are recorded with with_stack=True."
    if shares["module"] or shares["line"]:
        remedy = ""
    return [gpu_notes.attributed_time(subject, shares_by_origin, remedy)]


def _of_pytorch(links: Links) -> bool:
    """True if PyTorch recorded the trace: its files state the version of their schema."""
    several = links.trace.metadata.get("hosts")
    metadata = [links.trace.metadata, *(several.values() if isinstance(several, dict) else [])]
    return any(isinstance(facts, dict) and "schemaVersion" in facts for facts in metadata)


def _overlaps(links: Links) -> list[Note]:
    """Kernels that overlap the previous one on their stream, by dependent launch or by error."""
    events, work = links.trace.events, links.work
    result = []
    if len(work):
        # On an MTIA copies run while the kernel around them does.
        copies = names_that(torchnames.MTIA_COPY.__eq__, links.trace.names)
        work = work[~copies[events.name[work]]]
        start = events.start[work]
        busy_until = ends_before(events.end[work], events.lane[work])
        early = np.flatnonzero(start < busy_until)
        if len(early):
            longest_us = int((busy_until[early] - start[early]).max()) / 1e6
            result.append(gpu_notes.overlapping_work(len(early), longest_us))
    ops = links.ops
    if len(ops.rows):
        past = events.end[ops.rows] - ops.end
        count = int((past > 0).sum())
        if count:
            longest_ns = int(past.max()) / 1000
            result.append(gpu_notes.clipped_ops(count, longest_ns, SLACK_PS // 1_000_000))
    return result


def _recorder(links: Links, hosts: Hosts) -> list[Note]:
    """The profiler's own messages: logged warnings and overhead."""
    result = []
    messages = list(dict.fromkeys(hosts.messages()))
    several = len(links.trace.hosts) > 1
    for host, text in messages[:_MOST_MESSAGES]:
        result.append(gpu_notes.profiler_message(text, host if several else ""))
    if len(messages) > _MOST_MESSAGES:
        result.append(gpu_notes.more_profiler_messages(len(messages) - _MOST_MESSAGES))
    rows = links.rows(OVERHEAD)
    if len(rows):
        events = links.trace.events
        overheads = []
        for code in np.unique(events.name[rows]).tolist():
            duration = events.duration[rows[events.name[rows] == code]]
            name = str(links.trace.names[code])
            overheads.append(gpu_notes.Overhead(name, len(duration), int(duration.sum())))
        result.append(gpu_notes.profiler_overhead(overheads, _span(links)))
    return result


def _span(links: Links) -> int:
    rows: Int64s = np.concatenate([links.ops.rows, links.work, links.rows(CALL)])
    events = links.trace.events
    if len(rows):
        return int(events.end[rows].max() - events.start[rows].min())
    return 0


def _memory(links: Links) -> list[Note]:
    result = []
    if gpu_memory.without_totals(links):
        result.append(gpu_notes.memory_without_totals())
    failed = np.flatnonzero(links.trace.names == "[OutOfMemory]")
    count = int(np.isin(links.trace.events.name, failed).sum())
    if count:
        result.append(gpu_notes.out_of_memory(count))
    return result
