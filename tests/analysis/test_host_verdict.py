"""What bounds a program on the host: compute, overhead, Python, waiting; and what is advised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.tables import CostParts, CostRuns
from nbprof.analysis import cpu
from nbprof.analysis.advice import advice
from nbprof.analysis.advice.evidence import Evidence, HostUse
from nbprof.analysis.advice.host import NAMES
from nbprof.analysis.ops.torch_runtime import Runtime
from nbprof.analysis.python import PythonUse, TopFunction
from nbprof.analysis.verdict import in_location, verdict
from tests.support.kineto import Kineto, profile

AUGMENT = TopFunction("augment", "Cell [3]", 12, "", 0.61, 0.5)
QR = TopFunction("<module>", "Cell [4]", 2, "numpy.linalg.qr", 0.9, 0.9)
QUIET = {"cores": 2.0, "own_cores": 1.9, "other_cores": 0.0, "waited_percent": 1.0}


def on_cpu(self_us: float, *, calls: int = 10, idle_us: float = 0.0) -> Kineto:
    """Marked steps, each of some ops that take a time of their own, in a wrapper that takes 5 µs
    more for each, and time without ops.
    """
    k = Kineto()
    length = calls * (self_us + 5) + idle_us
    for number in range(12):
        begin = number * length
        k.step(number, begin, length)
        for call in range(calls):
            at = begin + call * (self_us + 5)
            k.op("aten::linear", at, self_us + 5)
            k.op("aten::addmm", at + 2, self_us)
    return k


def test_ops_that_take_their_time_are_compute(tmp_path):
    run = profile(tmp_path, on_cpu(100)).run
    found = cpu.split(cpu.totals(run.activity, run.steps))
    assert found is not None
    assert found.compute == pytest.approx(100 / 105)
    assert (found.op_calls, found.tiny_calls) == (20, 10)
    assert (found.top_op, found.top_percent) == ("aten::addmm", pytest.approx(100))
    o = run.overview
    assert (o["verdict"], o["bound"]) == ("Compute-bound", "host_compute")
    assert o["verdict_text"] == "95% of step time is spent in ops that compute"
    assert "100% of it in aten::addmm" in o["verdict_detail"]


def test_ops_that_are_done_before_they_are_worth_it_are_overhead(tmp_path):
    o = profile(tmp_path, on_cpu(6)).overview
    assert o["verdict"] == "Overhead-bound"
    assert "of the 20 ops per step, 20 take less than 20 µs" in o["verdict_detail"]


def test_an_op_that_runs_on_in_the_next_step_computes_in_both(tmp_path):
    # In each step of 1 ms the thread dispatches; the op of the first runs for 1.5 ms on another one.
    k = Kineto()
    for number in range(2):
        k.step(number, 1000 * number, 1000)
        k.op("aten::dispatch", 1000 * number, 15)
    k.op("aten::sort", 20, 1500, tid=2)
    run = profile(tmp_path, k).run
    totals = cpu.totals(run.activity, run.steps)
    assert totals["compute"] == pytest.approx(1500e6)
    # The other dispatch is beside the op.
    assert totals["overhead"] == pytest.approx(15e6)
    # It is one call.
    assert (totals["calls"], totals["steps"]) == (3, 2)


def test_there_is_no_split_beside_a_device(tmp_path):
    k = on_cpu(100)
    k.launched("gemm", 10, 20, 30)
    run = profile(tmp_path, k).run
    assert cpu.totals(run.activity, run.steps) is None
    assert run.overview["verdict"] == "Host-bound"


def python(run, **parts: float):
    """The breakdown of a run with what Python did in the time without ops."""
    use = PythonUse(0.0, 0.0, 0.0, 0.0, AUGMENT, QR, QR)._replace(**parts)
    return replace(run._breakdown, unexplained=use, contention=QUIET)


@pytest.mark.parametrize(
    ("parts", "title", "says"),
    [
        ({"python": 1.0}, "Python-bound", "61% of it in augment, Cell [3] line 12."),
        (
            {"library": 1.0},
            "Compute-bound",
            "90% of it in numpy.linalg.qr, called in line 2 of Cell [4]. 1.9 of 2 cores were busy with it.",
        ),
        (
            {"waiting": 1.0},
            "Waiting",
            "90% of it in numpy.linalg.qr, called in line 2 of Cell [4].",
        ),
        (
            {"python": 0.4, "library": 0.35, "waiting": 0.25},
            "No single bottleneck",
            "Next is compute on the host with 30%.",
        ),
    ],
)
def test_time_without_ops_is_what_python_did(tmp_path, parts, title, says):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=85)).run
    answer = verdict(python(run, **parts))
    assert answer.title == title
    assert says in answer.detail
    assert "often Python" not in answer.fact


def test_few_samples_make_the_verdict_less_sure(tmp_path):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=85)).run
    few, many = (verdict(python(run, python=1.0, samples=count)) for count in (19, 20))
    assert (
        "Python stacks were sampled only 19 times outside ops: a longer recording says more of that time"
        in str(few.evidence)
    )
    assert "sampled only" not in str(many.evidence)
    levels = ("low", "medium", "high")
    assert levels.index(few.confidence) == levels.index(many.confidence) - 1


def test_library_code_and_ops_that_compute_count_together(tmp_path):
    run = profile(tmp_path, on_cpu(35, calls=1, idle_us=60)).run
    answer = verdict(python(run, python=0.5, library=0.5))
    assert answer.title == "Compute-bound"
    assert answer.fact == (
        "65% of step time is spent in ops that compute (35%) and in compiled library code (30%)"
    )
    # What takes most of the ops does not take as much of both.
    assert "of it in" not in answer.detail


def test_a_machine_that_others_use_is_said_first_and_the_rest_after_it(tmp_path):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=85)).run
    busy = {"cores": 2.0, "own_cores": 0.3, "other_cores": 1.7, "waited_percent": 80.0}
    answer = verdict(replace(python(run, python=1.0), contention=busy))
    assert answer.title == "Contended"
    assert "85% of step time is Python code" in answer.detail
    calm = replace(python(run, python=1.0), contention={**busy, "waited_percent": 40.0})
    assert verdict(calm).title == "Python-bound"


def test_a_program_that_waits_without_a_core_is_not_slowed_by_other_processes(tmp_path):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=85)).run
    busy = {"cores": 2.0, "own_cores": 0.0, "other_cores": 1.7, "waited_percent": 80.0}
    asleep, starved = (python(run, waiting=1.0, blocked=part) for part in (0.9, 0.1))
    answer = verdict(replace(asleep, contention=busy))
    assert answer.title == "Waiting"
    assert "Expect" not in answer.detail
    # Little CPU time says nothing where others take the cores.
    assert verdict(replace(starved, contention=busy)).title == "Contended"
    for found, contention, is_advised in (
        (asleep, busy, True),
        (starved, busy, False),
        (starved, QUIET, True),
    ):
        host = HostUse(found.host_parts, found.unexplained, found.cpu, contention)
        assert ("host_waits" in findings(run, host)) is is_advised


def test_the_share_is_that_of_what_is_named():
    line = TopFunction("<module>", "Cell [3]", 6, "", 1.0, 0.7)
    call = TopFunction("augment", "Cell [3]", 12, "numpy.linalg.qr", 0.9, 0.6)
    assert in_location(line) == ", 70% of it in line 6 of Cell [3]"
    assert in_location(call) == (
        ", 60% of it in numpy.linalg.qr, called in augment, Cell [3] line 12"
    )
    assert in_location(AUGMENT) == ", 61% of it in augment, Cell [3] line 12"
    assert in_location(None) == ""


def findings(run, host: HostUse) -> dict[str, float]:
    frames = (
        run.answer,
        run.steps_summary,
        run.tf_data.pipelines,
        run.tf_data.nodes,
        run.kernels_in_steps,
    )
    found = advice.advice(*frames, Runtime(), Evidence(host=host))
    found = found[found["rule"].isin(NAMES)]
    return dict(zip(found["rule"], found["gain_ms_per_step"], strict=True))


def test_python_code_is_advised_to_be_vectorized_with_its_line(tmp_path):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=85)).run
    found = python(run, python=1.0)
    host = HostUse(found.host_parts, found.unexplained, found.cpu, QUIET)
    assert findings(run, host)["python_code"] == pytest.approx(0.085)


def test_tiny_ops_are_advised_to_be_compiled_and_long_ones_are_not(tmp_path):
    run = profile(tmp_path, on_cpu(6)).run
    host = HostUse(run._breakdown.host_parts, None, run._breakdown.cpu, QUIET)
    assert set(findings(run, host)) == {"tiny_ops"}
    run = profile(tmp_path, on_cpu(100)).run
    host = HostUse(run._breakdown.host_parts, None, run._breakdown.cpu, QUIET)
    assert findings(run, host) == {}


def test_framework_code_outside_of_ops_is_named_and_is_no_case_of_tiny_ops(tmp_path):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=5000)).run
    collate = TopFunction("collate", "Cell [2]", 2, "torch.tensor", 0.9, 0.9)
    use = PythonUse(0.1, 0.0, 0.9, 0.0, None, None, None, collate)
    found = replace(run._breakdown, unexplained=use)
    answer = verdict(found)
    assert answer.title == "Overhead-bound"
    assert answer.fact == "90% of step time is spent in the framework, outside ops"
    assert "90% of it in torch.tensor, called in collate, Cell [2] line 2" in answer.detail
    assert "tiny_ops" not in findings(run, HostUse(found.host_parts, use, found.cpu, QUIET))


def test_products_in_float32_are_advised_to_be_bfloat16_where_the_cpu_has_it(tmp_path):
    run = profile(tmp_path, on_cpu(100)).run
    parts, split = run._breakdown.host_parts, run._breakdown.cpu
    step_ms = run._breakdown.mean_ms
    able = HostUse(parts, None, split, QUIET, products=cpu.Products(60.0, 5e9), bf16="avx512_bf16")
    assert findings(run, able)["cpu_bf16"] == pytest.approx(0.3 * step_ms)
    assert "cpu_bf16" not in findings(run, replace(able, bf16=""))
    assert "cpu_bf16" not in findings(run, replace(able, products=cpu.Products(60.0, 1e8)))


def test_products_are_counted_in_steps_and_only_in_32_bit(tmp_path):
    ms = 10**9
    parts = CostParts(
        name=["aten::mm", "aten::mm", "aten::add"],
        category="",
        shapes="",
        precision=["float32", "bfloat16", "float32"],
        product=[True, True, False],
        host=0,
    )
    runs = CostRuns(
        host=0,
        device=-1,
        start=[0, 2 * ms, 4 * ms, 50 * ms],
        own=[2 * ms, 2 * ms, 2 * ms, 9 * ms],
        alone=0,
        part=[0, 1, 2, 0],
        flops=5.0,
        bytes=np.nan,
        recomputed=False,
    )
    recorded = profile(tmp_path, on_cpu(100)).run.activity
    steps = pd.DataFrame({"start_ms": [0.0], "step_time_ms": [10.0]})
    assert cpu.products(recorded, steps) == cpu.NO_PRODUCTS
    recorded.cost_runs, recorded.cost_parts = runs, parts
    assert cpu.products(recorded, steps) == pytest.approx((20.0, 5.0))


def test_cores_without_work_are_named_where_the_program_computes(tmp_path):
    run = profile(tmp_path, on_cpu(100)).run
    idle = {"cores": 8.0, "own_cores": 1.0, "other_cores": 0.2}
    host = HostUse(
        run._breakdown.host_parts, None, run._breakdown.cpu, idle, products=cpu.Products(90.0, 2e9)
    )
    assert set(findings(run, host)) == {"idle_cores"}
    assert findings(run, replace(host, products=cpu.NO_PRODUCTS)) == {}
    taken = replace(host, contention={**idle, "other_cores": 6.0})
    assert findings(run, taken) == {}
