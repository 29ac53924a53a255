"""The same run as `.xplane.pb` and in parts, as JAX cuts and packs what is over 2 GB: equal events,
frames and receipt.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile
from nbprof.formats.xspace import xspace
from tests.support import xspace_proto
from tests.support.frames import OF_A_PROFILE, public
from tests.support.profiles import real
from tests.support.riegeli import by_array_record, in_parts, written

RECORDED = sorted((Path(__file__).parents[1] / "data" / "xspace").glob("*.xplane.pb"))


def cut(path: Path, into: int, target: Path, packed: str = "brotli") -> list[bytes]:
    """The records of a file that cuts the profile into about so many parts, which is written to
    `target`.
    """
    data = path.read_bytes()
    planes = [plane for plane in xspace_proto.parse(data).planes if plane.lines]
    largest = max(plane.ByteSize() for plane in planes)
    parts = in_parts(data, max(map(_stated, planes)) + largest // into)
    target.write_bytes(written(parts, packed))
    return parts


def _stated(plane) -> int:
    del plane.lines[:]
    return plane.ByteSize()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_events(path, tmp_path):
    target = tmp_path / path.name.replace(".pb", ".riegeli")
    assert len(cut(path, 5, target)) > 4
    whole, parts = xspace.read([LocalFile(path)]), xspace.read([LocalFile(target)])
    assert xspace_proto.differences(xspace_proto.parse(path.read_bytes()), parts) == []
    assert str(parts.receipt) == str(whole.receipt)
    assert (parts.hosts, parts.epoch_ns) == (whole.hosts, whole.epoch_ns)
    assert len(parts.modules) == len(whole.modules)
    assert sorted(parts.names) == sorted(whole.names)
    pd.testing.assert_frame_equal(parts.lanes, whole.lanes)


def test_events_of_a_tpu(tmp_path):
    (path,) = real("jax/tpu-v6e-inference").glob("*.xplane.pb")
    target = tmp_path / "a.xplane.riegeli"
    cut(path, 5, target)
    assert (
        xspace_proto.differences(
            xspace_proto.parse(path.read_bytes()), xspace.read([LocalFile(target)])
        )
        == []
    )


@pytest.mark.parametrize("name", ["jax_loop", "tf_cpu", "tf_slow"])
def test_frames(name, tmp_path):
    one, other = tmp_path / "one" / "run", tmp_path / "other" / "run"
    for folder in (one, other):
        folder.mkdir(parents=True)
    path = next(path for path in RECORDED if path.name.startswith(name))
    shutil.copy(path, one / "host.xplane.pb")
    cut(path, 5, other / "host.xplane.riegeli")
    whole, parts = nbprof.load(one), nbprof.load(other)
    for name in OF_A_PROFILE:
        first, second = _frame(whole, name), _frame(parts, name)
        assert type(first) is type(second), name
        if isinstance(first, pd.DataFrame):
            # Names are numbered in the order in which the protobuf library writes its maps: rows
            # that tie follow it.
            pd.testing.assert_frame_equal(_sorted(second), _sorted(first), obj=name)
        else:
            assert str(first) == str(second), name
    assert str(parts.receipt) == str(whole.receipt)


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.drop(columns="path", errors="ignore")
    rows = [str(row) for row in frame.itertuples(index=False)]
    return frame.iloc[sorted(range(len(rows)), key=rows.__getitem__)].reset_index(drop=True)


def _frame(profile, name):
    """A frame, or the error that says why there is none."""
    try:
        return public(profile, name)
    except (NbprofError, KeyError) as error:
        return error


@pytest.mark.parametrize("options", ["group_size:1,brotli:6", "group_size:100,zstd"])
def test_as_the_library_writes_it(options, tmp_path):
    pytest.importorskip("array_record", reason="array_record is not installed")
    path = RECORDED[0]
    parts = cut(path, 5, tmp_path / "ours.xplane.riegeli")
    target = tmp_path / "theirs.xplane.riegeli"
    target.write_bytes(by_array_record(tmp_path / "a", parts, options))
    assert (
        xspace_proto.differences(
            xspace_proto.parse(path.read_bytes()), xspace.read([LocalFile(target)])
        )
        == []
    )
