"""Traces that are cut, damaged, hostile or no JSON: what is whole is kept, what is not is said, and
only `ReadError` comes out.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
import re
import struct
import sys
import tracemalloc
import zlib

import pytest

from nbprof.core import packed as core_packed
from nbprof.core.errors import ReadError
from nbprof.formats.chrome import document as chrome_document
from tests.support.chrome import compact, complete, expected_slices, kineto, packed, read, slices_of
from tests.support.profiles import needed


def _small(layout=kineto):
    return layout(
        complete(
            "aten::mm",
            5013.125,
            10.5,
            args={
                "External id": 7,
                "Input Dims": [[2, 3], []],
                "Call stack": "a.py(1): f;b.py(2): <g>",
            },
        ),
        {
            "ph": "M",
            "name": "process_name",
            "pid": 7,
            "tid": 0,
            "ts": 0,
            "args": {"name": "python"},
        },
        complete(
            'void k<(int)4, "q">',
            5014.5,
            1,
            cat="kernel",
            pid=0,
            tid=7,
            args={"correlation": 5, "grid": [1, 2, 3]},
        ),
        {"ph": "s", "id": 5, "pid": 7, "tid": 8, "ts": 5013.5, "cat": "ac2g", "name": "ac2g"},
        baseTimeNanoseconds=1000,
    )


def _names(trace):
    return [trace.names[c] for c in trace.events.name.tolist()]


@pytest.mark.parametrize("layout", [kineto, compact])
def test_cut_at_every_byte(layout):
    text = _small(layout).encode()
    whole = expected_slices(text.decode())
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    for at in range(len(text)):
        try:
            trace = read(text[:at])
        except ReadError as error:
            assert at < begin
            assert error.path == "/run/host.pt.trace.json"  # noqa: PT017
            continue
        assert at >= begin
        assert not slices_of(trace) - whole
        # An event is there as soon as its last byte is.
        assert len(trace.events) == sum(
            text[:at].count(end) for end in (_end(text, "mm"), _end(text, "k<"))
        )
        if at < len(text.rstrip()):
            assert (
                any(
                    "is truncated at byte" in n.text or "not closed" in n.text
                    for n in trace.receipt.entries
                )
                or text[at:].strip() == b""
            )


def _end(text, name):
    """An event's text."""
    at = text.index(name.encode())
    start = text.rindex(b'{"ph"', 0, at) if b'{"ph"' in text else text.rindex(b"  {\n", 0, at)
    depth = 0
    inside = False
    for i in range(start, len(text)):
        if text[i] == 0x22 and text[i - 1] != 0x5C:
            inside = not inside
        if not inside:
            depth += (text[i] == 0x7B) - (text[i] == 0x7D)
            if depth == 0 and text[i] == 0x7D:
                return text[start : i + 1]
    raise AssertionError


def test_a_killed_profiler_leaves_what_was_whole_and_the_byte():
    text = kineto(*[complete(f"op{i}", i) for i in range(500)])
    at = text.index("op400") + 3
    trace = read(text[:at])
    assert len(trace.events) == 400
    start = text.rindex("{", 0, at)
    assert [
        n.text for n in trace.receipt.entries if f"byte {start:,}" in n.text and "killed" in n.text
    ]
    assert trace.receipt.dropped == 0


def test_a_list_that_is_not_closed_is_whole():
    trace = read(json.dumps([complete("a"), complete("b")])[:-1])
    assert _names(trace) == ["a", "b"]
    assert [n.level for n in trace.receipt.entries] == ["info"]
    assert _names(read(json.dumps([complete("a")])[:-1] + ",\n")) == ["a"]


@pytest.mark.parametrize("seed", range(6))
def test_flipped_bits_end_in_a_sentence_or_a_trace(seed):
    rng = random.Random(seed)
    whole = _small(kineto if seed % 2 else compact).encode()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            trace = read(bytes(data))
        except ReadError as error:
            assert error.path == "/run/host.pt.trace.json"  # noqa: PT017
            continue
        slices_of(trace)
        assert (trace.events.duration >= 0).all()
        try:
            wanted = expected_slices(data.decode())
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
            continue
        # Where it is still JSON it is read as JSON.
        if trace.receipt.dropped == 0 and not trace.receipt.entries:
            assert slices_of(trace) == wanted


@pytest.mark.parametrize(
    ("inside", "name"),
    [
        (r'"C:\path\x"', "C:\\path\\x"),
        ('"void f("a", "b")"', 'void f("a", "b")'),
        ('"say "hello""', 'say "hello"'),
        ('"C:\\dir\\"', "C:\\dir\\"),
        ('"tab\there"', "tab\there"),
        ('"bad \\u00zz"', "bad \\u00zz"),
        (r'"half \ud83d"', "half \ufffd"),
    ],
)
@pytest.mark.parametrize("around", [0, 1, 400])
def test_names_that_are_no_json_are_mended(inside, name, around):
    events = (
        [complete(f"before{i}", i) for i in range(around)]
        + [complete("@", 1000)]
        + [complete(f"after{i}", 2000 + i) for i in range(around)]
    )
    for layout in (kineto, compact):
        trace = read(layout(*events).replace('"@"', inside))
        assert sorted(_names(trace)) == sorted(
            [name, *(f"{w}{i}" for w in ("before", "after") for i in range(around))]
        )
        assert trace.receipt.dropped == 0


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NaN", "nan"),
        ("nan", "nan"),
        ("Infinity", "inf"),
        ("inf", "inf"),
        ("-Infinity", "-inf"),
        ("-inf", "-inf"),
        ("N/A", "N/A"),
        ("None", None),
    ],
)
def test_words_that_are_no_json(written, value):
    trace = read(
        compact(complete(args={"a": 1, "v": 77, "z": 2}), complete(ts=2)).replace("77", written)
    )
    assert len(trace.events) == 2
    assert trace.arg("z").tolist() == [2, -1]
    if value is None:
        assert "v" not in trace.args
    elif value == "N/A":
        assert trace.strings[trace.text_arg("v")[0]] == "N/A"
    else:
        assert str(trace.args["v"].floats()[0]) == value


@pytest.mark.parametrize(
    "broken",
    [
        '{"ph":"X","name":"b","ts":1 2,"dur":1}',
        '{"ph":"X","name":"b","ts":12,5,"dur":1}',
        '{"ph":"X","name" "b","ts":1}',
        '{"ph":"X","name":"b","ts":1,"args":{"a":[1,2}}',
        '{"ph":"X","name":"b","ts":1,"args":{"a":]}}',
        '{"ph":"X",{"name":"b"},"ts":1}',
        '{"ph":"X","name":"b","ts":1,"args":{"a" 5}}',
        '{"ph":"X","name":"b","ts":,"dur":1}',
    ],
)
@pytest.mark.parametrize("around", [1, 300])
def test_a_broken_event_costs_only_itself(broken, around):
    first = ",".join(json.dumps(complete(f"a{i}", i)) for i in range(around))
    last = ",".join(json.dumps(complete(f"c{i}", i + 1000)) for i in range(around))
    text = f'{{"traceEvents":[{first},{broken},{last}],"traceName":"t"}}'
    trace = read(text)
    assert sorted(_names(trace)) == sorted(
        [f"a{i}" for i in range(around)] + [f"c{i}" for i in range(around)]
    )
    # What is left of it may look like more than one.
    assert 1 <= trace.receipt.dropped <= (3 if ",{" in broken else 1)
    assert f"byte {text.index(broken):,}" in next(iter(trace.receipt.skipped))
    assert trace.metadata == {"traceName": "t"}


def test_broken_events_in_every_stretch(monkeypatch):
    monkeypatch.setattr(chrome_document, "STRETCH", 2000)
    events = [
        json.dumps(complete(f"op {i}", i)) if i % 7 else f'{{"ph":"X","name":"no {i}","ts":{i} 1}}'
        for i in range(700)
    ]
    trace = read("[" + ",\n".join(events) + "]")
    assert _names(trace) == [f"op {i}" for i in range(700) if i % 7]
    assert trace.receipt.dropped == 100


def test_events_that_begin_with_keys_of_their_own(monkeypatch):
    monkeypatch.setattr(chrome_document, "STRETCH", 500)
    monkeypatch.setattr(chrome_document, "_LONG", 500)
    events = [{"own": [{"own": i}, {"own": 2}], **complete(f"op {i}", i)} for i in range(300)]
    trace = read(json.dumps(events))
    assert _names(trace) == [f"op {i}" for i in range(300)]
    assert trace.receipt.lines == []


def test_entries_that_are_no_events():
    trace = read('[1,"text",null,[{"ph":"X"}],' + json.dumps(complete("a")) + ',true,"x:[{",-1.5]')
    assert _names(trace) == ["a"]
    assert [n.text for n in trace.receipt.entries] == [
        "Entries in the event list that are not events, left out: 7."
    ]


def test_commas_too_many_and_a_mark_in_front():
    text = (
        b"\xef\xbb\xbf"
        + compact(complete("a", 1, args={"k": 1}), complete("b", 2))
        .replace("}}", ",},}")
        .replace("]", ",]")
        .encode()
    )
    trace = read(text)
    assert _names(trace) == ["a", "b"]
    assert trace.arg("k").tolist() == [1, -1]


def test_invalid_utf8_is_replaced_where_it_is():
    trace = read(compact(complete("@", args={"k@": "v@"})).encode().replace(b"@", b"\xff\xfe\xc3"))
    assert _names(trace) == ["\ufffd\ufffd\ufffd"]
    assert trace.strings[trace.text_arg("k\ufffd\ufffd\ufffd")[0]] == "v\ufffd\ufffd\ufffd"


@pytest.mark.parametrize("data", [b"", b"  \n\t ", b"\xef\xbb\xbf", b"\0\0\0\0"])
def test_nothing_in_the_file(data):
    with pytest.raises(ReadError, match=r"/run/host\.pt\.trace\.json"):
        read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"<html>",
        b'"text"',
        b"5",
        b"{}",
        b'{"a":1}',
        b'{"traceEvents":5}',
        b'{"traceEvents":{}}',
        b"{",
        b'{"traceEvents"',
        b"\x1f\x8b",
    ],
)
def test_no_trace(data):
    with pytest.raises(ReadError, match=r"/run/host\.pt\.trace\.json"):
        read(data)


def test_a_trace_of_metadata_only():
    meta = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}
    for text in (compact(meta), compact(), "[]", '{"traceEvents":[],"a":1}'):
        trace = read(text)
        assert (len(trace.events), len(trace.lanes), trace.epoch_ns) == (0, 0, 0)
    assert ["recorded nothing" in n.text for n in read("[]").receipt.entries] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"traceEvents":[' + "[" * 100_000,
        '[{"ph":"X","name":"a","ts":1,"args":{"deep":' + "[" * 100_000 + "]" * 100_000 + "}}]",
        '[{"ph":"X","name":"a","ts":1,"args":' + '{"x":' * 100_000 + "1" + "}" * 100_000 + "}]",
        '{"deep":' + "[" * 100_000 + "]" * 100_000 + ',"traceEvents":[]}',
        '[{"ph":"X","name":"' + "\\" * 300_001 + '","ts":1}]',
        '["' + '"' * 200_000,
        "[" + "{" * 50_000,
        "[" + "{}" * 50_000 + "]",
        '[{"ph":"X","ts":' + "9" * 100_000 + '},{"ph":"X","ts":1e' + "9" * 50_000 + "}]",
        '[{"ph":"X","name":' + '"a' * 20_000,
    ],
    ids=range(12),
)
def test_bombs_of_brackets_and_quotes(text):
    try:
        trace = read(text)
    except ReadError:
        return
    assert len(trace.events) <= 2


def test_a_hundred_thousand_lanes():
    text = compact(*[complete("op", i, tid=i) for i in range(100_000)])
    trace = read(text)
    assert len(trace.lanes) == 100_000
    assert trace.events.lane.tolist() == list(range(100_000))
    assert trace.lanes.tid.tolist()[::9999] == [str(i) for i in range(0, 100_000, 9999)]


def test_very_long_texts():
    name, value = "n" * 3_000_000, "v" * 5_000_000
    trace = read(
        compact(
            complete("a", 1), complete(name, 2, args={"k": value, "l": [value]}), complete("b", 3)
        )
    )
    assert _names(trace) == ["a", name, "b"]
    assert trace.strings[trace.text_arg("k")[1]] == value


@pytest.fixture(params=["isal", "zlib"])
def unpacker(request, monkeypatch):
    """Both that there may be."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    elif importlib.util.find_spec("isal") is None:
        needed("isal is not installed")
    return request.param


@pytest.mark.usefixtures("unpacker")
def test_packed_whatever_the_name_says_and_in_several_members():
    text = _small().encode()
    whole = slices_of(read(text))
    for name in ("a.json", "a.json.gz", "a.pt.trace.json"):
        assert slices_of(read(packed(text), name)) == whole
        assert slices_of(read(packed(text[:99]) + packed(text[99:]) + b"\0" * 20, name)) == whole
    assert slices_of(read(text, "a.json.gz")) == whole


@pytest.mark.usefixtures("unpacker")
def test_a_packed_file_that_is_cut_gives_what_can_be_unpacked():
    text = kineto(*[complete(f"op {random.Random(i).random()}", i) for i in range(3000)]).encode()
    data = packed(text)
    whole = len(data)
    for at in (whole // 3, whole // 2, whole - 9, whole - 1):
        trace = read(data[:at])
        assert 0 < len(trace.events) <= 3000
        assert any("compressed file is truncated" in n.text for n in trace.receipt.entries)
    assert len(read(data[: whole - 1]).events) == 3000
    for at in range(2, 40):
        with pytest.raises(ReadError, match="/run/"):
            read(data[:at])


@pytest.mark.usefixtures("unpacker")
def test_damage_in_a_packed_file_is_said():
    data = bytearray(
        packed(kineto(*[complete(f"op {random.Random(i).random()}", i) for i in range(3000)]))
    )
    data[-6] ^= 0xFF
    assert any("damaged" in n.text for n in read(bytes(data)).receipt.entries)
    data[len(data) // 2] ^= 0xFF
    assert any(
        "damaged" in n.text or "is truncated at byte" in n.text
        for n in read(bytes(data)).receipt.entries
    )
    trace = read(packed(compact(complete())) + b"rubbish behind it")
    assert any("17 bytes after" in n.text for n in trace.receipt.entries)


def packed_spaces(count, end=b""):
    """`[`, so many MiB of spaces and an end, packed by gzip: one MiB is compressed, and stands
    there as often.
    """
    make, spaces = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS), b" " * (1 << 20)
    first, block = (make.compress(part) + make.flush(zlib.Z_FULL_FLUSH) for part in (b"[", spaces))
    check = zlib.crc32(b"[")
    for _ in range(count):
        check = zlib.crc32(spaces, check)
    trailer = struct.pack("<II", zlib.crc32(end, check), 1 + (count << 20) + len(end))
    return (
        gzip.compress(b"")[:10]
        + first
        + block * count
        + make.compress(end)
        + make.flush()
        + trailer
    )


@pytest.mark.usefixtures("unpacker")
def test_a_gzip_bomb_ends_at_the_limit():
    bomb = packed_spaces(300)
    with pytest.raises(
        ReadError,
        match=r"/run/host.pt.trace.json: it decompresses to more than 47.68 MiB.*limit_bytes",
    ):
        read(bomb, limit_bytes=50_000_000)
    assert len(read(gzip.compress(_small().encode()), limit_bytes=50_000_000).events) == 2


def test_what_unpacks_out_of_all_proportion_is_a_bomb_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setattr(core_packed, "_SMALL", 1 << 20)
    monkeypatch.setattr(core_packed, "_RATIO", 20)
    bomb = packed(compact(*[complete("a" * 4000, i) for i in range(1000)]))
    with pytest.raises(ReadError, match=r"it decompresses to more than \d\.\d\d MiB.*limit_bytes"):
        read(bomb)
    assert len(read(bomb, limit_bytes=1 << 28).events) == 1000


def test_spaces_without_end_take_no_memory():
    bomb = packed_spaces(200, b"]")
    tracemalloc.start()
    trace = read(bomb, limit_bytes=1 << 30)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace.events) == 0
    assert most < 150 << 20


@pytest.mark.parametrize("count", [1, 63, 64, 65, 100, 5000])
def test_spaces_in_a_row_change_nothing(count):
    event = compact(complete(args={"a": [1, 2], "b": {"c": "d"}}), complete("other"))
    plain = read(event)
    spaced = read(re.sub(r"(?<=[\[\]{}:,])|(?=[\[\]{}:,])", " " * count, event))
    assert slices_of(spaced) == slices_of(plain) == expected_slices(event)
    assert spaced.receipt.entries == plain.receipt.entries


@pytest.mark.parametrize(
    ("right", "wrong", "mended"),
    [
        ('", "pid"', ', "pid"', False),
        ('"op', '"o"p', True),
        ('"op', '"op\\', True),
        ('"op', 'op"', False),
        ('"op', "op", False),
        ('"ts": ', '"ts": x', False),
        ('"s": "', '"s" "', False),
    ],
)
@pytest.mark.parametrize("every", [2, 7, 100])
@pytest.mark.parametrize("args", [{"a": 1, "s": "x"}, {"s": "x", "a": 1}])
def test_damage_in_many_events_hides_no_others(right, wrong, mended, every, args):
    events = [json.dumps(complete(f"op{i}", i, args=args)) for i in range(3000)]
    bad = range(0, len(events), every)
    for i in bad:
        events[i] = events[i].replace(right, wrong)
    for text in ("[" + ",".join(events) + "]", "[" + ",\n".join(events) + "\n]"):
        trace = read(text)
        names = set(_names(trace))
        assert {f"op{i}" for i in range(3000) if i not in bad} <= names
        if mended:
            assert len(trace.events) == 3000
        else:
            assert len(trace.events) + trace.receipt.dropped >= 3000
            assert trace.receipt.dropped >= len(bad)


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_byte_costs_its_own_event_at_most(monkeypatch, seed):
    rng = random.Random(seed)
    kinds = [
        {"a": 1, "s": "x"},
        {"s": "[{"},
        {"Input Dims": [[1, 2], []], "t": ["a", "b"]},
        {"n": [{"name": 1}, {"ph": 2}]},
    ]
    for _ in range(25):
        monkeypatch.setattr(chrome_document, "STRETCH", rng.choice([300, 2000, 1 << 20]))
        count, comma = rng.choice([3, 30, 200]), rng.choice([",", ", ", ",\n  "])
        events = [
            json.dumps(complete(f"op{i}", i, args=rng.choice(kinds))).encode() for i in range(count)
        ]
        hit = {rng.randrange(count) for _ in range(rng.choice([1, 1, 2, 4]))}
        for i in hit:
            event = bytearray(events[i])
            event[rng.randrange(len(event))] = (
                rng.choice(b'"{}[],:\\ 0aZ\n') if rng.random() < 0.7 else rng.randrange(256)
            )
            events[i] = bytes(event)
        trace = read(b"[" + comma.encode().join(events) + b"]")
        assert {f"op{i}" for i in range(count) if i not in hit} <= set(_names(trace))
        assert len(trace.events) + trace.receipt.dropped >= count or any(
            n.level == "warning" for n in trace.receipt.entries
        )
