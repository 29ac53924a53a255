"""Work of replayed CUDA and HIP graphs goes by what was captured: op, nn.Module and line, or by
nothing where that is not known.
"""

from __future__ import annotations

import re

import pytest

import nbprof
from nbprof.cli.main import BAD
from nbprof.core.errors import NbprofError
from nbprof.schema import frames
from tests.cli.support import answer, call
from tests.data.record import HERE as DATA
from tests.support.graphs import Call, Graphed, layers
from tests.support.kineto import Kineto, profile
from tests.support.profiles import real

WHERE = ["kernel", "op", "module", "source"]


def nodes(p):
    return list(p.kernels.graph_nodes[WHERE].itertuples(index=False, name=None))


def captured(calls: list[Call]):
    return [(one.kernel, one.op, one.module, f"model.py:{one.line}") for one in calls]


def receipt(p) -> str:
    return str(p.receipt)


def graphed(calls: list[Call], prefix: str = "cuda", graph: int = 17) -> Graphed:
    k = Graphed(prefix)
    k.model(calls, run=True)
    k.capture(calls)
    for i in range(3):
        k.replay(calls, graph, lengths=10 + i)
    return k


@pytest.mark.parametrize(("prefix", "graph"), [("cuda", 17), ("hip", 0)])
def test_nodes_go_by_what_was_captured(tmp_path, prefix, graph):
    calls = layers(4)
    p = profile(tmp_path, graphed(calls, prefix, graph))
    assert nodes(p) == captured(calls)
    table = p.kernels.graph_nodes
    assert table["node"].tolist() == [
        (graph << 32) + 3 * i if graph else i for i in range(1, len(calls) + 1)
    ]
    assert (table["replays"] == 3).all()
    assert table[["avg_us", "min_us", "max_us", "total_us"]].drop_duplicates().values.tolist() == [
        [11.0, 10.0, 12.0, 33.0]
    ]
    row = p.kernels.graphs.iloc[0]
    assert (row["graph"], row["nodes"], row["replays"], row["total_us"]) == (
        graph or 1,
        20,
        3,
        660.0,
    )
    assert (row["min_us"], row["max_us"]) == (12.0 * 19 + 10, 12.0 * 19 + 12)
    kernels = p.kernels.frame.set_index("kernel")
    assert kernels.loc["sgemm_128x64_nn", ["op", "module", "source", "occurrences"]].tolist() == [
        "aten::addmm", "Net/Block/Linear", "model.py:40", 32
    ]  # fmt: skip
    assert (
        "3 replays of 1 graph with 20 nodes: the nodes of 1 graph are attributed to the captured ops."
        in receipt(p)
    )
    assert (
        "Kernel time is attributed: 100 % to an op, 100 % to an nn.Module, 100 % to a line of code."
        in receipt(p)
    )
    for name in ("graphs", "graph_nodes"):
        frame = getattr(p.kernels, name)
        assert {c: str(t) for c, t in frame.dtypes.items()} == frames.dtypes(f"kernels.{name}")


def test_device_time_of_ops_and_modules_has_that_of_the_replays(tmp_path):
    p = profile(tmp_path, graphed(layers(2)))
    modules = p.torch_ops.modules.set_index("module")["device_self_us"]
    assert modules["Net_0/Block_1/Linear_3"] == 10 + 10 + 11 + 12
    ops = p.torch_ops.frame.set_index("op")["device_self_us"]
    assert ops["aten::addmm"] == 4 * 43
    assert ops["cudaGraphLaunch"] == 0


def test_a_capture_in_another_trace(tmp_path):
    calls = layers(3)
    before, after = Graphed(), Graphed()
    before.capture(calls)
    before.capture(layers(1))
    for _ in range(2):
        after.replay(calls, 5)
    (tmp_path / "other").mkdir()
    capture = tmp_path / "other" / "capture.pt.trace.json"
    capture.write_bytes(before.encode())
    p = profile(tmp_path, after)
    assert {op for _, op, _, _ in nodes(p)} == {""}
    assert (
        "for 1 graph no matching capture was found: give a trace of it, nbprof.load(..., graph_capture=PATH)."
        in receipt(p)
    )
    assert "0 % to an op" in receipt(p)
    p = nbprof.load(tmp_path / "host0.pt.trace.json", graph_capture=capture)
    assert nodes(p) == captured(calls)
    assert p.ops.frame.set_index("op")["occurrences"].to_dict() == {
        "aten::addmm": 12,
        "aten::gelu": 6,
        "aten::zero_": 6,
        "aten::copy_": 6,
    }
    assert "100 % to an op, 100 % to an nn.Module, 100 % to a line" in receipt(p)
    assert {op for _, op, _, _ in nodes(nbprof.load(tmp_path / "host0.pt.trace.json"))} == {""}, (
        "the cache keeps both"
    )


def test_a_file_without_a_capture_is_refused(tmp_path):
    (tmp_path / "a.pt.trace.json").write_bytes(graphed(layers(1)).encode())
    plain = Kineto()
    plain.launched("sgemm", 1, 3, 5, plain.op("aten::mm", 0, 5))
    (tmp_path / "plain.pt.trace.json").write_bytes(plain.encode())
    with pytest.raises(NbprofError, match="plain has no graph capture"):
        nbprof.load(tmp_path / "a.pt.trace.json", graph_capture=tmp_path / "plain.pt.trace.json")
    with pytest.raises(
        NbprofError, match="graph_capture is for traces of PyTorch, and jax_cpu is not one"
    ):
        nbprof.load(
            DATA / "xspace" / "jax_cpu.xplane.pb", graph_capture=tmp_path / "a.pt.trace.json"
        )
    both = [tmp_path / "a.pt.trace.json", tmp_path / "plain.pt.trace.json"]
    with pytest.raises(NbprofError, match="up to eight, without executor"):
        nbprof.load(both, graph_capture=both[0], executor=2)


def test_of_captures_that_all_fit_what_they_share_is_said(tmp_path):
    k = Graphed()
    k.capture(layers(2, "First"))
    k.capture(layers(2, "Second"))
    k.replay(layers(2), 3)
    p = profile(tmp_path, k)
    assert nodes(p) == [(one.kernel, one.op, None, f"model.py:{one.line}") for one in layers(2)]
    assert "100 % to an op, 0 % to an nn.Module, 100 % to a line" in receipt(p)


def test_captures_of_different_ops_say_nothing(tmp_path):
    k = Graphed()
    calls = layers(2)
    k.capture(
        [Call("aten::mul", one.module, 50 + i, one.kernel, one.call) for i, one in enumerate(calls)]
    )
    k.capture(calls)
    k.note("decode", k.at, 2000)
    k.replay(calls, 3)
    p = profile(tmp_path, k)
    assert {(op, source) for _, op, _, source in nodes(p)} == {("decode", None)}
    assert "for 1 graph several captures match, of different ops." in receipt(p)


def test_copies_and_fills_that_ran_as_kernels_of_the_runtime(tmp_path):
    k, calls = Graphed("hip"), layers(2)
    k.capture(calls)
    ran = {"gpu_memset": "__amd_rocclr_fillBufferAligned", "gpu_memcpy": "__amd_rocclr_copyBuffer"}
    k.replay([Call("", "", 0, ran.get(one.kind, one.kernel)) for one in calls])
    assert [op for _, op, _, _ in nodes(profile(tmp_path, k))] == [one.op for one in calls]


@pytest.mark.parametrize("lost", ["Begin", "End"])
def test_a_capture_that_was_recorded_in_part_is_not_taken(tmp_path, lost):
    k, calls = Graphed(), layers(2)
    k.capture(calls)
    k.replay(calls, 4)
    k.events = [e for e in k.events if e["name"] != f"cudaStream{lost}Capture"]
    p = profile(tmp_path, k)
    assert {op for _, op, _, _ in nodes(p)} == {""}


@pytest.mark.parametrize("change", ["later", "longer", "other kernel", "two threads"])
def test_a_capture_that_may_be_another_graph_is_not_taken(tmp_path, change):
    k, calls = Graphed("hip"), layers(2)
    if change == "later":
        k.replay(calls)
        k.capture(calls)
    elif change == "two threads":
        k.capture(calls)
        k.call("hipLaunchKernel", k.at - 60, 200, tid=9)
        last = k.events[-1]
        last["ts"] = next(e["ts"] for e in k.events if e["name"] == "hipLaunchKernel") + 1
        k.at += 300
        k.replay([*calls[:1], Call("", "", 0, "another"), *calls[1:]])
    else:
        other = (
            [*calls, calls[0]]
            if change == "longer"
            else [Call(calls[0].op, calls[0].module, 1, "hgemm"), *calls[1:]]
        )
        k.capture(other)
        k.replay(calls)
    p = profile(tmp_path, k)
    assert {op for _, op, _, _ in nodes(p)} == {""}
    assert "no matching capture was found" in receipt(p)


def test_annotations_of_pytorch_stand_for_ops(tmp_path):
    k = Graphed()
    for arg, text in (("str", "phase A"), ("annotation", "7"), ("name", "merged")):
        k.replay(layers(1)[:1], 9, **{arg: text})
        k.replay([Call("", "", 0, "plain")], 8)
    p = profile(tmp_path, k)
    sums = p.kernels.frame.set_index("op")["occurrences"].to_dict()
    assert sums == {"phase A": 1, "7": 1, "merged": 1, "": 3}
    k = graphed(layers(1))
    for event in k.events:
        if "graph id" in event.get("args", {}):
            event["args"]["str"] = "phase A"
    assert nodes(profile(tmp_path, k)) == captured(layers(1)), "the op says more"


def test_without_stacks_the_ops_are_known(tmp_path):
    k, calls = Graphed(), layers(2)
    k.capture(calls, stacks=False)
    k.replay(calls, 4)
    p = profile(tmp_path, k)
    assert [op for _, op, _, _ in nodes(p)] == [one.op for one in calls]
    text = "Kernel time is attributed: 100 % to an op, 0 % to an nn.Module, 0 % to a line of code. Modules and lines are recorded with with_stack"
    assert text in receipt(p)


def test_a_real_capture_and_replays_of_it(tmp_path):
    """The replays are made of the capture; the launches of HIP name their kernels."""
    path = real("findings/D4-graph-capture/bs_32_rank0.json.gz")
    capture = nbprof.load(path).run
    trace, activity = capture.trace, capture.activity
    del activity
    names = [str(name) for name in trace.names[trace.events.name]]
    begin, end = (
        next(i for i, n in enumerate(names) if re.match(f"hipStream{what}Capture", n))
        for what in ("Begin", "End")
    )
    low, high = trace.events.start[begin], trace.events.start[end]
    rows = [
        i for i, n in enumerate(names) if "LaunchKernel" in n and low < trace.events.start[i] < high
    ]
    rows.sort(key=lambda i: trace.events.start[i])
    codes = trace.text_arg("kernel")
    k = Graphed("hip")
    calls = [Call("", "", 0, trace.strings[codes[i]]) for i in rows]
    for _ in range(3):
        k.replay(calls)
    (tmp_path / "replay.pt.trace.json").write_bytes(k.encode())
    p = nbprof.load(tmp_path / "replay.pt.trace.json", graph_capture=path)
    table = p.kernels.graph_nodes
    assert (len(table), table["op"].iloc[2], table["module"].iloc[2]) == (
        544, "aten::mm", "Qwen3Model_0/Qwen3DecoderLayer_0/Qwen3Attention_0/QKVParallelLinear_0"
    )  # fmt: skip
    assert "100 % to an op, 100 % to an nn.Module, 100 % to a line" in receipt(p)


def test_the_call_that_launched_the_graph_keeps_its_own_op(tmp_path):
    k, calls = Graphed(), layers(1)
    k.capture(calls)
    replay = k.op("cuda::replay", k.at - 1, 400)
    k.replay(calls, 4)
    next(e for e in k.events if e["name"] == "cudaGraphLaunch")["args"]["External id"] = replay
    run = profile(tmp_path, k).run
    names = run.trace.names[run.trace.events.name]
    launches = run.activity.launches.frame()
    assert {names[op] for op in launches["op"]} == {"cuda::replay"}
    assert sorted(names[op] for op in launches["came_of"]) == sorted(one.op for one in calls)


def test_the_command_takes_captures_of_other_traces(tmp_path):
    calls = layers(2)
    before, after = Graphed(), Graphed()
    before.capture(calls)
    for _ in range(2):
        after.replay(calls, 5)
    (tmp_path / "capture.pt.trace.json").write_bytes(before.encode())
    (tmp_path / "replay.pt.trace.json").write_bytes(after.encode())
    replay, given = (
        tmp_path / "replay.pt.trace.json",
        ("--graph-capture", tmp_path / "capture.pt.trace.json"),
    )
    alone = {row["op"] for row in answer("frame", replay, "kernels.graph_nodes")["rows"]}
    assert alone == {""}
    told = [row["op"] for row in answer("frame", replay, "kernels.graph_nodes", *given)["rows"]]
    assert told == [op for _, op, _, _ in captured(calls)]
    for command in (
        ("summary", replay),
        ("brief", replay, "--against", replay),
        ("compare", replay, replay),
    ):
        call(*command, *given)
    refused = call("summary", replay, "--graph-capture", replay, code=BAD).stderr
    assert "replay has no graph capture: pass --graph-capture a trace" in refused
