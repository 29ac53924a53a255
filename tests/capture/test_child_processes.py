"""A cell that only waits for processes is told that they are not recorded, and which they are."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from nbprof.capture import bounds, child_processes
from nbprof.capture.child_processes import ChildProcesses
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.capture.steps import steps
from tests.capture.notes import keys, text_of

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children are not known")


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Record a function; returns the notes."""
    monkeypatch.setattr(bounds, "PERIOD_S", 0.02)

    def record(function, by="cell"):
        session = Session(Options(backend="python", logdir=str(tmp_path), sampling=False))
        session.windows.by = by
        session.start()
        function()
        return session.stop().info.notes

    return record


def sleep(text="import time; time.sleep(2)"):
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.fixture
def idle(monkeypatch):
    """Threads that earlier tests left in this process may work meanwhile."""
    monkeypatch.setattr(child_processes, "_cpu_s", lambda: 0.0)


@LINUX
@pytest.mark.usefixtures("idle")
def test_a_cell_that_waits_for_a_program_names_it(recorded):
    text = text_of(recorded(sleep), "children_not_recorded")
    assert "import time; time.sleep(2)" in text
    assert text.endswith("%%nbprof --children records them if they are programs of Python.")


@LINUX
@pytest.mark.usefixtures("idle")
def test_a_line_of_the_shell_is_named_as_it_was_written(recorded):
    text = text_of(
        recorded(lambda: subprocess.run(["sh", "-c", "sleep 2; true"], check=True)),
        "children_not_recorded",
    )
    assert "recorded: sleep 2; true." in text


@LINUX
@pytest.mark.usefixtures("idle")
def test_a_script_is_told_the_option(recorded):
    text = text_of(recorded(sleep, by="script"), "children_not_recorded")
    assert text.startswith("The script waited for processes")
    assert "nbprof run --children records them" in text


def nap():
    time.sleep(2)


@LINUX
@pytest.mark.usefixtures("idle")
def test_processes_are_named_and_helpers_are_not(recorded):
    context = multiprocessing.get_context("fork")

    def processes():
        process = context.Process(target=nap, name="worker of the cell")
        process.start()
        process.join()

    def pool():
        with context.Pool(1) as workers:
            workers.apply(nap)
            workers.close()
            workers.join()

    def executor():
        with concurrent.futures.ProcessPoolExecutor(1, context) as workers:
            workers.submit(nap).result()

    assert "children_not_recorded" not in keys(recorded(executor))
    assert "worker of the cell" in text_of(recorded(processes), "children_not_recorded")
    assert "children_not_recorded" not in keys(recorded(pool))


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("runs", [True, False])
def test_a_cell_that_waits_while_ray_runs_is_told_how_to_record_its_workers(
    recorded, monkeypatch, runs
):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: runs))
    found = recorded(lambda: time.sleep(1))
    assert ("ray_workers_not_recorded" in keys(found)) is runs


def test_a_cell_that_works_while_ray_runs_is_not(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    end = time.monotonic() + 1

    def work():
        while time.monotonic() < end:
            sum(range(1000))

    monkeypatch.setattr(child_processes, "_cpu_s", time.monotonic)
    assert "ray_workers_not_recorded" not in keys(recorded(work))


@LINUX
def test_a_cell_with_steps_is_not_told(recorded):
    def work():
        for _ in steps(range(2)):
            sleep()

    assert "children_not_recorded" not in keys(recorded(work))


@pytest.mark.parametrize(
    ("looks", "cpu_s", "left", "expected"),
    [
        ([True] * 9, 0.5, False, ["job"]),
        # It used the processor itself.
        ([True] * 9, 5.0, False, []),
        # They were there for a part of the time.
        ([True] * 3 + [False] * 6, 0.5, False, []),
        # It does not wait for what goes on.
        ([True] * 9, 0.5, True, []),
        ([], 0.5, False, []),
    ],
)
def test_only_most_of_the_time_is_waiting(monkeypatch, looks, cpu_s, left, expected):
    now, there, used = [0.0], set(), [0.0]
    monkeypatch.setattr(child_processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(child_processes, "_children", lambda: {1, *there})
    monkeypatch.setattr(child_processes, "_cpu_s", lambda: used[0])
    monkeypatch.setattr(child_processes, "_command", lambda _pid: "job")
    children = ChildProcesses()
    for present in looks:
        there = {7} if present else set()
        children.look()
    there = {7} if left else set()
    now[0], used[0] = 10.0, cpu_s
    assert children.waited_for() == expected
