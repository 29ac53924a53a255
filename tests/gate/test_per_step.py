"""What a gate counts, from recordings of a GPU and of the CPU."""

import numpy as np
import pandas as pd
import pytest

from nbprof.gate.figures import KINDS, figure
from nbprof.profiles.load import read
from tests.gate.gpu import trained
from tests.support import kineto

DATA = kineto.Path(__file__).parents[1] / "data"
OF_DEVICE = ("kernels", "launches", "syncs", "pageable_copies", "collective_bytes")


def values(profile):
    return {name: figure([profile.run], name) for name in KINDS}


def test_the_counts_of_a_gpu(tmp_path):
    found = values(trained(tmp_path, kernels=3, syncs=2, pageable=1))
    assert {name: one.value for name, one in found.items() if not one.unknown} == {
        "kernels": 3,
        "launches": 3,
        "syncs": 2,
        "pageable_copies": 1,
        "collective_bytes": 0,
        "recompiles": 0,
        "dropped": 0,
    }
    assert "FLOPs" in found["flops"].unknown
    assert found["peak_memory"].value is None
    assert found["peak_memory"].unknown


def test_one_more_kernel_wait_copy_or_compilation_is_counted(tmp_path):
    before = values(trained(tmp_path / "before", syncs=1))
    for more, name, by in (
        ({"extra": "stray"}, "kernels", 0.25),
        ({"extra": "stray"}, "launches", 0.25),
        ({"syncs": 2}, "syncs", 1),
        ({"pageable": 1}, "pageable_copies", 1),
        ({"compiled_in": 3}, "recompiles", 1),
    ):
        after = values(trained(tmp_path / f"{name}-after", **{"syncs": 1, **more}))
        assert after[name].value == before[name].value + by, name


def test_kernels_of_a_graph_are_one_launch(tmp_path):
    trace = kineto.Kineto()
    for number in range(3):
        trace.step(number + 1, 1000 + 100 * number, 90)
        op = trace.op("graph", 1000 + 100 * number, 50)
        call = trace.call("cudaGraphLaunch", 1010 + 100 * number, 1, op)
        for i in range(5):
            trace.kernel(f"k{i}", 1020 + 100 * number + 5 * i, 4, call)
    found = values(kineto.profile(tmp_path, trace))
    assert (found["kernels"].value, found["launches"].value) == (5, 1)


def test_bytes_of_collectives_are_counted_per_rank_and_step(tmp_path):
    def collective(size):
        trace = kineto.Kineto(distributedInfo={"rank": 0, "world_size": 2})
        for number in range(3):
            at = 1000 + 100 * number
            trace.step(number + 1, at, 90)
            args = {
                "Collective name": "allreduce",
                "In msg nelems": size,
                "Out msg nelems": size,
                "dtype": "Float",
                "Group size": 2,
            }
            trace.launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", at + 1, at + 5, 20, **args)
        (tmp_path / str(size)).mkdir()
        return kineto.profile(tmp_path / str(size), trace, names=("rank0.pt.trace.json",))

    assert figure([collective(1000).run], "collective_bytes") == (4000, "")


def test_on_the_cpu_what_a_device_does_is_unknown(tmp_path):
    found = values(read(DATA / "torch" / "cpu_ops.pt.trace.json.gz"))
    for name in OF_DEVICE:
        assert found[name].value is None, name
        assert "no device was recorded" in found[name].unknown or "no steps" in found[name].unknown
    assert found["dropped"] == (0, "")


@pytest.mark.parametrize("name", ["jax_cpu", "jax_loop", "tf_cpu"])
def test_recordings_of_jax_and_tensorflow_say_what_was_compiled(name):
    found = values(read(DATA / "xspace" / f"{name}.xplane.pb"))
    assert found["recompiles"].value is not None or "no steps" in found["recompiles"].unknown
    assert found["syncs"].value is None


def test_without_steps_counts_are_of_the_recording(tmp_path):
    trace = kineto.Kineto()
    trace.launched("gemm", 1000, 1010, 5)
    found = values(kineto.profile(tmp_path, trace))
    assert (found["kernels"], found["launches"]) == ((1, ""), (1, ""))


def test_a_recording_in_doubt_makes_every_count_uncertain(tmp_path):
    profile = trained(tmp_path)
    profile.run.as_read.receipt.skip("left out: no time (ts).", 7, key="test")
    found = values(profile)
    assert found["kernels"] == (3, "the recording is in doubt: 7 events left out: no time (ts)")
    assert found["dropped"] == (7, "")


def test_the_largest_of_the_repeats_counts(tmp_path):
    runs = [trained(tmp_path / str(i), kernels=i).run for i in (2, 4, 3)]
    assert figure(runs, "kernels") == (4, "")
    runs.append(read(DATA / "torch" / "cpu_ops.pt.trace.json.gz").run)
    found = figure(runs, "kernels")
    assert found.value == 4
    assert found.unknown


def test_kernels_are_those_of_the_frame(tmp_path):
    profile = trained(tmp_path, steps=5, kernels=4)
    frame = profile.kernels.by_name()
    assert isinstance(frame, pd.DataFrame)
    assert np.isclose(frame["occurrences"].sum() / 5, figure([profile.run], "kernels").value)
