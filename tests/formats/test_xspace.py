from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.xspace import xspace
from nbprof.profiles.load import load
from tests.support.xspace import PlaneWriter, Ref, UInt, chunk, number, training_run
from tests.support.xspace import xspace as write

DATA = Path(__file__).parents[1] / "data"


def read(tmp_path, data, name="host.xplane.pb"):
    path = tmp_path / name
    path.write_bytes(data)
    return xspace.read([LocalFile(path)])


def test_every_event_field_and_stat_is_read(tmp_path):
    plane = PlaneWriter("/host:CPU", {"clock": 1.5, "blob": b"\x00\xff"})
    plane.line(
        "thread",
        [
            plane.event(
                "a",
                5,
                7,
                ints=-3,
                big=UInt(2**64 - 1),
                half=0.5,
                text="x",
                ref=Ref("shared"),
                raw=b"\x01",
            ),
            plane.event("b", -2, 1, unknown=chunk(99, b"later") + number(77, 5)),
            plane.event("total", 0, 9, occurrences=12),
        ],
        timestamp_ns=3,
        display="shown",
    )
    trace = read(tmp_path, write(plane, errors=("lost something",)))
    events = trace.events
    assert [trace.names[c] for c in events.name] == ["b", "a"]
    assert events.start.tolist() == [2998, 3005]
    assert events.duration.tolist() == [1, 7]
    assert trace.args["ints"].value.tolist() == [-3]
    assert trace.args["ints"].event.tolist() == [1]
    assert trace.args["big"].value.view(np.uint64).tolist() == [2**64 - 1]
    assert trace.args["half"].floats().tolist() == [0.5]
    assert trace.strings[trace.args["text"].value[0]] == "x"
    assert trace.strings[trace.args["ref"].value[0]] == "shared"
    assert trace.planes[0].stats == {"clock": 1.5, "blob": b"\x00\xff"}
    assert trace.lanes["thread"].tolist() == ["shown"]
    texts = [n.text for n in trace.receipt.lines]
    assert any("lost something" in t for t in texts)
    assert any("1 aggregated event has a count" in t for t in texts)


def test_lines_of_one_id_are_one_lane_in_time_order(tmp_path):
    plane = PlaneWriter("/host:CPU")
    plane.line("one", [plane.event("late", 100, 1, tag=2)], line_id=5)
    plane.line("two", [plane.event("early", 10, 1, tag=1)], line_id=5)
    trace = read(tmp_path, write(plane))
    assert len(trace.lanes) == 1
    assert [trace.names[c] for c in trace.events.name] == ["early", "late"]
    assert trace.args["tag"].value.tolist() == [1, 2]


def test_absolute_times_become_relative_without_loss(tmp_path):
    plane = PlaneWriter("/host:CPU")
    epoch = 1_795_236_712_853_460_123
    plane.line("a", [plane.event("x", 1, 1)], line_id=1, timestamp_ns=epoch)
    plane.line("b", [plane.event("y", 1, 1)], line_id=2, timestamp_ns=epoch + 10**9)
    trace = read(tmp_path, write(plane))
    assert trace.epoch_ns == epoch
    assert trace.events.start.tolist() == [1, 10**12 + 1]


def test_nesting_gives_parent_depth_and_self_time(tmp_path):
    plane = PlaneWriter("/host:CPU")
    plane.line(
        "t",
        [
            plane.event("out", 0, 10),
            plane.event("in", 2, 3),
            plane.event("deep", 3, 1),
            plane.event("next", 10, 5),
        ],
    )
    events = read(tmp_path, write(plane)).events
    assert events.parent.tolist() == [-1, 0, 1, -1]
    assert events.depth.tolist() == [0, 1, 2, 0]
    assert events.self_time.tolist() == [7, 2, 1, 5]


def test_every_truncation_is_an_error_or_loses_nothing_silently(tmp_path, without_library):
    data = training_run(2)
    whole = read(tmp_path, data)
    assert not any(plane.is_cut for plane in whole.planes)
    told, sentences = {}, []
    for cut in range(1, len(data), 37):
        try:
            trace = read(tmp_path, data[:cut])
        except ReadError as error:
            sentences.append(str(error))
        else:
            told[cut] = (trace.receipt.events, str(trace.receipt), list(trace.names))
            # Only a cut between top-level fields leaves a valid file: then no plane is lost.
            is_whole = trace.receipt.events == whole.receipt.events and not trace.receipt.cut
            assert is_whole or len(trace.receipt.cut) == 1
            assert is_whole or "is truncated: it ends inside the field at byte" in told[cut][1]
    assert len(told) > 5
    assert any(plane.is_cut for plane in read(tmp_path, data[: min(told)]).planes)
    assert sentences
    assert all("host.xplane.pb" in s and "truncated" in s for s in sentences)
    assert [events for events, *_ in told.values()] == sorted(e for e, *_ in told.values())
    without_library()
    for cut, expected in list(told.items())[::3]:
        trace = read(tmp_path, data[:cut])
        notes = trace.receipt.notes
        trace.receipt.entries = [
            n for n in trace.receipt.entries if n.key != "native_reader_missing"
        ]
        assert len(trace.receipt.entries) == len(notes) - 1
        assert (trace.receipt.events, str(trace.receipt), list(trace.names)) == expected


def test_the_only_plane_cut_at_60_percent_has_its_events_and_no_figures(tmp_path):
    """Names and stats of its events come behind them: what they were is unknown."""
    recording = (DATA / "xspace/tf_cpu.xplane.pb").read_bytes()
    planes = [recording[a:b] for n, _, a, b in wire.fields(recording, 0, len(recording)) if n == 1]
    data = chunk(1, max(planes, key=len))
    path = tmp_path / "host.xplane.pb"
    for part in (0.6, 0.99):
        path.write_bytes(data[: int(part * len(data))])
        profile = load(path)
        (cut,) = profile.receipt.notes.query("key == 'file_read_in_part'")["text"]
        assert "events of its first plane before that are shown" in cut
        assert profile.steps.frame.empty
        assert profile.ops.frame.empty
        assert "events, 0 dropped" in profile.text()
        assert "File truncated" in profile.text()


def test_text_codec_damage_is_recognised(tmp_path):
    damaged = (
        (training_run(4) * 3).decode("latin-1").encode("utf-8").replace(b"\xc2", b"\xef\xbf\xbd")
    )
    with pytest.raises(ReadError, match=r"text codec|damaged"):
        read(tmp_path, damaged)
