"""The finding on compilation in steps: its cause, its edit, and when there is none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.compiles import again
from nbprof.core.compile_times import Compilation, Compilations
from tests.analysis.test_advice import FUNCTIONS, code
from tests.analysis.test_advice import found as advised
from tests.analysis.test_advice_rules import traced

MS = 1_000_000
START = np.arange(10) * 10 * MS
END = START + 10 * MS


def shape(before, after):
    return f"different input types:\n  * at x, now f32[{after}] and before f32[{before}]"


def compilation(step, reason="", framework="jax", ms=2.0, **facts):
    facts = {"state": "again", "function": "step", "file": "a/train.py", "line": 7} | facts
    start = int(START[0] + step * 10 * MS)
    return Compilation(framework, start_ns=start, duration_ns=int(ms * MS), reason=reason, **facts)


def found(*rows, ended_before=False):
    return again.find(Compilations(rows), {}, START, END, ended_before=ended_before)


def test_time_and_steps():
    result = found(
        compilation(0, state="first", ms=5),
        compilation(2, shape("3,4", "5,4")),
        compilation(4, shape("5,4", "6,4"), ms=4),
        compilation(20, shape("6,4", "7,4")),
    )
    assert result.steps == 2
    assert result.ms == pytest.approx(6 / 10)
    assert result.costliest.times == 3
    assert result.costliest.why == "x is f32[6,4] and was f32[5,4]"
    assert (result.costliest.function, result.costliest.where) == ("step", "train.py:7")


def test_all_compilations_of_some_steps_are_the_first_ones():
    def are_first(*rows, **facts):
        return again.are_first(Compilations(rows, **facts), START, END)

    first = compilation(2, state="first")
    assert are_first(first, compilation(3, state="first", function="other"))
    # After the steps it may be anything.
    assert are_first(first, compilation(30, shape("3,4", "5,4")))
    assert not are_first(first, compilation(4, shape("3,4", "5,4")))
    assert not are_first(first, compilation(4, state=""))
    assert are_first(compilation(4, state="redefined"))
    assert found(compilation(4, state="redefined")) is None
    assert not are_first(first, left_out=1)
    assert not are_first(compilation(30, state="first"))
    assert not are_first()


def test_only_what_was_compiled_again():
    assert found() is None
    assert found(compilation(2, state="first"), compilation(3, state="")) is None
    assert found(compilation(3, "Debug info doesn't match.")) is None
    breaks = compilation(
        3, framework="torch", function="torch_dynamo_resume_in_f_at_8", state="first"
    )
    assert found(breaks) is None
    assert found(compilation(30, shape("3", "4"))) is None


def test_what_has_ended_with_the_recording():
    early = compilation(2, shape("3", "4")), compilation(3, shape("4", "5"))
    assert found(*early).goes_on
    assert not found(*early, ended_before=True).goes_on
    assert found(*early, compilation(50, shape("5", "6")), ended_before=True).goes_on


def test_the_group_with_most_time():
    value = "0/0: n == 3"
    result = found(
        compilation(1, shape("3", "4"), ms=3),
        compilation(2, value, "torch", after="4", function="other"),
        compilation(3, value, "torch", after="5", function="other"),
    )
    assert (result.costliest.function, result.costliest.kind) == ("other", "python_value")
    assert (result.costliest.times, result.costliest.framework) == (2, "torch")


def test_the_cause_of_the_steps_that_count():
    """A remedy is for one kind of cause, whichever functions have it, and not for warm-up."""
    result = found(
        compilation(-5, shape("3", "4"), ms=30),
        compilation(1, shape("3", "4"), ms=2),
        compilation(2, "never seen function", state="made_again", function="f", ms=2),
        compilation(4, "never seen function", state="made_again", function="g", ms=1.5),
    )
    assert result.ms == pytest.approx(5.5 / 10)
    assert result.of_cause_ms == pytest.approx(3.5 / 10)
    assert (result.costliest.function, result.costliest.kind) == ("f", "new_function")
    finding = advice("shape", of_cause_ms=2.0).loc["compile"]
    assert (
        "**5.00 ms**) is spent compiling again, **2.00 ms** of it for one cause."
        in finding["evidence"]
    )


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([33, 60, 70, 100, 129, 200, 511], (64, 128, 256, 512)),
        ([100, 110, 120, 128], (128,)),
        # Padding would leave no fewer programs, or it is too little to know.
        ([1, 2, 4, 8], ()),
        ([10, 11, 12], ()),
    ],
)
def test_sizes_to_pad_to(lengths, sizes):
    rows = [
        compilation(step, shape(f"{before},64", f"{after},64"))
        for step, (before, after) in enumerate(itertools.pairwise(lengths))
    ]
    assert found(*rows).costliest.sizes == sizes


def advice(
    kind, framework="JAX", steps=4, ms=5.0, goes_on=True, sizes=(), of_cause_ms=None, **asked
):
    name = {"JAX": "jax", "PyTorch": "torch", "TensorFlow": "tensorflow"}[framework]
    group = again.Group(name, "step", "train.py:7", kind, "x", "x is 3 and was 2", 4, sizes)
    known = again.Again(steps, ms, goes_on, group, ms if of_cause_ms is None else of_cause_ms)
    return advised(framework=framework, evidence=Evidence(compiled_again=known), **asked)


def test_first_compilations_are_no_finding():
    """A program that a cell defines and calls for the first time is compiled once already."""
    asked = {"framework": "JAX", "parts": {"compile": 20.0}}
    assert "compile" in advised(**asked).index
    assert "compile" not in advised(**asked, evidence=Evidence(compiled_first=True)).index
    traced = {"functions": FUNCTIONS.assign(expensive_percent=99.0)}
    assert "tf_function" in advised(**traced).index
    assert "tf_function" not in advised(**traced, evidence=Evidence(compiled_first=True)).index


@pytest.mark.parametrize(
    ("framework", "kind", "word"),
    [
        ("JAX", "shape", "pad_to"),
        ("JAX", "python_value", "jax.jit(step)"),
        ("JAX", "weak_type", "jnp.asarray"),
        ("JAX", "dtype", "astype"),
        ("JAX", "new_function", "before the loop"),
        ("JAX", "sharding", "device_put(state, sharding)"),
        ("JAX", "placement", "device_put(state, device)"),
        ("JAX", "donation", "donate_argnums"),
        ("PyTorch", "shape", "dynamic=True"),
        ("PyTorch", "python_value", "torch.tensor(lr)"),
        ("PyTorch", "new_function", "before the loop"),
        ("TensorFlow", "shape", "reduce_retracing"),
        ("TensorFlow", "python_value", "tf.constant(lr)"),
        ("TensorFlow", "new_function", "before the loop"),
    ],
)
def test_the_edit_of_a_cause(framework, kind, word):
    finding = advice(kind, framework).loc["compile"]
    assert word in finding["fix"]
    assert code(finding["fix"]).body
    assert "step** (train.py:7) was compiled again **4 times**" in finding["evidence"]
    assert "x is 3 and was 2" in finding["evidence"]
    assert finding["gain_ms_per_step"] == 5.0


@pytest.mark.parametrize("kind", ["grad_mode", "training_mode", "object", "structure"])
def test_a_cause_without_an_edit_of_one_line(kind):
    finding = advice(kind).loc["compile"]
    assert finding["fix"] == ""
    assert "x is 3 and was 2" in finding["evidence"]


def test_sizes_in_the_sentence():
    text = advice("shape", sizes=(64, 128, 256)).loc["compile"]["evidence"]
    assert "Padded to 64, 128 and 256, all sizes need 3 programs." in text


def test_when_there_is_no_finding():
    assert "compile" not in advice("shape", ms=2.9).index
    assert "compile" not in advice("shape", steps=1).index
    assert "compile" not in advice("shape", goes_on=False).index


def test_two_dimensions_that_vary_are_not_padded():
    sizes = [(10, 20), (11, 21), (12, 22), (13, 23), (14, 24)]
    rows = [
        compilation(step, shape("{},{}".format(*sizes[step]), "{},{}".format(*sizes[step + 1])))
        for step in range(4)
    ]
    assert found(*rows).costliest.sizes == ()


def test_functions_that_are_traced_again_state_the_cause():
    group = again.Group("tensorflow", "step", "train.py:7", "python_value", "n", "n is 3", 4)
    known = again.Again(4, 5.0, True, group, 5.0)
    findings = advised(**traced(20.0, 3.0), evidence=Evidence(compiled_again=known))
    finding = findings.loc["tf_function"]
    assert "compiled again **4 times** in the cell" in finding["evidence"]
    assert "tf.constant(lr)" in finding["fix"]
    assert "compile" not in findings.index
