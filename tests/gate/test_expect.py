"""A chain of expectations: what passes, what fails, what is unknown, and that none goes by
unseen.
"""

import json
import platform
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.analysis.steps.bare import BareSteps
from nbprof.capture.machine import machine
from nbprof.core.errors import NbprofError
from nbprof.gate import policy
from nbprof.gate.baseline import Baseline, machine_difference
from nbprof.gate.expect import ExpectationFailed, expect
from nbprof.gate.limits import amount, fraction
from nbprof.gate.record import Repeated, record
from nbprof.profiles.load import read
from nbprof.sources.recording import CaptureInfo
from tests.gate.gpu import trained
from tests.support import kineto

CPU = kineto.Path(__file__).parents[1] / "data" / "torch" / "cpu_ops.pt.trace.json.gz"
HERE = {"cpu": "Some CPU", "cores": "8"}


def timed(folder, means, *, machine=HERE, seed=0, bare=None, options=None, **more):
    """Repeats with recorded step times that vary by 1 % around some means, in ms, and as many
    steps without the profiler around `bare`, if that is given.
    """
    rng = np.random.default_rng(seed)
    profiles = []
    for i, mean in enumerate(means):
        profile = trained(folder / str(i), **more)
        steps = profile.run.steps
        frame = pd.concat([steps] * 5, ignore_index=True)
        profile.run.memo.values["steps"] = frame.assign(
            step_time_ms=mean * (1 + 0.01 * rng.standard_normal(len(frame))), counted=True
        )
        profile.run.capture = CaptureInfo(machine=dict(machine), options=dict(options or {}))
        if bare is not None:
            times = bare * (1 + 0.01 * rng.standard_normal(20))
            profile.run.memo.values["bare_steps"] = BareSteps(20, bare, durations_ms=times)
        profiles.append(profile)
    return Repeated(profiles)


def outcomes(chain):
    return {one.check: one.outcome for one in chain.judge()}


def test_it_is_in_the_package():
    assert nbprof.expect is expect


def test_all_that_failed_is_said_at_once(tmp_path):
    chain = (
        expect(trained(tmp_path, kernels=3, syncs=2)).kernels(max=2).launches(max=3).syncs(max=0)
    )
    with pytest.raises(ExpectationFailed) as caught:
        chain.verify()
    assert str(caught.value).splitlines() == [
        "2 of 3 expectations not met",
        "  fail: kernels per step: 3, at most 2 allowed",
        "  fail: waits of the host for the device per step: 2, at most 0 allowed",
    ]


def test_what_is_met_passes(tmp_path):
    chain = (
        expect(trained(tmp_path))
        .kernels(max=3)
        .launches(max=3)
        .syncs(max=0)
        .recompiles(max=0)
        .pageable_copies(max=0)
        .dropped(max=0)
    )
    assert [one.outcome for one in chain.verify()] == ["pass"] * 6


@pytest.mark.parametrize(
    ("check", "more"),
    [
        ("kernels", {"extra": "stray"}),
        ("launches", {"extra": "stray"}),
        ("syncs", {"syncs": 1}),
        ("recompiles", {"compiled_in": 2}),
    ],
)
def test_one_more_than_the_baseline_has_is_caught(tmp_path, check, more):
    path = tmp_path / "step.json"
    expect(trained(tmp_path / "before"), update="new").against(path).kernels().verify()
    assert outcomes(getattr(expect(trained(tmp_path / "same")).against(path), check)()) == {
        check: "pass"
    }
    with pytest.raises(ExpectationFailed):
        getattr(expect(trained(tmp_path / "after", **more)).against(path), check)().verify()


def test_a_failure_names_the_kernels_that_changed(tmp_path):
    path = tmp_path / "step.json"
    expect(trained(tmp_path / "before"), update="new").against(path).kernels().verify()
    with pytest.raises(
        ExpectationFailed, match=r"stray: 0 → 0\.25 calls per step \(new\)"
    ) as caught:
        expect(trained(tmp_path / "after", extra="stray")).against(path).kernels().verify()
    assert "gemm" not in str(caught.value)


def test_unknown_is_neither_passed_nor_zero():
    chain = expect(read(CPU)).kernels(max=410)
    (one,) = chain.judge()
    assert (one.outcome, one.value) == ("unknown", None)
    assert "no device was recorded" in one.text or "no steps" in one.text
    with pytest.warns(RuntimeWarning, match="kernels is unknown"):
        expect(read(CPU)).kernels(max=410).verify()
    with pytest.raises(ExpectationFailed, match="unknown"):
        expect(read(CPU), unknown="fail").kernels(max=410).verify()
    with pytest.raises(ExpectationFailed, match="unknown"):
        expect(read(CPU)).kernels(max=410, unknown="fail").verify()


def test_on_ci_what_is_unknown_fails_unless_it_is_said_otherwise(monkeypatch):
    assert policy.default_unknown() == "warn"
    monkeypatch.setenv("CI", "true")
    assert policy.default_unknown() == "fail"
    with pytest.raises(NbprofError, match="not 'pass'"):
        expect(read(CPU), unknown="pass")


def test_doubts_make_what_is_within_its_limit_unknown_and_nothing_else(tmp_path):
    profile = trained(tmp_path, kernels=3)
    profile.run.as_read.receipt.skip("left out: no time (ts).", 7, key="test")
    found = outcomes(expect(profile).kernels(max=3).launches(max=2).dropped(max=0))
    # Events that are missing only make counts smaller.
    assert found == {"kernels": "unknown", "launches": "fail", "dropped": "fail"}


def test_a_baseline_that_is_missing_fails_and_says_how_to_write_it(tmp_path):
    with pytest.raises(
        ExpectationFailed, match=r"there is no baseline .*step\.json: pytest --nbprof-update"
    ):
        expect(trained(tmp_path)).against(tmp_path / "step.json").kernels().verify()


def test_a_check_that_needs_a_baseline_without_one_is_bad_use(tmp_path):
    for chain in (
        expect(trained(tmp_path)).kernels(),
        expect(trained(tmp_path)).step_time(slower="5 %"),
    ):
        with pytest.raises(NbprofError, match=r"add \.against\(path\) to the chain"):
            chain.verify()


def test_a_chain_without_checks_is_bad_use(tmp_path):
    with pytest.raises(NbprofError, match="checks nothing"):
        expect(trained(tmp_path)).verify()


def test_a_chain_that_nobody_verifies_warns(tmp_path, capsys):
    chain = expect(trained(tmp_path)).kernels(max=0)
    with pytest.warns(RuntimeWarning, match=r"test_expect\.py:\d+: .*never verified"):
        del chain
    assert "never verified" in capsys.readouterr().err


def test_a_with_block_and_an_assertion_verify(tmp_path):
    profile = trained(tmp_path)
    with pytest.raises(ExpectationFailed), expect(profile) as chain:
        chain.kernels(max=1)
    with pytest.raises(ExpectationFailed):
        assert expect(profile).kernels(max=1)
    # What the block itself raises is not hidden by what it expected.
    with pytest.raises(ZeroDivisionError), expect(profile).kernels(max=1):
        _ = 1 / 0


def test_what_is_added_after_verifying_is_verified_too(tmp_path):
    chain = expect(trained(tmp_path)).kernels(max=3)
    chain.verify()
    chain.syncs(max=0)
    assert not chain.verified
    assert len(chain.verify()) == 2


@pytest.fixture
def baseline(tmp_path):
    """Writes a baseline of runs of 10 ms, at other times by 0.3 % more or less."""

    def write(levels=(10.0, 10.03, 9.97, 10.02, 9.99) * 2):
        path = tmp_path / "step.json"
        expect(timed(tmp_path / "first", levels[:1]), update="new").against(path).step_time(
            slower="5 %"
        ).verify()
        held = Baseline.read(path)
        for level in levels[1:]:
            held.add(
                Baseline(runs=[[one._replace(mean=level, typical=level) for one in held.runs[0]]])
            )
        held.write(path)
        policy.current().written.clear()
        return path

    return write


def test_a_slowdown_fails_and_names_both_times(tmp_path, baseline):
    path = baseline()
    assert outcomes(
        expect(timed(tmp_path / "b", [10.05] * 2, seed=1)).against(path).step_time(slower="5 %")
    ) == {"step_time": "pass"}
    said = r"typical step time: 10\.[67]\d* ms, \d+\.?\d* ms in the baseline: \+[567]\.\d ± \d\.\d % \(99 %; 10 runs in the baseline\)"
    with pytest.raises(ExpectationFailed, match=said):
        expect(timed(tmp_path / "c", [10.6] * 2, seed=2)).against(path).step_time(
            slower="5 %"
        ).verify()


def test_noise_that_is_too_large_is_unknown(tmp_path, baseline):
    path = baseline((9.0, 10.0, 11.0, 12.0, 10.5) * 2)
    (one,) = (
        expect(timed(tmp_path / "b", [9.0, 12.5])).against(path).step_time(slower="5 %").judge()
    )
    assert one.outcome == "unknown"
    assert "noise between runs is too large" in one.text


@pytest.fixture
def bare_baseline(tmp_path):
    """Writes a baseline of runs of 10 ms without the profiler and 15 ms with it."""

    def write(*, count=10, options=None):
        path = tmp_path / "bare.json"
        first = timed(tmp_path / "first bare", [15.0] * 2, bare=10.0, options=options)
        expect(first, update="new").against(path).step_time(slower="5 %").verify()
        held = Baseline.read(path)
        for number in range(1, count):
            factor = 1 + 0.003 * (number % 3 - 1)
            held.add(
                Baseline(
                    runs=[[_scaled(one, factor) for one in held.runs[0]]],
                    bare_runs=[[_scaled(one, factor) for one in held.bare_runs[0]]],
                )
            )
        held.write(path)
        policy.current().written.clear()
        return path

    return write


def _scaled(one, factor):
    return one._replace(mean=one.mean * factor, typical=one.typical * factor)


def step_time(path, profile, **more):
    (one,) = expect(profile).against(path, **more).step_time(slower="5 %").judge()
    return one


def test_a_recording_that_costs_more_is_no_slowdown(tmp_path, bare_baseline):
    path = bare_baseline(options={"memory": False, "shapes": True})
    costly = timed(
        tmp_path / "b", [19.0] * 2, bare=10.0, options={"memory": True, "shapes": True}, seed=1
    )
    one = step_time(path, costly)
    assert (one.outcome, one.steps_are) == ("pass", "bare")
    assert one.value == pytest.approx(10, rel=0.01)
    assert one.limit == pytest.approx(10.5, rel=0.01)
    assert "step time without recording: " in one.text
    assert "; recorded: 1" in one.text
    # Recorded steps of other options are not compared.
    recorded = timed(tmp_path / "c", [15.0] * 2, options={"memory": True, "shapes": True})
    one = step_time(path, recorded)
    assert (one.outcome, one.steps_are) == ("unknown", "recorded")
    assert "option memory False there, True here" in one.text


def test_a_slowdown_that_recordings_do_not_show_fails(tmp_path, bare_baseline):
    path = bare_baseline()
    one = step_time(path, timed(tmp_path / "b", [15.0] * 2, bare=11.0, seed=1))
    assert (one.outcome, one.steps_are) == ("fail", "bare")
    assert "typical step time without recording: 11" in one.text
    assert one.value == pytest.approx(11, rel=0.01)


def test_without_bare_steps_on_one_side_recorded_ones_are_compared_and_that_is_said(
    tmp_path, baseline, bare_baseline
):
    one = step_time(baseline(), timed(tmp_path / "b", [10.05] * 2, bare=20.0, seed=1))
    assert (one.outcome, one.steps_are) == ("pass", "recorded")
    assert one.text.endswith(
        "; compared are recorded steps: those without recording take 10 runs, and 0 runs of the"
        " baseline have them"
    )
    path = bare_baseline()
    one = step_time(path, timed(tmp_path / "c", [15.05] * 2, seed=2))
    assert (one.outcome, one.steps_are) == ("pass", "recorded")
    assert one.text.endswith(
        "; compared are recorded steps, for those without recording: the recording did not time"
        " the steps of the cell"
    )
    one = step_time(path, timed(tmp_path / "d", [18.0] * 2, seed=2))
    assert (one.outcome, one.steps_are) == ("fail", "recorded")


def test_as_many_calls_are_timed_without_the_profiler_as_are_recorded():
    calls = []
    recorded = record(lambda: calls.append(1), steps=9, warmup=2, repeats=1, backend="python")
    clock = recorded.steps.clock
    assert len(calls) == 2 + 9 + 10
    assert clock["recorded"].tolist() == [False] * 9 + [True] * 10
    assert recorded.run.steps["counted"].sum() == 9


def test_bare_times_are_written_and_added_beside_the_recorded_ones(tmp_path, bare_baseline):
    path = tmp_path / "new.json"
    (one,) = (
        expect(timed(tmp_path / "a", [15.0] * 2, bare=10.0), update="new")
        .against(path)
        .step_time(slower="5 %")
        .verify()
    )
    assert "ms without recording, 1" in one.text
    policy.current().written.clear()
    expect(timed(tmp_path / "b", [15.0] * 2), update="add").against(path).step_time(
        slower="5 %"
    ).verify()
    held = Baseline.read(path)
    assert [len(run) for run in held.runs] == [2, 2]
    assert [len(run) for run in held.bare_runs] == [2, 0]
    assert len(held.timed_bare) == 1
    assert held.bare_runs[0][0].mean == pytest.approx(10, rel=0.01)
    assert Baseline.read(path).text() == path.read_text()
    # Too few of them are not compared.
    one = step_time(bare_baseline(count=9), timed(tmp_path / "c", [15.0] * 2, bare=10.0))
    assert (one.outcome, one.steps_are) == ("unknown", "bare")
    assert "9 runs" in one.text


def test_times_of_another_machine_are_unknown_and_not_passed(tmp_path, baseline):
    path = baseline()
    elsewhere = timed(tmp_path / "b", [10.0] * 2, machine={**HERE, "cpu": "Another CPU"})
    (one,) = expect(elsewhere).against(path).step_time(slower="5 %").judge()
    assert one.outcome == "unknown"
    assert "cpu Some CPU there, Another CPU here" in one.text
    assert outcomes(expect(elsewhere).against(path, same_machine=True).step_time(slower="5 %")) == {
        "step_time": "pass"
    }
    nowhere = timed(tmp_path / "c", [10.0] * 2, machine={})
    (one,) = expect(nowhere).against(path).step_time(slower="5 %").judge()
    assert one.outcome == "unknown"
    assert "does not identify the machine" in one.text
    before = path.read_text()
    with pytest.raises(NbprofError, match="were not added"):
        expect(elsewhere, update="add").against(path).step_time(slower="5 %").verify()
    assert path.read_text() == before


def test_a_baseline_of_few_runs_says_nothing_of_times(tmp_path, baseline):
    path = baseline((10.0,) * 9)
    (one,) = expect(timed(tmp_path / "b", [10.0] * 5)).against(path).step_time(slower="5 %").judge()
    assert one.outcome == "unknown"
    assert "9 runs, and the noise between runs takes 10: --nbprof-add adds one" in one.text


def test_a_run_that_is_added_changes_no_count(tmp_path):
    path = tmp_path / "step.json"
    expect(timed(tmp_path / "a", [10.0] * 2), update="new").against(path).kernels().verify()
    counts = Baseline.read(path).counts
    # Each recorded step stands for five there.
    policy.current().written.clear()
    with pytest.raises(ExpectationFailed, match=r"0\.8, 0\.6 in the baseline"):
        expect(timed(tmp_path / "b", [10.0] * 2, kernels=4), update="add").against(
            path
        ).kernels().verify()
    assert Baseline.read(path).counts == counts
    assert len(Baseline.read(path).runs) == 1, "these are step times of other code"
    expect(timed(tmp_path / "c", [10.0] * 2), update="add").against(path).kernels().verify()
    assert Baseline.read(path).counts == counts
    assert len(Baseline.read(path).runs) == 2


def test_the_last_twenty_runs_are_kept(tmp_path):
    held = Baseline.of([run.run for run in timed(tmp_path, [10.0] * 2).repeats])
    for number in range(25):
        held.add(Baseline(runs=[[held.runs[0][0]._replace(steps=number)]]))
    assert [run[0].steps for run in held.runs] == list(range(5, 25))


def test_times_of_a_recording_in_doubt_are_not_compared_nor_kept(tmp_path):
    path = tmp_path / "step.json"
    doubtful = timed(tmp_path / "a", [10.0] * 5)
    doubtful.repeats[3].run.as_read.receipt.skip("left out: no time (ts).", 7, key="test")
    assert outcomes(expect(doubtful, update="new").against(path).step_time(slower="5 %")) == {
        "step_time": "unknown"
    }
    assert Baseline.read(path).runs == []
    assert "kernels" not in Baseline.read(path).counts


def test_a_baseline_is_sorted_and_reads_back(tmp_path):
    path = tmp_path / "deep" / "step.json"
    expect(timed(tmp_path / "a", [10.0] * 3), update="new").against(path).kernels().verify()
    text = path.read_text()
    values = json.loads(text)
    assert list(values["counts"]) == sorted(values["counts"])
    assert [row["kernel"] for row in values["kernels"]] == ["gemm_0", "gemm_1", "gemm_2"]
    assert max(map(len, text.splitlines())) < 140
    assert Baseline.read(path).text() == text
    # Times are kept to five digits, which is far below any noise.
    assert values["runs"][0][0]["mean"] == float(f"{values['runs'][0][0]['mean']:.5g}")


def test_only_the_largest_names_are_kept(tmp_path):
    trace = kineto.Kineto()
    trace.step(1, 1000, 900)
    for i in range(120):
        trace.launched(f"kernel_{i:03}", 1001 + i, 1200 + 5 * i, 1 + i / 100)
    profile = kineto.profile(tmp_path, trace)
    found = Baseline.of([profile.run])
    assert found.truncated
    assert 50 <= len(found.kernels) <= 100
    # None of the kernels that were left out is called new.
    assert found.changes(profile.run, "kernels", "calls") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"nbprof_baseline": 1, "counts": {"kernels": "x"}}',
        '{"nbprof_baseline": 9}',
    ],
)
def test_a_damaged_baseline_says_so(tmp_path, text):
    path = tmp_path / "step.json"
    path.write_text(text)
    with pytest.raises(NbprofError, match=r"step\.json.*--nbprof-update"):
        expect(trained(tmp_path)).against(path).kernels().verify()


def test_two_expectations_may_not_write_one_baseline(tmp_path):
    profile = trained(tmp_path)
    expect(profile, update="new").against(tmp_path / "step.json").kernels().verify()
    with pytest.raises(NbprofError, match="a separate baseline"):
        expect(profile, update="new").against(tmp_path / "step.json").kernels().verify()


def test_machines_are_the_same_only_if_all_that_is_known_is():
    assert machine_difference({"cpu": "a"}, {"cpu": "a"}) == ""
    assert "driver unknown there, 550 here" in machine_difference(
        {"cpu": "a"}, {"cpu": "a", "driver": "550"}
    )


def test_limits_are_read_as_people_write_them():
    assert [
        amount(text, "peak_memory")
        for text in ("1.2 GB", "1 GiB", "512MiB", "410", 410, "1e9", "2 TFLOP", "1,200,000")
    ] == [
        *(1.2e9, 2**30, 2**29, 410, 410, 1e9, 2e12, 1.2e6),
    ]
    assert fraction("5 %", "step_time") == fraction("5%", "step_time") == 0.05
    for bad in ("many", -1, True, "1.2 XB", float("nan"), "-3", "1,2 GB"):
        with pytest.raises(NbprofError, match="is not a limit"):
            amount(bad, "kernels")
    for bad in ("5", 0.05, "0 %", "-5 %"):
        with pytest.raises(NbprofError, match="is not a percentage"):
            fraction(bad, "step_time")


def test_outcomes_have_value_and_limit(tmp_path):
    found = expect(trained(tmp_path, kernels=3)).kernels(max=2).flops(max=1).judge()
    assert [(one.check, one.outcome, one.value, one.limit) for one in found] == [
        ("kernels", "fail", 3.0, 2.0),
        ("flops", "unknown", None, 1.0),
    ]


def test_an_update_needs_a_file(tmp_path):
    with pytest.raises(NbprofError, match="names no file"):
        expect(trained(tmp_path, kernels=3), update="new").kernels(max=3).verify()


BUSY = {"cores": 2.0, "own_cores": 1.0, "other_cores": 0.5, "waited_percent": 30.0}


def test_recordings_that_other_processes_disturbed_count_for_nothing(tmp_path, baseline):
    path = tmp_path / "other.json"
    before = timed(tmp_path / "a", [10.0, 30.0, 10.0])
    before.repeats[1].run.capture.contention = dict(BUSY)
    expect(before, update="new").against(path).step_time(slower="5 %").verify()
    assert [round(one.typical) for one in Baseline.read(path).runs[0]] == [10] * 2
    after = timed(tmp_path / "b", [10.6] * 2, seed=1)
    path = baseline()
    assert outcomes(expect(after).against(path).step_time(slower="5 %")) == {"step_time": "fail"}
    for profile in after.repeats:
        profile.run.capture.contention = dict(BUSY)
    (one,) = expect(after).against(path).step_time(slower="5 %").judge()
    assert one.outcome == "unknown"
    assert (
        "other processes interfered with 2 of 2 recordings: other processes used 0.5 of the 2 cores"
        in one.text
    )


def test_a_baseline_that_is_much_too_slow_is_said_to_hide_slowdowns(tmp_path, baseline):
    (one,) = (
        expect(timed(tmp_path / "b", [8.0] * 2)).against(baseline()).step_time(slower="5 %").judge()
    )
    assert one.outcome == "pass"
    assert "write the baseline again" in one.text


def test_what_a_recording_says_of_its_machine_is_plain_text():
    assert CaptureInfo.from_dict({"machine": {"cpu": 3, "cores": "8"}}).machine == {"cores": "8"}
    assert machine().keys() >= {"cpu", "cores", "python"}
    assert platform.node() not in machine().values()


def test_hosts_that_were_read_apart_have_no_counts_of_a_step(tmp_path):
    paths = []
    for rank in range(2):
        trained(tmp_path / str(rank), name=f"rank{rank}", kernels=3 + rank)
        paths.append(tmp_path / str(rank) / f"rank{rank}.pt.trace.json")
    with ThreadPoolExecutor(1) as pool:
        apart = read([str(path) for path in paths], executor=pool)
        (one,) = expect(apart).kernels(max=10).judge()
    assert one.outcome == "unknown"
    assert "p.rank(0)" in one.text
