"""Where Ascend's recordings lie: in archives, behind URLs, in folders that were renamed; each opens
as it does from a disk.
"""

from __future__ import annotations

import http.server
import threading
from functools import partial

import fsspec
import pytest

from nbprof.core.errors import RawError, ReadError
from nbprof.formats.msprof import msprof
from nbprof.sources import locate
from nbprof.sources.locate import OpenOptions
from tests.support import msprof as made
from tests.support.places import tarred, zipped
from tests.support.profiles import real


def files_of(folder, name=""):
    """The files below a folder, by their paths."""
    head = f"{name}/" if name else ""
    return {
        head + p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def told(run):
    """What a run is, and what its files hold."""
    trace = msprof.read(run.files)
    tables = {
        kind: [t.frame.drop(columns="event", errors="ignore").to_csv() for t in found]
        for kind, found in trace.tables.items()
    }
    return run.format, run.name, trace.hosts, len(trace.events), trace.epoch_ns, tables


@pytest.fixture
def several(tmp_path):
    """A folder of two devices of one run in the older layout, one of PyTorch, and one raw
    recording.
    """
    root = tmp_path / "job"
    for device in (0, 1):
        tasks, marks = made.training(3, device)
        made.older(root / f"PROF_00000{device}_20250109084754{device}00_ABC", tasks, marks)
    made.torch_npu(root / "h_1_20250109104754000_ascend_pt", made.training(2)[0])
    return root


@pytest.fixture
def web(tmp_path):
    """A web server that lists the folders below; gives its URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))
    )
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    fsspec.filesystem("http").clear_instance_cache()


PACKED = [zipped, tarred, partial(tarred, mode="w:gz")]
NAMES = ["zip", "tar", "tar.gz"]


@pytest.mark.parametrize("pack", PACKED, ids=NAMES)
def test_an_archive_of_several_recordings_opens_as_the_folder_does(several, tmp_path, pack):
    archive = tmp_path / "job.bin"
    archive.write_bytes(pack(files_of(several, "job")))
    near, far = locate.runs(several), locate.runs(archive)
    assert sorted(run.name for run in far) == sorted(run.name for run in near)
    for run in near:
        other = locate.find(archive, run.name)
        assert told(other) == told(run)
        assert str(other.folder).startswith(f"{archive}!/job")
    two = next(run.name for run in near if "1 more" in run.name)
    one = "PROF_000001_20250109084754100_ABC"
    assert told(locate.find(f"{archive}!/job", two)) == told(locate.find(several, two))
    assert told(locate.find(f"{archive}!/job/{one}")) == told(locate.find(several / one))
    table = f"{one}/device_1/summary/op_summary_1_2_1.csv"
    assert locate.find(f"{archive}!/job/{table}").format == "msprof"


@pytest.mark.parametrize("pack", PACKED, ids=NAMES)
def test_the_content_of_a_recording_packed_without_its_folder_opens(tmp_path, pack):
    folder = made.older(tmp_path / "PROF_000001_20250109084754000_A", *made.training(3))
    for name in ("PROF_000001_20250109084754000_A.zip", "run.bin"):
        (tmp_path / name).write_bytes(pack(files_of(folder)))
        run = locate.find(tmp_path / name)
        assert told(run)[3:] == told(locate.find(folder))[3:]
        assert run.name == name.removesuffix(".zip")


def test_an_older_recording_whose_folder_was_renamed_is_one_run(tmp_path):
    folder = made.older(tmp_path / "renamed", *made.training(3))
    (run,) = locate.runs(folder)
    assert (run.format, run.name) == ("msprof", "renamed")
    assert set(msprof.read(run.files).tables) == {"op_summary", "step_trace"}


def test_a_timeline_beside_tables_that_were_taken_out_is_no_run_of_its_own(tmp_path):
    folder = (
        made.torch_npu(tmp_path / "h_1_20250109084754000_ascend_pt", made.training(2)[0])
        / "ASCEND_PROFILER_OUTPUT"
    )
    bare = folder.rename(tmp_path / "bare")
    (run,) = locate.runs(bare)
    assert sorted(p.name for p in run.files) == [
        "kernel_details.csv",
        "op_statistic.csv",
        "trace_view.json",
    ]
    (tmp_path / "bare.zip").write_bytes(zipped(files_of(bare)))
    assert told(locate.find(tmp_path / "bare.zip")) == told(run)


@pytest.mark.parametrize("name", ["data", "logs", "FRAMEWORK"])
def test_recordings_in_a_folder_that_is_called_as_one_of_the_tools_are_found(tmp_path, name):
    made.prof(tmp_path / name / "PROF_1_20250109084754000_A", *made.training(2))
    assert [run.format for run in locate.runs(tmp_path)] == ["msprof"]


def test_recordings_behind_a_url(several, memory):
    url = memory(files_of(several, "job"))
    for run in locate.runs(several):
        assert told(locate.find(url, run.name)) == told(run)
    one = "PROF_000001_20250109084754100_ABC"
    assert told(locate.find(f"{url}/job/{one}")) == told(locate.find(several / one))
    assert told(locate.find(f"{url}/job/{one}/device_1/timeline"))[2] == [one]
    packed = memory({"job.zip": zipped(files_of(several, "job"))})
    assert sorted(run.name for run in locate.runs(f"{packed}/job.zip")) == sorted(
        run.name for run in locate.runs(several)
    )


def test_recordings_on_a_web_server(several, web):
    for run in locate.runs(several):
        assert told(locate.find(f"{web}/job/", run.name)) == told(run)
    one = "PROF_000001_20250109084754100_ABC"
    assert told(locate.find(f"{web}/job/{one}/")) == told(locate.find(several / one))


def test_what_nbprof_wrote_beside_a_recording_in_an_archive_names_it(tmp_path):
    folder = tmp_path / "my_run"
    made.torch_npu(folder / "h_1_20250109084754000_ascend_pt", made.training(2)[0])
    (folder / "nbprof.json").write_text("{}")
    (tmp_path / "a.zip").write_bytes(zipped(files_of(folder, "my_run")))
    near, far = locate.find(folder), locate.find(tmp_path / "a.zip")
    assert near.name == far.name == "my_run"
    assert near.sidecar is not None
    assert far.sidecar is not None
    assert str(far.folder) == f"{tmp_path}/a.zip!/my_run"


def test_a_raw_recording_in_an_archive_or_behind_a_url_says_what_to_do(tmp_path, memory, web):
    files = {
        "PROF_1_20250109084754000_A/device_0/data/x.slice": b"1",
        "PROF_1_20250109084754000_A/host/info.json": b"{}",
    }
    (tmp_path / "raw.zip").write_bytes(zipped(files))
    (tmp_path / "PROF_1_20250109084754000_A" / "device_0" / "data").mkdir(parents=True)
    for place in (tmp_path / "raw.zip", memory(files), f"{web}/PROF_1_20250109084754000_A/"):
        with pytest.raises(
            ReadError,
            match="copy it to a disk, run  msprof --export=on --output=PROF_1_20250109084754000_A",
        ) as error:
            locate.find(place)
        # No tool can be sent there.
        assert not isinstance(error.value, RawError)


def test_a_raw_recording_beside_one_that_can_be_read_is_told_in_an_archive_too(several, tmp_path):
    files = {**files_of(several, "job"), "job/PROF_9_20250109084754000_A/device_0/data/x": b"1"}
    (tmp_path / "a.zip").write_bytes(zipped(files))
    for run in locate.runs(tmp_path / "a.zip"):
        assert any(
            note.key == "not_exported" and "PROF_9_20250109084754000_A" in note.text
            for note in run.notes
        )


def test_the_limit_of_what_unpacks_counts_for_tables_too(tmp_path):
    folder = made.prof(tmp_path / "PROF_1_20250109084754000_A", *made.training(2))
    (tmp_path / "a.zip").write_bytes(zipped(files_of(folder, folder.name)))
    run = locate.find(tmp_path / "a.zip", options=OpenOptions(limit_bytes=100))
    with pytest.raises(ReadError, match="limit"):
        msprof.read(run.files)


@pytest.mark.parametrize("name", ["msprof-old-layout", "msprof-op-run", "doc_figures_transcribed"])
def test_real_folders_packed_hold_the_same(tmp_path, name):
    folder = real(f"ascend/{name}")
    (tmp_path / "a.zip").write_bytes(zipped(files_of(folder, name)))
    for run in locate.runs(folder):
        if run.format == "msprof":
            assert told(locate.find(tmp_path / "a.zip", run.name)) == told(run)
