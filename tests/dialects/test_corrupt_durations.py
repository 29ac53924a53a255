"""Durations that cannot be count with what they are at most, are named in a warning, and make no
finding; long and overlapping work is left.
"""

from __future__ import annotations

import pytest

import nbprof
from nbprof.dialects.corrupt import RECORDED
from tests.fuzz.values import jax_loop
from tests.support import build, nsys
from tests.support.kineto import Kineto, load, profile

STEPS, KERNELS, KERNEL_US, BEGIN = 6, 20, 40.0, 500.0
STEP_US = KERNELS * 50.0


def training(
    long: dict[int, float] | None = None, *, rank: int | None = None, wait: bool = False
) -> Kineto:
    """Steps of 20 kernels of 40 µs, one every 50 µs; of some kernels, counted over all steps,
    another duration is stated.
    """
    k = (
        Kineto()
        if rank is None
        else Kineto(distributedInfo={"backend": "gloo", "rank": rank, "world_size": 2})
    )
    given = long or {}
    for step in range(STEPS):
        k.step(step, BEGIN + step * STEP_US, STEP_US)
        for i in range(KERNELS):
            at = BEGIN + step * STEP_US + 50 * i
            nth = step * KERNELS + i
            op = k.op("aten::mm" if i % 2 else "aten::add", at, 8)
            k.launched("gemm" if i % 2 else "add", at + 2, at + 9, given.get(nth, KERNEL_US), op)
    if wait:
        k.call("cudaDeviceSynchronize", BEGIN + STEPS * STEP_US, 10)
    return k


def step_times(p) -> list[float]:
    return p.steps.frame["step_time_ms"].round(3).tolist()


def kernel_total_us(p) -> float:
    return float(p.kernels.by_name()["total_us"].sum())


def warnings(p) -> list[str]:
    return [note.text for note in p.receipt.lines if note.level == "warning"]


@pytest.mark.parametrize(
    "long",
    [
        {30: 3_000_000.0},
        {5: 3_000_000.0, 50: 3_000_000.0, 51: 3_000_000.0},
        {7: 20_000.0},
        # The last of its stream, and the one before.
        {STEPS * KERNELS - 1: 3_000_000.0},
        {STEPS * KERNELS - 2: 3_000_000.0},
        {STEPS * KERNELS - 2: 3_000_000.0, STEPS * KERNELS - 1: 3_000_000.0},
    ],
)
@pytest.mark.parametrize("wait", [False, True])
def test_a_duration_that_cannot_be_is_in_no_sum(tmp_path, long, wait):
    sound, p = (
        profile(folder(tmp_path, name), training(given, wait=wait))
        for name, given in (("sound", None), ("corrupt", long))
    )
    assert step_times(p) == step_times(sound) == [1.0] * STEPS
    assert kernel_total_us(p) == pytest.approx(STEPS * KERNELS * KERNEL_US)
    assert p.overview["verdict"] == sound.overview["verdict"]
    assert p.overview["device_busy_percent"] == pytest.approx(sound.overview["device_busy_percent"])
    assert p.run.recorded_s == pytest.approx(sound.run.recorded_s)
    assert [finding["rule"] for finding in p.advice.to_dict("records")] == [
        finding["rule"] for finding in sound.advice.to_dict("records")
    ]
    (text,) = set(warnings(p)) - set(warnings(sound))
    count = (
        f"{len(long)} device event{'s' if len(long) > 1 else ''} ({len(long)} on GPU 0, stream 7: "
    )
    assert text.startswith(count)
    assert (
        f"{sum(long.values()) / 1e3 - 0.04 * len(long):,.2f} ms are left out of all figures" in text
    )
    assert "overlapping_events" not in set(p.receipt.notes["key"])


def folder(tmp_path, name):
    out = tmp_path / name
    out.mkdir()
    return out


def test_what_the_file_states_stays_with_the_event(tmp_path):
    p = profile(tmp_path, training({30: 3_000_000.0}))
    (row,) = p.run.trace.args[RECORDED].event.tolist()
    assert p.run.trace.args[RECORDED].floats().tolist() == [3_000_000.0]
    assert p.run.trace.events.duration[row] == 40_000_000


def test_a_profile_opens_again_as_it_did(tmp_path, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE", str(folder(tmp_path, "cache")))
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(training({30: 3_000_000.0}).encode())
    seen = []
    for _ in range(2):
        p = load(path)
        seen.append(
            (p.text().partition("\n")[2], str(p.receipt), step_times(p), kernel_total_us(p))
        )
    assert seen[0] == seen[1]
    assert seen[0][2] == [1.0] * STEPS


def test_each_stream_and_rank_is_named(tmp_path):
    other = training({30: 3_000_000.0}, rank=1)
    other.op("aten::relu", 1, 1)
    p = profile(tmp_path, training(rank=0), other)
    assert any("1 on rank 1, GPU 0, stream 7: add" in text for text in warnings(p))
    assert step_times(p) == [1.0] * 2 * STEPS


def test_a_long_kernel_is_left_as_it_is(tmp_path):
    k = training()
    begin = BEGIN + STEPS * STEP_US
    for step in range(STEPS, STEPS + 3):
        k.step(step, begin, 31_000)
        for i in range(4):
            # 10 ms each, of a kernel that else takes 40 µs, one behind the other.
            k.launched(
                "gemm", begin + i, begin + 20 + 7_700 * i, 7_600, k.op("aten::mm", begin + i, 1)
            )
        begin += 31_000
    p = profile(tmp_path, k)
    assert kernel_total_us(p) == pytest.approx(STEPS * KERNELS * KERNEL_US + 12 * 7_600)
    assert not warnings(p)


def test_a_long_kernel_at_the_end_for_which_the_host_waits_is_left_as_it_is(tmp_path):
    k = training({STEPS * KERNELS - 1: 300_000.0})
    k.call("cudaDeviceSynchronize", BEGIN + STEPS * STEP_US, 300_000)
    p = profile(tmp_path, k)
    assert step_times(p)[-1] == pytest.approx(300.959, abs=0.01)
    assert not warnings(p)


@pytest.mark.parametrize("overlap", [1.0, 45.0, 900.0])
def test_dependent_launches_overlap(tmp_path, overlap):
    """Each begins while the one before still runs, and ends after it."""
    k = Kineto()
    for step in range(4):
        begin = BEGIN + step * 20_000.0
        k.step(step, begin, 20_000)
        for i in range(10):
            op = k.op("aten::mm", begin + 2 * i, 1)
            k.launched(
                "gemm",
                begin + 2 * i,
                begin + 100 + 1_500 * i - (overlap if i else 0),
                1_500 + (overlap if i else 0),
                op,
            )
    p = profile(tmp_path, k)
    assert RECORDED not in p.run.trace.args
    assert "overlapping_events" in set(p.receipt.notes["key"])


def test_nodes_of_a_graph_run_side_by_side(tmp_path):
    """A collective of 5 ms beside kernels of 20 µs, all of one replay and on its stream."""
    k = Kineto()
    for step in range(5):
        begin = BEGIN + step * 10_000.0
        k.step(step, begin, 10_000)
        launch = k.call("cudaGraphLaunch", begin + 5, 10, k.op("replay", begin + 1, 20))
        waits = 5_000.0 if step == 2 else 30.0
        k.kernel("ncclDevKernel_AllReduce", begin + 40, waits, launch)
        for i in range(100):
            k.kernel("gemm", begin + 45 + 22 * i, 20, launch)
    p = profile(tmp_path, k)
    assert RECORDED not in p.run.trace.args


def test_a_marker_that_reaches_over_the_next_steps_ends_where_the_next_begins(tmp_path):
    k = training()
    marker = next(e for e in k.events if e["name"] == "ProfilerStep#2")
    marker["dur"] = 3_000_000.0
    p = profile(tmp_path, k)
    assert step_times(p) == [1.0] * STEPS
    (text,) = warnings(p)
    assert text.startswith(
        "1 event of the host (1 on Host, main thread: ProfilerStep#2) has a duration of 3,000.00 ms"
    )


def test_an_op_that_ends_long_after_its_step_counts_as_other_calls_of_it(tmp_path):
    k = training()
    op = [e for e in k.events if e["name"] == "aten::add"][25]
    op["dur"] = 2_000_000.0
    p = profile(tmp_path, k)
    sound = profile(folder(tmp_path, "sound"), training())
    assert step_times(p) == [1.0] * STEPS
    host = ("host_compute_ms", "other_ms")
    assert p.steps.frame[[*host]].round(3).equals(sound.steps.frame[[*host]].round(3))
    assert any("1 event of the host" in text and "aten::add" in text for text in warnings(p))


@pytest.mark.parametrize("kernel", [20, 22])
def test_another_recorder(tmp_path, kernel):
    """Nsight Systems: a kernel of the main stream, or of the collectives' stream, states 2 s."""
    out = nsys.training(12)
    sound = nbprof.load(out.sqlite(tmp_path / "sound.sqlite"))
    row = out.tables["CUPTI_ACTIVITY_KIND_KERNEL"][kernel]
    row["end"] = row["start"] + 2_000_000_000
    p = nbprof.load(out.sqlite(tmp_path / "corrupt.sqlite"))
    assert step_times(p) == step_times(sound)
    assert kernel_total_us(p) == pytest.approx(kernel_total_us(sound))
    assert any("has a duration of 2,000.00 ms, which is impossible" in text for text in warnings(p))


@pytest.mark.parametrize("long", [{12: 3_000.0}, {0: 90.0, 31: 3_000.0}, {119: 3_000.0}])
def test_xspace_files(tmp_path, long):
    sound, p = (
        build.profile(folder(tmp_path, name), jax_loop(given))
        for name, given in (("sound", None), ("corrupt", long))
    )
    assert step_times(p) == step_times(sound)
    assert kernel_total_us(p) == pytest.approx(kernel_total_us(sound))
    assert p.overview["verdict"] == sound.overview["verdict"]
    assert any(
        text.startswith(f"{len(long)} device event") and "GPU 0, stream 2" in text
        for text in warnings(p)
    )


@pytest.mark.parametrize("later_us", [4_000_000.0, 3.6e9, -3.6e9])
@pytest.mark.parametrize("nth", [0, 30, STEPS * KERNELS - 1])
def test_a_time_that_cannot_be(tmp_path, later_us, nth):
    """The event is left out, and its step as one that lost work."""
    k = training(wait=True)
    event = [e for e in k.events if e.get("cat") == "kernel"][nth]
    for other in k.events:
        other["ts"] += 4e9
    event["ts"] += later_us
    p = profile(tmp_path, k)
    step = nth // KERNELS
    steps = p.steps.frame.set_index("step")
    assert steps["step_time_ms"].round(1).tolist() == [1.0] * STEPS
    assert steps.index[steps["lost"]].tolist() == [step]
    assert kernel_total_us(p) == pytest.approx((STEPS * KERNELS - 1) * KERNEL_US)
    assert any(
        text.startswith(
            "1 device event (1 on GPU 0, stream 7; 0.04 ms) begins at an impossible time"
        )
        for text in warnings(p)
    )


def test_a_marker_that_goes_on_behind_the_loop_is_not_averaged(tmp_path):
    k = training()
    marker = next(e for e in k.events if e["name"] == f"ProfilerStep#{STEPS - 1}")
    marker["dur"] = 3_000_000.0
    p = profile(tmp_path, k)
    assert p.steps.frame["counted"].tolist() == [True] * (STEPS - 1) + [False]
    assert p.overview["step_time_ms"] == pytest.approx(1.0)
    assert (
        "The last step was cut off by the end of the recording (its marker goes on for 2,999"
        in str(p.receipt)
    )


def test_work_that_states_no_launch_in_the_middle_is_no_backlog(tmp_path):
    """An id below all others is of a launch before the recording only where the work comes before
    all others of its stream.
    """
    k = training()
    [e for e in k.events if e.get("cat") == "kernel"][70]["args"]["correlation"] = 0
    p = profile(tmp_path, k)
    assert len(p.steps.frame) == STEPS
    assert not len(p.steps.backlog)


@pytest.mark.parametrize("long", [{119: 54.3}, {118: 70.0}, {118: 70.0, 119: 9.0}])
def test_a_last_kernel_that_takes_far_longer_than_calls_launched_alike(tmp_path, long):
    """Ten times as long is enough where the kernel, the grid and the block are the same."""
    sound, p = (
        build.profile(folder(tmp_path, name), jax_loop(given))
        for name, given in (("sound", None), ("corrupt", long))
    )
    assert step_times(p) == step_times(sound)
    assert kernel_total_us(p) == pytest.approx(kernel_total_us(sound))
    (text,) = set(warnings(p)) - set(warnings(sound))
    assert text.startswith(f"{len(long)} device event")


def with_last_kernel(name: str = "gemm", long: dict[int, float] | None = None, **args) -> Kineto:
    """A training that ends with a kernel of 3 ms for which the host does not wait."""
    k = training(long)
    at = BEGIN + STEPS * STEP_US - 20
    k.launched(name, at, at + 20, 3_000, k.op("aten::mm", at, 8), **args)
    return k


def test_a_last_kernel_that_was_launched_as_others_were(tmp_path):
    p = profile(tmp_path, with_last_kernel())
    assert kernel_total_us(p) == pytest.approx((STEPS * KERNELS + 1) * KERNEL_US)
    assert any("1 device event (1 on GPU 0, stream 7: gemm)" in text for text in warnings(p))


@pytest.mark.parametrize(
    "args",
    [
        {"grid": [4096, 1, 1]},
        {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"},
        {"name": "never_called_before"},
        {"long": dict.fromkeys(range(1, STEPS * KERNELS, 14), 2.1 * KERNEL_US)},
    ],
)
def test_a_last_kernel_that_may_take_longer_is_left_as_it_is(tmp_path, args):
    """It was launched with another grid, waits for another rank, or calls of it differ anyway."""
    long = args.get("long", {})
    p = profile(tmp_path, with_last_kernel(**args))
    assert RECORDED not in p.run.trace.args
    expected = STEPS * KERNELS * KERNEL_US + 3_000 + sum(long.values()) - len(long) * KERNEL_US
    assert kernel_total_us(p) == pytest.approx(expected)
