"""Windows, bounds and warm-up on each framework for real, in processes of their own."""

from __future__ import annotations

import textwrap

import pytest

from tests.support import programs

WORK = {
    "tensorflow": "import tensorflow as tf\nwork = lambda: float(tf.reduce_sum(tf.matmul(tf.ones((64, 64)), tf.ones((64, 64)))))",
    "jax": "import jax, jax.numpy as jnp\njitted = jax.jit(lambda x: (x @ x).sum())\nwork = lambda: float(jitted(jnp.ones((64, 64))))",
    "torch": "import torch\nwork = lambda: float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())",
}

SCRIPT = """
    import threading, time
    import nbprof

    {work}
    work()

    with nbprof.profile(backend={backend!r}, steps="2:3", every=4, warmup=1, logdir="every") as run:
        for _ in nbprof.steps(range(12)):
            work()
    print("windows", run.runs[["first_step", "last_step"]].values.tolist(), run.steps.frame["warmup"].tolist())
    print("each", [len(nbprof.load(path).steps.frame) for path in run.runs["path"]])

    with nbprof.profile(backend={backend!r}, seconds=0.3, save=False) as run:
        for _ in nbprof.steps(range(12)):
            work()
            time.sleep(0.1)
    print("seconds", 1 <= run.run.capture.steps_marked < 12, len(run.steps.frame) == run.run.capture.steps_marked)
    print("notes", [note.text for note in run.run.capture.notes if note.key == "recording_ended"])

    with nbprof.profile(backend={backend!r}, seconds=0.2, save=False) as run:
        work()
        time.sleep(0.8)
        work()
    print("no steps", [note.text for note in run.run.capture.notes if note.key == "recording_ended"])

    for _ in range(3):
        nbprof.start(backend={backend!r}, save=False)
        for _ in nbprof.steps(range(2)):
            work()
        assert len(nbprof.stop().steps.frame) == 2
    print("threads", [thread.name for thread in threading.enumerate() if "nbprof" in thread.name])
    nbprof.start(backend={backend!r}, logdir="forgotten")
    for _ in nbprof.steps(range(3)):
        work()
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_windows_and_bounds(tmp_path, backend):
    script = textwrap.dedent(SCRIPT).format(work=WORK[backend], backend=backend)
    done = programs.run(script, needs=backend, cwd=tmp_path)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert said["windows"] == "[[2, 3], [6, 7], [10, 11]] [True, False]", done.stdout
    assert said["each"] == "[2, 2, 2]"
    assert said["seconds"] == "True True", done.stdout
    assert (
        "0.3 s passed since the recording began (--seconds): recording ended after step"
        in said["notes"]
    )
    if backend != "torch":
        assert "(--seconds): recording ended" in said["no"], done.stdout
    assert said["threads"] == "[]"
    # The process ended while it was recording.
    assert "nbprof: the recording ended with the process; its files are in" in done.stderr
    (run,) = (tmp_path / "forgotten" / "plugins" / "profile").iterdir()
    import nbprof

    assert len(nbprof.load(run).steps.frame) == 3
