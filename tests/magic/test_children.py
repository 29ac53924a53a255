"""`%%nbprof --children`: processes that a cell starts are hosts of its run."""

from __future__ import annotations

import sys
import textwrap

import pytest

import nbprof
from tests.capture.notes import text_of
from tests.magic.conftest import Kernel

pytest.importorskip("torch")

MODULE = """
    import os, sys, time
    import torch

    def train(rank=0, fails=-1):
        torch.set_num_threads(1)
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).sum().backward()
            optimizer.step()
            time.sleep(0.002)
        if rank == fails:
            raise ValueError("bad batch")

    def ranked():
        import torch.distributed as distributed

        distributed.init_process_group("gloo")
        rank = distributed.get_rank()
        train(rank)
        distributed.destroy_process_group()
        return rank

    if __name__ == "__main__":
        ranked() if "RANK" in os.environ else train()
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a b")
    (folder / "training.py").write_text(textwrap.dedent(MODULE))
    kernel = Kernel(folder, "torch")
    try:
        # New processes look there first, wherever multiprocessing was imported.
        kernel.run("%load_ext nbprof\nimport os, sys\nsys.path.insert(0, os.getcwd())")
        yield kernel
    finally:
        kernel.close()


def run(kernel, code, first="%%nbprof --children"):
    # Each process imports PyTorch.
    result = kernel.run(f"{first}\n{textwrap.dedent(code)}", limit_s=600)
    assert kernel.idle()
    return result


def leftovers(kernel):
    return [path.name for path in (kernel.folder / "nbprof-results").glob(".*")]


def the_profile(kernel):
    """The profile that the cell showed, loaded from its files."""
    folder = kernel.ask("nbprof.last.path").strip("'")
    kernel.ask("nbprof.last.hosts")
    return nbprof.load(kernel.folder / folder)


def all_have_ops(profile):
    ranks = [profile.rank(host) for host in profile.hosts] if len(profile.hosts) > 1 else [profile]
    return all(rank.ops.frame["op"].str.contains("addmm").any() for rank in ranks)


def test_forked_processes_record_pytorch_too(kernel):
    result = run(
        kernel,
        """
        import multiprocessing, torch, training
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=training.train) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print([process.exitcode for process in processes])
        """,
    )
    assert result.stdout == "[0, 0]\n"
    assert len(result.dashboards) == 1
    assert "10 steps on 2 hosts" in result.dashboards[0]["text/plain"]
    profile = the_profile(kernel)
    assert len(profile.hosts) == 2
    assert all_have_ops(profile)
    assert leftovers(kernel) == [".gitignore"]
    assert profile.run.capture.by == "cell"
    assert not len(profile.pods.missing)
    assert "cannot run again" in kernel.run("nbprof.last.try_()").message


def test_a_process_of_spawn_that_raises_says_what(kernel):
    result = run(
        kernel,
        "import torch.multiprocessing, training; torch.multiprocessing.spawn(training.train, (1,), 2)",
    )
    assert result.error == "ProcessRaisedException", result.message
    assert "ValueError: bad batch" in result.message
    (reason,) = the_profile(kernel).pods.missing["reason"]
    assert reason == "Its process failed after 10 complete steps: ValueError: bad batch."
    assert "The process of rank 1 failed" in result.dashboards[0]["text/plain"]


def test_ranks_of_a_launcher_have_its_numbers(kernel):
    result = run(
        kernel,
        """
        import training
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
        config = LaunchConfig(
            1, 1, 2, run_id="x", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
            max_restarts=0, start_method="fork",
        )
        print(sorted(elastic_launch(config, training.ranked)().items()))
        """,
    )
    assert result.stdout == "[(0, 0), (1, 1)]\n"
    assert [host[-5:] for host in the_profile(kernel).hosts] == ["rank0", "rank1"]


@pytest.mark.parametrize(
    ("command", "hosts"),
    [("training.py", 1), ("-m torch.distributed.run --nproc-per-node 2 training.py", 2)],
)
def test_commands_of_the_shell(kernel, command, hosts):
    result = run(kernel, f'!"{{sys.executable}}" {command}')
    assert result.status == "ok", result.traceback
    profile = the_profile(kernel)
    assert len(profile.hosts) == hosts
    assert all_have_ops(profile)


def test_a_cell_that_starts_nothing_is_recorded_as_ever(kernel):
    result = run(kernel, "import training; training.train()")
    assert "10 steps ·" in result.dashboards[0]["text/plain"]
    assert kernel.ask("type(nbprof.last.run.origin).__name__") == "'Rerun'"


def test_a_process_that_runs_on_is_recorded_to_its_end(kernel):
    result = run(
        kernel,
        """
        import multiprocessing, time, training
        gate, there = multiprocessing.Event(), multiprocessing.Event()
        def waits():
            there.set()
            gate.wait(60)
        process = multiprocessing.get_context("fork").Process(target=waits)
        process.start()
        there.wait(60)
        training.train()
        """,
    )
    capture = kernel.capture()
    (text,) = [text for text in capture["warnings"] if "still ran at its end" in text]
    folder = text.partition('nbprof.load("')[2].partition('"')[0]
    assert "10 steps" in result.dashboards[0]["text/plain"]
    kernel.run("gate.set(); process.join()")
    assert leftovers(kernel) == [".gitignore"]
    assert len(nbprof.load(folder).hosts) == 2


def test_where_they_cannot_be_in_one_run_the_receipt_says_so(kernel):
    run(kernel, "import training; training.train()", "%%nbprof --children --no-save")
    assert "Its processes are not recorded: the run is not saved." in kernel.capture()["notes"]


def test_a_block_records_its_processes(tmp_path, monkeypatch):
    if not hasattr(sys, "orig_argv"):
        pytest.skip("another Python")
    from tests.capture.test_script import python, the_run, write

    write(
        tmp_path,
        """
        import multiprocessing
        import nbprof

        def work():
            for _ in nbprof.steps(range(10)):
                sum(range(1000))

        if __name__ == "__main__":
            with nbprof.profile(children=True) as p:
                process = multiprocessing.get_context("spawn").Process(target=work)
                process.start()
                process.join()
            print(len(p.hosts), len(p.steps.frame), p.run.capture.by)
        """,
    )
    result = python(tmp_path, "train.py")
    assert result.stdout == "1 10 block\n", result.stderr
    assert text_of(nbprof.load(the_run(tmp_path)).run.capture.notes, "step_origins")
