"""Files of records: every packing, by the library that writes them; damaged parts are skipped and
named.
"""

from __future__ import annotations

import builtins
import io
import random
import sys

import pytest

from nbprof.core.errors import ReadError
from nbprof.formats.xspace.riegeli import SIGNATURE
from nbprof.formats.xspace.riegeli.chunks import Damage
from nbprof.formats.xspace.riegeli.records import records
from tests.support import riegeli
from tests.support.xspace import gpu_run, training_run

NOISE = random.Random(5)
TEXTS = [b"%d " % i * (i % 300) for i in range(400)]
MIXED = [
    training_run(3),
    b"",
    b"no message \xff",
    NOISE.randbytes(90_000),
    gpu_run(),
    training_run(40),
]
OPTIONS = [
    "group_size:1,uncompressed",
    "group_size:3,brotli:6",
    "group_size:1000,zstd:3",
    "group_size:3,snappy",
]


def read(data: bytes, **more) -> list[bytes | Damage]:
    return [
        one if isinstance(one, Damage) else bytes(one.buffer.data)
        for one in records(io.BytesIO(data), "a.riegeli", **more)
    ]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("given", [TEXTS, MIXED], ids=["texts", "mixed"])
def test_what_the_library_wrote_is_read(given, options, tmp_path):
    pytest.importorskip("array_record", reason="array_record is not installed")
    assert read(riegeli.by_array_record(tmp_path / "a", given, options)) == given


@pytest.mark.parametrize("packed", ["none", "brotli", "zstd", "snappy"])
@pytest.mark.parametrize("together", [1, 5])
def test_what_we_write_is_read(packed, together):
    data = riegeli.written(MIXED, packed, together)
    assert data.startswith(SIGNATURE)
    assert not len(data) % riegeli.BLOCK
    assert read(data) == MIXED


def test_files_that_are_put_one_behind_the_other_are_one():
    assert read(riegeli.written(MIXED[:2]) + riegeli.written(MIXED[2:])) == MIXED


def test_a_file_may_begin_with_metadata_and_hold_what_is_no_record():
    file = riegeli.File()
    file.chunk(riegeli.METADATA, b"\0whatever", 0, 7)
    file.records(b"one")
    file.chunk(riegeli.PADDING, bytes(100), 0, 0)
    file.records(b"two", b"")
    assert read(bytes(file.out)) == [b"one", b"two", b""]


def test_transposed_records_are_an_error_that_says_what_to_do(tmp_path):
    pytest.importorskip("array_record", reason="array_record is not installed")
    data = riegeli.by_array_record(tmp_path / "a", TEXTS, "group_size:3,brotli:6,transpose:true")
    with pytest.raises(
        ReadError,
        match=r"a.riegeli, byte 64: its records are transposed.*Write the file again without the option `transpose`",
    ):
        read(data)


PARTS = [NOISE.randbytes(50_000) for _ in range(8)]


def chunks() -> tuple[bytearray, list[int]]:
    """A file of eight records over several blocks, and where their chunks begin; the ninth place is
    the end.
    """
    file = riegeli.File()
    places = [file.records(part) for part in PARTS]
    return file.out, [*places, len(file.out)]


@pytest.mark.parametrize("packed", ["brotli", "zstd", "snappy"])
@pytest.mark.parametrize("number", range(4))
def test_content_that_cannot_be_unpacked_is_skipped_and_named(number, packed):
    contents = [training_run(20 + steps) for steps in range(4)]
    file = riegeli.File()
    begins = [file.records(content, packed=packed) for content in contents]
    begin, end = (*begins, len(file.out))[number : number + 2]
    middle = (begin + end) // 2
    file.out[middle:end] = b"\xff" * (end - middle)
    *before, damage = [item for item in read(bytes(file.out)) if isinstance(item, Damage)]
    assert not before
    assert (damage.begin, damage.end) == (begin, end)
    assert "unpacked" in damage.reason
    assert [item for item in read(bytes(file.out)) if isinstance(item, bytes)] == contents[
        :number
    ] + contents[number + 1 :]


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize(
    ("offset", "bit"),
    [(8, 3), (9, 6), (10, 1), (11, 7), (24, 0), (25, 1), (27, 1), (32, 0), (34, 5)],
)
def test_a_damaged_bit_of_a_chunk_header_costs_no_more_than_its_neighbours(number, offset, bit):
    """Of the size, the type, the number of records and the size of the content."""
    data, begins = chunks()
    data[begins[number] + offset] ^= 1 << bit
    found = read(bytes(data))
    assert any(isinstance(item, Damage) and item.begin == begins[number] for item in found)
    contents = [item for item in found if isinstance(item, bytes)]
    assert contents == [part for part in PARTS if part in contents]
    assert PARTS[number] not in contents
    assert len(contents) >= 5


@pytest.mark.parametrize("which", range(8))
def test_a_damaged_header_costs_what_cannot_be_found_before_the_next_block(which):
    data, places = chunks()
    data[places[which] + 30] ^= 1
    found = read(bytes(data))
    (damage,) = [one for one in found if isinstance(one, Damage)]
    assert (damage.begin, damage.reason) == (places[which], "its header is damaged")
    kept = [one for one in found if isinstance(one, bytes)]
    assert kept == PARTS[:which] + PARTS[len(PARTS) - (len(kept) - which) :]
    assert damage.end in places
    # A chunk that a block header interrupts is found by that; those of one block follow a damaged
    # one.
    assert len(kept) >= 6


def test_a_damaged_block_header_costs_nothing():
    data, _ = chunks()
    for block in range(riegeli.BLOCK, len(data), riegeli.BLOCK):
        data[block + 9] ^= 1
    assert read(bytes(data)) == PARTS


def test_a_write_that_broke_off_does_not_cost_what_was_put_behind_it():
    broken, _ = chunks()
    data = bytes(broken[: 3 * riegeli.BLOCK]) + riegeli.written([b"later"])
    found = read(data)
    assert found[-1] == b"later"
    assert isinstance(found[-2], Damage)
    assert found[:-2] == PARTS[: len(found) - 2]


@pytest.mark.parametrize("length", [1, 30, 64, 90, 104, 5000, 65_536, 65_550, 65_560, 130_000])
def test_a_file_that_ends_early_is_read_to_there(length):
    data, places = chunks()
    found = read(bytes(data[:length]))
    whole = sum(place <= length for place in places[1:])
    assert [one for one in found if isinstance(one, bytes)] == PARTS[:whole]
    assert all(one.end == length and "ends inside" in one.reason for one in found[whole:])
    assert len(found) == whole + (length not in (64, *places))


def test_what_unpacks_to_too_much_is_refused():
    data = riegeli.written([bytes(40 << 20)], "zstd")
    with pytest.raises(
        ReadError, match=r"a.riegeli: it decompresses to more than .* raise the limit"
    ):
        read(data)
    assert read(data, limit=50 << 20) == [bytes(40 << 20)]


@pytest.mark.parametrize("packed", ["brotli", "zstd", "snappy"])
def test_without_the_package_the_error_says_which(packed, monkeypatch):
    data = riegeli.written([b"text " * 20], packed)
    monkeypatch.delitem(sys.modules, "cramjam", raising=False)
    real = builtins.__import__
    monkeypatch.setattr(
        builtins,
        "__import__",
        lambda name, *more: _missing() if name == "cramjam" else real(name, *more),
    )
    with pytest.raises(
        ReadError, match=r"a.riegeli, byte 64: it is packed with .*pip install nbprof\[riegeli\]"
    ):
        read(data)


def _missing() -> None:
    raise ImportError("cramjam")


def test_content_that_does_not_fit_its_header_is_skipped():
    file = riegeli.File()
    wrong = [
        (b"", 1, 0, "it has no content"),
        (b"\x05\x00", 1, 0, "unknown"),
        (b"\x00\x63", 1, 0, "run over its end"),
        (riegeli.simple([b"abc"]), 2, 3, "make no sense"),
        (riegeli.simple([b"abc"]), 1, 9, "not those of its content"),
        (b"z" + riegeli.simple([b"abc"])[1:], 1, 3, "unpack"),
    ]
    for data, count, decoded, _ in wrong:
        file.chunk(riegeli.RECORDS, data, count, decoded)
    file.chunk(0x77, b"", 1, 0)
    file.records(b"good")
    *found, good = read(bytes(file.out))
    assert good == b"good"
    for one, said in zip(
        found, [*(said for *_, said in wrong), "its type, 119, is unknown"], strict=True
    ):
        assert isinstance(one, Damage)
        assert said in one.reason
