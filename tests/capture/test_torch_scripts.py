"""nbprof.torch: scripts that use torch.profiler themselves, alone and as several processes of one
job.
"""

from __future__ import annotations

import gzip
import shutil
import socket

import pytest

import nbprof
from nbprof.capture import torch_exit
from tests.capture.torches import Training
from tests.support.programs import Program


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def train(torch, handler, steps, **plan):
    training = Training(torch, 0)
    with torch.profiler.profile(
        schedule=nbprof.torch.schedule(**plan), on_trace_ready=handler, record_shapes=True
    ) as profiler:
        for _ in range(steps):
            training.step()
            profiler.step()


def test_each_cycle_is_a_run(torch, tmp_path):
    handler = nbprof.torch.trace_handler(tmp_path / "logs")
    train(torch, handler, 20, wait=2, warmup=1, active=3, repeat=2)
    assert len(handler.paths) == 2
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == sorted(
        p.name for p in handler.paths
    )
    runs = nbprof.runs(tmp_path / "logs")
    assert len(runs) == 2
    assert nbprof.load(runs.path[1]).steps.frame.name.tolist() == [
        "ProfilerStep#3",
        "ProfilerStep#4",
        "ProfilerStep#5",
    ]
    assert nbprof.load(tmp_path / "logs").steps.frame.name.tolist() == [
        "ProfilerStep#9",
        "ProfilerStep#10",
        "ProfilerStep#11",
    ]


def test_once_is_the_default(torch, tmp_path):
    handler = nbprof.torch.trace_handler(tmp_path)
    train(torch, handler, 15)
    assert len(handler.paths) == 1


def test_the_handler_writes_what_pytorch_wrote(torch, tmp_path):
    handler = nbprof.torch.trace_handler(tmp_path / "logs")

    class Copying:
        """A profiler whose export is seen: PyTorch gives a trace once only."""

        def __init__(self, profiler):
            self.profiler = profiler

        def export_chrome_trace(self, path):
            self.profiler.export_chrome_trace(path)
            shutil.copy(path, tmp_path / "plain.json")

    train(torch, lambda profiler: handler(Copying(profiler)), 6)
    assert gzip.decompress(handler.paths[0].read_bytes()) == (tmp_path / "plain.json").read_bytes()


@pytest.mark.parametrize(("rank", "waits"), [({}, 0), ({"RANK": "1", "WORLD_SIZE": "2"}, 2)])
def test_a_rank_waits_for_the_threads_of_pytorch_as_it_ends(
    torch, tmp_path, monkeypatch, rank, waits
):
    asked = []
    monkeypatch.setattr(torch_exit, "wait_at_exit", lambda: asked.append(True))
    for name, value in rank.items():
        monkeypatch.setenv(name, value)
    train(torch, nbprof.torch.trace_handler(tmp_path), 20, wait=2, warmup=1, active=3, repeat=2)
    assert len(asked) == waits


def test_a_full_disk_stops_no_training(torch, tmp_path):
    (tmp_path / "file").write_text("")
    handler = nbprof.torch.trace_handler(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="could not be written"):
        train(torch, handler, 6)
    assert handler.paths == []


@pytest.mark.parametrize(
    "plan", [{"active": 0}, {"wait": -1}, {"repeat": 1.5}, {"warmup": True}, {"skip_first": "2"}]
)
def test_a_plan_that_makes_no_sense(plan):
    (name,) = plan
    with pytest.raises(nbprof.CaptureError, match=name):
        nbprof.torch.schedule(**plan)


@pytest.mark.parametrize("worker", ["a/b", "C:x"])
def test_a_worker_that_is_no_name(worker):
    with pytest.raises(nbprof.CaptureError, match="worker"):
        nbprof.torch.trace_handler("logs", worker=worker)


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _ranks(script, folder, count=2):
    """Run a script as the ranks of one job; gives what each printed."""
    job = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    running = [
        Program(script, modules=("torch",), cwd=folder, environment={**job, "RANK": str(rank)})
        for rank in range(count)
    ]
    ended = [program.wait() for program in running]
    assert [each.returncode for each in ended] == [0] * count, [each.stderr for each in ended]
    return [each.stdout for each in ended]


JOB = """
    import torch, torch.distributed as dist, nbprof

    def train():
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    with nbprof.profile(logdir="block") as run:
        layer = torch.nn.Linear(8, 4)
        # The job is joined after the recording began.
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(layer)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            train()
    print(run.result.run.trace.hosts, len(run.steps.frame))
    plan = nbprof.torch.schedule(wait=1, warmup=1, active=3, repeat=2)
    with torch.profiler.profile(schedule=plan, on_trace_ready=nbprof.torch.trace_handler("logs")) as profiler:
        for _ in range(11):
            train()
            profiler.step()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(torch, tmp_path_factory):
    """Two ranks that record a block, then by a plan; gives their folder and what each printed."""
    folder = tmp_path_factory.mktemp("job")
    return folder, _ranks(JOB, folder)


def test_ranks_share_a_logdir_and_are_one_run(job):
    logs = job[0] / "logs"
    names = [p.name for p in logs.iterdir()]
    assert len(names) == 4
    assert sorted(name.split("_rank")[1][0] for name in names) == ["0", "0", "1", "1"]
    runs = nbprof.runs(logs)
    assert runs.hosts.tolist() == [2, 2]
    for path in runs.run:
        profile = nbprof.load(logs, run=path)
        assert profile.run.trace.hosts == ["rank 0", "rank 1"]
        frame = profile.steps.frame
        assert frame.groupby(
            frame["rank"] if "rank" in frame else frame["host"]
        ).size().tolist() == [3, 3]


def test_a_rank_that_records_a_block_says_which_it_is(job):
    folder, out = job
    assert sorted(out) == ["['rank 0'] 3\n", "['rank 1'] 3\n"]
    files = sorted((folder / "block").rglob("*.pt.trace.json.gz"))
    assert len(files) == 2
    assert {path.name.split("_rank")[1][0] for path in files} == {"0", "1"}
    assert sorted(nbprof.load(files).run.trace.hosts) == ["rank 0", "rank 1"]


def test_runs_of_one_second_do_not_meet(tmp_path, monkeypatch):
    """Another rank takes the name between the look and the move."""
    from nbprof.capture.options import Options
    from nbprof.capture.place import RunFolder

    places = [RunFolder(Options(logdir=str(tmp_path))) for _ in range(2)]
    for place in places:
        run = place.scratch / "plugins" / "profile" / "2026_01_01_00_00_00"
        run.mkdir(parents=True)
        (run / "host.pt.trace.json.gz").write_bytes(b"")
    first = places[0].settle()
    asked = []
    original = type(first).exists

    def unseen_at_first(self, *args, **options):
        asked.append(self)
        return (
            False if self == first and asked.count(first) == 1 else original(self, *args, **options)
        )

    monkeypatch.setattr(type(first), "exists", unseen_at_first)
    second = places[1].settle()
    assert asked.count(first) == 2
    assert (first.name, second.name) == ("2026_01_01_00_00_00", "2026_01_01_00_00_00_2")
    assert len(list(second.iterdir())) == len(list(first.iterdir())) == 1
