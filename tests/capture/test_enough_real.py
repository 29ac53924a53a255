"""The default window on each framework for real, in processes of their own."""

from __future__ import annotations

import json
import textwrap

import pytest

from tests.support import programs

LOOPS = {
    "tensorflow": """
        import tensorflow as tf
        from keras import Sequential, layers

        model = Sequential([layers.Input((8,)), layers.Dense(4), layers.Dense(1)])
        model.compile("sgd", "mse")
        data = tf.data.Dataset.from_tensor_slices((tf.ones((400, 8)), tf.ones((400, 1)))).batch(4)

        def loop():
            model.fit(data, epochs=2, verbose=0)
            model.evaluate(data, verbose=0)
            model.fit(data, verbose=0)
    """,
    "jax": """
        import jax, jax.numpy as jnp

        step = jax.jit(lambda x: x - 1e-3 * (x @ x))

        def loop():
            x = jnp.ones((64, 64))
            for number in range(300):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    x = step(x).block_until_ready()
    """,
    # Its profiler, with allocations, is stopped on its own thread.
    "torch": """
        import torch

        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def loop():
            for _ in range(300):
                optimizer.zero_grad()
                model(torch.ones(64, 64)).sum().backward()
                optimizer.step()
    """,
}
SCRIPT = """
    import json
    import nbprof
    from nbprof.capture import enough

    enough.SECONDS, enough.MOST_S = 0.02, 60.0
    try:
        with nbprof.profile(backend={backend!r}, save=False) as run:
            loop()
            raise ValueError("later")
    except ValueError:
        pass
    info, clock = run.run.capture, run.steps.clock
    print("facts", json.dumps(dict(
        window=info.window,
        seen=info.steps_seen,
        marked=info.steps_marked,
        frame=len(run.steps.frame),
        clock=len(clock),
        recorded=int(clock["recorded"].sum()),
        kinds=clock["kind"].value_counts().to_dict(),
        error=info.error,
        ended_before=info.ended_before,
        shorter=info.elapsed_s < info.cell_s,
        notes=[note.text for note in info.notes if note.key == "recorded_enough"],
        notice=run.payload().meta.notice.text,
        facts=run.payload().meta.facts[0],
    )))
"""


@pytest.mark.parametrize("backend", LOOPS)
def test_the_rest_runs_without_the_profiler(tmp_path, backend):
    script = textwrap.dedent(LOOPS[backend]) + textwrap.dedent(SCRIPT).format(backend=backend)
    done = programs.run(script, needs=backend, cwd=tmp_path)
    facts = json.loads(done.stdout.partition("facts ")[2])
    count = 400 if backend == "tensorflow" else 300
    first, last = facts["window"]
    assert (first, facts["seen"], facts["clock"]) == (1, count, count)
    assert 20 <= last < count
    assert facts["marked"] == facts["frame"] == last
    assert facts["recorded"] in (last, last + 1)
    [note] = facts["notes"]
    assert note.startswith(f"steps 1 to {last} were recorded, until ")
    assert f"{count - last} later steps" in note
    assert note.endswith(
        f'and nothing after step {last} was recorded; steps="all" records the whole block'
    )
    assert facts["error"] == f"cell failed after {count} complete steps: ValueError: later"
    assert facts["ended_before"]
    assert facts["shorter"]
    assert facts["notice"] == (
        f"The recording had ended before, so the cause is not in it; it has {last} steps."
    )
    assert facts["facts"] == f"{last} steps of {count}"
    if backend == "tensorflow":
        assert facts["kinds"] == {"train": 300, "test": 100}
        assert f"({300 - last} train and 100 test)" in note
