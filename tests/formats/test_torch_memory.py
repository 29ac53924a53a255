"""Snapshots of PyTorch's allocator: nothing of a pickle is run, and what it holds comes out as it
went in.
"""

import contextlib
import io
import os
import pickle
import random
import struct
from pathlib import Path

import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.torch_snapshot import machine as torch_machine
from nbprof.formats.torch_snapshot import memory as torch_memory
from nbprof.formats.torch_snapshot import plain_pickle
from nbprof.formats.torch_snapshot import records as torch_records
from nbprof.formats.torch_snapshot import snapshot as torch_snapshot
from nbprof.formats.torch_snapshot.plain_pickle import Cut, Unpickler
from tests.support.caching_allocator import MIB, Allocator, fragmented, snapshot


def load(data: bytes):
    return Unpickler(io.BytesIO(data).read).load()


def read(tmp_path: Path, data) -> torch_snapshot.Snapshot:
    path = tmp_path / "s.pickle"
    path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data))
    return torch_memory.snapshot_in(LocalFile(path))


PLAIN = {
    "a": [
        1,
        -1,
        255,
        256,
        65_536,
        -(2**31),
        2**31,
        2**40,
        2**63,
        -(2**70),
        1.5,
        None,
        True,
        False,
        "x" * 300,
        "ü\n\\'\"",
        "\ud7ff\U0001f600",
    ],
    "b": {1: [{}] * 3, -5: [], "t": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]},
    "c": list(range(2500)),
    "d": {str(i): i for i in range(2500)},
}


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_every_protocol(protocol):
    assert load(pickle.dumps(PLAIN, protocol)) == PLAIN


def test_texts_of_python_2():
    assert load(b"(S'a\\x41\\n'\nS\"q\"\nU\x01zT\x02\x00\x00\x00yyt.") == ("aA\n", "q", "z", "yy")


def test_a_record_that_ends_with_the_file_anywhere_has_no_shape_and_is_no_error():
    record = {
        "action": "alloc",
        "addr": 1 << 40,
        "size": 5,
        "pool_id": (0, 1),
        "name": "a text of its own",
        "frames": [],
    }
    data = pickle.dumps([list(record), dict(record)], 4)
    machine = Unpickler(io.BytesIO(data).read)
    machine.load()
    begin = data.rindex(b"}")
    assert torch_records.learn(data + bytes(20), begin, machine.memo) is not None
    stop = data.rindex(b"u")
    assert [
        end
        for end in range(begin + 1, stop)
        if torch_records.learn(data[:end], begin, machine.memo) is not None
    ] == []


def scalar(value: int) -> bytes:
    """A number as a pickle has it, without the opcodes around."""
    return pickle.dumps(value, 2)[2:-1]


@pytest.mark.parametrize("bits", [33, 40, 47, 55, 62])
def test_numbers_that_are_decoded_together_are_those_decoded_alone(bits):
    some = random.Random(bits)
    values = [some.choice((1, -1)) * some.randrange(1 << (bits - 1), 1 << bits) for _ in range(50)]
    raw = [scalar(value) for value in values]
    columns = [[one for one in raw if len(one) == size] for size in {len(one) for one in raw}]
    for column in columns:
        together = torch_records.numbers(column)
        assert together is not None
        assert together.tolist() == torch_records.Values([]).of(column)
    assert torch_records.numbers([*raw, scalar(5)]) is None
    # As long together as two of six bytes, but none of these.
    assert torch_records.numbers([scalar(1 << 41), scalar(1 << 33), scalar(1 << 49)]) is None


def test_short_and_very_long_numbers_and_other_values_are_decoded_one_by_one():
    for one in (
        scalar(5),
        scalar(70_000),
        scalar(1 << 64),
        b"N",
        b"h\x01",
        b"\x88",
        scalar(1 << 40) + scalar(1 << 40),
    ):
        assert torch_records.numbers([one, one]) is None


class Calls:
    """Pickles as what its constructor is given."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


class State:
    def __init__(self):
        self.x = 1


def nested(depth):
    value = Calls(os.system, ("touch /tmp/nbprof-was-here",))
    for _ in range(depth):
        value = {"frames": [value]}
    return value


HOSTILE = {
    "os.system": pickle.dumps(Calls(os.system, ("touch /tmp/nbprof-was-here",))),
    "eval, protocol 0": pickle.dumps(Calls(eval, ("1/0",)), 0),
    "eval, protocol 2": pickle.dumps(Calls(eval, ("1/0",)), 2),
    "nested": pickle.dumps(nested(30)),
    "reduce in reduce": pickle.dumps(Calls(os.path.join, (Calls(eval, ("1",)), "x"))),
    "state": pickle.dumps({"segments": [State()]}),
    "inst": b"(S'1'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'1'\no.",
    "bare reduce": b"N)R.",
    "build": b"}}b.",
    "newobj": b"N)\x81.",
    "newobj_ex": b"N)}\x92.",
    "extension": b"\x82\x01.",
    "persistent": b"Pwhatever\n.",
    "persistent of the stack": b"NQ.",
    "set": pickle.dumps({1, 2}),
    "bytearray": pickle.dumps(bytearray(b"x"), 5),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_plain_data_is_refused(name):
    marker = Path("/tmp/nbprof-was-here")
    marker.unlink(missing_ok=True)
    with pytest.raises(ReadError, match="none of it was run") as error:
        load(HOSTILE[name])
    assert error.value.offset is not None
    assert not marker.exists()


def test_the_error_names_what_was_asked_for_and_where():
    data = pickle.dumps({"segments": [Calls(os.system, ("true",))]}, 4)
    with pytest.raises(ReadError, match=r"asks for posix\.system") as error:
        load(data)
    assert data[error.value.offset] == 0x93
    data = b"}X\x01\x00\x00\x00acbuiltins\neval\n."
    with pytest.raises(ReadError, match=r"asks for builtins\.eval") as error:
        load(data)
    assert data[error.value.offset :].startswith(b"cbuiltins")


def test_lengths_that_no_file_has():
    huge = struct.pack("<Q", 1 << 60)
    for data in (
        b"\x8d" + huge,
        b"\x8e" + huge,
        b"X\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\x7f",
        b"r\xff\xff\xff\x7f",
        b"Nr\xff\xff\xff\x7f",
    ):
        with pytest.raises((ReadError, Cut)):
            load(b"\x80\x04" + data + b".")
    with pytest.raises(ReadError, match="malformed"):
        load(b"I" + b"9" * 5000 + b"\n.")


def test_depth_is_bounded():
    deepest = plain_pickle.MOST_MARKS
    assert type(load(b"(" * deepest + b"t" * deepest + b".")) is tuple
    with pytest.raises(ReadError, match="deeper"):
        load(b"(" * (deepest + 1) + b"t" * (deepest + 1) + b".")
    with pytest.raises(ReadError, match="deeper"):
        load(b"(" * 100_000)
    # Nested without marks: there is no recursion here, and none when it is given back.
    depth = 200_000
    assert load(b"]" * depth + b"a" * (depth - 1) + b".")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"N" * 60_000, "stack"),
        (b"N" + b"\x94" * 60_000, "parts"),
        (b"]\x94" + b"(" + b"h\x00" * 30_000 + b"e", "stack"),
        (b"]" + b"Na" * 60_000, "parts"),
        (b"N" + b"\x85" * 60_000, "parts"),
        # Each leaves a gap in the memo: five bytes would take the room of a million slots.
        (
            b"N" + b"".join(b"r" + struct.pack("<I", 1000 * slot) for slot in range(1, 9_000)),
            "memo",
        ),
    ],
    ids=["stack", "memo", "references", "items", "tuples", "gaps"],
)
def test_short_programs_do_not_make_large_ones(monkeypatch, data, message):
    monkeypatch.setattr(plain_pickle, "_FREE", 1 << 10)
    monkeypatch.setattr(plain_pickle, "MOST_STACK", 1 << 10)
    monkeypatch.setattr(plain_pickle, "PART", 1 << 10)
    monkeypatch.setattr(plain_pickle, "_AHEAD", 1 << 8)
    machine = Unpickler(io.BytesIO(data + b"0" * 4096).read)
    with pytest.raises(ReadError, match=message):
        machine.load()
    # It stopped early.
    assert machine.offset < 40_000


def test_a_record_is_not_taken_twice():
    data = pickle.dumps(snapshot(fragmented()), 4)
    entry = {"action": "alloc", "addr": 1, "size": 1, "frames": []}
    with pytest.raises(ReadError, match="record twice"):
        torch_memory_of({"segments": [], "device_traces": [[entry, {**entry}], [entry] * 3]})
    assert torch_memory_of(data).entries["size"].size


def torch_memory_of(data):
    machine = torch_machine.Machine(
        io.BytesIO(data if isinstance(data, bytes) else pickle.dumps(data)).read
    )
    return torch_memory.result(machine, machine.load())


def test_any_bytes_are_an_error_or_data():
    rng = random.Random(7)
    good = pickle.dumps(snapshot(fragmented()), 4)
    read = 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ReadError, Cut):
            found = torch_memory_of(bytes(data))
            assert len({len(values) for values in found.entries.values()}) == 1
            read += 1
    assert 0 < read < 400, "some bytes matter, some do not"


def expected(taken):
    entries = [entry for trace in taken["device_traces"] for entry in trace]
    return {
        "size": [e["size"] for e in entries],
        "address": [e.get("addr", -1) for e in entries],
        "device_free": [e.get("device_free", -1) for e in entries],
        "time_us": [e["time_us"] for e in entries],
        "stream": [e["stream"] for e in entries],
        "pool_b": [e["pool_id"][1] for e in entries],
        "device": [i for i, trace in enumerate(taken["device_traces"]) for _ in trace],
    }


@pytest.mark.parametrize("protocol", range(6))
def test_a_snapshot_comes_out_as_it_went_in(tmp_path, protocol):
    second = Allocator(device=1)
    second.alloc(40 * MIB, [], stream=140_000_000_000_000, pool=(0, 3))
    taken = snapshot(fragmented(), second)
    got = read(tmp_path, pickle.dumps(taken, protocol))
    for name, values in expected(taken).items():
        assert got.entries[name].tolist() == values, name
    entries = [entry for trace in taken["device_traces"] for entry in trace]
    assert [torch_snapshot.ACTIONS[a] for a in got.entries["action"]] == [
        e["action"] for e in entries
    ]
    assert [[got.frames[f] for f in got.stacks[s]] for s in got.entries["stack"]] == [
        [(f["name"], f["filename"], f["line"]) for f in e["frames"]] for e in entries
    ]
    blocks = [block for segment in taken["segments"] for block in segment["blocks"]]
    for name, key in (("size", "size"), ("address", "address"), ("requested", "requested_size")):
        assert got.blocks[name].tolist() == [b[key] for b in blocks]
    assert [torch_snapshot.STATES[s] for s in got.blocks["state"]] == [b["state"] for b in blocks]
    for name, key in (
        ("size", "total_size"),
        ("allocated", "allocated_size"),
        ("active", "active_size"),
        ("requested", "requested_size"),
    ):
        assert got.segments[name].tolist() == [s[key] for s in taken["segments"]]
    assert got.settings["expandable_segments"] is False
    assert not got.warnings
    assert not got.cut


def test_records_are_matched_whole(tmp_path, monkeypatch):
    taken = snapshot(fragmented())
    matched = read(tmp_path, taken)
    monkeypatch.setattr(torch_machine, "_SHAPES", 0)
    by_opcode = read(tmp_path, taken)
    for name in matched.entries:
        assert matched.entries[name].tolist() == by_opcode.entries[name].tolist()
    assert matched.stacks == by_opcode.stacks


def test_a_small_window_changes_nothing(tmp_path, monkeypatch):
    taken = snapshot(fragmented())
    whole = read(tmp_path, taken)
    monkeypatch.setattr(plain_pickle, "PART", 512)
    monkeypatch.setattr(plain_pickle, "_AHEAD", 64)
    pieces = read(tmp_path, taken)
    for name in whole.entries:
        assert whole.entries[name].tolist() == pieces.entries[name].tolist()


def test_what_is_whole_of_a_file_that_was_cut_short_is_kept(tmp_path):
    taken = snapshot(fragmented())
    data = pickle.dumps(taken, 4)
    seen = []
    for length in range(1200, len(data), 997):
        got = read(tmp_path, data[:length])
        assert got.cut
        assert f"byte {length:,}" in got.warnings[0]
        count = len(got.entries["size"])
        assert got.entries["size"].tolist() == expected(taken)["size"][:count]
        segments = len(got.segments["size"])
        assert got.segments["size"].tolist() == [
            s["total_size"] for s in taken["segments"][:segments]
        ]
        assert (
            got.segments["size"]
            == [sum(b["size"] for b in s["blocks"]) for s in taken["segments"][:segments]]
        ).all()
        seen.append((segments, count))
    assert seen == sorted(seen)
    assert len({count for _, count in seen}) > 5
    with pytest.raises(ReadError, match="is truncated"):
        read(tmp_path, data[:40])


def test_the_oldest_files_have_segments_only(tmp_path):
    blocks = [
        {
            "size": 1024,
            "state": "active_allocated",
            "history": [
                {
                    "addr": 4096,
                    "real_size": 700,
                    "frames": [{"name": "f", "filename": "a.py", "line": 3}],
                }
            ],
        },
        {
            "size": 1024,
            "state": "active_awaiting_free",
            "history": [{"addr": 5120, "real_size": 1000}],
        },
        {"size": 2048, "state": "inactive"},
    ]
    segment = {
        "device": 0,
        "address": 4096,
        "total_size": 4096,
        "stream": 0,
        "segment_type": "small",
        "blocks": blocks,
    }
    got = read(tmp_path, [segment])
    assert got.blocks["address"].tolist() == [4096, 5120, 6144]
    assert got.blocks["requested"].tolist() == [700, 1000, 0]
    assert got.blocks["state"].tolist() == [
        torch_machine.ALLOCATED,
        torch_machine.PENDING,
        torch_snapshot.INACTIVE,
    ]
    assert got.frames == [("f", "a.py", 3)]
    assert not got.traced


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_stacks_that_records_share_are_of_all_of_them(protocol):
    # PyTorch makes one list for each stack: a block, the entry that gave it out and those that took
    # it back have the same.
    stacks = [
        [{"name": f"f{i}{k}", "filename": "a.py", "line": k} for k in range(3)] for i in range(5)
    ]
    blocks = [
        {
            "address": 512 * i,
            "size": 512,
            "requested_size": 9,
            "state": "active_allocated",
            "frames": stacks[i % 3],
        }
        for i in range(40)
    ]
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 512 * 40,
        "frames": stacks[4],
        "blocks": blocks,
    }
    entries = [
        {
            "action": "alloc",
            "addr": 512 * i,
            "size": 9,
            "stream": 0,
            "time_us": i,
            "frames": stacks[i % 4] if i % 7 else [],
        }
        for i in range(400)
    ]
    data = pickle.dumps({"segments": [segment], "device_traces": [entries]}, protocol)
    got = torch_memory_of(data)

    def names(code):
        return [got.frames[frame][0] for frame in got.stacks[code]]

    assert [names(code) for code in got.blocks["stack"].tolist()] == [
        [f["name"] for f in block["frames"]] for block in blocks
    ]
    assert [names(code) for code in got.entries["stack"].tolist()] == [
        [f["name"] for f in entry["frames"]] for entry in entries
    ]
    assert [names(code) for code in got.segments["stack"].tolist()] == [["f40", "f41", "f42"]]


def test_a_block_holds_no_more_than_its_size(tmp_path):
    asked = (700, 1024, 1025, -3, None)
    blocks = [
        {"address": 4096 + 1024 * i, "size": 1024, "requested_size": n, "state": "active_allocated"}
        for i, n in enumerate(asked)
    ]
    segment = {"device": 0, "address": 4096, "total_size": 5120, "blocks": blocks}
    assert read(tmp_path, {"segments": [segment], "device_traces": []}).blocks[
        "requested"
    ].tolist() == [700, 1024, 1024, 1024, 1024]


def test_records_that_were_put_away_are_held_no_more(monkeypatch):
    # Protocol 0 has no record that is matched whole, so that each is a dict for a while.
    monkeypatch.setattr(torch_machine, "_SHAPES", 0)

    def held(count):
        entry = [
            {
                "action": "alloc",
                "addr": 512 * i,
                "size": i,
                "frames": [{"name": "f", "filename": "f", "line": i}],
            }
            for i in range(count)
        ]
        machine = torch_machine.Machine(
            io.BytesIO(pickle.dumps({"segments": [], "device_traces": [entry]}, 0)).read
        )
        assert len(torch_memory.result(machine, machine.load()).entries["size"]) == count
        return machine.held

    # What stays of each is its stack of one frame.
    assert held(300) - held(100) <= 2 * 200


def test_values_that_are_no_numbers_are_unknown(tmp_path):
    entries = [
        {
            "action": "alloc",
            "addr": "0x7f",
            "size": 2**70,
            "stream": None,
            "time_us": 1.5,
            "frames": None,
        },
        {"action": 7, "size": 3},
    ]
    got = read(tmp_path, {"segments": [], "device_traces": [entries]})
    assert got.entries["address"].tolist() == [-1, -1]
    assert got.entries["size"].tolist() == [-1, 3]
    assert "3 values" in got.warnings[0]


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize(
    ("address", "size"),
    [(4095, 512), (3 << 20, 512), (1 << 62, 512), ((3 << 20) - 512, 513), (4096, 1 << 62)],
)
def test_blocks_outside_of_their_segment_are_left_out(address, size, expandable):
    inside = {"address": 1 << 20, "size": 2 << 20, "requested_size": 5, "state": "active_allocated"}
    segment = {
        "device": 0,
        "address": 1 << 20,
        "total_size": 2 << 20,
        "segment_type": "small",
        "is_expandable": expandable,
    }
    other = {"address": address, "size": size, "requested_size": 1, "state": "inactive"}
    got = torch_memory_of(
        {"segments": [{**segment, "blocks": [other, inside]}], "device_traces": []}
    )
    assert got.blocks["address"].tolist() == [1 << 20]
    assert got.segments["blocks"].tolist() == [1]
    assert got.warnings == ["Blocks outside their segment were left out: 1."]


def test_other_pickles_are_no_snapshots(tmp_path):
    for other in ({"a": 1}, [1, 2], "x", []):
        if other == []:
            assert len(read(tmp_path, other).segments["size"]) == 0
            continue
        with pytest.raises(ReadError, match="not a snapshot"):
            read(tmp_path, other)
