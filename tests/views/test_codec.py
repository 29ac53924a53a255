from __future__ import annotations

import gzip
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from nbprof.core.errors import ReadError
from nbprof.display.codec import (
    Delta,
    coded,
    contain,
    from_text,
    numbers,
    pack,
    short,
    smallest,
    to_text,
    unpack,
)

TEXT = "009F1{{K8CBw%;"
DTYPES = ["<f8", "<f4", "<i4", "<u4", "<u2", "u1"]
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: st_np.arrays(dtype, st.integers(0, 30)))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
KEYS = st.text(max_size=5).filter(lambda key: key != "$")
PAYLOADS = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def same(one, two):
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two and type(one) is type(two)


@given(st.dictionaries(KEYS, PAYLOADS, max_size=4))
def test_what_is_packed_comes_back(payload):
    assert same(payload, unpack(pack(payload)))


@given(st_np.arrays(np.int64, st.integers(0, 40), elements=st.integers(0, 2**32 - 1)))
def test_rising_values_come_back_from_differences(values):
    values.sort()
    back = unpack(pack({"x": Delta(values)}))["x"]
    assert back.dtype == np.uint32
    assert back.tolist() == values.tolist()


@given(st_np.arrays(np.int64, st.integers(1, 40), elements=st.integers(-(2**29), 2**29)))
def test_differences_may_fall(values):
    assert unpack(pack({"x": Delta(values)}))["x"].tolist() == values.tolist()


def test_the_layout_is_the_one_that_the_front_end_reads():
    body = gzip.decompress(
        pack(
            {
                "a": np.array([1.5, np.nan]),
                "b": Delta(np.array([3, 5, 9])),
                "c": np.array([7], np.uint8),
            }
        )
    )
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    start = -(-(4 + length) // 8) * 8
    assert header == {
        "a": {"$": ["f8", 0, 2]},
        "b": {"$": ["u4", 16, 3, "delta"]},
        "c": {"$": ["u1", 32, 1]},
    }
    assert body[4 + length : start].strip(b"\0") == b""
    assert np.frombuffer(body, "<u4", 3, start + 16).tolist() == [3, 2, 4]
    assert body[start + 32] == 7
    assert len(body) == start + 40


def test_equal_payloads_are_equal_bytes():
    payload = {"x": np.arange(5, dtype=np.float64), "text": "µ"}
    assert pack(payload) == pack(payload)


def test_a_missing_number_outside_an_array_is_null():
    assert unpack(
        pack({"x": float("nan"), "y": [float("inf"), np.float64(2.5)], "z": np.int64(3)})
    ) == {
        "x": None,
        "y": [None, 2.5],
        "z": 3,
    }


def test_half_a_character_does_not_stop_the_report():
    assert unpack(pack({"name": "a\ud800b"})) == {"name": "a?b"}


def test_what_was_not_packed_by_gzip_is_opened_too():
    payload = {"x": np.arange(5, dtype=np.float64), "text": "µ"}
    assert same(payload, unpack(contain(payload)))
    assert gzip.decompress(pack(payload)) == contain(payload)


def test_no_length_of_a_header_is_taken_for_gzip():
    magic = 0x8B1F
    spare = len(json.dumps({"x": ""}, separators=(",", ":")))
    for length in range(magic - 2, magic + 3):
        payload = {"x": "a" * (length - spare)}
        assert not contain(payload).startswith(b"\x1f\x8b")
        assert unpack(contain(payload)) == payload


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"a": {"b": np.zeros((2, 2))}}, r"a\.b: an array of 2 dimensions"),
        ({"a": np.zeros(2, np.int64)}, "arrays of int64"),
        ({"a": {"$": 1}}, "mistaken for an array"),
        ({"a": [object()]}, r"a\[0\]: a object cannot be packed"),
        ({"a": Delta(np.array([2**40]))}, "do not fit"),
    ],
)
def test_what_cannot_be_packed_is_named(payload, words):
    with pytest.raises(ValueError, match=words):
        pack(payload)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not packed|ends before"),
        (b"hello", "not packed profile data"),
        (contain({"x": np.arange(9.0)})[:-12], "past the end"),
        (pack({"x": np.arange(9.0)})[:-12], "not packed profile data"),
        (gzip.compress(b"ab"), "ends before its header"),
        (gzip.compress(struct.pack("<I", 99) + b"{}"), "claims 99 bytes"),
        (gzip.compress(struct.pack("<I", 4) + b"nope"), "not JSON"),
        (gzip.compress(struct.pack("<I", 20) + b'{"a":{"$":["f8",0,9]}}'[:20]), "not JSON"),
        (gzip.compress(struct.pack("<I", 22) + b'{"a":{"$":["f8",0,9]}}'), "past the end"),
    ],
)
def test_bytes_that_are_no_payload_are_refused(data, words):
    with pytest.raises(ReadError, match=words):
        unpack(data)


def test_text_is_coded_in_order_of_appearance():
    column = coded(["b", None, "a", float("nan"), "b"])
    assert column["values"] == ["b", "", "a"]
    assert column["codes"].tolist() == [0, 1, 2, 1, 0]
    assert column["codes"].dtype == np.uint8
    assert coded(map(str, range(300)))["codes"].dtype == np.uint16


def test_numbers_take_the_narrowest_type_that_is_exact():
    assert numbers([1, 2, 255]).dtype == np.uint8
    assert numbers([70_000]).dtype == np.uint32
    assert numbers([0.5, np.nan]).dtype == np.float32
    assert numbers([2**40]).tolist() == [2**40]
    # A CSV made of them has the numbers of the frame.
    assert numbers([0.1, 1e9 + 0.125, 306.612345678901]).tolist() == [
        0.1,
        1e9 + 0.125,
        306.612345678901,
    ]
    assert np.isnan(numbers([np.inf, 0.1])[0])
    with pytest.raises(ValueError, match="negative"):
        smallest(np.array([-1]))


@given(st_np.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e300, 1e300)))
def test_shortened_numbers_stay_within_their_promise(values):
    assert np.all(np.abs(short(values) - values) <= np.abs(values) * 2.0**-32)
    assert short(np.round(values)).tolist() == np.round(values).tolist()


def test_short_keeps_what_is_missing():
    assert np.isnan(short([np.nan, 1.0])[0])


def test_numbers_whose_bytes_pack_better_apart_come_back():
    values = (np.arange(500, dtype=np.uint32) * 70_001) % 2**31
    packed = pack({"a": values, "b": Delta(values), "c": values.astype("f8") / 3})
    body = gzip.decompress(packed)
    header = json.loads(body[4 : 4 + struct.unpack_from("<I", body)[0]])
    assert "planes" in header["a"]["$"][3]
    assert b"planes" not in contain({"a": values}), "what stays on this machine is not packed"
    found = unpack(packed)
    assert same(found["a"], values)
    assert found["b"].tolist() == values.tolist()
    assert same(found["c"], values / 3)


def test_equal_arrays_are_stored_once_and_types_side_by_side():
    values = np.arange(40, dtype=np.uint32)
    payload = {"a": values, "b": np.ones(3), "c": [values.copy(), values[:0]], "d": values[1:]}
    packed = pack(payload)
    body = gzip.decompress(packed)
    header = json.loads(body[4 : 4 + struct.unpack_from("<I", body)[0]])
    assert [header["b"]["$"][1], header["a"]["$"][1], header["d"]["$"][1]] == [0, 24, 184]
    assert header["c"][0] == header["a"]
    assert len(body) < len(contain({**payload, "c": [values + 1, values[:0]]}))
    assert same(unpack(packed), payload)
    assert same(unpack(contain(payload)), payload)


@given(st.binary(max_size=40))
def test_text_holds_the_bytes_and_no_letter_that_html_or_json_escapes(data):
    text = to_text(data)
    assert from_text(text) == data
    assert not set(text) & set("\"\\<&$`/'\n")


def test_text_is_the_one_that_the_front_end_reads():
    """The same pair is in js/tests/codec.test.ts."""
    assert to_text(bytes([0, 1, 2, 253, 254, 255, 60, 38, 36, 96, 120])) == TEXT
