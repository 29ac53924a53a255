"""FLOPs and bytes of ops of compiled programs, held against XProf: programs made for the purpose,
on a GPU that ran each op for 1 us.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from nbprof.hlo.cost import Costs
from nbprof.hlo.hlo import Program
from tests.support import hlo, hlo_programs
from tests.support.programs import CONVERTER, run
from tests.support.xspace import PlaneWriter, chunk, xspace

US = 1_000_000
GIB = 1 << 30
DEVICE = {
    "device_vendor": "Nvidia", "compute_cap_major": 9, "compute_cap_minor": 0, "memory_size": 2**34,
    "memory_bandwidth": 3_000_000_000_000, "clock_rate": 1_700_000, "core_count": 132,
}  # fmt: skip
ASK = """
import sys
from xprof.convert import raw_to_tool_data
open(sys.argv[2], "wb").write(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "hlo_stats", {})[0])
"""
JAX = """
import sys
import jax, jax.numpy as jnp
def attention(x, w):
    q, k, v = (x @ part for part in w)
    return jnp.mean(jnp.tanh(jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8) @ v) ** 2)
def convolution(x, k):
    y = jax.lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return (jax.lax.reduce_window(jax.nn.relu(y), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2).sum()
def scan(w, x):
    return jax.lax.scan(lambda c, t: ((jnp.tanh(t @ w + c),) * 2), jnp.zeros((8, 16)), x)[1].sum()
def update(x, y):
    return jax.lax.fori_loop(0, 5, lambda i, c: jax.lax.dynamic_update_slice(c, jnp.sin(y)[None], (i, 0)), x)
one = jnp.ones
for name, f, args in (
    ("attention", jax.grad(attention, 1), (one((4, 32, 64)), (one((64, 64)),) * 3)),
    ("convolution", jax.grad(convolution, (0, 1)), (one((4, 32, 32, 3)), one((3, 3, 3, 8)))),
    ("scan", jax.grad(scan), (one((16, 16)), one((5, 8, 16)))),
    ("update", update, (one((9, 8)), one((8,)))),
    ("table", lambda t, i: (t[i].sum(), t.at[i].add(1.0)), (one((100, 16)), jnp.arange(7))),
    ("branch", lambda x: jax.lax.cond(x.sum() > 0, jnp.exp, lambda x: x * 2, x), (one((30,)),)),
    ("random", lambda k: jax.random.normal(k, (50,)), (jax.random.key(0),)),
    ("narrow", lambda x: jax.lax.dot(x, x.T, preferred_element_type=jnp.int32) / 3, (one((20, 32), jnp.int8),)),
    ("sums", lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0)), (one((12, 40)),)),
    ("joined", lambda x, y: jnp.concatenate([jnp.exp(x), y, jnp.pad(x, ((0, 0), (1, 2)))], 1), (one((9, 8)), one((9, 3)))),
):
    lowered = jax.jit(f).lower(*args)
    for stage, data in (
        ("written", lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()),
        ("compiled", lowered.compile().runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()),
    ):
        open(f"{sys.argv[1]}/{name}.{stage}", "wb").write(data)
"""


def asked(programs, folder):
    """By program and op what XProf says: FLOPs, bytes, those of main memory, and FLOPs at 16 bits;
    and what kind of op it is.
    """
    gpu = PlaneWriter("/device:GPU:0", DEVICE)
    events = []
    for ident, (name, data) in enumerate(programs.items(), 1):
        program = Program(data)
        entry = program.computation(program.entry_ident)
        for op in program.names[entry.first : entry.first + entry.count]:
            stats = {
                "hlo_op": op,
                "hlo_module": name,
                "program_id": ident,
                "correlation_id": len(events) + 1,
            }
            detail = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"
            events.append(
                gpu.event(f"kernel_{op}", len(events) * US, US, kernel_details=detail, **stats)
            )
    gpu.line("Stream #7(Compute)", events, line_id=7)
    named = {f"p{ident}({ident})": (ident, data) for ident, data in enumerate(programs.values(), 1)}
    path = folder / "ops.xplane.pb"
    path.write_bytes(xspace(gpu, hlo.metadata_plane(**named)))
    told = folder / "hlo_stats.json"
    run(ASK, path, told, needs=CONVERTER)
    table = json.loads(told.read_bytes())
    columns = [column["id"] for column in table["cols"]]
    names = list(programs)
    found = {}
    for cells in table["rows"]:
        row = dict(zip(columns, (cell["v"] for cell in cells["c"]), strict=True))
        us = row["avg_time"]
        rates = (
            row["model_flop_rate"] * 1e3,
            row["measured_memory_bw"] * GIB / 1e6,
            row["hbm_bw"] * GIB / 1e6,
            row["normalized_flop_rate"] * 1e3,
        )
        found[names[int(row["program_id"]) - 1], row["hlo_op_name"]] = (
            [rate * us for rate in rates],
            row["category"],
        )
    return found


def held_against(programs, folder, least):
    costs = {name: Costs(Program(data)) for name, data in programs.items()}
    wrong = []
    found = asked(programs, folder)
    for (name, op), (theirs, category) in found.items():
        cost = costs[name].of_name(op)
        ours = [
            cost.xprof_flops,
            cost.bytes,
            cost.memory_bytes,
            cost.normalized_flops + (cost.xprof_flops - cost.flops),
        ]
        if category == "custom-call" and np.isnan(ours).all():
            # XProf has 0 for what nobody knows.
            ours = [0.0] * 4
        if category in ("call", "while", "conditional"):
            # What is inside is asked for by itself.
            ours[2] = theirs[2]
        if ours != pytest.approx(theirs, rel=1e-6, abs=0.6):
            wrong.append((name, op, category, ours, theirs))
    assert not wrong, (len(wrong), wrong[:10])
    assert len(found) >= least


def test_every_elementwise_op_of_every_type(tmp_path):
    programs = {name: hlo_programs.program(text) for name, text in hlo_programs.elementwise()}
    held_against(programs, tmp_path, 2000)


def test_ops_and_fusions(tmp_path):
    texts = {name: hlo_programs.single(*one) for name, one in hlo_programs.OPS.items()}
    texts |= {
        f"fused {name}": hlo_programs.fusion(*one) for name, one in hlo_programs.FUSIONS.items()
    }
    held_against({name: hlo_programs.program(text) for name, text in texts.items()}, tmp_path, 250)


def test_programs_of_jax(tmp_path):
    run(JAX, tmp_path, needs="jax")
    programs = {path.name: chunk(1, path.read_bytes()) for path in sorted(tmp_path.iterdir())}
    held_against(programs, tmp_path, 200)


def test_matrix_products_of_the_older_interface_are_counted():
    """XProf says 0 of them, whatever they multiply; of the newer interface it counts as we do."""
    dims = '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}'
    config = f'{{"gemm_backend_config":{{"alpha_real":1,"beta":0,"dot_dimension_numbers":{dims}}}}}'
    text = f'(bf16[20,6],s8[100]) custom-call(a,b), custom_call_target="__cublas$gemm", backend_config={config}'
    program = Program(
        hlo_programs.program(hlo_programs.single("a = bf16[20,8]; b = bf16[8,6]", text))
    )
    cost = Costs(program).of_name(
        next(
            name
            for name, opcode in zip(program.names, program.opcodes, strict=True)
            if opcode == "custom-call"
        )
    )
    assert (cost.flops, cost.bytes) == (2 * 20 * 6 * 8, 2 * (20 * 8 + 8 * 6 + 20 * 6))
