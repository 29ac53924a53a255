from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.native import library
from nbprof.native import wire as native
from tests.support.xspace import chunk, double, number, varint

INT64 = st.integers(-(2**63), 2**63 - 1)


LEFT_OUT = library.Loaded(None, "it was left out")


@pytest.fixture(params=[None, 0, 32], ids=["compiled", "lockstep", "one by one"])
def few(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setattr(library, "load", lambda: LEFT_OUT)
        monkeypatch.setattr(wire, "_FEW_MESSAGES", request.param)


@given(st.lists(INT64, min_size=1, max_size=40))
def test_varints_read_back_every_int64(values):
    data = b"".join(varint(v) for v in values)
    starts = np.cumsum([0] + [len(varint(v)) for v in values[:-1]])
    got, after = wire.varints(wire.buffer(data), starts.astype(np.int64))
    assert got.tolist() == values
    assert after[-1] == len(data)


def field(item):
    no, value = item
    if value is None:
        return varint(no << 3 | 3) + number(no, 1) + varint(no << 3 | 4)
    return (
        number(no, value)
        if isinstance(value, int)
        else double(no, value)
        if isinstance(value, float)
        else chunk(no, value)
    )


NUMBERS = st.integers(1, 127) | st.integers(1, 300) | st.just(2**29 - 1)
VALUES = INT64 | st.binary(max_size=200) | st.floats(allow_nan=False) | st.none()


@pytest.mark.parametrize("few", [None, 0, 3, 32])
@given(messages=st.lists(st.lists(st.tuples(NUMBERS, VALUES), max_size=6), max_size=8))
def test_columns_find_every_field_of_every_message(few, messages):
    encoded = [b"".join(map(field, fields)) for fields in messages]
    ends = np.cumsum([len(e) for e in encoded]).astype(np.int64)
    starts = ends - np.array([len(e) for e in encoded], np.int64)
    data = b"".join(encoded)
    buf = wire.buffer(data)
    found = [[] for _ in messages]
    with pytest.MonkeyPatch.context() as patch:
        if few is not None:
            patch.setattr(library, "load", lambda: LEFT_OUT)
            patch.setattr(wire, "_FEW_MESSAGES", few)
        columns = wire.columns(buf, starts, ends)
    assert len({(c.number, c.kind) for c in columns}) == len(columns)
    for column in columns:
        for message, value, end in zip(
            column.message.tolist(), column.value.tolist(), column.end.tolist(), strict=True
        ):
            if column.kind == wire.VARINT:
                found[message].append((column.number, value))
            elif column.kind == wire.FIXED64:
                bits = wire.fixed64(buf, np.array([value]))
                found[message].append((column.number, float(bits.view(np.float64)[0])))
            else:
                found[message].append((column.number, data[value:end]))

    def by_number(fields):
        # Fields of one number and type keep their order.
        return sorted(fields, key=lambda f: (f[0], type(f[1]).__name__))

    assert [by_number(f) for f in found] == [
        by_number([f for f in m if f[1] is not None]) for m in messages
    ]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x0a\x05ab", "runs over the end"),
        (b"\x80" * 11, "more than ten bytes"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "more than ten bytes"),
        (b"\x08\x80", "ends inside a number"),
        (b"\x09abc", "runs over the end"),
        (b"\x0dabc", "runs over the end"),
        (b"\x0e\x00", "wire type 6"),
        (b"\x0f\x00", "wire type 7"),
        (b"\x00\x01", "field number 0"),
        (b"\x88\x80\x80\x80\x80\x00\x05", "field number is too large"),
        (b"\xf8\xff\xff\xff\x1f\x05", "field number is too large"),
        (b"\x0a\x82\x80\x80\x80\x80\x00ab", "more than 2 GiB"),
        (b"\x0a\xff\xff\xff\xff\x0f", "more than 2 GiB"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "more than 2 GiB"),
        (b"\x0b\x08\x01", "a group runs over the end"),
        (b"\x0b\x14", "a group ends that was never opened"),
        (b"\x0c", "a group ends that was never opened"),
        (b"\x0b" * 101 + b"\x0c" * 101, "nested over 100 deep"),
    ],
)
def test_damage_is_an_error_with_its_byte(few, data, says):
    with pytest.raises(ReadError, match=says) as one:
        list(wire.fields(data, 0, len(data)))
    with pytest.raises(ReadError, match=says) as other:
        wire.columns(wire.buffer(data), np.array([0]), np.array([len(data)]))
    assert one.value.offset == other.value.offset is not None


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"\x88\x00\x05", [(1, 5)]),
        (b"\x88\x80\x80\x80\x00\x05", [(1, 5)]),
        (b"\xf8\xff\xff\xff\x0f\x05", [(2**29 - 1, 5)]),
        (b"\x08" + b"\xff" * 9 + b"\x7f", [(1, -1)]),
        (b"\x08" + b"\xff" * 9 + b"\x02", [(1, 2**63 - 1)]),
        (b"\x7b\x08\x01\x7c\x08\x07", [(1, 7)]),
        (b"\x7b\x73\x00\x05\x74\x7c\x08\x07", [(1, 7)]),
        (b"\x0b" * 100 + b"\x0c" * 100, []),
    ],
    ids=[
        "long tag",
        "tag of five bytes",
        "largest field",
        "bits over 64",
        "bit 65",
        "group",
        "field 0 in a group",
        "100 groups",
    ],
)
def test_what_is_odd_and_yet_valid(few, data, fields):
    assert [
        (f, wire.signed(v))
        for f, kind, v, _ in wire.fields(data, 0, len(data))
        if kind == wire.VARINT
    ] == fields
    columns = wire.columns(wire.buffer(data), np.array([0]), np.array([len(data)]))
    assert [(c.number, v) for c in columns for v in c.value.tolist()] == fields


def test_how_deep_groups_may_be_depends_on_the_message(few):
    data = b"\x0b" * 97 + b"\x0c" * 97
    assert wire.columns(wire.buffer(data), np.array([0]), np.array([len(data)]), 3) == []
    with pytest.raises(ReadError, match="100 deep"):
        wire.columns(wire.buffer(data), np.array([0]), np.array([len(data)]), 4)


def test_a_cut_is_told_from_other_damage():
    for data in (b"\x0a\x05ab", b"\x08\x80", b"\x09abc", b"\x0b\x08\x01", b"\x0a\x80"):
        with pytest.raises(wire.CutError):
            list(wire.fields(data, 0, len(data)))
    for data in (b"\x0e\x00", b"\x00\x01", b"\x0c"):
        with pytest.raises(ReadError) as caught:
            list(wire.fields(data, 0, len(data)))
        assert not isinstance(caught.value, wire.CutError)


@pytest.mark.parametrize("seed", range(40))
def test_a_message_of_many_splits_into_what_its_fields_are(seed):
    rng = random.Random(seed)
    data = b""
    for _ in range(rng.randint(0, 60)):
        kind, number = rng.choice([0, 1, 2, 2, 2, 2, 3, 5]), rng.choice([1, 2, 15, 16, 3000])
        tag = varint(number << 3 | kind)
        length = rng.choice([0, 1, 127, 128, 300, 16383, 16384, 20_000])
        data += (
            tag
            + {
                0: varint(rng.getrandbits(64)),
                1: bytes(8),
                2: varint(length) + bytes(length),
                3: varint(1 << 3) + varint(7) + varint(number << 3 | 4),
                5: bytes(4),
            }[kind]
        )
    for end in (len(data), rng.randint(0, len(data))):
        buf = wire.buffer(data[:end]).data
        try:
            wanted = list(wire.fields(buf, 0, end))
        except ReadError as error:
            with pytest.raises(ReadError, match=re.escape(str(error))):
                wire.split(buf, 0, end)
            continue
        spans, others = wire.split(buf, 0, end)
        got = [
            (number, 2, at, stop)
            for number, pair in spans.items()
            for at, stop in zip(*pair, strict=True)
        ]
        assert sorted([*got, *others], key=lambda f: f[3]) == sorted(wanted, key=lambda f: f[3])
        assert others == [field for field in wanted if field[1] != 2]


PLAIN = number(1, 5) + chunk(2, b"ab") + double(3, 0.5) + b"\x25\0\0\0\0" + number(127, 1 << 63)


def test_the_compiled_reader_reads_what_is_written_as_usual():
    ends = np.array([len(PLAIN), 2 * len(PLAIN), 2 * len(PLAIN)])
    starts = np.array([0, len(PLAIN), 2 * len(PLAIN)])
    columns = native.columns(wire.buffer(2 * PLAIN), starts, ends)
    assert columns is not None
    assert [column.tag for column in columns] == [0x08, 0x12, 0x19, 0x25, 127 << 3]
    assert [column.message.tolist() for column in columns] == [[0, 1]] * 5
    assert columns[0].value.tolist() == [5, 5]
    assert columns[1].value.tolist() == [4, 4 + len(PLAIN)]
    assert columns[1].end.tolist() == [6, 6 + len(PLAIN)]
    assert columns[4].value.tolist() == [-(1 << 63)] * 2


@pytest.mark.parametrize(
    "odd",
    [
        number(256, 1),
        b"\x7b\x7c",
        b"\x88\x00\x01",
        b"\x00",
        b"\x0e",
        b"\x08",
        b"\x09\0\0\0\0\0\0\0",
        b"\x0d\0\0\0",
        b"\x12\x01",
        b"\x12\x80\x80\x80\x80\x80\x00",
        b"\x08" + b"\xff" * 9 + b"\x02",
    ],
    ids=lambda data: data.hex(),
)
def test_what_is_written_in_another_way_is_left_to_the_other_reader(odd):
    data = PLAIN + odd
    # Bytes behind the message are none of it.
    buf = wire.buffer(data + bytes(20))
    assert native.columns(buf, np.array([0]), np.array([len(data)])) is None
    assert native.columns(buf, np.array([0]), np.array([len(PLAIN)])) is not None


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 1 << 40)])
def test_places_outside_of_the_data_are_not_read(start, end):
    assert native.columns(wire.buffer(PLAIN), np.array([start]), np.array([end])) is None
