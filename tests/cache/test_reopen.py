"""A profile that is opened again: the same in everything, without being read."""

from __future__ import annotations

import gc
import gzip
import inspect
import itertools
import os
import shutil
import tarfile
import time
import weakref
import zipfile
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile, RunFiles
from nbprof.formats.xspace import xspace
from nbprof.profiles import load as profiles
from nbprof.profiles.load import load
from nbprof.run.cache import identity, run_cache
from nbprof.run.cache.stored import StoredTrace
from nbprof.run.frame import Frame, Group
from nbprof.run.frames.allocator import AllocatorFrames
from nbprof.run.frames.ascend import AscendFrames
from nbprof.run.frames.hosts import DeviceTimeFrames, PodFrames
from nbprof.run.frames.programs import ProgramFrames
from nbprof.run.frames.tf_data import TfDataFrames
from nbprof.run.run import Run
from tests.cache.conftest import settle, written
from tests.cache.same import same
from tests.support import pods as ranks
from tests.support.kineto import Kineto
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run
from tests.support.xspace import xspace as build

DATA = Path(__file__).parents[1] / "data"
# The codes in `_host_ops` are those of the activity, which are given in the order in which it is
# asked.
_INSIDE = ("activity", "timeline", "_host_ops")
GROUPS = {
    "tf_data": TfDataFrames,
    "programs": ProgramFrames,
    "device_time": DeviceTimeFrames,
    "pod_frames": PodFrames,
    "allocator": AllocatorFrames,
    "ascend": AscendFrames,
}
FRAMES = [
    where + name
    for where, holder in [("", Run), *((f"{name}.", group) for name, group in GROUPS.items())]
    for name in dir(holder)
    if isinstance(inspect.getattr_static(holder, name), Frame) and name not in _INSIDE
]


def test_every_group_of_frames_is_looked_at():
    assert set(Group.__subclasses__()) == set(GROUPS.values())


def everything(path):
    """All that a person can get out of a profile, in a fixed order."""
    profile = load(path)
    run = profile.run
    out = {name: attrgetter(name)(run) for name in FRAMES}
    payload = profile.payload()
    payload.meta.footer.analysed_s = None
    # What lies packed or at a URL gets another key each time it is loaded.
    payload.trace.key = ""
    return run, {
        **out,
        "payload": payload,
        "receipt text": str(profile.receipt),
        "source": {
            name: value
            for name, value in vars(run.source).items()
            if name != "analysed_s" and not name.startswith("_")
        },
    }


def copy(name, tmp_path):
    """A folder with the profiles of a real or recorded one."""
    source = DATA / name.removeprefix("data/") if name.startswith("data/") else real(name)
    target = tmp_path / "run"
    target.mkdir(parents=True)
    for file in (
        [source]
        if source.is_file()
        else [*source.glob("*.xplane.pb"), *source.glob("*.json.gz"), *source.glob("*.json")]
    ):
        shutil.copy(file, target)
    return target


REAL = [
    "data/xspace/tf_cpu.xplane.pb",
    "data/xspace/jax_cpu.xplane.pb",
    "data/chrome/jax_cpu.trace.json.gz",
    "data/kineto",
    "tf-gpu/rtx5000-cnn-batch64",
    "tf-gpu/rtx5000-cnn-batch512",
    "tf-gpu/t4-one-step",
    "tf-gpu/v100x8-collectives",
    "tf-cpu/prefetch-example",
    "tf-cpu/prefetch-128-empty-gpu-plane",
    "jax/tpu-v6e-inference",
    "jax/mi300-jax08_attention",
    "kineto/v100-resnet50-workers4",
    "kineto/mi300-ddp-resnet18",
]


@pytest.mark.parametrize("name", REAL)
def test_everything_is_the_same(name, cache, tmp_path, reads):
    path = copy(name, tmp_path)
    first_run, first = everything(path)
    written()
    count = len(reads)
    second_run, second = everything(path)
    assert len(reads) == count, "it was read again"
    assert not second_run.memo.run_cache._waiting, "computed again"
    assert isinstance(second_run.trace, StoredTrace)
    same(first, second)
    same(first_run.trace.events, second_run.trace.events)
    same(first_run.trace, second_run.trace)
    for column in ("parent", "depth", "self_time"):
        same(getattr(first_run.trace.events, column), getattr(second_run.trace.events, column))
    assert len(reads) == count, "something of the trace was not in the cache"


def odd():
    """Texts, names and args of the kinds that files of the wild hold."""
    plane = PlaneWriter(
        "/host:CPU", stats={"a fact": 2**63 - 1, "bytes": b"\x00\xff", "share": 0.1}
    )
    events = [
        plane.event("zero \0 byte", 0, MS, big=2**62 + 1, text="zero \0 byte"),
        plane.event("ünïcode ☃", MS, MS, half=0.5, text="ünïcode ☃", raw=b"\x00\x01"),
        plane.event("", 3 * MS, MS, big=-5, half=7, text=""),
    ]
    plane.line("python", events, line_id=1)
    return build(plane)


@pytest.mark.parametrize(
    "data", [odd(), gpu_run(), training_run()], ids=["odd texts", "gpu", "training"]
)
def test_synthetic_profiles_are_the_same(data, cache, tmp_path, reads):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data)
    first_run, first = everything(path)
    written()
    second_run, second = everything(path)
    assert reads == ["a.xplane.pb"]
    same(first, second)
    same(first_run.trace, second_run.trace)


@pytest.fixture
def path(cache, tmp_path):
    path = tmp_path / "logs" / "a.xplane.pb"
    path.parent.mkdir()
    path.write_bytes(training_run())
    load(path).ops.frame  # noqa: B018 -- has it computed
    written()
    return path


def test_nothing_is_computed_that_was_computed_before(path, reads, monkeypatch):
    def fail(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr("nbprof.analysis.ops.ops.frames", fail)
    monkeypatch.setattr("nbprof.analysis.ops.ops.host_self_times", fail)
    assert len(load(path).ops.frame)
    assert not reads


def test_a_frame_that_was_never_asked_for_is_made_from_the_stored_columns(path, reads, monkeypatch):
    kept = load(path).steps.frame
    monkeypatch.setenv("NBPROF_CACHE", "0")
    same(load(path).steps.frame, kept)
    assert len(reads) == 1


def test_a_frame_made_later_is_kept_too(path, reads, monkeypatch):
    load(path).steps.frame  # noqa: B018
    written()
    monkeypatch.setattr("nbprof.analysis.steps.steps.frame", None)
    assert len(load(path).steps.frame)
    assert not reads


def test_a_touched_file_is_found_by_its_content(path, reads, cache):
    os.utime(path)
    assert isinstance(load(path).run.trace, StoredTrace)
    assert not reads


def test_a_copy_elsewhere_is_found_and_named_by_its_place(path, reads, tmp_path):
    there = tmp_path / "other" / "plugins" / "profile" / "run 2"
    there.mkdir(parents=True)
    shutil.copy(path, there)
    profile = load(there)
    assert not reads
    assert profile.path == str(there)
    assert profile.run.source.name == "run 2"
    assert "run 2/a.xplane.pb" in dict(profile.run.overview["run_facts"])["Profile"]


def test_a_file_of_another_name_is_another_profile(path, reads):
    """A host may be called after its file."""
    there = path.rename(path.with_name("b.xplane.pb"))
    load(there)
    assert reads == ["b.xplane.pb"]


def test_a_changed_file_of_the_same_size_is_read_again(path, reads):
    data = path.read_bytes()
    assert b"train" in data
    path.write_bytes(data.replace(b"train", b"tra1n"))
    assert any("tra1n" in name for name in load(path).run.trace.names)
    assert reads == ["a.xplane.pb"]


def test_a_change_that_the_clock_may_not_show_is_noticed(cache, tmp_path, reads):
    """Written, read, and written again within a tick of the file system's clock: the same size, the
    same times.
    """
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    at = path.stat()
    load(path).ops.frame  # noqa: B018
    written()
    path.write_bytes(training_run().replace(b"train", b"tra1n"))
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert any("tra1n" in name for name in load(path).run.trace.names)


def test_the_file_is_not_even_hashed_when_it_was_left_alone(cache, tmp_path, monkeypatch, reads):
    monkeypatch.setattr("nbprof.run.cache.identity._SETTLED_NS", -(10**12))
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    load(path).ops.frame  # noqa: B018
    written()
    monkeypatch.setattr("nbprof.run.cache.identity.digest", None)
    assert len(load(path).ops.frame)
    assert reads == ["a.xplane.pb"]


def test_a_file_that_was_left_alone_is_hashed_when_nobody_waits(
    cache, tmp_path, monkeypatch, reads
):
    monkeypatch.setattr("nbprof.run.cache.identity._SETTLED_NS", -(10**12))
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    plain = identity.digest
    monkeypatch.setattr(identity, "digest", None)
    load(path).ops.frame  # noqa: B018
    written()
    monkeypatch.setattr(identity, "digest", plain)
    # The digest is the same as that of bytes in memory: a copy is found.
    shutil.copy(path, tmp_path / "copy.pb")
    path.unlink()
    (tmp_path / "copy.pb").rename(path)
    assert isinstance(load(path).run.trace, StoredTrace)
    assert reads == ["a.xplane.pb"]


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_file_that_changes_before_it_is_hashed_is_not_kept(how, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("nbprof.run.cache.identity._SETTLED_NS", -(10**12))
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    profile = load(path)
    monkeypatch.setattr(run_cache, "_AFTER_FRAME_S", 60.0)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(training_run().replace(b"train", b"tra1n"))
    assert len(profile.ops.frame)
    written()
    assert not cache.entries()


def test_the_digest_of_a_large_file_in_pieces_is_that_of_its_bytes(tmp_path, monkeypatch):
    from nbprof.core.files import Buffer

    monkeypatch.setattr(identity, "_CHUNK", 1000)
    monkeypatch.setattr(identity, "_SETTLED_NS", -(10**12))
    found = set()
    for size in (0, 1, 999, 1000, 1001, 5500):
        path = tmp_path / f"{size}"
        path.write_bytes(bytes(i % 251 for i in range(size)))
        piece = identity.Watched(LocalFile(path))
        assert piece.complete(lambda: False)
        assert piece.digest == identity.digest(Buffer.of(path.read_bytes()))
        found.add(piece.digest)
        assert size == 0 or not identity.Watched(LocalFile(path)).complete(lambda: True)
    assert len(found) == 6


def test_a_file_that_changes_between_looking_and_reading(path, cache, monkeypatch):
    """Another profile of the same size is there already; neither may be taken for the other."""
    looked = identity.Watched.look

    def look(self, **options):
        looked(self, **options)
        path.write_bytes(training_run().replace(b"train", b"tra1n"))

    path.write_bytes(training_run().replace(b"train", b"tra2n"))
    with monkeypatch.context() as patch:
        patch.setattr(identity.Watched, "look", look)
        first = load(path)
        assert len(first.ops.frame)
        assert any("tra1n" in name for name in first.run.trace.names)
        written()
    for text in (b"tra2n", b"tra1n"):
        path.write_bytes(training_run().replace(b"train", text))
        assert any(text.decode() in name for name in load(path).run.trace.names)


def test_times_are_trusted_only_when_they_are_old(cache, tmp_path, monkeypatch):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    settle(path)  # the times of the file are a minute old, that of its change is not
    load(path).ops.frame  # noqa: B018
    written()
    assert not (cache.path / "places").exists() or not list((cache.path / "places").iterdir())


def test_many_hosts_are_one_entry(cache, tmp_path, reads):
    for name in ("a", "b"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / f"{name}.xplane.pb").write_bytes(
            training_run().replace(b"train", b"trai" + name.encode())
        )
    first = everything(tmp_path / "run")[1]
    written()
    assert len(cache.entries()) == 1
    same(first, everything(tmp_path / "run")[1])
    assert reads == ["a.xplane.pb", "b.xplane.pb"]
    (tmp_path / "run" / "b.xplane.pb").unlink()
    assert load(tmp_path / "run").hosts == first["hosts"][:1]
    assert reads[2:] == ["a.xplane.pb"]


@pytest.mark.parametrize("executor", [None, 1])
def test_what_was_read_of_a_file_that_is_cut_off_is_known_again(cache, tmp_path, reads, executor):
    ranks.write(tmp_path / "job", 4, 6)
    files = sorted((tmp_path / "job").iterdir())
    files[1].write_bytes(files[1].read_bytes()[:9000])
    settle(*files)
    first = load(tmp_path / "job", executor=executor).pods.missing
    assert first["reason"].str.startswith("The file is truncated at byte").tolist() == [True]
    written()
    reads.clear()
    again = load(tmp_path / "job", executor=executor).pods.missing
    assert reads == []
    assert again.equals(first)


def test_the_receipt_names_the_file_where_it_lies_now(cache, tmp_path, monkeypatch, reads):
    def talkative(pieces, *rest, **more):
        trace = xspace_read(pieces, *rest, **more)
        trace.receipt.warn(f"{pieces[0].label} has an odd tail.", key="test")
        return trace

    xspace_read = xspace.read
    monkeypatch.setattr(xspace, "read", talkative)
    one, two = tmp_path / "one" / "a.xplane.pb", tmp_path / "two" / "a.xplane.pb"
    for path in (one, two):
        path.parent.mkdir()
        path.write_bytes(training_run())
        assert f"{path} has an odd tail." in str(load(path).receipt)
        written()
    assert reads == ["a.xplane.pb"]


@pytest.mark.parametrize("first", ["recorded", "found"])
def test_how_it_was_recorded_is_not_kept(first, path, reads, monkeypatch):
    """The same bytes with and without what nbprof notes beside its own recordings, in either
    order.
    """
    from nbprof.core.sidecar import SIDECAR

    sidecar = path.parent / SIDECAR
    for kind in (first, "found" if first == "recorded" else "recorded"):
        if kind == "recorded":
            sidecar.write_text(
                '{"framework": "PyTorch 9.9", "notes": ["a note of this recording"], "label": "run 7"}'
            )
        else:
            sidecar.unlink(missing_ok=True)
        kept = everything(path)[1]
        written()
        monkeypatch.setenv("NBPROF_CACHE", "0")
        truth = everything(path)[1]
        monkeypatch.setenv("NBPROF_CACHE", "1")
        same(truth, kept)
        assert (kept["overview"]["framework"] == "PyTorch 9.9") == (kind == "recorded")
        assert ("a note of this recording" in kept["receipt text"]) == (kind == "recorded")
    assert len(reads) == 2, "only where the cache was off"


def test_what_costs_nothing_is_not_kept(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(run_cache, "WORTH_S", 1000.0)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    load(path).ops.frame  # noqa: B018
    written()
    assert not cache.entries()


def test_what_a_value_needs_is_in_its_time_and_counts_once(cache, path, monkeypatch):
    kept = load(path).run.memo.run_cache
    ticks, before = itertools.count(), kept._spent_s
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)), sleep=time.sleep)
    with monkeypatch.context() as patched:
        patched.setattr(run_cache, "time", clock)
        kept.value("outer", lambda: kept.value("inner", lambda: 5))
    # From 0 to 2; the inner one began at 1.
    assert kept._spent_s - before == 2.0
    assert not kept.busy


def test_another_version_of_nbprof_reads_for_itself(path, reads, monkeypatch):
    monkeypatch.setattr("nbprof.run.cache.identity.software", lambda: "another")
    load(path)
    assert reads == ["a.xplane.pb"]


def packed(kind, path, data):
    """The profile as it may lie packed."""
    if kind == "zip":
        with zipfile.ZipFile(path / "runs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("logs/a.xplane.pb", data)
        return path / "runs.zip"
    if kind == "tgz":
        (path / "a.xplane.pb").write_bytes(data)
        with tarfile.open(path / "runs.tgz", "w:gz") as archive:
            archive.add(path / "a.xplane.pb", "logs/a.xplane.pb")
        (path / "a.xplane.pb").unlink()
        return path / "runs.tgz"
    (path / "a.xplane.pb.gz").write_bytes(gzip.compress(data))
    return path / "a.xplane.pb.gz"


@pytest.mark.parametrize("kind", ["zip", "tgz", "gz"])
@pytest.mark.parametrize("trusted", [True, False], ids=["left alone", "touched"])
def test_profiles_that_lie_packed(kind, trusted, cache, tmp_path, reads, monkeypatch):
    if trusted:
        monkeypatch.setattr("nbprof.run.cache.identity._SETTLED_NS", -(10**12))
    path = packed(kind, tmp_path, training_run())
    first = everything(path)[1]
    written()
    if trusted:
        monkeypatch.setattr("nbprof.run.cache.identity.digest", None)
    else:
        # Another file with the same bytes and the same time, which is on the dashboard.
        shutil.copy2(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    same(first, everything(path)[1])
    assert reads == ["a.xplane.pb"]


@pytest.mark.parametrize("kind", ["zip", "tgz", "gz"])
def test_a_packed_profile_that_changed_is_read_again(kind, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("nbprof.run.cache.identity._SETTLED_NS", -(10**12))
    load(packed(kind, tmp_path, training_run())).ops.frame  # noqa: B018
    written()
    path = packed(kind, tmp_path, training_run().replace(b"train", b"tra1n"))
    assert any("tra1n" in name for name in load(path).run.trace.names)


def test_a_profile_behind_a_url(cache, reads, monkeypatch):
    import fsspec

    files = fsspec.filesystem("memory")
    files.pipe("/cache-test/a.xplane.pb", training_run())
    first = everything("memory://cache-test/a.xplane.pb")[1]
    written()
    same(first, everything("memory://cache-test/a.xplane.pb")[1])
    assert reads == ["a.xplane.pb"]
    files.pipe("/cache-test/a.xplane.pb", training_run().replace(b"train", b"tra1n"))
    assert any("tra1n" in name for name in load("memory://cache-test/a.xplane.pb").run.trace.names)


@pytest.mark.parametrize(
    ("info", "trusted"),
    [
        ({"size": 5, "ETag": '"abc"'}, True),
        ({"size": 5, "generation": 7}, True),
        ({"size": 5, "ETag": 'W/"abc"'}, False),
        ({"size": 5, "mtime": 1_700_000_000}, True),
        ({"size": 5}, False),
        ({}, False),
    ],
)
def test_what_a_storage_says_is_trusted_where_it_says_enough(info, trusted, cache):
    from nbprof.sources.remote import RemoteFile, Storage

    def place(path="bucket/a", info=info):
        fs = SimpleNamespace(
            protocol="s3",
            info=lambda _: info,
            invalidate_cache=lambda: None,
            unstrip_protocol=lambda p: f"s3://{p}",
        )
        return identity.Location(
            cache,
            [identity.Watched(RemoteFile(Storage(fs, "s3://bucket"), path, info, 1 << 30))],
            {},
        )

    key = "5-" + "0" * 40
    place().note(key)
    assert (place().key() == key) is trusted
    assert place("bucket/b").key() is None
    if trusted:
        assert place(info={**info, "size": 6}).key() is None
        # What is not shown of a URL tells it from others.
        assert place("bucket/a?version=2").key() is None


def test_every_change_of_nbprofs_own_code_is_another_version(tmp_path, monkeypatch):
    (tmp_path / "formats").mkdir()
    module, other = tmp_path / "__init__.py", tmp_path / "formats" / "xspace.py"
    module.write_text("a = 1")
    other.write_text("b = 1")
    monkeypatch.setattr(identity, "__file__", str(tmp_path / "run" / "cache" / "identity.py"))

    def now():
        identity.software.cache_clear()
        return identity.software()

    found = [now()]
    assert now() == found[0]
    other.write_text("b = 12")
    found.append(now())
    os.utime(other, (1, 1))
    found.append(now())
    (tmp_path / "formats" / "chrome.py").write_text("")
    found.append(now())
    monkeypatch.setattr(identity, "__version__", "9.9")
    found.append(now())
    assert len(set(found)) == 5
    (tmp_path / "formats" / "notes.txt").write_text("no module")
    assert now() == found[-1]
    monkeypatch.undo()
    identity.software.cache_clear()


def test_options_that_change_the_reading_are_part_of_the_key(path, cache):
    from nbprof.run.cache.run_cache import open_run_cache

    files = RunFiles("run", path.parent, (LocalFile(path),), 0.0, "xspace")
    plain, limited = (open_run_cache(files, options) for options in (None, {"limit_bytes": 5}))
    assert isinstance(plain.trace(lambda: pytest.fail("it is there")), StoredTrace)
    assert limited.trace(lambda: xspace.read(limited.pieces)).__class__ is not StoredTrace


def test_off_means_off(path, cache, monkeypatch, reads):
    monkeypatch.setenv("NBPROF_CACHE", "0")
    before = sorted(cache.path.rglob("*"))
    load(path).steps.frame  # noqa: B018
    written()
    assert reads == ["a.xplane.pb"]
    assert sorted(cache.path.rglob("*")) == before


def test_a_bad_file_fails_as_it_does_without_a_cache(path, monkeypatch):
    data = path.read_bytes()
    path.write_bytes(data[:40])
    with pytest.raises(ReadError) as one:
        load(path)
    monkeypatch.setenv("NBPROF_CACHE", "0")
    with pytest.raises(ReadError) as two:
        load(path)
    assert str(one.value) == str(two.value)


def test_columns_are_read_one_by_one(path, monkeypatch):
    from nbprof.run.cache.part import Part

    asked = []
    original = Part.load
    monkeypatch.setattr(
        Part, "load", lambda self, name: (asked.append(name), original(self, name))[1]
    )
    run = load(path).run
    assert not [
        name
        for name in asked
        if name.startswith(("events.", "arg.", "trace.names", "trace.strings", "module."))
    ]
    assert len(run.trace.events) == len(run.trace.events.start)
    assert "step_num" in run.trace.args
    assert [name for name in asked if name.startswith(("events.", "arg."))] == ["events.start"]
    assert np.array_equal(
        run.trace.args["step_num"].event, np.sort(run.trace.args["step_num"].event)
    )
    assert asked.count("arg.step_num") == 1


def test_what_a_person_changes_in_the_overview_is_not_kept(cache, tmp_path):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    settle(path)
    top = load(path).overview["top_ops"]
    truth = top["percent"].tolist()
    top["percent"] = -1.0
    written()
    again = load(path)
    assert isinstance(again.run.as_read, StoredTrace)
    assert again.overview["top_ops"]["percent"].tolist() == truth


def torch_run():
    k = Kineto()
    k.step(0, 1, 100)
    k.launched("gemm", 5, 30, 40, op=k.op("aten::mm", 2, 20))
    return k.encode()


@pytest.mark.parametrize(
    "data", [training_run(), gpu_run(), torch_run()], ids=["cpu", "gpu", "torch"]
)
def test_a_profile_that_is_let_go_is_out_of_memory_at_once(cache, tmp_path, data):
    path = tmp_path / "profile"
    path.write_bytes(data)
    for _ in range(2):
        profile = load(path)
        profile.payload()
        trace = weakref.ref(profile.run.as_read)
        written()
        gc.disable()
        try:
            profiles._last.clear()
            del profile
            assert trace() is None
        finally:
            gc.enable()
