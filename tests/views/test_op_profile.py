"""The tab of the op profile: its types, its numbers those of the frame, and bounded whatever
ran.
"""

import numpy as np
import pytest

import nbprof
from nbprof.analysis.op_profile import leaves as op_profile_leaves
from nbprof.analysis.op_profile.op_profile import MOST_DEEP, NONE, scopes
from nbprof.display import codec
from nbprof.hlo.shapes import Shape
from nbprof.profiles.report import static
from nbprof.tools import dashboard as payload
from nbprof.tools import register
from nbprof.tools.op_profile import payload as op_profile
from nbprof.tools.ops import payload as ops
from tests.support.build import profile
from tests.support.hlo import computation, instruction, metadata_plane, program, shape
from tests.support.payloads import check
from tests.support.xspace import PlaneWriter, chunk, gpu_run, varint, xspace
from tests.views.fake import HOSTILE

US = 1_000_000
DETAIL = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1"
KNOWN = {
    "device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 100, "clock_rate": 1_000_000,
    "memory_bandwidth": 10**12,
}  # fmt: skip
F32 = 11
SCOPES = "jit(train_step)/transpose(jvp(model))/block_{}/attention/dot_general"


def packed(field, *idents):
    return chunk(field, b"".join(varint(ident) for ident in idents))


def op(name, opcode, ident, *operands, dims=(64, 100), **more):
    extra = (
        chunk(3, shape(F32, *dims, tiles=((8, 128),)))
        + (packed(36, *operands) if operands else b"")
        + more.pop("extra", b"")
    )
    return instruction(name, opcode, ident=ident, extra=extra, **more)


def made(tmp_path, count, kinds=3):
    """A GPU profile of a program with so many fusions of three ops, each run once, the first ones
    longest.
    """
    opcodes = ("tanh", "add", "multiply")
    called = [
        computation(
            f"fused_{i}",
            op(f"p.{i}", "parameter", 10 * i + 1),
            op(f"a.{i}", opcodes[i % kinds], 10 * i + 2, 10 * i + 1),
            op(f"b.{i}", "negate", 10 * i + 3, 10 * i + 2),
            ident=10**6 + i,
            root=10 * i + 3,
        )
        for i in range(count)
    ]
    entry = [op("x", "parameter", 5)] + [
        op(
            f"{opcodes[i % kinds]}_fusion.{i}", "fusion", 10 * i + 6, 5, kind="kLoop", op_name=SCOPES.format(i % 40),
            source=f"model.py:{i}", extra=packed(38, 10**6 + i),
        )
        for i in range(count)
    ]  # fmt: skip
    code = program("jit_train_step", *called, computation("main", *entry, ident=7, root=6))
    plane = PlaneWriter("/device:GPU:0", dict(KNOWN))
    at, events = 0, []
    for i in range(count):
        length = (count - i) * US // 10
        stats = {
            "hlo_op": f"{opcodes[i % kinds]}_fusion.{i}",
            "hlo_module": "jit_train_step",
            "program_id": 3,
            "kernel_details": DETAIL,
        }
        events.append(plane.event(f"fusion_{i}", at, length, **stats))
        at += length + US
    plane.line("Stream #7(Compute)", events, line_id=7)
    return profile(tmp_path, xspace(plane, metadata_plane(**{"jit_train_step(3)": (3, code)})))


def texts(column):
    return [column["values"][code] for code in column["codes"]]


def test_the_part_has_its_declared_types(tmp_path):
    part = op_profile.payload(made(tmp_path, 4).run)
    check(part, "OpProfile")
    check(op_profile.nothing(), "OpProfile")


def test_the_ops_are_those_of_the_frame(tmp_path):
    p = made(tmp_path, 6)
    part = op_profile.payload(p.run)
    ops = part["ops"]
    frame = p.op_profile.frame
    mine = frame[frame["kind"] == "op"].set_index("name").loc[texts(ops["name"])]
    for key, column in (
        ("time_us", "time_us"),
        ("flops", "flops"),
        ("bytes", "bytes"),
        ("runs", "occurrences"),
    ):
        assert ops[key] == pytest.approx(mine[column].to_numpy(np.float64)), key
    for key in ("expression", "shape", "layout", "framework_op", "source", "category"):
        assert texts(ops[key]) == mine[key].tolist(), key
    # What the page computes of them is what the frame has.
    used = ops["bytes"] / (ops["time_us"] / 1e6) / part["peak_bytes"]
    assert used == pytest.approx(mine["bandwidth_utilization"].to_numpy())
    inner = frame[frame["kind"] == "fused"]
    assert sorted(texts(part["inside"]["name"])) == sorted(inner["name"])
    assert part["idle_us"] == pytest.approx(5.0)
    assert ops["at_ms"][:2] == pytest.approx([0, 0.0016])
    assert part["notes"] == []
    root = frame.iloc[0]
    assert part["figures"][1]["value"] == pytest.approx(100 * root["flops_utilization"])
    assert part["figures"][3]["value"] == pytest.approx(root["wasted_us"])


def test_arrays_tell_what_their_layout_adds(tmp_path):
    arrays = op_profile.payload(made(tmp_path, 1).run)["arrays"]
    assert texts(arrays["role"]) == ["result", "x"]
    assert texts(arrays["shape"]) == ["f32[64,100]"] * 2
    assert texts(arrays["padded"]) == ["f32[64,128]"] * 2
    assert arrays["bytes"].tolist() == [64 * 100 * 4] * 2
    assert arrays["padded_bytes"].tolist() == [64 * 128 * 4] * 2


@pytest.mark.parametrize(
    ("made_of", "padded"),
    [
        (Shape("f32", 4, (3, 5), minor_to_major=(0, 1), tiles=((8, 128),)), "f32[128,8]"),
        (
            Shape("bf16", 2, (20, 5, 100), minor_to_major=(2, 1, 0), tiles=((8, 128), (2, 1))),
            "bf16[20,8,128]",
        ),
        (Shape("f32", 4, (100,), minor_to_major=(0,), tiles=((256,),)), "f32[256]"),
        (Shape("f32", 4, (100,), minor_to_major=(0,)), "f32[100]"),
        (Shape("f32", 4, (), minor_to_major=()), "f32[]"),
        # A tile over dimensions that are joined, one over more than there are, and no order: no
        # dimension tells.
        (Shape("f32", 4, (3, 5, 7), minor_to_major=(2, 1, 0), tiles=((-(1 << 63), 8, 128),)), ""),
        (Shape("f32", 4, (100,), minor_to_major=(0,), tiles=((8, 128),)), ""),
        (Shape("f32", 4, (3, 5)), ""),
    ],
)
def test_padding_by_dimension(made_of, padded):
    assert op_profile_leaves.padded(made_of) == padded


def test_many_ops_are_bounded_and_the_rest_is_summed(tmp_path):
    p = made(tmp_path, 1500)
    part = op_profile.payload(p.run)
    ops, rest = part["ops"], part["rest"]
    assert ops["rows"] == op_profile_leaves.MOST_OPS
    assert rest["ops"].sum() == 500
    frame = p.op_profile.frame
    for key, column in (("time_us", "time_us"), ("flops", "flops"), ("bytes", "bytes")):
        assert ops[key].sum() + rest[key].sum() == pytest.approx(frame[column].iloc[0]), key
    assert set(texts(rest["program"])) == {"jit_train_step(3)"}
    assert ops["time_us"].min() >= 50
    assert "500 smaller ops are combined: p.op_profile.frame lists them." in part["notes"]
    assert part["inside"]["rows"] <= op_profile_leaves.MOST_TOLD * op_profile_leaves.MOST_INSIDE
    assert len(codec.pack(part)) < 100_000
    [note] = register.tool("op_profile").omissions(p.run, 0)
    assert (note.key, "500 ops" in note.text) == ("omitted_profile_ops", True)


def test_pairs_of_program_and_category_are_bounded_too(tmp_path, monkeypatch):
    monkeypatch.setattr(op_profile_leaves, "MOST_RESTS", 0)
    p = made(tmp_path, 6)
    found = op_profile_leaves.leaves(
        p.run.activity, p.run.programs.measured, p.run.trace.events.start, most_ops=2
    )
    assert found.rest[["program", "category", "ops"]].to_numpy().tolist() == [["", "", 4]]
    assert found.rest["time"].sum() + found.ops["time"].sum() == pytest.approx(
        1e6 * p.op_profile.frame["time_us"].iloc[0]
    )


def test_where_to_begin_is_said_with_its_numbers(tmp_path):
    p = made(tmp_path, 3)
    frame = p.op_profile.frame
    first = frame[frame["kind"] == "op"].sort_values("wasted_us", ascending=False).iloc[0]
    said = op_profile.statement(p.run)
    assert said.startswith("Most time goes to **loop fusion**: 100.0%.")
    assert (
        f"**{first['name']}** wastes the most, **{100 * first['wasted_us'] / frame['time_us'].iloc[0]:.1f}%**"
        in said
    )
    assert " of the memory bandwidth" in said


def test_on_the_cpu_there_are_rates_and_no_peaks():
    p = nbprof.load("tests/data/xspace/jax_loop.xplane.pb")
    part = op_profile.payload(p.run)
    assert (part["where"], part["peak_flops"], part["peak_bytes"], part["idle_us"]) == (
        "cpu",
        None,
        None,
        None,
    )
    assert (
        "so there is no utilization and no wasted time: pass them with nbprof.load(path, peaks=...)."
        in " ".join(part["notes"])
    )
    assert texts(part["ops"]["trace_op"]) == texts(part["ops"]["name"])
    assert "The longest op is **all-reduce**" in part["statement"]
    assert "op_profile" in [tab["id"] for tab in p.payload()["meta"]["tabs"]]


def test_on_the_cpu_the_tab_of_ops_says_where_they_are():
    p = nbprof.load("tests/data/xspace/jax_loop.xplane.pb")
    assert p.ops.frame.empty
    said = ops.payload(p.run)["empty"]
    assert said["title"] == "The ops of this run are in compiled programs"
    assert "Op profile" not in said["text"], "the link below names it"


def test_a_run_of_programs_on_the_cpu_has_no_tab_of_gpu_kernels_unless_it_is_asked_for():
    p = nbprof.load("tests/data/xspace/jax_loop.xplane.pb")
    whole = p.payload()
    tabs = {tab["id"] for tab in whole["meta"]["tabs"]}
    assert "kernels" not in tabs
    assert {check["view"] for check in whole["overview"]["checks"]} - {"overview"} <= tabs, (
        "no check leads to a tab that is not there"
    )
    asked = payload.dashboard(p.run, views=["kernels"])
    assert asked["kernels"]["empty"]["text"].startswith(
        "This profile has no GPU plane: the run used only the CPU"
    )


def test_peaks_that_are_given_hold_for_the_cpu_too():
    p = nbprof.load("tests/data/xspace/jax_loop.xplane.pb", peaks={"flops": 1e12, "bytes": 1e11})
    part = op_profile.payload(p.run)
    assert (part["peak_flops"], part["peak_bytes"]) == (1e12, 1e11)
    assert part["figures"][1]["value"] == pytest.approx(
        100 * p.op_profile.frame["flops_utilization"].iloc[0]
    )
    assert "wastes the most" in part["statement"]


@pytest.mark.parametrize(
    ("flops", "bytes_", "many"), [(1e18, 1e18, 0), (1e3, 1e18, 2), (1e18, 1e3, 2)]
)
def test_more_than_the_peak_is_said(tmp_path, flops, bytes_, many):
    made(tmp_path, 2)
    p = nbprof.load(tmp_path, peaks={"flops": flops, "bytes": bytes_})
    said = [note for note in op_profile.payload(p.run)["notes"] if "above a peak" in note]
    assert said == (
        [
            f"{many} ops are above a peak: a cache may serve some of their bytes, or the peak is too low."
        ]
        if many
        else []
    )


def test_ops_of_next_to_no_time_are_not_said_to_be_above_a_peak(tmp_path):
    made(tmp_path, 60)
    # The shortest takes 1 of 1,830 parts of the time, the one before it 2: less and more than 0.1%.
    p = nbprof.load(tmp_path, peaks={"flops": 1.0, "bytes": 1.0})
    assert [
        note
        for note in op_profile.payload(p.run)["notes"]
        if note.startswith("59 ops are above a peak: ")
    ]


def test_the_tab_is_there_where_such_an_op_ran(tmp_path):
    p = profile(tmp_path, gpu_run())
    assert "op_profile" not in [tab["id"] for tab in p.payload()["meta"]["tabs"]]
    part = payload.dashboard(p.run, ["op_profile"])["op_profile"]
    assert (
        part["empty"]["text"] == "No ops of a compiled XLA program ran on a device in this profile."
    )


def test_the_face_shows_its_tab_and_the_report_its_categories(tmp_path):
    p = made(tmp_path, 1100)
    data, _ = p.op_profile._repr_mimebundle_()
    assert "tanh_fusion.0" in data["text/html"]
    assert "1,100 ops" in repr(p.op_profile)
    part = op_profile.payload(p.run)
    (row,) = op_profile.by_category(part, 5)
    tree = p.op_profile.tree("category").iloc[1]
    assert (row.name, row.ops, row.share) == ("loop fusion", 1100, 1.0)
    assert row.flops == pytest.approx(tree["flops_utilization"])
    assert row.bytes == pytest.approx(tree["bandwidth_utilization"])
    assert row.wasted == pytest.approx(tree["wasted_us"] / tree["time_us"])
    html = static.static_html(p.payload())
    assert "Op profile" in html
    assert "loop fusion" in html


def test_categories_beyond_the_first_are_one_row():
    p = nbprof.load("tests/data/xspace/jax_loop.xplane.pb")
    first, last = op_profile.by_category(op_profile.payload(p.run), 1)
    assert (first.name, last.name) == ("all-reduce", "3 other categories")
    assert first.share + last.share == pytest.approx(1)
    assert (first.wasted, first.flops) == (None, None)


def test_names_are_text_in_the_report(tmp_path):
    entry = computation(
        "main", op(HOSTILE, "negate", 12, op_name=HOSTILE, source=f"{HOSTILE}:3"), ident=8, root=12
    )
    plane = PlaneWriter("/device:GPU:0", dict(KNOWN))
    plane.line(
        "Stream #7",
        [
            plane.event(
                "k", 0, US, hlo_op=HOSTILE, hlo_module=HOSTILE, program_id=3, kernel_details=DETAIL
            )
        ],
        line_id=7,
    )
    p = profile(
        tmp_path, xspace(plane, metadata_plane(**{f"{HOSTILE}(3)": (3, program(HOSTILE, entry))}))
    )
    html = static.static_html(payload.dashboard(p.run, ["op_profile"]))
    assert HOSTILE not in html
    assert "Op profile" in html


def test_the_tree_by_framework_op_has_the_same_ops_and_time(tmp_path):
    p = made(tmp_path, 50)
    whole, tree = p.op_profile.frame, p.op_profile.tree("provenance", idle=True)
    ops = tree[tree["kind"] == "op"]
    assert sorted(ops["name"]) == sorted(whole.loc[whole["kind"] == "op", "name"])
    assert tree["name"].tolist()[0] == "All framework ops"
    for row in tree[tree["kind"].isin(["total", "scope"])].itertuples():
        assert tree.loc[tree["parent"] == row.Index, "time_us"].sum() == pytest.approx(row.time_us)
    first = tree[tree["depth"] <= 3]
    assert first.name.tolist()[1:3] == ["jit(train_step)", "transpose(jvp(model))"]
    scope = tree[
        tree["path"]
        == "jit(train_step) › transpose(jvp(model)) › block_7 › attention › dot_general"
    ]
    assert scope["occurrences"].tolist() == [2]


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("jit(f)/transpose(jvp(a/b))//dot", ["jit(f)", "transpose(jvp(a/b))", "dot"]),
        ("", [NONE]),
        ("a)/b(/c", ["a)", "b(/c"]),
    ],
)
def test_scopes_of_a_framework_op(path, parts):
    assert scopes(path) == parts


def test_very_deep_scopes_end_in_one():
    parts = scopes("x/" * 5000 + "y")
    assert len(parts) == MOST_DEEP
    assert parts[-1].endswith("/y")
