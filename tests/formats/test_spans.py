"""Spans in CSV."""

from __future__ import annotations

import nbprof


def test_spans_are_events_on_their_threads(tmp_path):
    path = tmp_path / "run.spans"
    path.write_text("name,thread,start_us,duration_us\nload,main,0,5.5\nstep,main,6,2\n")
    trace = nbprof.load(path).run.trace
    assert trace.names[trace.events.name].tolist() == ["load", "step"]
    assert trace.events.duration.tolist() == [5_500_000, 2_000_000]
