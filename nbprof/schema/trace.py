"""Events of the trace, and what is asked about them."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, text, us

_HOST = text("host", "Host", "Machine that recorded the row.")
SCHEMA: dict[str, list[Col]] = {
    "trace.events": [
        _HOST,
        text("process", "Process", "Device or process of the lane."),
        text("lane", "Lane", "Thread or stream."),
        text("name", "Name", "Name of the event.", "code"),
        us("start_us", "Start µs", "Begin after the start of the profile."),
        us("duration_us", "Duration µs", "Duration."),
        count("depth", "Depth", "Nesting level on the lane."),
        us("self_us", "Self µs", "Duration without the events inside."),
        count("event", "Event", "Number of the event in the profile."),
    ],
    "trace.tracks": [
        count("lane", "Lane", "Number of the lane, as `p.trace.events(lane=...)` takes it."),
        _HOST,
        text("process", "Process", "Heading under which the lane is drawn."),
        text("name", "Name", "Name of the lane."),
        text("kind", "Kind", "steps, device, host or counter."),
        count("events", "Events", "Events on the lane; of a counter 0."),
        Col("derived", "bool", "", "Derived", "Made from what was recorded.", "bool", None),
    ],
    "trace.range": [
        text("name", "Name", "Name of the events, as it is drawn.", "code"),
        count("count", "Count", "Events of the name that touch the range."),
        us("self_us", "Self µs", "Their time in the range without the events inside."),
        us("total_us", "Total µs", "Their time in the range; of events inside one another each counts."),
        percent("percent", "%", "Self time as a part of the range; lanes run at the same time, so the sum may exceed 100."),
    ],
    "trace.gaps": [
        _HOST,
        text("device", "Device", "Device that ran nothing, as the trace heads it."),
        ms("start_ms", "Start ms", "Begin of the gap after the start of the profile.", 3),
        us("duration_us", "Duration µs", "How long nothing ran on any stream of the device."),
        text("meanwhile", "Meanwhile", "Name with most self time on the host's threads in the gap; empty if not known.", "code"),
        us("meanwhile_us", "Meanwhile µs", "That self time, on all threads together."),
    ],
    "trace.lanes": [
        count("lane", "Lane", "Number of the lane."),
        _HOST,
        text("process", "Process", "Device or process."),
        text("thread", "Thread", "Thread or stream."),
        text("kind", "Kind", "steps, device, derived or host."),
        count("device", "Device", "Number of the device; -1 on the host."),
        count("events", "Events", "Events on the lane."),
    ],
}
