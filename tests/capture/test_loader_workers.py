"""What a recording knows of the workers of a DataLoader, and that they stay as they are."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from nbprof.analysis.input import workers as analysis
from nbprof.analysis.input.loops import loop_waits
from nbprof.capture import notes
from nbprof.capture.loader_workers import batches, reporter, reports
from nbprof.capture.loader_workers import folder as folders
from nbprof.capture.pace import Waits
from nbprof.capture.patches import Patches
from nbprof.core.worker_times import IN_PROCESS, WorkerTimes, merged, unpacked

torch = pytest.importorskip("torch")
data = torch.utils.data
METHODS = torch.multiprocessing.get_all_start_methods()
forks = pytest.mark.skipif("fork" not in METHODS, reason="this system does not fork")
HERE = Path(__file__).resolve()


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Crop:
    def __call__(self, value):
        time.sleep(0.004)
        return value


class Scale(torch.nn.Module):
    def forward(self, value):
        return value * 1.0


def flip(value):
    return value.flip(0)


class Images(data.Dataset):
    def __init__(self, act=None, count=24):
        self.act, self.count = act, count
        self.transform = Compose(Crop(), Scale(), flip)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.act is not None:
            self.act(index)
        return self.transform(torch.rand(3))


class Stream(data.IterableDataset):
    def __init__(self, count=11):
        self.count, self.transform = count, flip

    def __iter__(self):
        worker = data.get_worker_info()
        for index in range(worker.id, self.count, worker.num_workers):
            yield self.transform(torch.full((2,), float(index)))


class Recorded:
    """Loaders as a recording watches them, with the reports of workers that come often."""

    def __init__(self):
        self.patches, waits = Patches(), Waits()
        self.loaders = waits.loaders
        self.loaders.begin()
        waits.hook(self.patches)

    def taken(self):
        packed, missing = self.loaders.workers.taken()
        # As it is stored.
        about = [note.key for note in notes.workers(missing)]
        return unpacked(json.loads(json.dumps(packed))), about


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(reporter, "REPORT_S", 0.02)
    monkeypatch.setattr(reporter, "_REPORT_SHARE", 1.0)
    # Items of milliseconds are all timed inside, also where timing them is slow.
    monkeypatch.setattr(batches, "_SHARE", 0.05)
    # On a busy machine answers take their time.
    monkeypatch.setattr(reports, "ANSWER_S", 60.0)
    recording = Recorded()
    yield recording
    recording.patches.restore()


def loader(dataset, **options):
    options = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork", **options}
    return data.DataLoader(dataset, **options)


def run_into_the_end_of_a_worker(batches):
    """Iterate; PyTorch finds the ended worker as it waits for a batch, not at any time by a signal.

    It may also find that the memory of a batch went with the worker.
    """
    iterator = iter(batches)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with pytest.raises((RuntimeError, OSError, EOFError)):
            list(iterator)
        iterator._shutdown_workers()
    finally:
        signal.signal(signal.SIGCHLD, handler)


def line_of(text):
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


@forks
def test_stages_of_a_map_style_dataset(recorded):
    assert len(list(loader(Images()))) == 6
    times, about = recorded.taken()
    assert not about
    assert sum(row.items for row in times.workers) == 24
    assert sum(row.batches for row in times.workers) == 6
    assert {row.worker for row in times.workers} == {0, 1}
    stages = {(stage.kind, stage.name): stage for stage in times.stages}
    assert set(stages) == {
        ("dataset", "Images"),
        ("transform", "Crop"),
        ("transform", "Scale"),
        ("transform", "flip"),
        ("collate", "default_collate"),
    }
    crop = stages["transform", "Crop"]
    assert crop.calls == 24
    assert crop.self_ns >= 24 * 4e6
    assert Path(crop.file) == HERE
    assert crop.line == line_of("class Crop:") + 1
    assert stages["transform", "Scale"].line == line_of("class Scale(torch.nn.Module):") + 1
    assert stages["transform", "flip"].line == line_of("def flip(value):")
    # Its own time is without that of the transforms.
    images = stages["dataset", "Images"]
    assert images.total_ns >= crop.total_ns
    assert images.self_ns <= images.total_ns - crop.total_ns
    timed = sum(row.timed_busy_ns for row in times.workers)
    assert sum(stage.self_ns for stage in times.stages) <= timed
    assert sum(times.loaders[0].histogram.values()) == 24
    assert sum(row.shared_bytes for row in times.workers) >= 24 * 3 * 4


@forks
def test_stages_of_an_iterable_dataset(recorded):
    values = torch.cat(list(loader(Stream())))
    assert sorted(values[:, 0].tolist()) == list(range(11))
    times, _ = recorded.taken()
    assert sum(row.items for row in times.workers) == 11
    stages = {stage.name: stage for stage in times.stages}
    # Of such small items not every batch is timed inside.
    assert 4 <= stages["flip"].calls <= 11
    assert stages["Stream"].line == line_of("def __iter__(self):")


@forks
def test_each_epoch_starts_processes_of_the_same_workers(recorded):
    batches = loader(Images())
    for _ in range(2):
        assert len(list(batches)) == 6
    times, _ = recorded.taken()
    assert [row.processes for row in times.workers] == [2, 2]
    frame = analysis.workers(times)
    assert frame["restarts"].tolist() == [1, 1]
    assert frame["items"].sum() == 48


@forks
def test_many_workers_are_reported_each(recorded, monkeypatch):
    # 64 processes that report fifty times a second leave two cores nothing else to do.
    monkeypatch.setattr(reporter, "REPORT_S", 1.0)
    batches = loader(Images(count=256), batch_size=1, num_workers=64)
    assert len(list(batches)) == 256
    times, missing = recorded.taken()
    assert not missing
    frame = analysis.workers(times)
    assert frame["worker"].tolist() == [str(number) for number in range(64)]
    assert frame["items"].sum() == frame["batches"].sum() == 256
    assert frame["items"].min() > 0


def found_in(recorded):
    """What the loop waited for, with all batches as one step."""
    times, _ = recorded.taken()
    (loop,) = times.loops
    assert loop.wait_ns >= loop.receive_ns >= 0
    return loop_waits(times, loop.batches + len(times.iterations)), times


@forks
def test_a_slow_item_holds_its_batch(recorded):
    def slow(index):
        if index == 17:
            time.sleep(2)

    assert len(list(loader(Images(slow)))) == 6
    found, times = found_in(recorded)
    assert found.held.items.item == "17"
    assert found.held.items.one_in == 24
    assert found.held.items.longest_ms >= 2000
    # The fifth batch of six, whose items take as long as others until then.
    waited_ms = max(row.ns for row in times.waits if row.batch == 4) / 1e6
    assert 1000 <= found.held.ms <= waited_ms
    assert found.held.ms <= times.loops[0].wait_ns / 1e6
    assert found.restarts is None
    assert found.received.batch_bytes < 10_000


@forks
def test_a_slow_item_among_small_ones_is_found_in_any_batch(recorded, monkeypatch):
    """Of which not every batch is timed inside."""
    monkeypatch.setattr(batches, "_SHARE", 0.002)

    class Small(data.Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, index):
            time.sleep(4 if index == 333 else 0.003)
            return index

    dataset = Small()
    # As many as make timing all of them cost more than a batch may.
    dataset.transforms = [Crop() for _ in range(190)]
    list(loader(dataset, num_workers=1, batch_size=10))
    found, times = found_in(recorded)
    (worker,) = times.workers
    assert worker.timed_items < worker.items == 400
    assert found.held.items.item == "333"


@forks
def test_no_slow_item_is_found_where_the_loop_does_not_wait_for_it(recorded):
    def slow(index):
        if index == 17:
            time.sleep(0.5)

    for number, _ in enumerate(loader(Images(slow))):
        if number == 3:
            time.sleep(3)
    found, _ = found_in(recorded)
    # On a busy machine nothing may stand out at all.
    assert found.held is None or (found.held.items.item == "17" and found.held.ms < 400)


def start_slowly(_worker):
    time.sleep(0.7)


@forks
def test_workers_that_start_again_are_waited_for(recorded):
    batches = loader(Images(), worker_init_fn=start_slowly)
    for _ in range(3):
        list(batches)
    found, times = found_in(recorded)
    assert found.restarts.count == 2
    assert found.restarts.start_ms >= 600
    first_ms = sum(row.ns + row.made_ns for row in times.iterations[1:]) / 1e6
    assert found.restarts.ms <= first_ms
    assert len(times.iterations) == 3


@forks
def test_workers_that_stay_are_not_waited_for(recorded):
    batches = loader(Images(), worker_init_fn=start_slowly, persistent_workers=True)
    for _ in range(3):
        list(batches)
    found, times = found_in(recorded)
    assert found.restarts is None
    assert [row.ready_ns > 0 for row in times.iterations] == [True, False, False]


def of_arrays(_items):
    return numpy.zeros((4, 1_000_000), numpy.float32), ["label"]


def of_tensors(_items):
    return torch.zeros(4, 1_000_000), ["label"]


@forks
@pytest.mark.parametrize("collate", [of_arrays, of_tensors])
def test_batches_of_arrays_come_pickled_and_those_of_tensors_do_not(recorded, collate):
    batches = loader(Images(), collate_fn=collate)
    assert len(list(batches)) == 6
    found, times = found_in(recorded)
    size = found.received.batch_bytes
    if collate is of_arrays:
        assert size == pytest.approx(16e6, rel=0.25)
    else:
        assert size < 10_000
        assert sum(row.shared_bytes for row in times.workers) >= 6 * 16e6
    assert 0 < found.received.ms <= times.loops[0].wait_ns / 1e6 * 1.2


@forks
def test_queues_are_left_as_they_were(recorded):
    batches = loader(Images(), persistent_workers=True)
    list(batches)
    queue = vars(batches._iterator)["_worker_result_queue"]
    assert "get" in vars(queue)
    recorded.patches.restore()
    assert "get" not in vars(queue)
    assert vars(queue)["_recv_bytes"].__self__ is queue._reader
    assert len(list(batches)) == 6


@forks
def test_items_and_random_numbers_are_those_without_a_recording(recorded):
    def epoch():
        torch.manual_seed(7)
        random.seed(7)
        return torch.cat(list(loader(Images(), shuffle=True))), torch.rand(1), random.random()

    with_recording = epoch()
    recorded.patches.restore()
    without = epoch()
    for first, second in zip(with_recording, without, strict=True):
        assert torch.equal(torch.as_tensor(first), torch.as_tensor(second))


class Traces(Images):
    """Whose items say whether anything of a recording is left in the worker."""

    def __getitem__(self, index):
        import multiprocessing.queues

        import torch.utils.data.dataloader as module

        frame = sys._getframe(1)
        wrapped = False
        while frame is not None:
            wrapped = wrapped or frame.f_code.co_filename.endswith("loader_workers/batches.py")
            frame = frame.f_back
        create = vars(module._DatasetKind)["create_fetcher"].__func__
        return torch.tensor(
            [
                wrapped,
                hasattr(vars(Crop)["__call__"], "__wrapped__"),
                hasattr(self.transform.transforms[2], "__wrapped__"),
                hasattr(multiprocessing.queues._ForkingPickler, "_sends"),
                "loader_workers" in create.__code__.co_filename,
            ]
        )


@forks
def test_workers_that_stay_are_left_as_they_were(recorded):
    batches = loader(Traces(count=40), persistent_workers=True, prefetch_factor=1, batch_size=1)
    during = torch.cat(list(batches))
    assert during.any(0).all()
    recorded.taken()
    recorded.patches.restore()
    folder_is_gone = time.monotonic() + 60
    while True:
        after = torch.cat(list(batches))[20:]
        if not after[:, :4].any() or time.monotonic() > folder_is_gone:
            break
    # The entry itself is in the stack of the process for as long as that runs.
    assert not after.any()


@contextlib.contextmanager
def another_recording():
    recording = Recorded()
    try:
        yield recording
    finally:
        recording.patches.restore()


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(reports, "ANSWER_S", 60.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("method", METHODS)
def test_workers_from_before_the_recording_record_themselves(method):
    batches = loader(Images(), persistent_workers=True, multiprocessing_context=method)
    list(batches)
    with another_recording() as recording:
        assert len(list(batches)) == 6
        times, about = recording.taken()
    assert not about
    assert [row.items for row in times.workers] == [12, 12]
    assert [row.batches for row in times.loops] == [5]
    assert {"Images", "Crop", "Scale", "flip"} <= {row.name for row in times.stages}
    # They did not start in the recording.
    assert not any(row.ready_ns for row in times.iterations)


@forks
@pytest.mark.usefixtures("patient")
def test_random_numbers_of_workers_from_before_are_those_without_a_recording():
    def second_epoch(*, recorded):
        torch.manual_seed(7)
        batches = loader(Images(), shuffle=True, persistent_workers=True)
        list(batches)
        with another_recording() if recorded else contextlib.nullcontext() as recording:
            values = torch.cat(list(batches))
            if recorded:
                assert sum(row.items for row in recording.taken()[0].workers) == 24
        return values

    assert torch.equal(second_epoch(recorded=True), second_epoch(recorded=False))


@forks
def test_workers_from_before_are_left_as_they_were():
    batches = loader(Traces(count=40), persistent_workers=True, prefetch_factor=1, batch_size=1)
    assert not torch.cat(list(batches)).any()
    with another_recording() as recording:
        assert torch.cat(list(batches)).any(0).all()
        recording.taken()
    until = time.monotonic() + 60
    while torch.cat(list(batches))[20:].any() and time.monotonic() < until:
        pass
    assert not torch.cat(list(batches)).any()


@forks
@pytest.mark.usefixtures("patient")
def test_each_of_several_recordings_has_the_same_workers():
    batches = loader(Images(), persistent_workers=True)
    for _ in range(3):
        with another_recording() as recording:
            assert len(list(batches)) == 6
            times, about = recording.taken()
        assert not about
        assert [row.items for row in times.workers] == [12, 12]


@forks
def test_a_worker_that_finds_no_nbprof_goes_on_unrecorded():
    def hide(_worker):
        import importlib.util

        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *args: None if name == "nbprof" else find(name)

    batches = loader(Images(), persistent_workers=True, worker_init_fn=hide)
    list(batches)
    with another_recording() as recording:
        assert len(list(batches)) == 6
        times, about = recording.taken()
    assert not times.workers
    # What the loop waits is known all the same.
    assert [row.batches for row in times.loops] == [5]
    assert about == ["workers_not_reached"]


@forks
def test_a_killed_worker_ends_the_loop_as_it_does_anyway(recorded):
    def kill(index):
        if index == 20:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)

    run_into_the_end_of_a_worker(loader(Images(kill)))
    times, about = recorded.taken()
    assert "workers_ended_early" in about
    assert sum(row.items for row in times.workers) >= 8


@forks
def test_a_worker_that_leaves_by_os_exit(recorded):
    def leave(index):
        if index == 20:
            time.sleep(0.3)
            os._exit(3)

    run_into_the_end_of_a_worker(loader(Images(leave)))
    recorded.taken()


@forks
def test_a_worker_that_hangs_runs_into_the_timeout_of_the_loader(recorded):
    def hang(index):
        if index == 9:
            time.sleep(600)

    batches = loader(Images(hang), timeout=3)
    with pytest.raises(RuntimeError, match="timed out"):
        list(batches)
    times, _ = recorded.taken()
    assert sum(row.batches for row in times.workers) >= 1


@forks
def test_an_error_and_ctrl_c_pass_through(recorded):
    def fail(index):
        if index == 5:
            raise ZeroDivisionError("of the dataset")

    with pytest.raises(ZeroDivisionError, match="of the dataset"):
        list(loader(Images(fail)))
    iterator = iter(loader(Images()))
    processes = iterator._workers
    next(iterator)

    def interrupt():
        for _ in iterator:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    iterator._shutdown_workers()
    for process in processes:
        process.join(60)
        assert process.exitcode is not None


@forks
def test_no_folder_to_report_through(monkeypatch, tmp_path):
    def none(**_options):
        raise FileNotFoundError(2, "No usable temporary directory found")

    # Only ours: PyTorch's workers need such a folder as well.
    monkeypatch.setattr(
        folders, "tempfile", SimpleNamespace(mkdtemp=none, gettempdir=lambda: str(tmp_path))
    )
    recording = Recorded()
    try:
        assert len(list(loader(Images()))) == 6
        times, about = recording.taken()
    finally:
        recording.patches.restore()
    assert not times.workers
    assert about == ["workers_not_recorded"]


@forks
def test_files_of_ended_workers_are_taken_in_and_removed(recorded):
    batches = loader(Images())
    most, folder = 0, None
    for _ in range(5):
        list(batches)
        folder = recorded.loaders.workers._folder
        most = max(most, len(folder.files()))
    assert most == 2
    times, about = recorded.taken()
    assert not about
    assert [row.processes for row in times.workers] == [5, 5]
    assert sum(row.items for row in times.workers) == 5 * 24
    assert not folder.files()


@forks
def test_a_second_window_has_the_workers_of_the_first(recorded, monkeypatch):
    batches = loader(Images(count=100), persistent_workers=True)
    list(batches)
    first, _ = recorded.taken()
    assert sum(row.batches for row in first.workers) == 25
    # One that does not look during the window has nothing to say on it.
    monkeypatch.setattr(reports, "ANSWER_S", 0.5)
    batches_of_second = 0
    # Until the workers have seen that another window is open, batches belong to none.
    while not batches_of_second:
        recorded.loaders.begin()
        list(batches)
        second, _ = recorded.taken()
        batches_of_second = sum(row.batches for row in second.workers)
    assert batches_of_second <= 25
    assert all(row.processes == 1 for row in second.workers)


def test_no_folder_before_a_loader_has_workers(recorded):
    assert len(list(loader(Images(), num_workers=0, multiprocessing_context=None))) == 6
    assert recorded.loaders.workers._folder is None


LEFT = """
import os, signal, sys
from nbprof.capture.loader_workers.folder import Folder
folder = Folder.new()
folder.open(1)
folder.report(os.getpid(), {"ended": False})
print(folder.path, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""


def started(mode, environment):
    process = subprocess.Popen(
        [sys.executable, "-c", LEFT, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    return process, Path(process.stdout.readline().strip())


@forks
def test_what_a_killed_process_left_is_removed_and_that_of_a_running_one_is_not(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2]), "TMPDIR": str(tmp_path)}
    killed, left = started("killed", environment)
    killed.wait(60)
    running, used = started("running", environment)
    other = tmp_path / f"{folders.PREFIX}of something else"
    other.mkdir()
    try:
        assert left.parent == used.parent == tmp_path
        folders.remove_leftovers()
        assert not left.exists()
        assert folders.Folder(used).window() == 1
        assert len(folders.Folder(used).files()) == 1
        assert other.exists()
    finally:
        running.communicate("")
    folders.remove_leftovers()
    assert not used.exists()


def test_reports_are_bounded(tmp_path, monkeypatch):
    folder = folders.Folder(tmp_path)
    rows = [[number, 10**18, 10**9, 8] for number in range(200_000)]
    folder.report(7, {"ended": True, "lines": [], "batch_times": rows})
    (file, (_, _, size)) = folder.files()[7]
    assert 0 < size <= folders.MOST_BYTES
    kept = folders.read(file)["batch_times"]
    assert kept == rows[: len(kept)]
    assert kept
    monkeypatch.setattr(folders, "MOST_FILES", 1)
    folders.Folder(tmp_path).report(8, {})
    assert set(folder.files()) == {7}
    # One that has reported goes on.
    folder.report(7, {"ended": False})
    assert folders.read(file) == {"ended": False}


def test_a_report_is_read_once_while_it_stays_the_same(tmp_path, monkeypatch):
    folder = folders.Folder(tmp_path)
    for process in (7, 8):
        folder.report(process, {"window": 1, "complete": process == 7})
    count = []
    read = folders.read
    monkeypatch.setattr(folders, "read", lambda file: count.append(file) or read(file))
    collected = reports.Reports(1)
    # 8 runs and does not answer: it is waited for.
    collected.collect(folder, {8})
    assert len(count) == 2
    assert collected.processes == {7, 8}
    assert collected.killed == 0
    assert set(folder.files()) == {8}


@forks
def test_a_full_disk_costs_only_the_report(recorded, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert len(list(loader(Images()))) == 6
    times, _ = recorded.taken()
    assert not times.workers


@forks
def test_small_items_are_timed_in_some_batches_only(recorded):
    class Small(data.Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return index

    list(loader(Small(), batch_size=20, num_workers=1))
    times, _ = recorded.taken()
    (worker,) = times.workers
    assert worker.items == 4000
    assert worker.batches == 200
    assert 0 < worker.timed_items < 1000


def alone(dataset, **options):
    """A loader whose batches the loop makes itself."""
    return data.DataLoader(dataset, **{"batch_size": 4, **options})


def test_stages_of_batches_that_the_loop_makes(recorded):
    for _ in range(2):
        assert len(list(alone(Images()))) == 6
    list(alone(Images()))
    times, about = recorded.taken()
    assert not about
    assert not times.loops
    row = times.workers[0]
    assert (row.worker, row.items, row.batches) == (IN_PROCESS, 24, 6)
    assert [row.loader for row in times.workers] == [0, 1, 2]
    assert row.busy_ns >= 24 * 4e6
    stages = {(each.kind, each.name): each for each in times.stages if each.loader == 0}
    crop = stages["transform", "Crop"]
    assert (crop.calls, Path(crop.file), crop.line) == (24, HERE, line_of("class Crop:") + 1)
    assert set(stages) == {
        ("dataset", "Images"),
        ("transform", "Crop"),
        ("transform", "Scale"),
        ("transform", "flip"),
        ("collate", "default_collate"),
    }
    # All samples were in the line that sleeps.
    samples = [row for row in times.lines if times.stages[row.stage].name == "Crop"]
    assert {row.line for row in samples} <= {line_of("time.sleep(0.004)"), crop.line}
    assert [row.batch for row in times.batches if row.loader == 0] == list(range(6))


def test_time_between_batches_that_the_loop_makes_is_waiting(recorded):
    for _ in alone(Images()):
        time.sleep(0.05)
    times, _ = recorded.taken()
    (row,) = times.workers
    # After the last one, the iteration ends.
    assert row.waiting_ns >= 5 * 0.05e9
    frame = analysis.workers(times)
    assert frame["worker"].tolist() == ["main process"]
    assert frame["restarts"].tolist() == [0]


class Numbers(data.IterableDataset):
    def __init__(self):
        self.transform = flip

    def __iter__(self):
        for index in range(11):
            time.sleep(0.001)
            yield self.transform(torch.full((2,), float(index)))


def test_stages_of_an_iterable_dataset_in_the_loop(recorded):
    values = torch.cat(list(alone(Numbers())))
    assert values[:, 0].tolist() == list(range(11))
    times, _ = recorded.taken()
    assert [row.items for row in times.workers] == [11]
    assert {"Numbers", "flip", "default_collate"} == {stage.name for stage in times.stages}


def test_nothing_is_left_of_the_recording_in_loops(recorded):
    create = data.dataloader._SingleProcessDataLoaderIter.__init__
    iterator = iter(alone(Images()))
    next(iterator)
    fetcher = iterator._dataset_fetcher
    assert "fetch" in vars(fetcher)
    dataset = fetcher.dataset
    # Between batches, too, all is as it was.
    assert isinstance(dataset, Images)
    assert not hasattr(vars(Crop)["__call__"], "__wrapped__")
    assert dataset.transform.transforms[2] is flip
    assert fetcher.collate_fn is data.default_collate
    recorded.patches.restore()
    assert "fetch" not in vars(fetcher)
    assert data.dataloader._SingleProcessDataLoaderIter.__init__ is not create
    assert len(list(iterator)) == 5
    names = {thread.name for thread in threading.enumerate()}
    assert "nbprof-loader" not in names


def test_a_dataset_lives_no_longer_than_without_a_recording(recorded):
    gc.collect()
    gc.disable()
    try:
        batches = alone(Images())
        dataset = weakref.ref(batches.dataset)
        list(batches)
        del batches
        assert dataset() is None
    finally:
        gc.enable()


def test_items_and_random_numbers_of_a_loop_are_those_without_a_recording(recorded):
    def epoch():
        torch.manual_seed(7)
        random.seed(7)
        return torch.cat(list(alone(Images(), shuffle=True))), torch.rand(1), random.random()

    with_recording = epoch()
    times, _ = recorded.taken()
    assert times.workers
    recorded.patches.restore()
    for first, second in zip(with_recording, epoch(), strict=True):
        assert torch.equal(torch.as_tensor(first), torch.as_tensor(second))


def hides(frame):
    return frame.f_locals.get("__tracebackhide__") is True


def test_an_error_passes_through_the_loop(recorded):
    def fail(index):
        if index == 5:
            raise ZeroDivisionError("of the dataset")

    batches = alone(Images(fail))
    with pytest.raises(ZeroDivisionError, match="of the dataset") as caught:
        list(batches)
    # Frames of nbprof are hidden from the cell's traceback.
    frames = [entry.frame for entry in caught.traceback]
    ours = [frame for frame in frames if Path(frame.code.path).parent.name == "loader_workers"]
    assert ours
    assert [str(frame.code.raw) for frame in ours if not hides(frame)] == []
    assert not hasattr(vars(Crop)["__call__"], "__wrapped__")


def test_a_window_has_its_own_batches_only(recorded):
    iterator = iter(alone(Images()))
    next(iterator)
    first, _ = recorded.taken()
    next(iterator)
    recorded.loaders.begin()
    next(iterator)
    next(iterator)
    second, _ = recorded.taken()
    assert [row.batches for row in first.workers] == [1]
    assert [row.batches for row in second.workers] == [2]


def test_of_small_items_in_the_loop_some_batches_are_timed_inside(recorded):
    list(alone(data.TensorDataset(torch.arange(4000)), batch_size=20))
    times, _ = recorded.taken()
    (row,) = times.workers
    assert (row.items, row.batches) == (4000, 200)
    assert 0 < row.timed_items < 1000


def test_batches_made_on_another_thread_are_not_confused(recorded):
    # Two loops at the same time, of which each has its own batches.
    first, second = alone(Images()), alone(Images(count=12))
    thread = threading.Thread(target=lambda: list(second))
    thread.start()
    list(first)
    thread.join()
    times, _ = recorded.taken()
    assert sorted(row.items for row in times.workers) == [12, 24]


SCRIPT = """
import json, sys
from images import Images, data
from nbprof.capture.loaders import Loaders
from nbprof.capture.patches import Patches

if __name__ == "__main__":
    patches, loaders = Patches(), Loaders()
    loaders.begin()
    loaders.hook(patches)
    dataset = Images()
    batches = data.DataLoader(
        dataset, batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    count = len(list(batches))
    packed, missing = loaders.workers.taken()
    patches.restore()
    print(json.dumps([count, packed, list(missing)]))
"""


@pytest.mark.parametrize("method", [name for name in METHODS if name != "fork"])
def test_workers_that_inherit_nothing(method, tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    text = HERE.read_text(encoding="utf-8")
    begin, end = text.index("class Compose:"), text.index("class Stream(")
    head = "import time, torch\nfrom torch.utils import data\n\n"
    (folder / "images.py").write_text(head + text[begin:end], encoding="utf-8")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py", method],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
    )
    assert not done.returncode, done.stderr
    count, packed, missing = json.loads(done.stdout)
    times = unpacked(packed)
    assert count == 6
    assert missing == [None, 0, 0, 0]
    assert sum(row.items for row in times.workers) == 24
    crop = next(stage for stage in times.stages if stage.name == "Crop")
    # At least the first batch of each worker is timed inside.
    assert crop.calls in range(8, 25, 4)
    assert Path(crop.file).name == "images.py"
    assert crop.line == 3 + line_of("class Crop:") - line_of("class Compose:") + 2


IN_MAIN = """
import sys
from torch.utils import data

class Numbers(data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return index

if sys.argv[1] == "recorded":
    from nbprof.capture.loaders import Loaders
    from nbprof.capture.patches import Patches
    loaders = Loaders()
    loaders.begin()
    loaders.hook(Patches())
try:
    list(data.DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn"))
except BaseException as error:
    print(type(error).__name__)
"""


def test_a_dataset_of_a_notebook_under_spawn_fails_as_it_does_anyway():
    messages = []
    for mode in ("recorded", "alone"):
        done = subprocess.run(
            [sys.executable, "-c", IN_MAIN, mode],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
        )
        errors = [line for line in done.stderr.splitlines() if line.startswith("AttributeError")]
        messages.append((done.stdout, errors))
    assert messages[0] == messages[1]
    assert "RuntimeError" in messages[0][0]
    assert messages[0][1]


FULL = """
import contextlib, re, sys
import torch
from torch.utils import data
import nbprof

class Images(data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, index): return torch.zeros(1_000_000)

options = {"num_workers": 2, "multiprocessing_context": "fork"}
with contextlib.suppress(OSError):
    open("/dev/shm/rest", "wb").write(bytes(512 << 10))
recording = contextlib.nullcontext()
if sys.argv[1] == "recorded":
    recording = nbprof.profile(save=False)
try:
    with recording:
        for images in data.DataLoader(Images(), 4, **options):
            images.sum()
except RuntimeError as error:
    message = str(error).strip().splitlines()[-1]
    print(re.sub(r"[0-9]+|</torch_[^>]*>", "…", message))
"""
SMALL = ("unshare", "--map-root-user", "--mount", "sh", "-c")
MOUNT = "mount -t tmpfs -o size=1m tmpfs /dev/shm"


def test_full_shared_memory_fails_as_it_does_anyway(tmp_path):
    """In a mount namespace, as a container with 1 MB of it has."""
    try:
        able = subprocess.run([*SMALL, MOUNT], capture_output=True, check=False).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip("mount namespaces are not allowed here")
    (tmp_path / "train.py").write_text(FULL, encoding="utf-8")
    messages = []
    for mode in ("recorded", "alone"):
        done = subprocess.run(
            [*SMALL, f'{MOUNT} && exec "$0" train.py {mode}', sys.executable],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[2]), "NBPROF_CACHE": "0"},
        )
        assert not done.returncode, done.stderr
        messages.append(done.stdout)
    assert messages[0] == messages[1] != ""


def test_damaged_reports_are_left_out():
    assert merged([{"dataset": "A", "workers": 1, "prefetch": 2}], [{"loader": 0}]) == {}
    assert unpacked({"version": 1, "loaders": [["A", 1, 2, {}]], "workers": [[5]]}) == WorkerTimes()
    assert unpacked({"version": 2}) == WorkerTimes()
    assert unpacked(None) == WorkerTimes()


@forks
@pytest.mark.skipif(
    "in_order" not in data.DataLoader.__init__.__code__.co_varnames,
    reason="batches of this version come in order",
)
def test_batches_in_any_order_have_no_known_number(recorded):
    for in_order in (True, False):
        list(loader(Images(), in_order=in_order))
    times, _ = recorded.taken()
    by_loader = {row.loader: set() for row in times.waits}
    for row in times.waits:
        by_loader[row.loader].add(row.batch)
    assert by_loader == {0: {1, 2, 3, 4, 5}, 1: {-1}}
