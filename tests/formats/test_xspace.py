from __future__ import annotations

import numpy as np
import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.xspace import xspace
from tests.support.xspace import PlaneWriter, Ref, UInt, chunk, number, training_run
from tests.support.xspace import xspace as write


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


def test_every_truncation_is_an_error_or_loses_nothing_silently(tmp_path):
    data = training_run(2)
    whole = read(tmp_path, data).receipt.events
    accepted, sentences = 0, []
    for cut in range(1, len(data), 37):
        try:
            trace = read(tmp_path, data[:cut])
        except ReadError as error:
            sentences.append(str(error))
        else:
            # Only a cut between top-level fields leaves a valid file: then no plane is lost.
            assert trace.receipt.events == whole
            accepted += 1
    assert len(sentences) > 10
    assert all("host.xplane.pb" in s and "truncated" in s for s in sentences)
    assert accepted <= 1


def test_text_codec_damage_is_recognised(tmp_path):
    damaged = (
        (training_run(4) * 3).decode("latin-1").encode("utf-8").replace(b"\xc2", b"\xef\xbf\xbd")
    )
    with pytest.raises(ReadError, match=r"text codec|damaged"):
        read(tmp_path, damaged)
