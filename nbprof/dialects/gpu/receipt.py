"""Notes on a PyTorch profile: unlinked, overlapping and dropped events."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from nbprof.core.files import printable
from nbprof.core.intervals import ends_before
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.core.units import join_some
from nbprof.dialects import sanity, torchnames
from nbprof.dialects.gpu import absent
from nbprof.dialects.gpu import memory as gpu_memory
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

    `lost` says why all kernels may be lost, and what helps.
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


def _info(text: str) -> Note:
    return Note("info", text)


def _warning(text: str) -> Note:
    return Note("warning", text)


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
    return [
        _info(f"each step takes {count:,} batches from DataLoaders, as with gradient accumulation")
    ]


def _ranks(hosts: Hosts) -> list[Note]:
    result = []
    twice = sorted({r for r in hosts.ranks if r is not None and hosts.ranks.count(r) > 1})
    for rank in twice:
        files = [f for f, r in zip(hosts.files, hosts.ranks, strict=True) if r == rank]
        result.append(
            _warning(
                f"Several files have rank {rank}: {join_some(files, 8)}. Each is shown as a"
                " separate host."
            )
        )
    for first, copies in hosts.identical().items():
        if len(copies) == 1:
            result.append(
                _warning(
                    f"{copies[0]} has the same events as {first}: it is a copy, and its events are"
                    " counted twice."
                )
            )
        else:
            count = f"{len(copies):,} files have the same events as {first}"
            result.append(
                _warning(
                    f"{count}: {join_some(copies, 8)}. They are copies, and the events of each are"
                    " counted."
                )
            )
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
        calls = plural(
            int(moves.sum()), "call that copies or fills has", "calls that copy or fill have"
        )
        result.append(
            _info(
                f"{calls} no device activity: it had 0 bytes or was host to host, or was dropped."
            )
        )
    # The runtime of MTIA records no calls that copy.
    copied = names_that(torchnames.MTIA_COPY.__eq__, trace.names)[trace.events.name[work]]
    if copied.any():
        counted = plural(
            int(copied.sum()), "copy of an MTIA states", "copies of MTIA devices state"
        )
        result.append(_info(f"{counted} no launch: each belongs to the step in which it started."))
    alone = int(((links.launch < 0) & ~links.earlier & ~copied).sum())
    if alone and not len(links.calls):
        result.append(
            _info(
                "The profile has no runtime calls: launch times are unknown, and device work"
                " belongs to steps by its own time."
            )
        )
    else:
        result += sanity.unlaunched(alone, len(work))
    nameless = int(((links.work_name < 0) & ~copied).sum())
    if nameless and len(links.ops.rows):
        text = (
            f"{plural(nameless, 'device event')} of {len(work):,}"
            f" ({100 * nameless / len(work):.3g} %)"
        )
        result.append(
            _info(
                f"{text} could not be linked to an op; the tables list them under their own names."
            )
        )
    return result


def _other_vendors(links: Links) -> list[Note]:
    """Device work of categories that only the place of their events tells to be that."""
    trace = links.trace
    codes = trace.text_arg("cat")[links.work]
    result = []
    for code in pd.unique(codes).tolist():
        if code >= 0 and category(trace.strings[code]) == UNKNOWN:
            count = plural(int((codes == code).sum()), "event")
            text = (
                f"{count} of category {printable(trace.strings[code])} are on device lanes: they"
                " count as device work"
            )
            result.append(_info(f"{text}, as kernels unless their names indicate a copy or fill."))
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
    places = [
        f"{process}, {thread}"
        for process, thread in zip(lanes["process"], lanes["thread"], strict=True)
    ]
    count = plural(len(rows), "device event is", "device events are")
    took = wording.millis(int(events.duration[rows].sum()) / 1e9)
    names = ", ".join(str(trace.names[code]) for code in codes[:_MOST_LANES].tolist())
    text = (
        f"{count} named as the call that launches ({names}; {took} on {'; '.join(places)}): it"
        " stands for all that was launched, idle time included, and counts as no device work. Only"
        " kernels recorded by themselves count."
    )
    return [_warning(text)]


def _captured(links: Links) -> list[Note]:
    """Calls that were captured into graphs: their missing work is not lost."""
    rows, start, end = links.captures
    if not len(rows):
        return []
    calls = plural(
        int(links.captured.sum()),
        "call that launches, copies or fills was",
        "calls that launch, copy or fill were",
    )
    took = f"{plural(len(rows), 'capture')} of {wording.millis(int((end - start).sum()) / 1e9)}"
    return [
        _info(
            f"{calls} captured into a graph and not run ({took}): that time counts as compilation;"
            " no work is missing."
        )
    ]


def _graphs(links: Links) -> list[Note]:
    """Number of replayed graphs, and of those with known captures."""
    graphs = links.graphs
    nodes = len(graphs.nodes)
    if not nodes:
        return []
    replays = plural(int(np.unique(graphs.replay).size), "replay")
    text = (
        f"{replays} of {plural(sum(graphs.counts.values()), 'graph')} with {plural(nodes, 'node')}"
    )
    remedy = ""
    if _of_pytorch(links):
        remedy = ": give a trace of it, nbprof.load(..., graph_capture=PATH)"
    lacks = [
        (graphs.counts["unknown"], f"no matching capture was found{remedy}"),
        (graphs.counts["several"], "several captures match, of different ops"),
    ]
    matched = graphs.counts["captured"]
    facts = []
    if matched:
        facts = [f"the nodes of {plural(matched, 'graph')} are attributed to the captured ops"]
    facts += [f"for {plural(count, 'graph')} {why}" for count, why in lacks if count]
    noted = len(np.unique(graphs.node[graphs.annotated[0] > 0]))
    facts += [f"{plural(noted, 'node has', 'nodes have')} annotations of PyTorch"] if noted else []
    result = [_info(f"{text}: {'; '.join(facts)}.")]
    if graphs.unmatched_graphs:
        warning = (
            "kernel_annotations_rank*.pkl next to the trace annotates"
            f" {plural(graphs.unmatched_graphs, 'graph')} that no replay here has"
        )
        result.append(_warning(f"{warning}: it is from another recording and is ignored there."))
    return result


def _attributed(origins: Origins) -> list[Note]:
    """Share of time with a known op, module and line of code; only PyTorch records modules."""
    shares = origins.shares() if _of_pytorch(origins.links) else None
    if shares is None:
        return []
    words = {"op": "an op", "module": "an nn.Module", "line": "a line of code"}
    parts = [f"{_part(shares[key])} to {phrase}" for key, phrase in words.items() if key in shares]
    subject = "Kernel time" if "op" in shares else "Op time"
    how = " Modules and lines are recorded with with_stack=True."
    if shares["module"] or shares["line"]:
        how = ""
    return [_info(f"{subject} is attributed: {', '.join(parts)}.{how}")]


def _of_pytorch(links: Links) -> bool:
    """True if PyTorch recorded the trace: its files state the version of their schema."""
    several = links.trace.metadata.get("hosts")
    metadata = [links.trace.metadata, *(several.values() if isinstance(several, dict) else [])]
    return any(isinstance(facts, dict) and "schemaVersion" in facts for facts in metadata)


def _part(share: float) -> str:
    """Percent; 100 only if nothing is left out, 0 only for nothing."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    return f"{min(max(100 * share, 0.1), 99.9):.1f} %"


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
            by = wording.micros(int((busy_until[early] - start[early]).max()) / 1e6)
            result.append(
                _info(
                    f"{plural(len(early), 'device event starts', 'device events start')} before the"
                    f" previous one on the same stream ends, by up to {by}. Programmatic dependent"
                    " launch causes this; so do profiler errors. All are kept; busy time counts"
                    " each instant once."
                )
            )
    ops = links.ops
    if len(ops.rows):
        past = events.end[ops.rows] - ops.end
        count = int((past > 0).sum())
        if count:
            late = f"{int(past.max()) / 1000:,.0f} ns"
            text = f"{plural(count, 'op ends', 'ops end')} up to {late} after the enclosing op"
            result.append(
                _info(
                    f"{text} (profiler rounding, at most {SLACK_PS // 1_000_000} µs): treated as"
                    " ending with it."
                )
            )
    return result


def _recorder(links: Links, hosts: Hosts) -> list[Note]:
    """The profiler's own messages: logged warnings and overhead."""
    result = []
    messages = list(dict.fromkeys(hosts.messages()))
    several = len(links.trace.hosts) > 1
    for host, text in messages[:_MOST_MESSAGES]:
        line = " ".join(text.split())
        result.append(_warning(f"{host}: {line}" if several else f"The profiler warned: {line}"))
    if len(messages) > _MOST_MESSAGES:
        result.append(
            _warning(
                f"The profiler gave {len(messages) - _MOST_MESSAGES:,} more warnings; see the"
                " file's metadata."
            )
        )
    rows = links.rows(OVERHEAD)
    if len(rows):
        events = links.trace.events
        total: dict[str, tuple[int, int]] = {}
        for code in np.unique(events.name[rows]).tolist():
            of_name = rows[events.name[rows] == code]
            total[str(links.trace.names[code])] = (
                len(of_name),
                int(events.duration[of_name].sum()),
            )
        listed = ", ".join(
            f"{n} {wording.millis(t / 1e9)} in {c:,}"
            for n, (c, t) in sorted(total.items(), key=lambda x: -x[1][1])[:4]
        )
        total_ps = sum(t for _, t in total.values())
        level = _warning if total_ps > 0.02 * _span(links) else _info
        result.append(
            level(
                f"Profiler overhead took {wording.millis(total_ps / 1e9)} of the profile: {listed}."
            )
        )
    return result


def _span(links: Links) -> int:
    rows: Int64s = np.concatenate([links.ops.rows, links.work, links.rows(CALL)])
    events = links.trace.events
    return int(events.end[rows].max() - events.start[rows].min()) if len(rows) else 0


def _memory(links: Links) -> list[Note]:
    result = []
    if gpu_memory.without_totals(links):
        result.append(
            _info(
                "The allocator events state no totals (PyTorch before 1.11): memory in use is"
                " summed from the events, so what was allocated before the recording is missing."
            )
        )
    failed = [c for c, n in enumerate(links.trace.names) if n == "[OutOfMemory]"]
    if failed and (count := int(np.isin(links.trace.events.name, failed).sum())):
        result.append(
            _warning(
                f"The allocator ran out of memory {plural(count, 'time')} while the profile was"
                " recorded."
            )
        )
    return result
