"""PyTorch's annotations of graphs in files beside a trace: read as plain data, of the right rank
and recording, or not at all.
"""

from __future__ import annotations

import collections
import json
import pickle
from typing import Any

import pytest

import nbprof
from nbprof.core.files import LocalFile, RunFiles
from nbprof.formats.chrome import graph_annotations
from tests.support.graphs import Graphed, layers
from tests.support.kineto import profile

WHERE = ["kernel", "op", "module"]
CALLS = layers(1)
NOTES: list[Any] = [
    [{"name": "proj", "module_fqn": "layers.0.linear_1"}],
    [{"str": "activation"}],
    [],
    ["first", {"module_fqn": "layers.0.linear_2", "Group size": 4}],
    [{"name": "copy", "stream": 62}],
]


def annotations(graph: int, notes: list[Any] = NOTES) -> dict[int, Any]:
    return {(graph << 32) + 3 * place: said for place, said in enumerate(notes, 1) if said}


def replays(graph: int = 17, **metadata: Any) -> Graphed:
    k = Graphed(**metadata)
    for _ in range(3):
        k.replay(CALLS, graph)
    return k


def write(
    folder, content, name: str = "kernel_annotations_rank0_fwd_bwd.pkl", protocol: int = 4
) -> None:
    (folder / name).write_bytes(pickle.dumps(content, protocol))


def nodes(p) -> list[tuple[str, ...]]:
    return list(
        p.kernels.graph_nodes[WHERE].astype(object).fillna("").itertuples(index=False, name=None)
    )


EXPECTED = [
    ("sgemm_128x64_nn", "proj", "layers.0.linear_1"),
    ("elementwise_gelu", "activation", ""),
    ("Memset (Device)", "", ""),
    ("sgemm_128x64_nn", "first", "layers.0.linear_2"),
    ("Memcpy DtoD (Device -> Device)", "copy", ""),
]


@pytest.mark.parametrize("protocol", range(6))
def test_nodes_go_by_the_annotations_beside_the_trace(tmp_path, protocol):
    write(tmp_path, annotations(17), protocol=protocol)
    p = profile(tmp_path, replays())
    assert nodes(p) == EXPECTED
    assert "4 nodes have annotations of PyTorch" in str(p.receipt)
    kernels = (
        p.kernels.frame.astype({"module": object})
        .fillna({"module": ""})
        .set_index(["op", "module"])["occurrences"]
        .to_dict()
    )
    assert kernels == {
        ("proj", "layers.0.linear_1"): 3,
        ("activation", ""): 3,
        ("first", "layers.0.linear_2"): 3,
    }
    assert nbprof.load(tmp_path).kernels.graph_nodes["op"].tolist() == [
        op for _, op, _ in EXPECTED
    ], "the folder as people open it"


def test_the_same_as_what_pytorch_writes_into_the_trace(tmp_path):
    tool = pytest.importorskip(
        "torch.cuda._annotate_cuda_graph_trace", reason="needs PyTorch 2.12 or newer"
    )
    said = annotations(17)
    for folder in ("beside", "within"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "beside", said)
    trace = json.loads(replays().encode())
    assert tool.annotate_trace(trace, said) == 12
    within = profile(tmp_path / "within", json.dumps(trace).encode())
    beside = profile(tmp_path / "beside", replays())
    assert nodes(within) == nodes(beside) == EXPECTED


def test_what_was_captured_says_more(tmp_path):
    k = Graphed()
    k.capture(CALLS)
    k.replay(CALLS, 17)
    write(tmp_path, annotations(17))
    assert [(op, module) for _, op, module in nodes(profile(tmp_path, k))] == [
        (one.op, one.module) for one in CALLS
    ]


def test_each_rank_has_its_own(tmp_path):
    ranks = [
        replays(distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"})
        for rank in range(2)
    ]
    for rank in range(2):
        write(
            tmp_path,
            annotations(17, [[{"name": f"rank {rank}"}]]),
            f"kernel_annotations_rank{rank}_a.pkl",
        )
    p = profile(tmp_path, *ranks)
    table = p.kernels.graph_nodes
    assert table[table["op"] != ""][["host", "op"]].values.tolist() == [
        ["rank 0", "rank 0"],
        ["rank 1", "rank 1"],
    ]
    one = LocalFile(tmp_path / "host1.pt.trace.json")
    assert [
        file.name
        for file in graph_annotations.beside(RunFiles("", tmp_path, (one,), 0.0, "chrome"))
    ] == ["kernel_annotations_rank1_a.pkl"]
    alone = profile(tmp_path, replays())
    assert {op for _, op, _ in nodes(alone)} == {""}, "which rank it is, is not said"


def test_annotations_of_another_recording_are_left_out(tmp_path):
    write(tmp_path, {**annotations(17), (17 << 32) + 99: [{"name": "more"}], **annotations(18)})
    k = replays()
    k.replay(CALLS, 18)
    p = profile(tmp_path, k)
    assert nodes(p) == [(one.kernel, "", "") for one in CALLS] + EXPECTED
    assert "annotates 1 graph that no replay here has: it is from another recording" in str(
        p.receipt
    )


def test_of_files_that_differ_what_they_share_is_said(tmp_path):
    write(tmp_path, annotations(17))
    write(
        tmp_path,
        annotations(17, [[{"name": "other", "module_fqn": "layers.0.linear_1"}]]),
        "kernel_annotations_rank0.pickle",
    )
    assert nodes(profile(tmp_path, replays()))[:2] == [
        ("sgemm_128x64_nn", "", "layers.0.linear_1"),
        EXPECTED[1],
    ]


class Runs:
    def __reduce__(self):
        return print, ("it ran",)


@pytest.mark.parametrize(
    "content",
    [
        {1: [Runs()]},
        {"a": ["b"]},
        [1],
        {1: "text"},
        collections.defaultdict(list, {1: ["a"]}),
    ],
)
def test_what_is_no_plain_dict_of_nodes_is_left_out(tmp_path, content, capsys):
    write(tmp_path, content)
    p = profile(tmp_path, replays())
    assert {op for _, op, _ in nodes(p)} == {""}
    assert (
        "kernel_annotations_rank0_fwd_bwd.pkl next to the trace is not a valid PyTorch graph annotation file"
        in str(p.receipt)
    )
    assert capsys.readouterr().out == ""


def test_damaged_files_are_left_out(tmp_path):
    whole = pickle.dumps(annotations(17))
    path = tmp_path / "kernel_annotations_rank0_.pkl"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found, bad = graph_annotations.read([LocalFile(path)])
        assert not found
        assert len(bad) == 1
    for at in range(len(whole)):
        for bits in (0x01, 0x80, 0xFF):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :])
            found, bad = graph_annotations.read([LocalFile(path)])
            assert not (found and bad)
