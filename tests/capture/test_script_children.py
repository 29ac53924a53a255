"""`nbprof run --children`: processes that a script starts are hosts of its run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import nbprof
from nbprof.capture.script.job import MOST_CHILDREN
from tests.capture.test_script import folder, python, recorded, the_run, write

__all__ = ["folder"]

WORK = """
    import multiprocessing, os, signal, sys, time
    import nbprof

    def work(how):
        for step in nbprof.steps(range(10)):
            time.sleep(0.002)
        if how == "raise":
            raise ValueError("bad batch")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            sys.exit(7)

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        processes = [context.Process(target=work, args=(how,)) for how in sys.argv[2:]]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print([process.exitcode for process in processes])
"""


def as_without(folder, *words, stdin=""):
    """Run with and without nbprof; returns the recorded one."""
    plain = python(folder, *words, stdin=stdin)
    result = recorded(folder, "--children", *words, stdin=stdin)
    assert result.returncode == plain.returncode, result.stderr
    assert result.stdout == plain.stdout
    return result


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_are_the_hosts_of_one_run(folder, method):
    write(folder, WORK)
    result = as_without(folder, "train.py", method, "well", "well")
    assert result.stdout == "[0, 0]\n"
    assert result.stderr.count("10 steps on 2 hosts") == 1
    profile = nbprof.load(the_run(folder))
    assert len(profile.hosts) == 2
    assert not len(profile.pods.missing)
    assert profile.pods.frame["worker"].nunique() == 2
    assert profile.run.capture.label == "train.py"
    assert sorted(path.name for path in (folder / "nbprof-results").iterdir()) == [
        ".gitignore",
        "plugins",
    ]


@pytest.mark.parametrize(
    ("method", "how", "code", "reason"),
    [
        ("spawn", "raise", 1, "failed after 10 complete steps: ValueError: bad batch"),
        ("fork", "kill", -9, "was killed after 10 complete steps"),
        ("fork", "exit", 7, "failed after 10 complete steps: SystemExit: 7"),
    ],
)
def test_a_process_that_dies_is_missing_and_says_how(folder, method, how, code, reason):
    write(folder, WORK)
    result = as_without(folder, "train.py", method, "well", how)
    assert result.stdout == f"[0, {code}]\n"
    (said,) = nbprof.load(the_run(folder)).pods.missing["reason"]
    assert reason in said
    assert result.stderr.count("The process of rank") == 1


def test_pools_workers_and_managers_are_not_counted(folder):
    write(
        folder,
        """
        import concurrent.futures, multiprocessing, time
        import nbprof

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            for step in nbprof.steps(range(10)):
                time.sleep(0.002)
            with multiprocessing.Pool(2) as pool:
                print(pool.map(double, range(3)))
            with concurrent.futures.ProcessPoolExecutor(2) as pool:
                print(list(pool.map(double, range(3))))
            with multiprocessing.Manager() as manager:
                print(list(manager.list([1])))
            helper = multiprocessing.Process(target=time.sleep, args=(60,), daemon=True)
            helper.start()
        """,
    )
    result = as_without(folder, "train.py")
    assert "10 steps ·" in result.stderr
    profile = nbprof.load(the_run(folder))
    assert len(profile.hosts) == 1
    assert not len(profile.pods.missing)


PROGRAM = """
    import sys, time
    import nbprof

    for step in nbprof.steps(range(10)):
        time.sleep(0.002)
    print(sys.argv, sys.path[0], __name__, sys.stdin.read(), sys.flags.optimize, flush=True)
    sys.exit(int(sys.argv[1]))
"""
STARTER = """
    import os, subprocess, sys
    for words in (["-u", "-O", "program.py"], ["-m", "package.program"], ["-c", "print('text')"]):
        program = [sys.executable, *words, "0"]
        print(subprocess.run(program, input="line", text=True, capture_output=True))
"""


def test_programs_that_subprocess_starts_run_as_they_would(folder):
    write(folder, PROGRAM, "program.py")
    write(folder, "", "package/__init__.py")
    write(folder, PROGRAM, "package/program.py")
    write(folder, STARTER)
    result = as_without(folder, "train.py")
    assert "line" in result.stdout
    assert "text" in result.stdout
    profile = nbprof.load(the_run(folder))
    assert len(profile.hosts) == 2
    assert not len(profile.pods.missing)


def test_a_program_that_does_not_exist_is_pythons_own_error(folder):
    write(
        folder,
        """
        import subprocess, sys
        for words in (["nowhere.py"], ["-m", "nowhere"]):
            print(subprocess.run([sys.executable, *words], text=True, capture_output=True))
        """,
    )
    assert "can't open file" in as_without(folder, "train.py").stdout


def test_a_sitecustomize_of_the_person_runs_as_before(folder):
    write(folder, "import builtins; builtins.marked = 3", "site/sitecustomize.py")
    write(folder, "import sys; print(marked, sys.argv)", "program.py")
    write(
        folder,
        """
        import os, subprocess, sys
        path = os.pathsep.join(["site", *sys.path])
        path = os.environ["PYTHONPATH"] + os.pathsep + "site"
        environment = {**os.environ, "PYTHONPATH": path}
        for words in (["program.py"], ["-c", "print(marked)"]):
            subprocess.run([sys.executable, *words], env=environment, check=True)
        """,
    )
    assert as_without(folder, "train.py").stdout == "3 ['program.py']\n3\n"


def test_more_processes_than_are_recorded_run_all_the_same(folder):
    write(
        folder,
        """
        import multiprocessing, sys

        if __name__ == "__main__":
            context = multiprocessing.get_context("fork")
            gate = context.Barrier(int(sys.argv[1]))
            processes = [context.Process(target=gate.wait) for _ in range(gate.parties)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print([process.exitcode for process in processes])
        """,
    )
    result = as_without(folder, "train.py", MOST_CHILDREN + 2)
    assert result.stdout == f"{[0] * (MOST_CHILDREN + 2)}\n"
    facts = json.loads((the_run(folder) / "nbprof.json").read_text())
    assert len(facts["ranks"]) == MOST_CHILDREN


def test_a_script_that_starts_nothing_is_recorded_as_ever(folder):
    write(folder, "print('alone')\nfor n in range(10): sum(range(50_000))\n")
    result = as_without(folder, "train.py")
    assert len(nbprof.load(the_run(folder)).hosts) == 1
    assert "nbprof · train.py" in result.stderr


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_torch_are_the_hosts_of_one_run(torch, folder, method):
    write(
        folder,
        """
        import sys
        import torch
        import torch.multiprocessing

        def train(rank):
            model = torch.nn.Linear(32, 32)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for step in range(10):
                optimizer.zero_grad()
                model(torch.randn(8, 32)).sum().backward()
                optimizer.step()

        if __name__ == "__main__":
            torch.multiprocessing.start_processes(train, nprocs=2, start_method=sys.argv[1])
        """,
    )
    result = recorded(folder, "--children", "train.py", method)
    assert result.returncode == 0, result.stderr
    profile = nbprof.load(the_run(folder))
    assert len(profile.hosts) == 2
    assert profile.run.capture.backend == "torch"
    assert not len(profile.pods.missing)


def test_a_script_with_steps_goes_on_when_it_forks(torch, folder):
    """Its profiler is not interrupted, so the new process has the steps and Python alone."""
    write(
        folder,
        """
        import multiprocessing
        import torch

        def train():
            torch.set_num_threads(1)
            parameter = torch.nn.Parameter(torch.zeros(3))
            optimizer = torch.optim.SGD([parameter], 0.1)
            for step in range(10):
                parameter.grad = torch.ones(3)
                optimizer.step()

        if __name__ == "__main__":
            train()
            process = multiprocessing.get_context("fork").Process(target=train)
            process.start()
            process.join()
        """,
    )
    result = recorded(folder, "--children", "--steps", "all", "train.py")
    assert result.returncode == 0, result.stderr
    profile = nbprof.load(the_run(folder))
    assert len(profile.hosts) == 2
    ranks = [profile.rank(number) for number in (0, 1)]
    assert [len(rank.steps.frame) for rank in ranks] == [10, 10]
    assert sorted(rank.run.capture.backend for rank in ranks) == ["python", "torch"]


def test_the_startup_module_gives_way_without_nbprof(folder):
    """In an interpreter that has no nbprof, a program runs as without."""
    from nbprof.capture.script.children import STARTUP

    write(folder, "import sys; print(sys.argv)", "program.py")
    environment = {**os.environ, "PYTHONPATH": str(STARTUP), "NBPROF_CHILDREN": "{}"}
    result = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "['program.py']\n"
