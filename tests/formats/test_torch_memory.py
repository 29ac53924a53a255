"""Snapshots of PyTorch's allocator: nothing of a pickle is run, and what it holds comes out as it
went in.
"""

import contextlib
import io
import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.torch_snapshot import machine as torch_machine
from nbprof.formats.torch_snapshot import memory as torch_memory
from nbprof.formats.torch_snapshot import plain_pickle
from nbprof.formats.torch_snapshot import snapshot as torch_snapshot
from nbprof.formats.torch_snapshot.plain_pickle import TruncatedError, Unpickler
from tests.support.caching_allocator import MIB, Allocator, fragmented, snapshot
from tests.support.notes import numbers

ROOT = Path(__file__).parents[2]


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
    data = b"(S'a\\x41\\n'\nS\"q\"\nU\x01zT\x02\x00\x00\x00yyl."
    assert load(data) == ["aA\n", "q", "z", "yy"]


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
    "tuple of tuples": pickle.dumps(((1, 2), 3), 4),
    "tuple of a shared value": b"K\x01\x85\x94h\x00K\x01\x86.",
    "duplicate": b"N2\x86.",
    "pop": b"NN0.",
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
        with pytest.raises(ReadError):
            load(b"\x80\x04" + data + b".")
    with pytest.raises(ReadError, match="malformed"):
        load(b"I" + b"9" * 5000 + b"\n.")


def test_depth_needs_no_recursion():
    depth = 200_000
    assert load(b"]" * depth + b"a" * (depth - 1) + b".")
    with pytest.raises(TruncatedError):
        load(b"(" * depth)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"]" * 9_000, "parts"),
        (b"}" * 9_000, "parts"),
        (b"(l" * 9_000, "parts"),
        (b"Nr" + struct.pack("<I", 1 << 23), "LONG_BINPUT"),
        (b"Np9999999\n", "PUT"),
        ((b"K\x01\x95" + bytes(8)) * 200, "frames"),
    ],
    ids=["lists", "dicts", "marks", "memo", "memo of protocol 0", "frames"],
)
def test_short_programs_do_not_make_large_ones(monkeypatch, data, message):
    monkeypatch.setattr(plain_pickle, "_FREE", 1 << 10)
    monkeypatch.setattr(plain_pickle, "_FREE_PARTS", 1 << 10)
    with pytest.raises(ReadError, match=message):
        load(data + b"N" * 4096)


def test_memory_follows_the_length_of_the_file():
    """Of four million empty lists only the first ones are built."""
    with pytest.raises(ReadError, match="more parts") as caught:
        load(b"\x80\x04]" + b"]\x94" * (1 << 22) + b".")
    assert caught.value.offset < 1 << 20
    dense = [{"address": i, "frames": []} for i in range(60_000)]
    assert load(pickle.dumps(dense, 2)) == dense


@pytest.mark.parametrize("size", range(20, 60))
def test_a_tuple_may_be_in_two_windows_and_two_frames(monkeypatch, size):
    monkeypatch.setattr(plain_pickle, "PART", size)
    monkeypatch.setattr(plain_pickle, "_AHEAD", 20)
    values = [(1, 2**40, 3), (70_000,), (1.5, None), (), (1, 2, 3, 4)] * 5
    body = pickle.dumps(values, 3)[2:-1]
    assert load(body + b".") == values
    pair = b"K\x01\x95" + struct.pack("<Q", 5) + b"K\x02\x86."
    assert load(b"\x80\x04\x95" + struct.pack("<Q", 2) + pair) == (1, 2)


def test_a_record_is_not_taken_twice():
    data = pickle.dumps(snapshot(fragmented()), 4)
    entry = {"action": "alloc", "addr": 1, "size": 1, "frames": []}
    with pytest.raises(ReadError, match="record twice"):
        torch_memory_of({"segments": [], "device_traces": [[entry, {**entry}], [entry] * 3]})
    assert torch_memory_of(data).entries["size"].size


def torch_memory_of(data):
    data = data if isinstance(data, bytes) else pickle.dumps(data)
    return torch_memory.snapshot_from(io.BytesIO(data).read)


def test_any_bytes_are_an_error_or_data():
    rng = random.Random(7)
    good = pickle.dumps(snapshot(fragmented()), 4)
    read = 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ReadError):
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
    assert not got.notes
    assert not got.cut


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
        assert numbers(got.notes, "file_read_in_part") == [length]
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
        torch_snapshot.ALLOCATED,
        torch_snapshot.PENDING,
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


def test_dicts_of_a_batch_are_emptied():
    class Counting(torch_machine.Machine):
        largest = 0

        def batch(self, rows):
            self.largest = max(self.largest, len(rows))
            super().batch(rows)
            assert len(rows) <= 1 or "blocks" in rows[0]

    entries = [{"action": "alloc", "addr": 512 * i, "size": i, "frames": []} for i in range(5_000)]
    data = pickle.dumps({"segments": [], "device_traces": [entries]})
    machine = Counting(io.BytesIO(data).read)
    machine.load()
    assert machine.entries.count == 5_000
    assert machine.largest <= 1_001


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
    assert numbers(got.notes, "invalid_numbers") == [3]


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
    assert [note.key for note in got.notes] == ["blocks_outside_segments"]
    assert numbers(got.notes, "blocks_outside_segments") == [1]


def test_other_pickles_are_no_snapshots(tmp_path):
    for other in ({"a": 1}, [1, 2], "x", []):
        if other == []:
            assert len(read(tmp_path, other).segments["size"]) == 0
            continue
        with pytest.raises(ReadError, match="not a snapshot"):
            read(tmp_path, other)


def test_mutated_snapshots_need_little_memory():
    # In a process of its own: it gets at most 1 GiB, and would crash alone.
    script = """
import io, pickle, random, resource, sys
from nbprof.core.errors import ReadError
from nbprof.formats.torch_snapshot.memory import snapshot_from
from tests.support.caching_allocator import fragmented, snapshot
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
rng = random.Random(3)
taken = snapshot(fragmented(capacity=64 << 20))
opcodes = b"()tlds}]aeuhqrjKMJN012.IFSVUTXBC\\x85\\x86\\x87\\x8a\\x8b\\x8c\\x8d\\x8e\\x94\\x95RcQ\\x93"
refused = read = 0
for number in range(1500):
    data = bytearray(pickle.dumps(taken, number % 6))
    for _ in range(rng.randrange(1, 5)):
        index = rng.randrange(len(data))
        if number % 3 == 0:
            data[index] ^= 1 << rng.randrange(8)
        elif number % 3 == 1:
            data[index] = rng.choice(opcodes)
        else:
            del data[rng.randrange(len(data)) :]
            break
    try:
        snapshot_from(io.BytesIO(data).read)
        read += 1
    except ReadError:
        refused += 1
assert read > 200 and refused > 200, (read, refused)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=300)
