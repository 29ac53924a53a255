"""Python calls and ops in the files of viewers of flame graphs, read by protobuf's own decoder."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.sources.recording import CaptureInfo
from nbprof.tools.stacks import Frame, Stacks
from tests.analysis.test_python import BASE, two_threads  # noqa: F401  a fixture
from tests.support.kineto import Kineto, profile

DATA = Path(__file__).parents[1] / "data" / "gpu"
INT, UINT, TEXT = 3, 4, 9
FIELDS = {
    "ValueType": [("type", 1, INT), ("unit", 2, INT)],
    "Sample": [("location_id", 1, [UINT]), ("value", 2, [INT])],
    "Line": [("function_id", 1, UINT), ("line", 2, INT)],
    "Location": [("id", 1, UINT), ("mapping_id", 2, UINT), ("line", 4, ["Line"])],
    "Function": [
        ("id", 1, UINT),
        ("name", 2, INT),
        ("system_name", 3, INT),
        ("filename", 4, INT),
        ("start_line", 5, INT),
    ],
    "Profile": [
        ("sample_type", 1, ["ValueType"]),
        ("sample", 2, ["Sample"]),
        ("location", 4, ["Location"]),
        ("function", 5, ["Function"]),
        ("string_table", 6, [TEXT]),
        ("comment", 13, [INT]),
    ],
}
"""The numbers and types that profile.proto publishes, of the messages that are written."""


@cache
def message():
    file = descriptor_pb2.FileDescriptorProto(
        name="nbprof_test_profile.proto", package="perftools.profiles", syntax="proto3"
    )
    for name, fields in FIELDS.items():
        declared = file.message_type.add(name=name)
        for field, number, kind in fields:
            repeated = isinstance(kind, list)
            kind = kind[0] if repeated else kind
            added = declared.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                added.type, added.type_name = 11, f".perftools.profiles.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("perftools.profiles.Profile")
    return message_factory.GetMessageClass(found)


def read(path):
    """The names of the series, and the stacks with their values, outermost first."""
    decoded = message().FromString(gzip.decompress(path.read_bytes()))
    texts = decoded.string_table
    assert texts[0] == ""
    functions = {each.id: each for each in decoded.function}
    locations = {each.id: each for each in decoded.location}
    # 0 is no id, and no two are the same.
    assert 0 not in functions
    assert (len(functions), len(locations)) == (len(decoded.function), len(decoded.location))
    assert {texts[each.unit] for each in decoded.sample_type} == {"nanoseconds"}
    samples = []
    for sample in decoded.sample:
        stack = []
        for each in reversed(sample.location_id):
            (line,) = locations[each].line
            function = functions[line.function_id]
            stack.append((texts[function.name], texts[function.filename], function.start_line))
        samples.append((stack, list(sample.value)))
    return [texts[each.type] for each in decoded.sample_type], samples


def test_python_calls_for_pprof_have_all_time_below_their_callers(tmp_path, two_threads):  # noqa: F811
    p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
    p.run.capture = CaptureInfo(python=two_threads.packed())
    series, samples = read(p.python.export(tmp_path / "a run.pb.gz"))
    assert series == ["Python"]
    total = dict.fromkeys(p.python.functions["function"], 0.0)
    for stack, (ns,) in samples:
        for name in {name for name, *_ in stack}:
            total[name] += ns / 1e6
    expected = p.python.functions.set_index("function")["total_ms"].to_dict()
    assert total == pytest.approx(expected)
    innermost = {stack[-1] for stack, _ in samples}
    assert ("augment", "/project/train.py", 10) in innermost


@pytest.mark.parametrize("name", ["torch_gpu.pt.trace.json.gz", "jax_gpu.xplane.pb"])
def test_ops_have_their_time_by_device_and_host(tmp_path, name):
    p = nbprof.load(DATA / name)
    expected = (p.ops.frame.groupby("where")["self_us"].sum() * 1000).to_dict()
    series, samples = read(p.ops.export(tmp_path / "ops.pprof"))
    sums = {side: sum(values[i] for _, values in samples) for i, side in enumerate(series)}
    assert sums == pytest.approx(expected, rel=1e-6)
    document = json.loads(p.ops.export(tmp_path / "ops.speedscope.json").read_text("utf-8"))
    of_sides = {each["name"].split()[-1]: each["endValue"] for each in document["profiles"]}
    assert of_sides == sums
    kernels = {stack[-1][0] for stack, values in samples if len(stack) > 1}
    assert kernels >= set(p.kernels.frame["kernel"].head(3))


def test_a_frame_that_comes_twice_is_one_function(tmp_path):
    tree = pd.DataFrame({"parent": [-1, 0, 1]})
    calls = [Frame("f", "a.py", 3), Frame("g", "a.py", 9), Frame("f", "a.py", 3)]
    stacks = Stacks.of_tree("run", tree, calls, ["Python"] * 3, [0.0, 0.2, 2e9])
    path = stacks.write(tmp_path / "x.pb.gz")
    assert read(path)[1] == [
        ([("f", "a.py", 3), ("g", "a.py", 9), ("f", "a.py", 3)], [2_000_000_000])
    ]
    assert path.read_bytes() == stacks.pprof()


def test_a_name_of_neither_format_is_refused(tmp_path):
    p = nbprof.load(DATA / "torch_gpu.pt.trace.json.gz")
    with pytest.raises(NbprofError, match=r"must end in \.json \(speedscope\), or in \.pb\.gz"):
        p.ops.export(tmp_path / "ops.svg")
    assert not list(tmp_path.iterdir())
