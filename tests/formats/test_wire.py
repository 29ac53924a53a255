from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.errors import ReadError
from nbprof.formats import wire
from tests.support.xspace import chunk, double, number, varint

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=40))
def test_varints_read_back_every_int64(values):
    data = b"".join(varint(v) for v in values)
    starts = np.cumsum([0] + [len(varint(v)) for v in values[:-1]])
    got, after = wire.varints(wire.buffer(data), starts.astype(np.int64))
    assert got.tolist() == values
    assert after[-1] == len(data)


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 300), INT64 | st.binary(max_size=200) | st.floats(allow_nan=False)), max_size=6), max_size=8)
)
def test_columns_find_every_field_of_every_message(messages):
    encoded = []
    for fields in messages:
        parts = []
        for no, value in fields:
            parts.append(
                number(no, value) if isinstance(value, int) else double(no, value) if isinstance(value, float) else chunk(no, value)
            )
        encoded.append(b"".join(parts))
    ends = np.cumsum([len(e) for e in encoded]).astype(np.int64)
    starts = ends - np.array([len(e) for e in encoded], np.int64)
    data = b"".join(encoded)
    buf = wire.buffer(data)
    found = [[] for _ in messages]
    for column in wire.columns(buf, starts, ends):
        for message, value, end in zip(column.message.tolist(), column.value.tolist(), column.end.tolist(), strict=True):
            if column.kind == wire.VARINT:
                found[message].append((column.number, value))
            elif column.kind == wire.FIXED64:
                bits = wire.fixed64(buf, np.array([value]))
                found[message].append((column.number, float(bits.view(np.float64)[0])))
            else:
                found[message].append((column.number, data[value:end]))

    def key(item):
        return item[0], type(item[1]).__name__, str(item[1])

    assert [sorted(f, key=key) for f in found] == [sorted(m, key=key) for m in messages]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x0a\x05ab", "runs over the end"),
        (b"\x80" * 11, "more than ten bytes"),
        (b"\x0e\x00", "wire type 6"),
        (b"\x00\x01", "field number 0"),
    ],
)
def test_damage_is_an_error_with_its_byte(data, says):
    with pytest.raises(ReadError, match=says):
        list(wire.fields(data + b"\x00" * 0, 0, len(data)))
    with pytest.raises(ReadError) as caught:
        wire.columns(wire.buffer(data), np.array([0]), np.array([len(data)]))
    assert caught.value.offset is not None
