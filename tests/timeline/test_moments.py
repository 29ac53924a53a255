"""An event has the same time wherever it is told: in frames, in details, in the table of steps, in
the saved report.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from nbprof.profiles.load import load
from nbprof.profiles.report import bundle
from tests.support.chrome import complete, document
from tests.support.saved import payload_of
from tests.support.xspace import MS, PlaneWriter, xspace


@pytest.fixture(autouse=True)
def built(monkeypatch, tmp_path):
    path = tmp_path / "dashboard.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(bundle, "PATH", path)


def tensorflow(shift: int, timestamp_ns: int = 0) -> bytes:
    """Four steps of 10 ms with an op in each, the first at `shift`, ps."""
    host = PlaneWriter("/host:CPU")
    marks = [
        host.event("train", shift + i * 10 * MS, 9 * MS, step_num=i, _r=1, _pt=1, _p=500 + i)
        for i in range(4)
    ]
    work = [
        host.event("dense/MatMul:MatMul", shift + (i * 10 + 4) * MS, 5 * MS, _ct=1, _c=500 + i)
        for i in range(4)
    ]
    host.line("python", marks, line_id=7, timestamp_ns=timestamp_ns)
    host.line("pool", work, line_id=8, timestamp_ns=timestamp_ns)
    return xspace(host)


def torch(shift: float) -> bytes:
    marks = [
        complete(f"ProfilerStep#{i}", shift + i * 10_000, 9_000, cat="user_annotation")
        for i in range(4)
    ]
    work = [complete("aten::mm", shift + i * 10_000 + 4_000, 5_000) for i in range(4)]
    return json.dumps(document(*marks, *work)).encode()


FILES = {
    "from 0": ("host.xplane.pb", tensorflow(0)),
    "late": ("host.xplane.pb", tensorflow(3_000 * MS)),
    "before 0": ("host.xplane.pb", tensorflow(-25 * MS)),
    "epoch": ("host.xplane.pb", tensorflow(0, 1_700_000_000_000_000_000)),
    "before the epoch": ("host.xplane.pb", tensorflow(-25 * MS, 1_700_000_000_000_000_000)),
    "torch": ("in.pt.trace.json", torch(0)),
    "torch before 0": ("in.pt.trace.json", torch(-25_000)),
    "torch epoch": ("in.pt.trace.json", torch(1_700_000_000_000_000)),
}


@pytest.mark.parametrize("name", FILES)
def test_an_event_has_one_time(tmp_path, name):
    file, data = FILES[name]
    (tmp_path / file).write_bytes(data)
    p = load(tmp_path / file)
    told = p.trace.events().set_index("event")["start_us"]
    assert told.min() >= 0

    steps = p.steps.frame
    assert len(steps) == 4
    marks = [
        event
        for event in told.index
        if p.run.trace.names[p.run.trace.events.name[event]].startswith(("train", "Profiler"))
    ]
    assert steps["start_ms"].tolist() == pytest.approx((told[marks] / 1e3).tolist(), abs=1e-6)
    assert np.diff(steps["start_ms"]) == pytest.approx([10, 10, 10], abs=1e-6)

    for event, start in told.items():
        ref = p.run.timeline.answer({"ask": "slice", "event": event})["slice"]
        assert ref["start_ns"] / 1e3 == pytest.approx(start, abs=1e-6)
        near = start / 1e3
        assert event in p.trace.events(between=(near, near + 1e-3))["event"].tolist()
        assert len(p.trace.range(near, near + 1)) > 0

    page = p.save(tmp_path / "report.html").read_text()
    saved = payload_of(page)
    trace = saved["trace"]
    assert trace["origin_ns"] == 0
    found = {}
    for lane in trace["lanes"]:
        found |= dict(
            zip(
                lane["event"].tolist(),
                (lane["start"] * (trace["tick_ns"] / 1e3)).tolist(),
                strict=True,
            )
        )
    assert {event: found[event] for event in told.index} == pytest.approx(told.to_dict(), abs=1e-3)
    assert saved["steps"]["start_ms"].tolist() == pytest.approx(
        steps["start_ms"].tolist(), abs=1e-5
    )

    written = json.loads(p.trace.export(tmp_path / "out.json").read_text())["traceEvents"]
    assert sorted(e["ts"] for e in written if e["ph"] == "X") == pytest.approx(
        sorted(told), abs=1e-6
    )


def test_what_began_before_the_clock_moves_the_clock(tmp_path):
    (tmp_path / "host.xplane.pb").write_bytes(tensorflow(-25 * MS, 1_700_000_000_000_000_000))
    trace = load(tmp_path / "host.xplane.pb").run.trace
    assert trace.epoch_ns == 1_700_000_000_000_000_000 - 25_000_000
    assert trace.events.start.min() == 0
