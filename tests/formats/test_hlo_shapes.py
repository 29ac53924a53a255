"""Shapes in compiled programs: how they are written, and how many bytes they take with padding and
without.
"""

from __future__ import annotations

import pytest

from nbprof.core.errors import ReadError
from nbprof.hlo import shapes as hlo_shapes
from nbprof.hlo.shapes import Shape
from tests.support.hlo import shape, tuple_shape
from tests.support.xspace import chunk, number

F32, BF16, S4 = 11, 16, 21


def read(data: bytes) -> Shape:
    return hlo_shapes.read(data, 0, len(data))


@pytest.mark.parametrize(
    ("data", "text", "bare", "padded"),
    [
        (shape(F32, 8, 128), "f32[8,128]{1,0}", 4096, 4096),
        (shape(F32), "f32[]", 4, 4),
        (shape(F32, 3, 5, order=(0, 1)), "f32[3,5]{0,1}", 60, 60),
        (
            shape(F32, 2, 9, 200, tiles=((8, 128),)),
            "f32[2,9,200]{2,1,0:T(8,128)}",
            14400,
            2 * 16 * 256 * 4,
        ),
        (
            shape(F32, 9, 200, order=(0, 1), tiles=((8, 128),)),
            "f32[9,200]{0,1:T(8,128)}",
            7200,
            200 * 128 * 4,
        ),
        (shape(BF16, 100, tiles=((128,),)), "bf16[100]{0:T(128)}", 200, 256),
        (
            shape(BF16, 9, 200, tiles=((8, 128), (2, 1))),
            "bf16[9,200]{1,0:T(8,128)(2,1)}",
            3600,
            16 * 256 * 2,
        ),
        (shape(F32, 100, tiles=((8, 128),)), "f32[100]{0:T(8,128)}", 400, 4096),
        (shape(S4, 5), "s4[5]{0}", 3, 3),
        (shape(F32, 0, 7), "f32[0,7]{1,0}", 0, 0),
        (shape(F32, 4, space=5), "f32[4]{0:S(5)}", 16, 16),
        (number(2, 17), "token[]", 0, 0),
        (number(2, 99) + chunk(3, b"\x04"), "type 99[4]", 0, 0),
        (number(2, F32) + number(3, 4) + chunk(6, b"\x01"), "f32[<=4]", 16, 16),
        (
            tuple_shape(shape(F32, 2), tuple_shape(shape(BF16, 3))),
            "(f32[2]{0}, (bf16[3]{0}))",
            14,
            14,
        ),
    ],
)
def test_shapes(data, text, bare, padded):
    found = read(data)
    assert (str(found), found.bytes, found.padded_bytes) == (text, bare, padded)


def test_long_tuples_are_numbered():
    assert (
        str(read(tuple_shape(*[shape(F32)] * 7)))
        == "(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[], f32[])"
    )


def test_parts_of_a_tuple():
    found = read(tuple_shape(shape(F32, 2), tuple_shape(shape(BF16, 3), shape(F32))))
    assert (str(found.part_at([])), str(found.part_at([0])), str(found.part_at([1, 0]))) == (
        str(found),
        "f32[2]{0}",
        "bf16[3]{0}",
    )
    assert [str(array) for array in found.arrays()] == ["f32[2]{0}", "bf16[3]{0}", "f32[]"]
    for wrong in ([2], [0, 0], [-1]):
        with pytest.raises(IndexError, match="has no part"):
            found.part_at(wrong)


def test_tuples_without_end_are_refused():
    data = shape(F32)
    for _ in range(hlo_shapes.MOST_NESTED + 2):
        data = tuple_shape(data)
    with pytest.raises(ReadError, match="nested"):
        read(data)


def test_every_cut_is_refused_or_read():
    whole = tuple_shape(shape(F32, 2, 9, 200, tiles=((8, 128),)), shape(BF16, 3))
    for end in range(len(whole)):
        try:
            read(whole[:end])
        except ReadError:
            continue
