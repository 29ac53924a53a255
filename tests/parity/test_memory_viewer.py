"""The memory of compiled programs, held against XProf's memory viewer: of real profiles, of a loop
recorded here, and of random heaps.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.hlo import buffers as hlo_buffers
from nbprof.hlo.hlo import Program
from nbprof.profiles.load import load
from tests.support import hlo
from tests.support.profiles import real
from tests.support.programs import CONVERTER, run
from tests.support.xspace import xspace

MIB = 1 << 20
SMALL = 16 << 10
ASK = """
import json, sys
from pathlib import Path
from xprof.convert import raw_to_tool_data as xprof
folder = Path(sys.argv[1])
paths = [str(path) for path in folder.glob("*.xplane.pb")]
xprof.xspace_to_tool_names(paths)
told = {}
for path in sorted(folder.glob("*.hlo_proto.pb")):
    name = path.name.removesuffix(".hlo_proto.pb")
    asked = {"module_name": name, "memory_space": sys.argv[2]}
    answer, _ = xprof.xspace_to_tool_data(paths, "memory_viewer", asked)
    told[name] = json.loads(answer)
(folder / "told.json").write_text(json.dumps(told))
"""
JAX = """
import sys
import jax, jax.numpy as jnp
def block(x, w):
    q, k, v = (x @ part for part in w[:3])
    a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8)
    return x + jnp.tanh((a @ v) @ w[3]), None
@jax.jit
def train_step(w, x):
    def loss(w):
        y, _ = jax.lax.scan(block, x, w)
        return jnp.mean(jnp.sort(y, -1) ** 2)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))
w = tuple(jnp.full((3, 64, 64), 0.01 * (i + 1)) for i in range(4))
x = jnp.ones((8, 32, 64))
w = train_step(w, x)
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with jax.profiler.trace(sys.argv[1], profiler_options=options):
    jax.block_until_ready(train_step(w, x))
"""


def told_by_xprof(folder, space):
    """What XProf's memory viewer says of each program of a file in a memory space, by the name that
    it gives them.
    """
    run(ASK, folder, space, needs=CONVERTER)
    return json.loads((folder / "told.json").read_text())


def held_against(ours, theirs, retaken):
    """Every number that both have."""
    mib = ours.timeline["allocated_bytes"] / MIB
    assert mib.tolist() == pytest.approx(theirs.get("heapSizes", []), rel=1e-9)
    assert (ours.timeline["unpadded_bytes"] / MIB).tolist() == pytest.approx(
        theirs.get("unpaddedHeapSizes", []), rel=1e-9
    )
    assert ours.timeline["instruction"].tolist() == theirs.get("hloInstructionNames", [])
    for key, value in (
        ("peakHeapMib", ours.peak_bytes),
        ("peakUnpaddedHeapMib", ours.peak_unpadded_bytes),
        ("entryComputationParametersMib", ours.parameter_bytes),
        ("maybeLiveOutMib", ours.output_bytes),
        ("indefiniteBufferAllocationMib", ours.throughout_bytes),
        ("nonReusableMib", ours.not_reusable_bytes),
        ("totalBufferAllocationMib", ours.total_bytes),
    ):
        assert value / MIB == pytest.approx(theirs.get(key, 0), rel=1e-9, abs=1e-12), key
    assert max(ours.peak_position, 0) == theirs.get("peakHeapSizePosition", 0)
    bars = ours.at_peak[(ours.at_peak["size_bytes"] >= SMALL)]
    if ours.space:
        # XProf counts what lives throughout in the peak of every memory space, and lists it in the
        # main memory alone.
        bars = bars[bars["category"] == memory_viewer.TEMPORARY]
    shown = [bar for bar in theirs.get("maxHeap", []) if bar.get("logicalBufferId", 0) != -1]
    assert (bars["size_bytes"] / MIB).tolist() == pytest.approx(
        [bar["logicalBufferSizeMib"] for bar in shown], rel=1e-9
    )
    assert bars["buffer_id"].tolist() == [int(bar.get("logicalBufferId", 0)) for bar in shown]
    assert bars["category"].tolist() == [bar["groupName"] for bar in shown]
    assert (bars["unpadded_bytes"] / MIB).tolist() == pytest.approx(
        [bar.get("unpaddedShapeMib", 0) for bar in shown], rel=1e-9
    )
    assert bars["shape"].tolist() == [bar.get("shapeString", "") for bar in shown]
    assert bars["framework_op"].tolist() == [bar.get("tfOpName", "") for bar in shown]
    assert bars["opcode"].tolist() == [
        bar.get("opCode", "").removesuffix(" operation") for bar in shown
    ]
    spans = theirs.get("logicalBufferSpans", {})
    temporary = ours.at_peak[ours.at_peak["category"] == memory_viewer.TEMPORARY]
    # What is never given back ends for XProf with the last event of the heap, for us after it.
    last = len(ours.timeline) - 2
    ours_spans = {
        str(row.buffer_id): (row.start, min(row.end, last)) for row in temporary.itertuples()
    }
    for ident, (start, end) in ours_spans.items():
        assert start == spans[ident].get("start", 0), ident
        # Memory that was given back, taken up again, and then shared: XProf ends it with the one
        # that took it up, we with the last of them.
        limit = spans[ident].get("limit", 0)
        assert end == limit or (ident in retaken and end > limit), ident
    return len(bars)


def taken_up_again(program):
    """Buffers that took up memory that had been given back, as texts."""
    found = set()
    for trace in hlo_buffers.read(program).traces:
        users, root = {}, {}
        for kind, ident, other in zip(
            trace.kind.tolist(), trace.buffer.tolist(), trace.shared.tolist(), strict=True
        ):
            home = root.setdefault(
                ident, root.get(other, other) if kind == hlo_buffers.SHARE else ident
            )
            users[home] = users.get(home, 0) + (-1 if kind == hlo_buffers.FREE else 1)
            if kind == hlo_buffers.SHARE and users[home] == 1:
                found.add(str(ident))
    return found


def compare(folder, space=0):
    (path,) = folder.glob("*.xplane.pb")
    theirs = told_by_xprof(folder, space)
    by_name = {module.name: Program(module.data) for module in load(path).run.trace.modules}
    assert set(by_name) == set(theirs)
    compared = 0
    for name, said in theirs.items():
        compared += held_against(
            memory_viewer.view(by_name[name], space), said, taken_up_again(by_name[name])
        )
    return len(theirs), compared


def test_a_loop_of_jax(tmp_path):
    run(JAX, tmp_path, needs="jax")
    (path,) = tmp_path.rglob("*.xplane.pb")
    programs, bars = compare(path.parent)
    assert programs >= 1
    assert bars > 4, "the loop has buffers of 16 KiB and more"


@pytest.mark.parametrize(
    "name", ["jax/tpu-v6e-inference", "jax/mi300-jax_conv_minimal_08", "jax/mi300-jax08_attention"]
)
def test_real_profiles(name, tmp_path):
    (path,) = real(name).glob("*.xplane.pb")
    (tmp_path / path.name).write_bytes(path.read_bytes())
    programs, bars = compare(tmp_path)
    assert programs > 3
    assert bars > 3


def random_program(seed):
    """A program whose buffers are given out, shared and taken back at random, some in a second
    memory space.
    """
    rng = random.Random(seed)
    count = rng.randint(1, 12)
    shapes = []
    for _ in range(count):
        sizes = [rng.choice([1, 3, 8, 100, 128, 200]) for _ in range(rng.randint(0, 3))]
        tiles = rng.choice([(), ((8, 128),), ((8, 128), (2, 1))]) if len(sizes) > 1 else ()
        shapes.append(hlo.shape(rng.choice([1, 2, 4, 5, 10, 11, 12, 16]), *sizes, tiles=tiles))
    lines = [
        hlo.instruction(
            f"op.{i}", "add", f"scope/op{i}", ident=i + 1, extra=hlo.chunk(3, shapes[i])
        )
        for i in range(count)
    ]
    size = [rng.choice([8, 512, SMALL - 1, SMALL, 1 << 20, 123_456]) for _ in range(count)]
    colour = [int(rng.random() < 0.15) for _ in range(count)]
    kinds = [
        rng.choice(["temporary"] * 4 + ["parameter", "live_out", "constant", "thread_local"])
        for _ in range(count)
    ]
    buffers = [hlo.buffer(i, size[i], i + 1, colour=colour[i]) for i in range(count)]
    allocations, temporary = [], {0: [], 1: []}
    for i, kind in enumerate(kinds):
        if kind == "temporary":
            temporary[colour[i]].append(i)
            continue
        flags = {"parameter": i} if kind == "parameter" else {kind: True}
        allocations.append(
            hlo.allocation(len(allocations), size[i], (i, 0, size[i]), colour=colour[i], **flags)
        )
    heaps = []
    for space, members in temporary.items():
        if not members:
            continue
        events, alive, users = [], [], {}
        for i in members:
            name = f"op.{i}"
            if alive and rng.random() < 0.25:
                other = rng.choice(alive)
                root = next(r for r, who in users.items() if other in who)
                events.append((2, i, name, other))
                users[root].append(i)
            else:
                events.append((0, i, name))
                users[i] = [i]
            alive.append(i)
            while alive and rng.random() < 0.4:
                gone = rng.choice(alive)
                alive.remove(gone)
                events.append((1, gone, name))
        index = len(allocations)
        parts = [(i, at * 64, size[i]) for at, i in enumerate(members)]
        allocations.append(
            hlo.allocation(index, sum(size[i] for i in members), *parts, colour=space)
        )
        heaps.append(hlo.heap(*events, allocation=index if rng.random() < 0.8 else -1))
    main = hlo.computation("main", *lines, ident=1, root=count)
    return hlo.program(f"jit_{seed}", main, ident=seed) + hlo.assignment(
        buffers, allocations, heaps
    )


def test_random_heaps(tmp_path):
    programs = {f"jit_{seed}({seed})": (seed, random_program(seed)) for seed in range(1, 121)}
    Path(tmp_path / "random.xplane.pb").write_bytes(xspace(hlo.metadata_plane(**programs)))
    count, bars = compare(tmp_path)
    assert count == 120
    assert bars > 100
    count, bars = compare(tmp_path, space=1)
    assert count == 120
    assert bars > 20
