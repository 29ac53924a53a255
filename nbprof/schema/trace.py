"""Events of the trace, and queries over them."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, text, us

_HOST = text("host", "Host", "Machine that recorded the row.")
SCHEMA: dict[str, list[Col]] = {
    "trace.events": [
        _HOST,
        text("process", "Process", "Device or process of the lane."),
        text("lane", "Lane", "Thread or stream."),
        text("name", "Name", "Name of the event.", "code"),
        us("start_us", "Start µs", "Start, from the start of the profile."),
        us("duration_us", "Duration µs", "Duration of the event."),
        count("depth", "Depth", "Nesting level on the lane."),
        us("self_us", "Self µs", "Duration, excluding nested events."),
        count("event", "Event", "Event number in the profile."),
    ],
    "trace.tracks": [
        count("lane", "Lane", "Lane number, for `p.trace.events(lane=...)`."),
        _HOST,
        text("process", "Process", "Heading that the lane is listed under."),
        text("name", "Name", "Name of the lane."),
        text("kind", "Kind", "steps, device, host or counter."),
        count("events", "Events", "Number of events on the lane; 0 for a counter."),
        Col(
            "derived",
            "bool",
            "",
            "Derived",
            "Whether the lane is derived from the recorded events.",
            "bool",
            None,
        ),
    ],
    "trace.range": [
        text("name", "Name", "Event name, as drawn.", "code"),
        text(
            "on", "On", "host or device: where it ran. A name that is on both has a row for each."
        ),
        count("count", "Count", "Events of this name that overlap the range."),
        us("self_us", "Self µs", "Their time in the range, excluding nested events."),
        us(
            "total_us", "Total µs", "Their time in the range; nested events of the name each count."
        ),
        percent(
            "percent",
            "%",
            "Self time as a share of the range; lanes run in parallel, so the sum may exceed 100.",
        ),
    ],
    "trace.gaps": [
        _HOST,
        text("device", "Device", "The idle device, as named in the trace."),
        ms("start_ms", "Start ms", "Start of the gap, from the start of the profile.", 3),
        us("duration_us", "Duration µs", "How long no stream of the device ran anything."),
        text(
            "meanwhile",
            "Meanwhile",
            "Event name with the most self time on the host threads during the gap; empty if"
            " unknown.",
            "code",
        ),
        us("meanwhile_us", "Meanwhile µs", "That self time, summed over threads."),
    ],
    "trace.lanes": [
        count("lane", "Lane", "Lane number."),
        _HOST,
        text("process", "Process", "Device or process."),
        text("thread", "Thread", "Thread or stream."),
        text("kind", "Kind", "steps, device, derived or host."),
        count("device", "Device", "Device number; -1 for the host."),
        count("events", "Events", "Number of events on the lane."),
    ],
}
