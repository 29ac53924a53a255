"""Ops of compiled programs, their profile and their roofline, where files are damaged or odd, and
what the views make of them.
"""

from __future__ import annotations

import pytest

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.profiles.load import load
from nbprof.schema import frames
from nbprof.tools.hlo import payload as roofline
from tests.support.build import profile
from tests.support.frames import public
from tests.support.hlo import computation, instruction, metadata_plane, program, shape
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, UInt, chunk, training_run, varint, xspace

US = MS // 1000
DETAIL = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1"
KNOWN = {
    "device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 100, "clock_rate": 1_000_000,
    "memory_bandwidth": 10**12,
}  # fmt: skip
F32 = 11


def packed(field, *idents):
    return chunk(field, b"".join(varint(ident) for ident in idents))


def op(name, opcode, ident, *operands, dims=(1000,), **more):
    extra = (
        chunk(3, shape(F32, *dims))
        + (packed(36, *operands) if operands else b"")
        + more.pop("extra", b"")
    )
    return instruction(name, opcode, ident=ident, extra=extra, **more)


FUSED = computation(
    "fused",
    op("p0", "parameter", 1),
    op("tanh.1", "tanh", 2, 1),
    op("add.1", "add", 3, 2, 1),
    ident=7,
    root=3,
)
ENTRY = computation(
    "main",
    op("a", "parameter", 11),
    op(
        "add_fusion",
        "fusion",
        12,
        11,
        kind="kLoop",
        op_name="jit(f)/add",
        source="model.py:3",
        extra=packed(38, 7),
    ),
    op("mul.1.remat", "multiply", 13, 12, 12),
    ident=8,
    root=13,
)
JIT = program("jit_f", FUSED, ENTRY)


def kernel(at, name, hlo, ident=3, length=10 * US, **stats):
    return (
        name,
        at,
        length,
        {
            "hlo_op": hlo,
            "hlo_module": "jit_f",
            "program_id": ident,
            "kernel_details": DETAIL,
            **stats,
        },
    )


def run(tmp_path, *kernels, programs=None, stats=KNOWN):
    plane = PlaneWriter("/device:GPU:0", dict(stats))
    plane.line(
        "Stream #7(Compute)",
        [plane.event(name, at, length, **more) for name, at, length, more in kernels],
        line_id=7,
    )
    known = {"jit_f(3)": (3, JIT)} if programs is None else programs
    tmp_path.mkdir(exist_ok=True)
    return profile(
        tmp_path,
        xspace(
            plane,
            *(metadata_plane(**one) for one in (known if isinstance(known, list) else [known])),
        ),
    )


@pytest.mark.parametrize("calls", [1, 2])
def test_kernels_of_a_cuda_graph_are_of_the_ops_that_they_are_named_after(tmp_path, calls):
    """They all state the graph as their op, which is none of the program. Which call of a library a
    kernel is of is known of one alone.
    """
    libraries = [
        op(f"custom-call.{i}", "custom-call", 20 + i, extra=chunk(28, "__cublas$lt$matmul"))
        for i in range(calls)
    ]
    entry = computation(
        "main",
        op("a", "parameter", 11),
        op("loop_add_fusion.2", "add", 12, 11, 11),
        *libraries,
        ident=8,
        root=12,
    )
    graph = {"hlo": "command_buffer_1", "ident": 5}
    p = run(
        tmp_path,
        kernel(0, "loop_add_fusion_2", **graph, correlation_id=1),
        kernel(20 * US, "nvjet_sm90_NNT", **graph, correlation_id=1),
        kernel(40 * US, "memcpy128", **graph, correlation_id=1),
        kernel(60 * US, "loop_add_fusion_2", **graph, correlation_id=2),
        programs={"jit_g(5)": (5, program("jit_g", entry, ident=8))},
    )
    frame = p.hlo.frame.set_index("op")
    library = "custom-call.0" if calls == 1 else "nvjet_sm90_NNT"
    assert frame["occurrences"].to_dict() == {
        "loop_add_fusion.2": 2,
        library: 1,
        "command_buffer_1": 1,
    }
    assert frame["category"].to_dict() == {
        "loop_add_fusion.2": "non-fusion elementwise",
        library: "custom-call" if calls == 1 else "",
        "command_buffer_1": "",
    }
    assert set(p.kernels.frame["op"]) == set(frame.index)
    assert not len(p.hlo.as_xprof()), "which looks for the graph in the program"


def test_rows_are_ops_of_programs(tmp_path):
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion"),
        kernel(20 * US, "k2", "mul.1.remat"),
        kernel(40 * US, "k1", "add_fusion"),
    )
    frame = p.hlo.frame
    assert frame["op"].tolist() == ["add_fusion", "mul.1.remat"]
    first = frame.iloc[0]
    assert first["program"] == "jit_f(3)"
    assert (first["category"], first["occurrences"], first["self_us"], first["framework_op"]) == (
        "loop fusion",
        2,
        20.0,
        "jit(f)/add",
    )
    assert (
        first["expression"]
        == "%add_fusion = f32[1000]{0} fusion(f32[1000]{0} %a), kind=kLoop, calls=%fused"
    )
    assert (first["shape"], first["layout"], first["source"]) == ("f32[1000]", "{0}", "model.py:3")
    # Read once and written once, 4 bytes an element, in 10 us.
    assert (first["bytes"], first["bytes_per_second"]) == (2 * 8000, pytest.approx(8000 / 10e-6))
    assert frame["rematerialized"].tolist() == [False, True]
    assert frame["category"].tolist() == ["loop fusion", "non-fusion elementwise"]
    assert frame["self_fraction"].tolist() == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert p.hlo.by("program")["self_us"].tolist() == [30.0]
    with pytest.raises(NbprofError, match="column must be one of 'category'"):
        p.hlo.by("colour")


def test_ops_of_a_program_that_is_not_in_the_file_are_kept_and_said(tmp_path):
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion"),
        kernel(20 * US, "k2", "dot.7", ident=UInt((1 << 64) - 5)),
    )
    frame = p.hlo.frame.set_index("op")
    assert frame.loc["dot.7", ["program", "in_file", "expression", "category"]].tolist() == [
        "jit_f(18446744073709551611)",
        False,
        "",
        "",
    ]
    assert frame.loc["dot.7", ["flops", "bytes", "flops_per_second"]].isna().all()
    assert frame.loc["dot.7", "self_us"] == 10.0
    # XProf drops them, and takes their time for idle.
    assert p.hlo.as_xprof()["op"].tolist() == ["add_fusion"]
    assert p.hlo.as_xprof()["self_fraction"].tolist() == [pytest.approx(10 / 30)]
    assert "1 compiled program that ran is not in the file" in str(p.receipt)
    tree = p.op_profile.frame.set_index("name")
    assert tree.loc["jit_f(18446744073709551611)", "time_us"] == 10.0
    assert tree.loc["dot.7", "category"] == "unknown"
    assert (
        tree.loc[["dot.7"], ["flops_utilization", "bandwidth_utilization", "wasted_us"]]
        .isna()
        .all(axis=None)
    )
    assert p.roofline.frame.set_index("op").loc["dot.7", "bound_by"] == ""


@pytest.mark.parametrize(
    ("ident", "signed", "key"),
    [((1 << 64) - 5, -5, 6), ((1 << 64) - 5, -5, -5), (1 << 40, 1 << 40, 6)],
)
def test_a_program_that_the_file_only_counts_is_known_by_the_number_behind_its_name(
    tmp_path, ident, signed, key
):
    """The keys of programs in the file are signed, or count; the ops state the ident."""
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion", ident=UInt(ident)),
        programs={f"jit_f({ident})": (key, JIT)},
    )
    first = p.hlo.frame.iloc[0]
    assert first[["program", "in_file", "framework_op"]].tolist() == [
        f"jit_f({ident})",
        True,
        "jit(f)/add",
    ]
    assert first["program_id"] == signed


def test_a_tpu_program_of_a_large_ident_has_its_name_and_its_source():
    """Its key in the file is 6, its ident 17342868964687645945."""
    p = load(real("findings/D5-program-id"))
    row = p.hlo.frame.iloc[0]
    assert (row["program"], bool(row["in_file"])) == (
        "jit_matmul_optimized(17342868964687645945)",
        True,
    )
    assert row["expression"].startswith("%matmul_optimized.1 = ")
    assert p.op_profile.frame["name"].iloc[1] == "jit_matmul_optimized(17342868964687645945)"
    assert "not in the file" not in str(p.receipt)


def test_an_op_that_its_program_does_not_have(tmp_path):
    p = run(tmp_path, kernel(0, "k1", "add_fusion"), kernel(20 * US, "k2", "no_such_op"))
    row = p.hlo.frame.set_index("op").loc["no_such_op"]
    assert (row["program"], row["in_file"], row["expression"], row["shape"]) == (
        "jit_f(3)",
        True,
        "",
        "",
    )
    assert row["self_us"] == 10.0


def test_programs_with_one_ident_are_said(tmp_path):
    other = program("jit_g", computation("main", op("add_fusion", "negate", 12)))
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion"),
        programs=[{"jit_f(3)": (3, JIT)}, {"jit_g(3)": (3, other)}],
    )
    assert p.hlo.frame["category"].tolist() == ["loop fusion"]
    assert "same id as jit_g(3)" in str(p.receipt)


def test_a_damaged_program_and_damaged_ops(tmp_path):
    p = run(tmp_path, kernel(0, "k1", "add_fusion"), programs={"jit_f(3)": (3, JIT[:-20])})
    assert p.hlo.frame[["op", "expression"]].to_numpy().tolist() == [["add_fusion", ""]]
    assert "is damaged" in str(p.receipt)
    bad = program(
        "jit_f",
        computation(
            "main", instruction("add_fusion", "add", ident=12, extra=chunk(3, b"\x2a\x7f"))
        ),
    )
    p = run(tmp_path / "op", kernel(0, "k1", "add_fusion"), programs={"jit_f(3)": (3, bad)})
    assert p.hlo.frame[["op", "expression"]].to_numpy().tolist() == [["add_fusion", ""]]
    assert len(p.op_profile.frame) == 4


def test_a_fusion_that_contains_itself_is_shown_once(tmp_path):
    loop = computation(
        "fused", op("f", "fusion", 2, kind="kLoop", extra=packed(38, 7)), ident=7, root=2
    )
    entry = computation(
        "main", op("add_fusion", "fusion", 12, kind="kLoop", extra=packed(38, 7)), ident=8, root=12
    )
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion"),
        programs={"jit_f(3)": (3, program("jit_f", loop, entry))},
    )
    assert p.op_profile.frame["kind"].tolist() == ["total", "program", "category", "op", "fused"]


def test_the_tree_adds_up_and_waste_is_what_the_better_resource_leaves(tmp_path):
    p = run(
        tmp_path, kernel(0, "k1", "add_fusion"), kernel(20 * US, "k2", "mul.1.remat", length=5 * US)
    )
    tree = p.op_profile.tree(idle=True)
    assert tree["kind"].tolist()[0] == "total"
    for row in tree[tree["kind"].isin(["total", "program", "category"])].itertuples():
        children = tree[tree["parent"] == row.Index]
        assert children["time_us"].sum() == pytest.approx(row.time_us)
        assert (children["depth"] == row.depth + 1).all()
    assert tree.loc[tree["kind"] == "idle", "time_us"].tolist() == [10.0]
    assert tree["time_fraction"].iloc[0] == 1
    fusion = tree.set_index("name").loc["add_fusion"]
    assert fusion["bandwidth_utilization"] == pytest.approx(8000 / 10e-6 / 1e12)
    assert fusion["wasted_us"] == pytest.approx(
        10 * (1 - max(fusion["bandwidth_utilization"], fusion["flops_utilization"]))
    )
    # The ops inside, dearest first; the parameter is none.
    assert tree.loc[tree["kind"] == "fused", "name"].tolist() == ["tanh.1", "add.1"]
    assert p.op_profile.tree("category")["path"].tolist()[1:3] == [
        "loop fusion",
        "loop fusion › add_fusion",
    ]
    assert p.op_profile.top(1)["name"].tolist() == ["add_fusion"]
    for bad in (
        lambda: p.op_profile.tree("host"),
        lambda: p.op_profile.top(0),
        lambda: p.op_profile.top("3"),
        lambda: p.op_profile.top(3, "name"),
    ):
        with pytest.raises(NbprofError):
            bad()


def test_ops_that_the_compiler_made_of_the_same_code_lie_together(tmp_path):
    """The compiler notes it in the metadata of ops; the first states its own name, and one may
    state nothing.
    """
    ops = [
        op(
            f"fusion.{i}",
            "fusion",
            12 + i,
            kind="kLoop",
            extra=packed(38, 7) + (chunk(7, chunk(12, "fusion.0")) if i else b""),
        )
        for i in range(3)
    ]
    data = program(
        "jit_f", FUSED, computation("main", *ops, op("tanh", "tanh", 30), ident=8, root=30)
    )
    kernels = [
        kernel(20 * i * US, f"k{i}", name)
        for i, name in enumerate(("fusion.0", "fusion.1", "fusion.2", "tanh"))
    ]
    p = run(tmp_path, *kernels, programs={"jit_f(3)": (3, data)})
    frame = p.op_profile.frame
    together = frame[frame["kind"] == "duplicates"]
    assert together["name"].tolist() == ["fusion.0 and its duplicate(s)"]
    assert together["time_us"].tolist() == [30.0]
    assert frame.loc[frame["parent"] == together.index[0], "name"].tolist() == [
        "fusion.0",
        "fusion.1",
        "fusion.2",
    ]


def test_duplicates_of_a_recorded_program_lie_together():
    frame = load(real("findings/D9-D10-custom-calls")).op_profile.frame
    together = frame[frame["kind"] == "duplicates"]
    assert together["name"].tolist() == [
        "gemm_fusion_dot and its duplicate(s)",
        "loop_reduce_fusion.3 and its duplicate(s)",
    ]
    assert together["time_us"].tolist() == pytest.approx([1713.255, 339.243])


def test_what_is_wasted_of_several_ops_is_that_of_all_together(tmp_path):
    """As the tooltip says, it is not the sum over the ops inside."""
    p = run(tmp_path, kernel(0, "k1", "add_fusion"), kernel(20 * US, "k2", "mul.1.remat"))
    # The one then computes at half of the peak, the other moves bytes at half of the peak.
    told = p.hlo.frame.set_index("op")
    peaks = {
        "flops": 2 * told.loc["add_fusion", "flops_per_second"],
        "bytes": 2 * told.loc["mul.1.remat", "memory_bytes_per_second"],
    }
    tree = nbprof.load(tmp_path / "host-a.xplane.pb", peaks=peaks).op_profile.frame
    ops, root = tree[tree["kind"] == "op"], tree.iloc[0]
    used = root[["flops_utilization", "bandwidth_utilization"]].max()
    assert root["wasted_us"] == pytest.approx(root["time_us"] * (1 - used))
    assert root["wasted_us"] > 1.1 * ops["wasted_us"].sum()
    assert "it is not the sum over them" in frames.column("op_profile.frame", "wasted_us").help


@pytest.mark.parametrize(
    ("vendor", "major", "minor", "memory"),
    [
        ("Nvidia", 7, 0, "HBM"),
        ("Nvidia", 7, 5, "Device memory"),
        ("Nvidia", 8, 6, "Device memory"),
        ("Nvidia", 9, 0, "HBM"),
        ("Nvidia", 12, 0, "Device memory"),
        ("AMD", 9, 4, "HBM"),
        ("AMD", 10, 3, "Device memory"),
    ],
)
def test_main_memory_goes_by_what_it_is(tmp_path, vendor, major, minor, memory):
    stats = KNOWN | {
        "device_vendor": vendor,
        "compute_cap_major": major,
        "compute_cap_minor": minor,
    }
    p = run(tmp_path, kernel(0, "k1", "mul.1.remat"), stats=stats)
    assert p.hlo.frame["bound_by"].tolist() == p.roofline.frame["bound_by"].tolist() == [memory]
    assert p.ops.frame.loc[p.ops.frame["where"] == "device", "bound_by"].tolist() == [memory]
    assert p.hlo.as_xprof()["bound_by"].tolist() == ["HBM"], "XProf says so of each"
    said = {one["key"]: one for one in roofline.payload(p.run)["figures"]}["bound_by_memory"]
    assert (said["label"], said["value"]) == (
        f"Bound by {memory if memory == 'HBM' else 'device memory'}",
        0,
    ), "at 0.2% of its peak"


def test_peaks_of_a_device_that_is_not_known_are_asked_for_and_may_be_given(tmp_path):
    p = run(tmp_path, kernel(0, "k1", "add_fusion"), stats={"device_vendor": "Tomorrow"})
    mine = p.roofline
    assert "pass the device's peaks to p.roofline(peak_flops=..., peak_bytes=...)" in mine.missing
    assert mine.frame[["roof_fraction", "roof_flops_per_second"]].isna().all(axis=None)
    assert mine.frame["flops_per_second"].notna().all()
    assert mine.frame["bound_by"].tolist() == [""]
    given = mine(peak_flops=1e12, peak_bytes=1e9)
    assert given.missing == ""
    assert given.peaks.ridge_point == 1000
    row = given.frame.iloc[0]
    assert row["bound_by"] == "Device memory"
    assert row["roof_fraction"] == pytest.approx(8000 / 10e-6 / 1e9)
    assert row["roof_flops_per_second"] == pytest.approx(row["operational_intensity"] * 1e9)
    half = mine(peak_flops=1e12)
    assert "peak memory bandwidth of" in half.missing
    for bad in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(NbprofError, match="above 0"):
            mine(peak_bytes=bad)


@pytest.mark.parametrize(
    "make", [lambda: training_run(3), lambda: xspace(PlaneWriter("/host:CPU"))]
)
def test_without_ops_of_programs_there_are_empty_frames_and_a_sentence(tmp_path, make):
    p = profile(tmp_path, make())
    for name in ("hlo", "op_profile", "roofline"):
        face = getattr(p, name)
        assert face.frame.empty
        assert list(face.frame.columns) == frames.names(f"{name}.frame")
        assert face.missing.endswith(".")
        shown = face._repr_mimebundle_()
        assert face.missing in (shown[0] if isinstance(shown, tuple) else shown)["text/html"]
        with pytest.raises(NbprofError):
            face.figure()
    assert p.hlo.as_xprof().empty
    assert p.roofline.total["time_us"] == 0


def test_frames_are_as_declared(tmp_path):
    p = run(tmp_path, kernel(0, "k1", "add_fusion"), kernel(20 * US, "k2", "mul.1.remat"))
    for name in ("hlo.frame", "op_profile.frame", "roofline.frame", "roofline.steps"):
        assert {c: str(t) for c, t in public(p, name).dtypes.items()} == frames.dtypes(name), name
    with pytest.raises(KeyError, match="has no column"):
        frames.column("hlo.frame", "none")


def test_names_of_a_profile_are_text_in_the_tables(tmp_path):
    entry = computation("main", op("<script>x</script>", "negate", 12), ident=8, root=12)
    p = run(
        tmp_path,
        kernel(0, "k", "<script>x</script>"),
        programs={"<b>(3)": (3, program("<b>", entry))},
    )
    for face in (p.hlo, p.op_profile, p.roofline, p.roofline(peak_flops=1e12)):
        shown = face._repr_mimebundle_()
        html = (shown[0] if isinstance(shown, tuple) else shown)["text/html"]
        assert "<script>x" not in html
        assert "<b>(3)" not in html
        assert "&lt;script&gt;x" in html


def test_figures(tmp_path):
    p = run(tmp_path, kernel(0, "k1", "add_fusion"), kernel(20 * US, "k2", "mul.1.remat"))
    from bokeh.models import ColumnDataSource, LogAxis

    def columns(plot):
        return [s.data for s in plot.select({"type": ColumnDataSource})]

    assert columns(p.hlo.figure())[0]["name"] == ["loop fusion", "non-fusion elementwise"]
    tree = columns(p.op_profile.figure())[0]
    assert [path.split(" › ")[-1] for path in tree["path"]] == [
        *(
            "All programs",
            "jit_f(3)",
            "loop fusion",
            "add_fusion",
            "non-fusion elementwise",
            "mul.1.remat",
        ),
    ]
    assert len({len(label) for label in tree["label"]}) == 1
    whole = p.op_profile.frame.iloc[0]
    assert tree["used"][0] == pytest.approx((whole["time_us"] - whole["wasted_us"]) / 1000)
    plot = p.roofline.figure()
    assert len(plot.select({"type": LogAxis})) == 2
    points = next(data for data in columns(plot) if "op" in data)
    assert points["op"] == ["add_fusion", "mul.1.remat"]
    # The line bends where both peaks meet.
    roof = next(
        data
        for data in columns(plot)
        if "op" not in data and p.roofline.peaks.ridge_point in data["x"]
    )
    assert max(roof["y"]) == pytest.approx(p.roofline.peaks.flops_per_second / 1e9)
    unknown = run(
        tmp_path / "unknown", kernel(0, "k1", "add_fusion"), stats={"device_vendor": "Tomorrow"}
    ).roofline.figure()
    assert "pass the device's peaks" in unknown.title.text
