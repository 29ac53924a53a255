"""A part that is not what was written is never believed."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.core.codec.container import MAGIC, Damaged, Writer
from nbprof.core.codec.values import Unstorable
from nbprof.run.cache.part import Part

VALUES = {"column": np.arange(50), "texts": [f"text {i}" for i in range(30)], "small": {"a": 1}}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.part"
    with path.open("wb") as file:
        writer = Writer(file)
        for name, value in VALUES.items():
            writer.add(name, value)
        writer.close()
    return path


def outcome(path):
    """What can be read of a part; Damaged values are left out, wrong ones are an error."""
    try:
        part = Part(path)
    except Damaged:
        return None
    found = {}
    for name in part:
        try:
            value = part.load(name)
        except Damaged:
            continue
        assert name in VALUES
        assert np.array_equal(value, VALUES[name]) if name == "column" else value == VALUES[name]
        found[name] = value
    part.close()
    return found


def test_values_are_read_one_by_one(path):
    part = Part(path)
    assert list(part) == list(VALUES)
    assert "column" in part
    assert "other" not in part
    with pytest.raises(KeyError):
        part.load("other")
    assert len(outcome(path)) == 3


def test_blocks_are_aligned(path):
    part = Part(path)
    assert all(at % 64 == 0 for at, _, _ in part._blocks)
    assert path.read_bytes().startswith(MAGIC)


def test_cut_off_anywhere(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert outcome(path) is None, length


def test_any_byte_changed(path):
    """Padding apart, no changed byte goes unnoticed; and what the others hold is still there."""
    whole = path.read_bytes()
    part = Part(path)
    meant = {at + i for at, length, _ in part._blocks for i in range(length)}
    part.close()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        found = outcome(path)
        if at in meant:
            assert len(found) == 2, at
        else:
            assert found is None or len(found) == 3, at


def test_something_else_altogether(path):
    for data in (b"", b"{}", MAGIC, MAGIC * 20, bytes(1000), path.read_bytes() + b"x"):
        path.write_bytes(data)
        assert outcome(path) is None


def test_a_file_that_shrinks_while_it_is_open(path):
    part = Part(path)
    with path.open("r+b") as file:
        file.truncate(100)
    for name in VALUES:
        with pytest.raises(Damaged):
            part.load(name)


def test_a_value_of_a_type_that_this_installation_does_not_have(path, monkeypatch):
    from nbprof.core.codec import values

    part = Part(path)
    monkeypatch.delitem(values._READERS, "texts")
    with pytest.raises(Damaged):
        part.load("texts")
    assert part.load("small") == {"a": 1}


def test_the_part_goes_on_after_a_value_that_cannot_be_stored(tmp_path):
    path = tmp_path / "b.part"
    with path.open("wb") as file:
        writer = Writer(file)
        with pytest.raises(Unstorable):
            writer.add("bad", [np.arange(100), {1, 2}])
        writer.add("good", [1, 2])
        writer.close()
    part = Part(path)
    assert list(part) == ["good"]
    assert part.load("good") == [1, 2]
