"""What inductor writes of its kernels, as it lies beside a trace."""

from __future__ import annotations

import json
import random

from nbprof.core.files import LocalFile, RunFiles
from nbprof.formats.chrome.inductor import Kernel, beside, read

NODES = {
    "cppCodeToPost": {
        "triton_poi_fused_add_mul_0:2": ["mul", "add_1", "add"],
        "extern_kernels.mm:1": ["mm"],
    },
    "version": 2.0,
}
LINES = {
    "extern_kernels.mm:1": [
        '  File "/srv/app/a.py", line 3, in forward\n    y = f(x)\n  File "/srv/app/net.py", line 14, in f\n    x @ w\n'
    ],
    "triton_poi_fused_add_mul_0:2": [
        'File "/srv/app/net.py", line 15, in forward\n h * 2',
        'File "/srv/app/net.py", line 16, in forward\n h + 1',
    ],
}
PROGRAM = (
    Kernel("extern_kernels.mm", ("mm",), ("/srv/app/net.py:14",)),
    Kernel(
        "triton_poi_fused_add_mul_0", ("mul", "add"), ("/srv/app/net.py:15", "/srv/app/net.py:16")
    ),
)


def lying(folder, **files):
    (folder / "run.pt.trace.json").write_text("{}")
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(
            value if isinstance(value, str) else json.dumps(value)
        )
    trace = LocalFile(folder / "run.pt.trace.json")
    return beside(RunFiles("run", folder, (trace,), 0.0, "chrome"))


def test_nodes_and_lines_of_one_graph_are_joined(tmp_path):
    found = lying(
        tmp_path,
        inductor_provenance_tracking_node_mappings_3__json=NODES,
        inductor_provenance_tracking_kernel_stack_traces_4__json=LINES,
        another__json={"extern_kernels.mm:1": ["mm"]},
    )
    assert len(found) == 2
    assert read(found) == ((PROGRAM,), [])


def test_nodes_that_are_no_ops_and_names_with_an_overload(tmp_path):
    """As `copy_` into an input (batch norm) and nodes that passes put in are written by PyTorch
    2.13.
    """
    nodes = ["copy_", "primals_3", "getitem_1", "arg0_1", "tangents_1", "full_default_2", "add_tensor_1", "sum_dim_int_list", "any_dims", "scalar_tensor",
             "scalar_tensor_default_1", "_shape_as_tensor", "squeeze_dim_1", "add_tensor_2", "rsqrt", "s77"]  # fmt: skip
    found = lying(
        tmp_path,
        inductor_provenance_tracking_node_mappings__json={
            "cppCodeToPost": {"cpp_fused_0:1": nodes}
        },
    )
    (program,), _ = read(found)
    assert program[0].ops == (
        "copy_",
        "full",
        "add",
        "sum",
        "any",
        "scalar_tensor",
        "_shape_as_tensor",
        "squeeze",
        "rsqrt",
    )


def test_either_alone(tmp_path):
    nodes = lying(tmp_path, inductor_provenance_tracking_node_mappings__json=NODES)
    assert read(nodes)[0] == (tuple(kernel._replace(lines=()) for kernel in PROGRAM),)
    (tmp_path / "inductor_provenance_tracking_node_mappings.json").unlink()
    lines = lying(tmp_path, inductor_provenance_tracking_kernel_stack_traces__json=LINES)
    assert read(lines)[0] == (tuple(kernel._replace(ops=()) for kernel in PROGRAM),)


def test_other_files_that_have_it(tmp_path):
    old = lying(
        tmp_path,
        inductor_triton_kernel_to_post_grad_nodes__json={
            "triton_poi_fused_add_mul_0": ["mul", "add"]
        },
    )
    assert read(old)[0] == ((Kernel("triton_poi_fused_add_mul_0", ("mul", "add")),),)
    (tmp_path / "inductor_triton_kernel_to_post_grad_nodes.json").unlink()
    both = {
        key: {"stack_traces": LINES[key], "post_grad_nodes": nodes}
        for key, nodes in NODES["cppCodeToPost"].items()
    }
    package = lying(tmp_path, kernel_information__json=both)
    assert read(package)[0] == (PROGRAM,)


def test_the_log_of_torch_trace(tmp_path):
    head = 'V0101 00:00:00.000000 1 torch/_inductor/compile_fx.py:1] {"artifact": {"name": "%s", "encoding": "json"}, "has_payload": "0"}'
    log = "\n".join(
        [
            'V0101 00:00:00.000000 1 torch/x.py:1] {"inductor_output_code": {"filename": "c.py"}, "has_payload": "0"}',
            "\tdef call(args):",
            head % "inductor_provenance_tracking_node_mappings",
            "\t" + json.dumps(NODES),
            head % "inductor_provenance_tracking_kernel_stack_traces",
            "\t" + json.dumps(LINES),
            head % "inductor_provenance_tracking_kernel_stack_traces",
            head % "something else",
            "\t[1]",
        ]
    )
    assert read(lying(tmp_path, dedicated_log_torch_trace_1abc__log=log)) == ((PROGRAM,), [])


def test_what_is_no_such_file_is_named_and_left_out(tmp_path):
    found = lying(
        tmp_path,
        inductor_provenance_tracking_node_mappings_0__json=NODES,
        inductor_provenance_tracking_node_mappings_1__json="{",
        inductor_provenance_tracking_node_mappings_2__json="[1]",
        inductor_provenance_tracking_node_mappings_3__json='{"a": 1, "b": {"stack_traces": 3}, "c": null}',
    )
    programs, bad = read(found)
    assert [kernel.name for kernel in programs[0]] == [
        "extern_kernels.mm",
        "triton_poi_fused_add_mul_0",
    ]
    assert {note.key for note in bad} == {"invalid_inductor_output"}
    assert [note.text.split()[0] for note in bad] == [
        f"inductor_provenance_tracking_node_mappings_{i}.json" for i in (1, 2)
    ]


def test_damaged_files_never_raise(tmp_path):
    rng = random.Random(7)
    (found,) = lying(tmp_path, inductor_provenance_tracking_kernel_stack_traces__json="{}")
    for _ in range(300):
        data = bytearray(
            json.dumps(rng.choice([NODES, LINES, {"k:1": {"stack_traces": LINES}}])).encode()
        )
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'{}[]",:0a\xff\\')
        found.path.write_bytes(bytes(data))
        read([found])
