"""Hosts are read by whatever runs functions: processes, executors, a Dask cluster; from disks and
object stores; and what goes wrong.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import SimpleNamespace

import boto3
import distributed
import pandas as pd
import psutil
import pytest
import requests
import s3fs
from moto.server import ThreadedMotoServer

import nbprof.core.version
from nbprof.activity.unit import NONE
from nbprof.core import trim
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import some
from nbprof.dialects.xplane import steps as xplane_steps
from nbprof.profiles.load import load, read
from nbprof.run import many, parallel
from nbprof.run.processes import Processes, WorkerEndedError
from nbprof.sources.locate import OpenOptions, find
from nbprof.tools.dashboard import dashboard
from tests.support import pods
from tests.support.xspace import PlaneWriter, xspace

RANKS = 12


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A folder of twelve ranks, more than are read in one process."""
    folder = tmp_path_factory.mktemp("job") / "ränks of a job"
    pods.write(folder, RANKS, 6, plant="kernel", seed=1)
    return folder


@pytest.fixture(scope="module")
def steps(job):
    """The steps of all ranks, as one process has them."""
    return load(job, executor=1).steps.frame


def same(profile, steps):
    pd.testing.assert_frame_equal(profile.steps.frame, steps)


def test_an_executor_of_threads_reads_them(job, steps):
    with ThreadPoolExecutor(2) as executor:
        same(load(job, executor=executor), steps)
        # It is somebody else's, and stays open.
        assert executor.submit(len, "abc").result() == 3


def test_many_hosts_are_read_by_processes_and_say_how_far_it_is(job, steps):
    told = []
    profile = load(job, progress=told.append)
    same(profile, steps)
    assert any(text.startswith("reading hosts: ") for text in told) or len(told) == 1
    assert told[-1].startswith(f"{RANKS} hosts read in ")
    assert type(profile.run).__name__ == "CombinedRun"


def test_few_hosts_are_read_at_once(tmp_path):
    pods.write(tmp_path / "job", 2, 6)
    assert type(load(tmp_path / "job").run).__name__ == "Run"


def test_a_dask_cluster_reads_them_though_a_worker_is_killed(job, steps):
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        doomed, killed = next(iter(client.run(os.getpid).values())), []

        def tell(_text):
            if not killed:
                os.kill(doomed, signal.SIGKILL)
                killed.append(doomed)

        same(load(job, executor=client, progress=tell), steps)
        assert killed
        assert doomed not in client.run(os.getpid).values()


def test_an_object_store_is_read_where_the_workers_are(job, steps, monkeypatch):
    for name, value in {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "thing"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}"}
        store = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        store.mkdir("bucket")
        store.put(str(job), "bucket/step 500", recursive=True)
        same(load("s3://bucket/step 500", executor=2, storage_options=options), steps)
        with pytest.raises(ReadError):
            load("s3://no-such-bucket/job", executor=2, storage_options=options)
    finally:
        server.stop()


def test_a_bucket_says_what_it_does_not_let_one_read(job, steps):
    """Without rights one sentence; without rights to the file of one rank, that rank is missing."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    enforced = None
    try:
        store = s3fs.S3FileSystem(
            endpoint_url=url, key="owner", secret="owner", skip_instance_cache=True
        )
        store.mkdir("guarded")
        store.put(str(job), "guarded/job", recursive=True)
        kept = sorted(store.find("guarded/job"))[3]
        iam = boto3.client(
            "iam",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="owner",
            aws_secret_access_key="owner",
        )

        def user(name: str, *statements: dict[str, object]) -> dict[str, object]:
            iam.create_user(UserName=name)
            if statements:
                policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
                iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=policy)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            return {
                "key": key["AccessKeyId"],
                "secret": key["SecretAccessKey"],
                "endpoint_url": url,
            }

        stranger = user("stranger")
        colleague = user(
            "colleague",
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{kept}"},
        )
        enforced = requests.post(f"{url}/moto-api/reset-auth", data="0", timeout=60).json()
        with pytest.raises(
            ReadError,
            match=r"s3://guarded/job: could not be read \(PermissionError.*Check the permissions to list and read it",
        ):
            load("s3://guarded/job", executor=2, storage_options=stranger)
        found = load("s3://guarded/job", executor=2, storage_options=colleague)
        gone = found.pods.missing
        assert gone["file"].tolist() == [kept.rpartition("/")[2]]
        assert gone["reason"].str.contains("Check the permissions").all()
        rest = steps[steps["host"] != gone["host"].iloc[0]]
        pd.testing.assert_frame_equal(found.steps.frame, rest.reset_index(drop=True))
    finally:
        if enforced:
            requests.post(
                f"{url}/moto-api/reset-auth",
                data=str(enforced["PREVIOUS_INITIAL_NO_AUTH_ACTION_COUNT"]),
                timeout=60,
            )
        server.stop()


def test_files_that_cannot_be_read_are_missing_and_no_error(tmp_path):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    files = sorted((tmp_path / "job").rglob("*.xplane.pb"))
    data = files[3].read_bytes()
    files[3].write_bytes(data[:200] + b"\xff" * 300)
    found = load(tmp_path / "job", executor=1)
    gone = found.pods.missing
    assert gone["file"].tolist() == [files[3].name]
    assert gone["reason"].str.endswith(".").all()
    assert found.steps.frame["host"].nunique() == len(found.hosts) == RANKS - 1
    assert f"A file was skipped, and the figures do not include its host: {files[3].name}: " in str(
        found.receipt
    )


def test_ranks_without_a_file_are_missing(tmp_path):
    pods.write(tmp_path / "job", RANKS, 6)
    files = sorted((tmp_path / "job").iterdir())
    files[5].write_bytes(b"")
    files[7].unlink()
    assert load(tmp_path / "job", executor=1).pods.missing["host"].tolist() == ["rank 5", "rank 7"]
    reasons = [
        "It is empty, not a profile.",
        "There is no file for this rank, which was part of the job.",
    ]
    assert load(tmp_path / "job", executor=1).pods.missing["reason"].tolist() == reasons


def test_a_folder_of_broken_files_is_an_error(tmp_path):
    for i in range(8):
        (tmp_path / f"host{i}.xplane.pb").write_bytes(b"\x0a\xff\xff\xff\xff\x0f broken")
    # Of several the first, however they were read.
    with pytest.raises(ReadError, match="host0"):
        load(tmp_path, executor=1)


def test_a_worker_of_another_version_is_named(job, monkeypatch):
    monkeypatch.setattr(parallel, "__version__", "0.0.1")
    with (
        pytest.raises(NbprofError, match=r"install the same version in both"),
        Processes(1) as executor,
    ):
        load(job, executor=executor)


class Nowhere(Executor):
    """An executor whose workers lack nbprof, or something of it."""

    def __init__(self, error=None):
        self.error = error or ModuleNotFoundError("No module named 'nbprof'", name="nbprof")

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_exception(self.error)
        return future


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'many' from 'nbprof.run'", name="nbprof.run"),
        ModuleNotFoundError("No module named 'pandas'", name="pandas"),
        AttributeError(
            "Can't get attribute 'hosts' on <module 'nbprof.run.parallel' from '/srv/parallel.py'>"
        ),
    ],
    ids=str,
)
def test_a_worker_of_a_version_without_what_is_asked_is_named(job, error):
    with pytest.raises(
        NbprofError, match=f"a worker cannot run nbprof {nbprof.core.version.__version__} .*there"
    ):
        load(job, executor=Nowhere(error))


def test_a_worker_without_nbprof_is_told_to_have_it(job):
    with pytest.raises(
        NbprofError,
        match=f"a worker has no nbprof .*install version {nbprof.core.version.__version__} there",
    ):
        load(job, executor=Nowhere())


@pytest.mark.parametrize("wrong", [0, -2, "two", 1.5])
def test_what_is_no_executor_is_named(job, wrong):
    with pytest.raises(NbprofError, match="executor= takes"):
        load(job, executor=wrong)


def test_a_process_that_is_killed_is_started_anew():
    with Processes(1) as executor:
        first = executor.submit(os.getpid).result()
        os.kill(first, signal.SIGKILL)
        assert executor.submit(os.getpid).result() != first
        with pytest.raises(WorkerEndedError, match="ended twice"):
            executor.submit(os._exit, 1).result()


def test_a_process_with_nothing_to_do_ends_and_another_is_there_when_it_is_needed():
    with Processes(1, idle_s=0.05) as executor:
        first = executor.submit(os.getpid).result()
        psutil.wait_procs(
            [process for process in psutil.Process().children() if process.pid == first]
        )
        assert executor.submit(os.getpid).result() != first


def test_one_set_of_processes_reads_all_that_is_asked_of_a_run_and_ends_with_it(job, monkeypatch):
    monkeypatch.setattr(many, "_AT_ONCE", 0)
    before = set(psutil.Process().children())
    profile = read(job, executor=2)
    mine = set(psutil.Process().children()) - before
    assert len(mine) == 2
    assert len(profile.device_time.frame)
    assert profile.advice is not None
    assert set(psutil.Process().children()) - before == mine
    del profile
    gc.collect()
    psutil.wait_procs(mine)
    assert not set(psutil.Process().children()) & mine


@pytest.mark.parametrize(
    ("form", "read_all", "expected"),
    [("xspace", False, 2), ("xspace", True, 1), ("kineto", False, 1)],
)
def test_all_is_read_in_one_pass_where_that_is_sooner(
    tmp_path, monkeypatch, form, read_all, expected
):
    pods.write(tmp_path / "job", RANKS, 6, form=form)
    passes, reading = [], parallel.read
    monkeypatch.setattr(many, "_AT_ONCE", 0)
    monkeypatch.setattr(
        parallel, "read", lambda *args: (passes.append(args[2][-2]), reading(*args))[1]
    )
    assert len(read(tmp_path / "job", executor=1, read_all=read_all).device_time.frame)
    assert passes == ([("first", "rest")] if expected == 1 else [("first",), ("rest",)])


class Counting(parallel._Here):
    """An executor that keeps what it was asked for: when values are made, and of which files."""

    def __init__(self):
        self.asked = []

    def submit(self, fn, /, *args, **kwargs):
        _, files, *how = args
        self.asked.append((how[-2], [piece.name for piece in files.files]))
        return super().submit(fn, *args, **kwargs)


def test_what_tabs_ask_for_next_is_asked_for_as_soon_as_it_is_known(tmp_path, monkeypatch):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    executor = Counting()
    # Alone, our own process asks for nothing ahead; an executor of somebody else does.
    monkeypatch.setattr(parallel, "_Here", type("Other", (), {}))
    profile = read(tmp_path / "job", executor=executor, read_all=True)
    ahead = [files for when, files in executor.asked if when == ("some",)]
    assert len(ahead) == parallel.MANY
    assert all(len(files) == 1 for files in ahead)
    before = len(executor.asked)
    dashboard(profile.run)
    # Neither missed nor read again.
    assert len(executor.asked) == before


def test_nothing_is_read_ahead_where_no_dashboard_is_drawn(tmp_path, monkeypatch):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    executor = Counting()
    monkeypatch.setattr(parallel, "_Here", type("Other", (), {}))
    profile = read(tmp_path / "job", executor=executor)
    assert len(profile.pods.frame)
    assert len(profile.device_time.frame)
    assert {when for when, _ in executor.asked} == {("first", "rest")}
    dashboard(profile.run)
    assert [when for when, _ in executor.asked].count(("some",)) == parallel.MANY


@pytest.mark.parametrize("at_once", [0, 128])
def test_a_dashboard_has_it_read_before_its_first_frame(tmp_path, monkeypatch, at_once):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    monkeypatch.setattr(many, "_AT_ONCE", at_once)
    executor, asked = Counting(), parallel.ahead
    monkeypatch.setattr(parallel, "_Here", type("Other", (), {}))
    profile = read(tmp_path / "job", executor=executor)
    first = []
    monkeypatch.setattr(
        parallel,
        "ahead",
        lambda *args: (first.append(sorted(profile.run.memo.values)), asked(*args)),
    )
    profile.run.read_ahead()
    # Of many, the workers have the rest to read first.
    assert len(first) == (1 if at_once else 0)
    assert len(profile.device_time.frame)
    profile.run.read_ahead()
    assert len(first) == 1
    assert "_findings" not in first[0]
    assert [when for when, _ in executor.asked].count(("some",)) == parallel.MANY


def of(sizes, form="xspace"):
    """Files of these sizes, which nobody reads."""
    return SimpleNamespace(
        format=form,
        files=[SimpleNamespace(name=f"host{i}", size=size) for i, size in enumerate(sizes)],
    )


@pytest.mark.parametrize(
    ("sizes", "form", "workers", "expected"),
    [
        # What a group costs beside its files is paid twice by each worker, or four times where
        # files take long.
        ([1000] * 64, "xspace", 2, [16] * 4),
        ([1000] * 64, "chrome", 2, [8] * 8),
        ([1000] * 64, "xspace", 16, [2] * 32),
        ([1000] * 10, "xspace", 16, [1] * 10),
        ([1000] * 1000, "xspace", 2, [16] * 62 + [8]),
        # Large ones are not in memory together, wherever they stand; nor is one left out.
        ([20 << 20] * 64, "xspace", 2, [1] * 64),
        ([15 << 20] * 5, "xspace", 1, [2, 2, 1]),
        ([1, 1, 1 << 30, 1, 1, 1], "xspace", 1, [2, 1, 3]),
        ([None] * 8, "xspace", 1, [4, 4]),
    ],
)
def test_files_are_read_in_groups(sizes, form, workers, expected):
    found = parallel.groups(of(sizes, form), workers)
    assert [len(group) for group in found] == expected
    assert [number for group in found for number in group] == list(range(len(sizes)))


def test_what_was_asked_for_ahead_is_not_read_for_a_run_that_is_gone(tmp_path):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    files = find(tmp_path / "job", None, OpenOptions({}, 1 << 30, None))
    with ThreadPoolExecutor(1) as one:
        go = threading.Event()
        one.submit(go.wait, 10)
        readers = parallel.Readers(one, many.read_hosts)
        parallel.ahead(files, [(3,), (5,)], (None, None, ("some",)), readers)
        assert readers.take_prefetched([(3,)], (None, None, ("some",))) is None
        (_, _, asked) = readers._expected[0]
        readers.close()
        go.set()
        assert all(future.cancelled() for future in asked)
        assert readers.take_prefetched([(3,), (5,)], (None, None, ("some",))) is None


def test_errors_of_a_process_are_those_of_the_function():
    with Processes(1) as executor:
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        # What it prints is no answer.
        assert executor.submit(print, "hello").result() is None


def test_who_gives_up_leaves_no_process_behind(job):
    def stop(_text):
        raise KeyboardInterrupt

    before = set(psutil.Process().children()), set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        load(job, executor=2, progress=stop)
    assert set(psutil.Process().children()) <= before[0]
    assert not [
        thread
        for thread in set(threading.enumerate()) - before[1]
        if thread.name.startswith("nbprof process")
    ]


def test_a_rank_is_opened_as_if_it_were_alone(job):
    profile = load(job, executor=1)
    alone = load(next(path for path in sorted(job.iterdir()) if "7" in path.name.partition(".")[0]))
    one = profile.rank(7)
    assert one.hosts == alone.hosts
    pd.testing.assert_frame_equal(one.steps.frame, alone.steps.frame)
    assert one.trace.lanes.equals(alone.trace.lanes)


def test_a_planted_straggler_is_found_among_hosts_read_apart(job):
    found = load(job, executor=1).pods.stragglers
    assert found.loc[found["straggler"], "host"].nunique() == 1


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a'b\"c"])
def test_hosts_without_steps_or_with_odd_names_have_a_report(tmp_path, name):
    for i in range(9):
        host = PlaneWriter("/host:CPU")
        host.line("python", [host.event("work", 0, 1000)], line_id=1)
        (tmp_path / f"host{i}.xplane.pb").write_bytes(xspace(host, hostname=f"{name}{i}"))
    profile = load(tmp_path, executor=1)
    assert profile.overview["unit"]["kind"] == "recording"
    assert profile.hosts == [f"{name}{i}" for i in range(9)]
    assert profile.pods.stragglers.empty
    assert name not in profile.save(tmp_path / "report.html").read_text()


def test_spans_of_hosts_are_classified_once_for_all_that_is_made_of_them(tmp_path, monkeypatch):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    files = some(find(tmp_path / "job", None, OpenOptions({}, 1 << 30, None)), (0, 1))
    made: list[int] = []
    work = xplane_steps.work
    monkeypatch.setattr(xplane_steps, "work", lambda *args: made.append(1) or work(*args))
    many.partial(files, None, None, ("first", "rest"), NONE)
    assert made == [1]
    # Of a large recording they are let go, but not before all that needs them is made.
    monkeypatch.setattr(trim, "MANY_EVENTS", 1)
    many.partial(files, None, None, ("first", "rest"), NONE)
    assert made == [1, 1]
