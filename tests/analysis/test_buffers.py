"""What buffers of tf.data hold, and the advice on the largest."""

from __future__ import annotations

import json

import pytest

from nbprof import load
from nbprof.activity.activity import MOST_BUFFERED
from nbprof.analysis.input.buffers import buffered
from tests.analysis.test_host_memory import MIB, samples, step_times
from tests.support.xspace import MS, PlaneWriter, xspace

ROOT = "Iterator::Root"
SHAPES = {"shapes": "[1024,1024] []", "types": "float int64"}


def one(params, name=f"{ROOT}::Prefetch", **others):
    """The buffer of one iterator, with others of its pipeline by name."""
    names = [name, *others]
    stated = dict(enumerate([params, *others.values()]))
    return buffered(list(stated), names, stated)[0]


def test_a_buffer_holds_so_many_elements_of_this_size():
    assert one({MOST_BUFFERED: 10, **SHAPES}) == (10, 10 * (4 * 2**20 + 8))


@pytest.mark.parametrize(
    "open_",
    [
        {"shapes": "[?,1024] []"},
        {"shapes": "<unknown> []"},
        {"shapes": "[1024,1024]"},
        {"types": "string int64"},
        {"types": "float variant"},
        {"types": ""},
    ],
)
def test_what_shapes_and_types_leave_open_is_unknown(open_):
    assert one({MOST_BUFFERED: 10, **SHAPES, **open_}) == (10, None)


def test_without_a_stated_number_nothing_is_known():
    assert one(SHAPES) == (None, None)


def test_batches_have_the_size_that_their_batch_states():
    shapes = {"shapes": "[?,8] [?]", "types": "float int64"}
    prefetch = {MOST_BUFFERED: 3, **shapes}
    path = f"{ROOT}::Prefetch::FiniteTake"
    batch = {"batch_size": 32}
    found = one(prefetch, **{path: {}, f"{path}::BatchV2": batch})
    assert found == (3, 3 * 32 * (8 * 4 + 8))
    # A map may select rows of a batch, a filter return a part, and Zip has several inputs.
    for other in ("ParallelMapV2", "Map"):
        path = f"{ROOT}::Prefetch::{other}"
        assert one(prefetch, **{path: {}, f"{path}::BatchV2": batch}) == (3, None)
    assert (
        one(
            prefetch,
            **{f"{ROOT}::Prefetch::FlatMap": {}, f"{ROOT}::Prefetch::FlatMap::BatchV2": batch},
        )[1]
        is None
    )
    assert one(prefetch, **{f"{ROOT}::Prefetch[0]::BatchV2": batch})[1] is None


def pipeline(folder, elements, resident_mib, with_map=True):
    """A run with a shuffle buffer that held so many elements of 4 MiB at its second call."""
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    shuffle = f"{ROOT}::Shuffle"
    for i, held in enumerate([1, elements, elements // 2, elements // 2]):
        at = i * 10 * MS
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", at, 4 * MS))
        pool.append(host.event(ROOT, at, 4 * MS, id=11, parent_id=0))
        stated = {"buffer_size": 5000, "buffered_elements": held, **SHAPES}
        pool.append(host.event(shuffle, at, 3 * MS, id=12, parent_id=11, **stated))
        if with_map:
            pool.append(host.event(f"{shuffle}::Map", at, 2 * MS, id=13, parent_id=12, **SHAPES))
    host.line("python", main, line_id=7)
    host.line("tf_pool", pool, line_id=8)
    folder.mkdir()
    (folder / "h.xplane.pb").write_bytes(xspace(host))
    memory = samples([resident_mib * MIB] * 20)
    capture = {"backend": "tensorflow", "host_memory": memory.packed()}
    capture["step_times"] = step_times(4).packed()
    (folder / "nbprof.json").write_text(json.dumps(capture))
    return load(folder)


def finding(profile):
    """The rows of the rule."""
    return profile.advice[profile.advice["rule"] == "large_buffer"]


def test_a_large_buffer_is_named_with_its_bytes_and_its_remedy(tmp_path):
    profile = pipeline(tmp_path / "large", 200, 1200)
    nodes = profile.tf_data.nodes.set_index("iterator")
    # The most at any call, not the last.
    assert nodes.loc["Shuffle", "buffered_elements"] == 200
    assert nodes.loc["Shuffle", "buffered_bytes"] == 200 * (4 * MIB + 8)
    assert nodes.drop(index="Shuffle")["buffered_bytes"].isna().all()
    [row] = finding(profile).to_dict("records")
    assert row["severity"] == "high"
    assert "**shuffle**" in row["evidence"]
    assert "**200** elements" in row["evidence"]
    assert "Shuffle before the map" in row["evidence"]
    assert "+ds = ds.shuffle(201).map(" in row["fix"]


def test_without_a_map_the_remedy_is_a_smaller_buffer(tmp_path):
    [row] = finding(pipeline(tmp_path / "plain", 200, 2000, with_map=False)).to_dict("records")
    assert row["severity"] == "medium"
    assert "+ds = ds.shuffle(20)" in row["fix"]


@pytest.mark.parametrize(
    ("elements", "resident_mib"),
    [
        (50, 500),  # under 256 MiB
        (200, 8000),  # a small part of the process
        (200, 500),  # more than the process has: not what is in memory
    ],
)
def test_a_small_or_unproven_buffer_is_not_named(tmp_path, elements, resident_mib):
    assert finding(pipeline(tmp_path / "small", elements, resident_mib)).empty
