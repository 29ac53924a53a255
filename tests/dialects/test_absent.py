"""What is said of kernels, ops and allocations that a recording does not have holds for what the
file shows.
"""

from __future__ import annotations

import pytest

import nbprof
from nbprof.activity import activity as act
from nbprof.dialects.gpu.absent import _GPU_OPS
from tests.support import build, nsys, rocprof
from tests.support.kineto import BACKWARD, Kineto, profile
from tests.support.nsys import US
from tests.support.rocprof import EPOCH
from tests.support.xspace import MS, PlaneWriter, xspace

GPU = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}


def warnings(p):
    return [line.text for line in p.receipt.lines if line.level == "warning"]


def stepped(k: Kineto, call: str = "", steps: int = 4, wait: float = 600) -> Kineto:
    """Steps of 1 ms with an op of 100 µs, a call in it, and a wait (µs) for the device where there
    is a call.
    """
    for i in range(steps):
        k.step(i, 1000 * i, 1000)
        op = k.op("aten::mm", 1000 * i + 10, 100)
        if call:
            k.call(call, 1000 * i + 50, 5, op)
            k.call("cudaDeviceSynchronize", 1000 * i + 300, wait)
    return k


# Kernels, as PyTorch records them.


@pytest.mark.parametrize("devices", [[GPU], []])
@pytest.mark.parametrize(
    "launch", ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "hipModuleLaunchKernel"]
)
def test_launches_without_a_kernel_are_lost_kernels(tmp_path, launch, devices):
    p = profile(tmp_path, stepped(Kineto(deviceProperties=devices), launch))
    (warning,) = warnings(p)
    assert warning.startswith(
        "4 launches were recorded, but no kernel, so what the device did is unknown: the kernels were lost."
    )
    assert "Record fewer steps, in a fresh process" in warning
    assert "permission" in warning
    assert p.run.missing["kernels"].startswith(
        "This profile has no GPU kernels, although 4 launches were recorded: the kernels were lost."
    )
    assert "ProfilerActivity" not in str(p.receipt)
    assert act.LOST_KERNELS in p.run.activity.traits
    assert p.overview["device_kind"] == (GPU["name"] if devices else None)
    assert (p.overview["verdict"], p.overview["bound"]) == ("Kernels not recorded", None)
    assert "what the device did is unknown" in p.overview["verdict_text"]
    # A wait for a device whose work is not known is no wait for one that runs nothing.
    assert p.steps.frame["waiting_ms"].isna().all()
    assert p.advice.empty
    assert "CPU" not in p.text().splitlines()[0]
    assert p.payload()["kernels"]["empty"]["text"] == p.run.missing["kernels"]


def test_one_lost_kernel_is_counted_as_one(tmp_path):
    k = Kineto()
    k.call("cudaLaunchKernel", 50, 1, k.op("aten::mm", 0, 90))
    p = profile(tmp_path, k)
    assert "1 launch was recorded, but no kernel" in warnings(p)[0]
    assert "although 1 launch was recorded" in p.run.missing["kernels"]


def test_copies_do_not_hide_that_all_kernels_were_lost(tmp_path):
    k = stepped(Kineto(deviceProperties=[GPU]), "cudaLaunchKernel")
    k.copy("Memcpy HtoD (Pageable -> Device)", 20, 10, k.call("cudaMemcpyAsync", 15, 3))
    p = profile(tmp_path, k)
    assert len(warnings(p)) == 1
    assert "although 4 launches were recorded" in p.run.missing["kernels"]
    assert p.overview["verdict"] == "Kernels not recorded"
    assert p.overview["device_kind"] == GPU["name"]


def test_copies_without_launches_are_no_loss(tmp_path):
    k = stepped(Kineto(deviceProperties=[GPU]))
    k.copy("Memcpy HtoD (Pageable -> Device)", 20, 10, k.call("cudaMemcpyAsync", 15, 3))
    p = profile(tmp_path, k)
    assert not warnings(p)
    assert p.run.missing["kernels"] == "This profile has device copies, but no kernels."
    assert act.LOST_KERNELS not in p.run.activity.traits


def test_some_kernels_are_not_all(tmp_path):
    k = stepped(Kineto(deviceProperties=[GPU]), "cudaLaunchKernel")
    k.launched("gemm", 500, 510, 20)
    p = profile(tmp_path, k)
    assert any("4 of 5 launches (80 %) have no device activity" in text for text in warnings(p))
    assert act.LOST_KERNELS not in p.run.activity.traits
    assert "kernels" not in p.run.missing
    assert p.overview["verdict"] != "Unknown"


def test_launches_that_were_captured_into_a_graph_are_no_loss(tmp_path):
    k = stepped(Kineto(deviceProperties=[GPU]))
    k.call("cudaStreamBeginCapture", 200, 5)
    for i in range(5):
        k.call("cudaLaunchKernel", 210 + 10 * i, 5, tid=BACKWARD)
    k.call("cudaStreamEndCapture", 300, 5)
    p = profile(tmp_path, k)
    assert not warnings(p)
    assert act.LOST_KERNELS not in p.run.activity.traits
    assert p.run.missing["kernels"].endswith(
        "it has 7 calls into the GPU's runtime, and none of them launches a kernel."
    )


@pytest.mark.parametrize("devices", [[GPU], []])
def test_calls_without_a_launch_launched_nothing(tmp_path, devices):
    k = stepped(Kineto(deviceProperties=devices), "cudaGetDeviceCount", wait=5)
    # The call that initializes the device takes its time.
    k.call("cudaDeviceSynchronize", 4000, 90_000)
    p = profile(tmp_path, k)
    assert not warnings(p)
    assert p.run.missing["kernels"] == (
        "This profile has no GPU kernels: it has 9 calls into the GPU's runtime, and none of them launches a kernel."
    )
    assert "ProfilerActivity" not in str(p.receipt)
    assert p.overview["device_kind"] == (GPU["name"] if devices else "CPU")
    assert p.overview["verdict"] != "Unknown"
    assert p.payload()["kernels"]["empty"]["text"].startswith(p.run.missing["kernels"])


def test_a_machine_without_a_gpu_used_the_cpu(tmp_path):
    p = profile(tmp_path, stepped(Kineto(deviceProperties=[])))
    assert not warnings(p)
    assert (
        p.run.missing["kernels"]
        == "This profile has no GPU kernels: the profiler found no GPU, and the run used only the CPU."
    )
    assert "ProfilerActivity" not in str(p.receipt)
    assert p.overview["device_kind"] == "CPU"


@pytest.mark.parametrize("call", ["cudaGetDeviceCount", "cudaMemcpyAsync"])
def test_calls_that_wait_or_copy_show_that_the_device_worked(tmp_path, call):
    p = profile(
        tmp_path,
        stepped(Kineto(deviceProperties=[GPU]), call, wait=5 if call == "cudaMemcpyAsync" else 600),
    )
    (warning,) = warnings(p)
    proof = (
        "called for 4 copies" if call == "cudaMemcpyAsync" else "waited for the device for 1.80 ms"
    )
    assert warning.startswith(
        f"The program {proof}, but no work of the GPU was recorded, so what it did is unknown. It was started before"
    )
    assert p.run.missing["kernels"].startswith(
        f"This profile has no GPU kernels, although the program {proof}: no work of the GPU"
    )
    assert "ProfilerActivity" not in p.run.missing["kernels"] + warning
    assert p.overview["verdict"] == "Kernels not recorded"
    assert p.steps.frame["waiting_ms"].isna().all()
    assert p.advice.empty


def test_a_recording_that_does_not_say_whether_there_is_a_gpu_leaves_it_open(tmp_path):
    p = profile(tmp_path, stepped(Kineto()))
    assert not warnings(p)
    assert (
        "the run used only the CPU, or was recorded without ProfilerActivity.CUDA"
        in p.run.missing["kernels"]
    )


@pytest.mark.parametrize("count", [1, 8])
def test_a_gpu_that_no_call_was_recorded_of_may_have_been_used(tmp_path, count):
    p = profile(
        tmp_path, stepped(Kineto(deviceProperties=[{**GPU, "id": i} for i in range(count)]))
    )
    (warning,) = warnings(p)
    gpus = "a GPU" if count == 1 else "8 GPUs"
    assert warning.startswith(
        f"The machine has {gpus}, but no call into the runtime was recorded: if the program used"
    )
    assert f"on a machine with {gpus}: whether" in p.run.missing["kernels"]
    assert "only the CPU" not in str(p.receipt) + p.run.missing["kernels"]
    assert (p.overview["verdict"], p.overview["bound"]) == ("Kernels not recorded", None)
    assert p.advice.empty
    assert "Python" not in p.text()


def test_a_gpu_of_the_machine_on_which_nothing_was_allocated_was_not_used(tmp_path):
    k = stepped(Kineto(deviceProperties=[GPU], profile_memory=1))
    k.memory(20, 512, 0xA0, 512)
    p = profile(tmp_path, k)
    assert not warnings(p)
    assert p.run.missing["kernels"].endswith(
        "no allocation on a GPU, so the run used only the CPU."
    )
    assert p.overview["verdict"] != "Kernels not recorded"


@pytest.mark.parametrize("proof", ["NCCL", "memory", "MPS", "cudnn"])
def test_a_gpu_that_was_used_and_not_recorded_is_no_cpu(tmp_path, proof):
    k = Kineto(
        deviceProperties=[],
        **(
            {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}}
            if proof == "NCCL"
            else {}
        ),
    )
    if proof == "memory":
        k.memory(20, 512, 0xA0, 512, 2048, device=0)
    if proof == "MPS":
        k.op("aten::_mps_convolution", 150, 20)
    if proof == "cudnn":
        k.op("aten::cudnn_convolution", 150, 20)
    p = profile(tmp_path, stepped(k))
    assert (
        len(
            [
                text
                for text in warnings(p)
                if "the GPU was not recorded: what it did is unknown" in text
            ]
        )
        == 1
    )
    assert "the run used only the CPU" not in str(p.receipt)
    assert p.overview["device_kind"] is None
    assert p.overview["verdict"] == "Kernels not recorded"


def test_memory_of_the_host_proves_no_gpu(tmp_path):
    k = stepped(Kineto(deviceProperties=[]))
    k.memory(20, 512, 0xA0, 512)
    k.memory(30, 512, 0xB0, 1024)
    # MKLDNN is a device type of its own.
    k.events[-1]["args"]["Device Type"] = 2
    p = profile(tmp_path, k)
    assert "the run used only the CPU" in p.run.missing["kernels"]
    assert p.overview["device_kind"] == "CPU"


# Ops, as PyTorch records them.


def marked(k: Kineto) -> Kineto:
    """The marks that the profiler itself leaves in each file."""
    k.add("PyTorch Profiler (0)", "Trace", 0, 1000, pid="Spans", tid="PyTorch Profiler")
    k.events.append(
        {
            "ph": "i",
            "s": "g",
            "name": "Iteration Start: PyTorch Profiler",
            "pid": "Traces",
            "tid": "Trace",
            "ts": 0,
        }
    )
    return k


@pytest.mark.parametrize("with_python", [False, True])
def test_no_op_ran(tmp_path, with_python):
    k = marked(Kineto(deviceProperties=[]))
    if with_python:
        k.add("qr.py(3): decompose", "python_function", 10, 900, args={"Python id": 1})
    p = profile(tmp_path, k)
    assert p.run.missing["ops"] == "No PyTorch op ran during the recording."
    assert "ProfilerActivity" not in str(p.receipt)
    assert p.payload()["ops"]["empty"]["text"] == p.run.missing["ops"]


def test_no_op_ran_beside_calls_where_annotations_were_recorded(tmp_path):
    k = marked(Kineto(deviceProperties=[GPU]))
    k.note("mine", 0, 900)
    k.launched("gemm", 10, 20, 5)
    assert profile(tmp_path, k).run.missing["ops"] == "No PyTorch op ran during the recording."


def test_calls_without_ops_may_be_of_a_recording_without_the_cpu(tmp_path):
    k = marked(Kineto(deviceProperties=[GPU]))
    k.launched("gemm", 10, 20, 5)
    missing = profile(tmp_path, k).run.missing
    assert (
        "on other threads than the recorded one, or were recorded without ProfilerActivity.CPU"
        in missing["ops"]
    )
    assert "ProfilerActivity.CPU" in missing["input"]


def test_allocations_that_did_not_happen_are_no_option_left_out(tmp_path):
    asked = profile(tmp_path, stepped(Kineto(profile_memory=1))).run.missing["memory"]
    assert (
        asked
        == "This profile has no allocator events: PyTorch allocated nothing during the recording."
    )
    assert "profile_memory=True" in profile(tmp_path, stepped(Kineto())).run.missing["memory"]


# Other recorders.


def in_nsys(tmp_path, *calls: str) -> nbprof.Profile:
    tmp_path.mkdir()
    out = nsys.Export()
    nsys.facts(out, 0)
    for i, call in enumerate(calls):
        out.call(call, 1000 * US * (i + 1), 1000 * US * (i + 1) + 5 * US)
    for i in range(4):
        out.range(f"step {i}", 900 * US + 1000 * US * i, 1800 * US + 1000 * US * i)
    return nbprof.load(out.sqlite(tmp_path / "report.sqlite"))


def test_nsight_systems_tells_the_cases_apart(tmp_path):
    lost = in_nsys(tmp_path / "lost", "cudaLaunchKernel_v7000", "cudaLaunchKernel_v7000")
    assert warnings(lost)[0].startswith(
        "2 launches were recorded, but no kernel, so what the device did is unknown: the kernels were lost."
    )
    assert "although 2 launches were recorded" in lost.run.missing["kernels"]
    assert "--trace=cuda" not in lost.run.missing["kernels"]
    assert lost.overview["verdict"] == "Kernels not recorded"
    calls = in_nsys(tmp_path / "calls", "cudaGetDeviceCount_v3020")
    assert not warnings(calls)
    assert calls.run.missing["kernels"].endswith(
        "it has 1 call into the GPU's runtime, and none of them launches a kernel."
    )
    nothing = in_nsys(tmp_path / "nothing")
    assert not warnings(nothing)
    assert "the program made none, or CUDA was not traced" in nothing.run.missing["kernels"]


def in_rocprof(tmp_path, *calls: str) -> nbprof.Profile:
    run = rocprof.Run()
    for i in range(4):
        run.mark(f"step {i}", EPOCH + 1_000_000 * i, 900_000)
    for i, call in enumerate(calls):
        run.call("HIP_RUNTIME_API", call, EPOCH + 1_000_000 * i + 1000, 4_000)
    path = tmp_path / "717_results.json"
    path.write_bytes(rocprof.as_json(run))
    return nbprof.load(path)


def test_rocprofv3_tells_the_cases_apart(tmp_path):
    lost = in_rocprof(tmp_path, "hipLaunchKernel", "hipLaunchKernel")
    assert any(
        "2 launches were recorded, but no kernel" in text and "--kernel-trace" in text
        for text in warnings(lost)
    )
    assert "the kernels were not traced or were lost" in lost.run.missing["kernels"]
    assert lost.overview["verdict"] == "Kernels not recorded"
    calls = in_rocprof(tmp_path, "hipMalloc")
    assert "the program ran none, or they were not traced" in calls.run.missing["kernels"]
    assert act.LOST_KERNELS not in calls.run.activity.traits


def in_xspace(tmp_path, call: str, *planes: PlaneWriter) -> nbprof.Profile:
    host = PlaneWriter("/host:CPU")
    events = [host.event("train", i * 10 * MS, 9 * MS, step_num=i, _r=1) for i in range(4)]
    calls = (
        [host.event(call, i * 10 * MS + MS, MS, correlation_id=i + 1) for i in range(4)]
        if call
        else []
    )
    ops = [host.event("dense/MatMul:MatMul", i * 10 * MS + 3 * MS, 2 * MS) for i in range(4)]
    host.line("python", sorted(events), line_id=7)
    host.line("tf_pool", ops, line_id=8)
    host.line("launcher", calls, line_id=9)
    return build.profile(tmp_path, xspace(host, *planes))


@pytest.mark.parametrize("call", ["cuLaunchKernel", "cudaGraphLaunch", "hipLaunchKernel"])
def test_xspace_files_tell_lost_kernels(tmp_path, call):
    p = in_xspace(tmp_path, call)
    assert any(text.startswith("4 launches were recorded, but no kernel") for text in warnings(p))
    assert "although 4 launches were recorded" in p.run.missing["kernels"]
    assert p.overview["device_kind"] is None
    assert p.overview["verdict"] == "Kernels not recorded"


@pytest.mark.parametrize("call", ["", "cuDeviceGetCount", "MemcpyHtoD"])
def test_xspace_files_without_launches_have_lost_nothing(tmp_path, call):
    p = in_xspace(tmp_path, call)
    assert not [text for text in warnings(p) if "kernel" in text]
    assert "the run used only the CPU, or the GPU was not traced" in p.run.missing["kernels"]
    assert p.overview["device_kind"] == "CPU"


def test_xspace_files_with_work_of_a_gpu_have_it(tmp_path):
    gpu = PlaneWriter(
        "/device:GPU:0", {"device_vendor": "Nvidia", "compute_cap_major": 7, "compute_cap_minor": 5}
    )
    gpu.line(
        "Stream #7(Compute)",
        [
            gpu.event(
                "gemm",
                2 * MS,
                MS,
                correlation_id=1,
                kernel_details="regs:32 grid:4,1,1 block:128,1,1",
            )
        ],
    )
    p = in_xspace(tmp_path, "cuLaunchKernel", gpu)
    assert act.LOST_KERNELS not in p.run.activity.traits
    assert p.kernels.frame["kernel"].tolist() == ["gemm"]


def test_to_ask_whether_cudnn_would_do_is_no_proof_of_a_gpu():
    """An LSTM on the CPU asks."""
    assert _GPU_OPS.match("aten::cudnn_convolution")
    assert _GPU_OPS.match("aten::_cudnn_rnn")
    assert not _GPU_OPS.match("aten::cudnn_is_acceptable")
