"""Ops of compiled programs, the op profile and the roofline, held against XProf: of real profiles,
and of programs made for the purpose.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis import hlo, roofline
from nbprof.analysis.op_profile import op_profile
from nbprof.hlo.hlo import Program
from nbprof.profiles.load import load
from tests.analysis import test_roofline
from tests.parity import peer
from tests.parity.peer import XPROF, same
from tests.parity.test_hlo_cost import DEVICE, US
from tests.support import hlo as build
from tests.support import hlo_programs
from tests.support.profiles import expected, real
from tests.support.programs import CONVERTER, run
from tests.support.xspace import PlaneWriter, xspace

JAX = [name for name in peer.NAMES if name.startswith("jax/")]
AMD = [name for name in JAX if "/mi300" in name]
GIB = 1 << 30
NUMBERS = {
    "rank": ("rank", 1),
    "occurrences": ("occurrences", 1),
    "total_time": ("total_us", 1),
    "avg_time": ("avg_us", 1),
    "total_self_time": ("self_us", 1),
    "avg_self_time": ("avg_self_us", 1),
    "total_self_time_percent": ("self_fraction", 0.01),
    "cumulative_total_self_time_percent": ("cumulative_fraction", 0.01),
    "model_flop_rate": ("flops_per_second", 1e9),
    "normalized_flop_rate": ("normalized_flops_per_second", 1e9),
    "measured_memory_bw": ("bytes_per_second", GIB),
    "hbm_bw": ("memory_bytes_per_second", GIB),
    "operational_intensity": ("operational_intensity", 1),
}
TEXTS = {
    "hlo_op_name": "op",
    "category": "category",
    "hlo_op_expression": "expression",
    "bound_by": "bound_by",
}
UNUSED = {
    "dma_stall_percent",
    "cmem_read_bw",
    "cmem_write_bw",
    "outside_compilation",
    "autotuned",
    "core_type",
    "parent_op_name",
}
ASK = """
import sys
from xprof.convert import raw_to_tool_data as xprof
for tool in ("hlo_stats", "op_profile", "roofline_model"):
    open(sys.argv[1] + "." + tool, "wb").write(xprof.xspace_to_tool_data([sys.argv[1]], tool, {})[0])
"""


def rows_held(theirs, ours, what, but=()):
    """Each column of HLO stats."""
    assert set(theirs.columns) <= {
        *NUMBERS,
        *TEXTS,
        *UNUSED,
        "program_id",
        "tf_op_name",
        "source_info",
        "hlo_rematerialization",
        "vdd_energy",
    }
    for key, (column, unit) in NUMBERS.items():
        if key not in but:
            same(ours[column] / unit, theirs[key], f"{what} {column}", absolute=1e-12)
    for key, column in TEXTS.items():
        same(ours[column], theirs[key], f"{what} {column}")
    same(
        [str(ident % (1 << 64)) for ident in ours["program_id"]],
        theirs["program_id"],
        f"{what} program",
    )
    same(ours["framework_op"], theirs["tf_op_name"].str.removesuffix(":"), f"{what} framework op")
    same(
        np.where(ours["rematerialized"], "Yes", "No"),
        theirs["hlo_rematerialization"],
        f"{what} rematerialized",
    )
    said = (
        theirs["source_info"]
        .str.extract(r">([^<]*)</div>")[0]
        .fillna("")
        .str.replace(r":-1\Z", "", regex=True)
    )
    same(ours["source"], said, f"{what} source")


@pytest.mark.parametrize("name", JAX)
def test_as_xprof_has_the_rows_of_hlo_stats_in_their_order(name):
    theirs = peer.xprof(name, "hlo_stats")[0]
    ours = peer.profile(name).hlo.as_xprof()
    assert len(ours) > 0
    rows_held(theirs, ours, name)


@pytest.mark.parametrize("name", JAX)
def test_the_frame_is_xprofs_but_for_what_is_known(name):
    p = peer.profile(name)
    ours, theirs = p.hlo.frame, p.hlo.as_xprof()
    for column in (
        "op",
        "program",
        "total_us",
        "self_us",
        "expression",
        "category",
        "framework_op",
        "source",
        "shape",
    ):
        assert ours[column].tolist() == theirs[column].tolist(), column
    # Shares are of the ops, without idle.
    assert ours["self_fraction"].sum() == pytest.approx(1)
    assert theirs["self_fraction"].sum() <= 1 + 1e-12
    factor = p.run.activity.op_parts.frame().set_index(["program", "name"])["xprof_runs"]
    for row, other in zip(ours.itertuples(), theirs.itertuples(), strict=True):
        times = float(factor.loc[(row.program_id, row.op)])
        if times:
            assert other.flops == pytest.approx(row.flops * times), row.op
            assert other.occurrences == pytest.approx(row.occurrences * times), row.op
        else:
            # A matrix product by cuBLAS's older interface, which XProf does not count.
            assert (other.flops, row.category) == (0, "custom-call")
            assert row.flops > 0
    gone = ours["bytes_per_second"].isna()
    assert ours.loc[gone, "op"].str.startswith("copy-").all()
    assert gone.any() == ("tpu" in name)


def nodes(tree):
    """By path what XProf says of each node: time in us, utilization of FLOPS by part of the time,
    of bandwidth, and runs.
    """
    found = {}
    open_ = [((), tree)]
    while open_:
        path, node = open_.pop()
        told = node["metrics"]
        found[path] = (
            told["rawTime"] / 1e6,
            told["uncappedFlops"],
            told["bandwidthUtils"][0],
            told["occurrences"],
            node.get("numChildren", 0),
        )
        open_ += [((*path, child["name"]), child) for child in node["children"]]
    return found


def by_its_peaks(name):
    """A profile with the bandwidth that XProf takes for the device's, so that all that follows from
    it can be compared.
    """
    peak = float(peer.xprof(name, "roofline_model")[0].attrs["peak_hbm_bw"]) * GIB
    p = peer.profile(name)
    own = p.roofline.peaks.bytes_per_second
    if own == pytest.approx(peak, rel=1e-5):
        return p
    assert name in AMD, name
    assert own == pytest.approx(2 * peak, rel=1e-5)
    return load(real(name), peaks={"bytes": own / 2})


def tree_held(activity, answer, names=None):
    count = 0
    for key, idle in (("byProgram", True), ("byProgramExcludeIdle", False)):
        theirs = nodes(answer[key])
        frame = op_profile.frame(activity, hlo.measured(activity, as_xprof=True), with_idle=idle)
        ours = {
            () if row.depth == 0 else tuple(row.path.split(" › ")): row
            for row in frame.itertuples()
        }
        if names:
            ours = {(names(path[0]), *path[1:]) if path else (): row for path, row in ours.items()}
        shown = {path for path, row in ours.items() if row.kind != "fused"}
        # Only a TPU's profile names what is inside a fusion.
        assert shown <= set(theirs)
        assert set(theirs) <= set(ours)
        # What runs other ops has their FLOPs and bytes in XProf's tree, so that a program counts
        # those twice; here the ops alone have them. Of a tuple XProf has the table of its parts in
        # one place as bytes, in the other not.
        odd = {path for path in shown if set(path) & {*hlo.CONTAINERS, "tuple"}}
        odd |= {path[:1] for path in odd}
        for path in shown:
            row, (time, flops, bandwidth, runs, children) = ours[path], theirs[path]
            assert row.time_us == pytest.approx(time), path
            if row.kind in ("category", "duplicates", "op"):
                assert row.occurrences == runs, path
                # Bytes over no time: XProf cuts it to 1.
                mine = (
                    1.0
                    if row.bytes > 0 and np.isnan(row.bandwidth_utilization)
                    else np.nan_to_num(row.bandwidth_utilization)
                )
                assert path in odd or min(mine, 1.0) == pytest.approx(
                    bandwidth, rel=1e-6, abs=1e-15
                ), path
            if row.kind != "total" and path not in odd:
                assert np.nan_to_num(row.flops_utilization) * row.time_fraction == pytest.approx(
                    flops, rel=1e-6, abs=1e-18
                ), path
            if row.kind != "op":
                assert children == sum(
                    len(other) == len(path) + 1 and other[:-1] == path for other in shown
                ), path
            count += 1
    return count


@pytest.mark.parametrize("name", JAX)
def test_the_op_profile_has_xprofs_nodes_with_their_figures(name):
    assert tree_held(by_its_peaks(name).run.activity, expected(name, XPROF, "op_profile")) > 6


def test_duplicates_and_the_ops_inside_a_fusion_are_xprofs():
    name = "jax/tpu-v6e-inference"
    theirs = nodes(expected(name, XPROF, "op_profile")["byProgramExcludeIdle"])
    frame = peer.profile(name).op_profile.frame
    inside = frame[frame["kind"] == "fused"]
    assert {tuple(path.split(" › ")) for path in inside["path"]} == {
        path for path in theirs if len(path) == 5
    }
    assert len(inside) == 9
    assert inside["time_us"].isna().all()
    assert frame.loc[frame["kind"] == "duplicates", "name"].tolist() == [
        "broadcast_add_fusion.1 and its duplicate(s)"
    ]


ROOF = {
    "rank": ("rank", 1),
    "occurrences": ("occurrences", 1),
    "total_time": ("total_us", 1),
    "total_self_time": ("self_us", 1),
    "measured_flop_rate": ("flops_per_second", 1e9),
    "hbm_bw": ("bytes_per_second", GIB),
    "hbm_operational_intensity": ("operational_intensity", 1),
    "compute_efficiency": ("compute_fraction", 1),
    "max_mem_bw_utilization": ("bandwidth_fraction", 1),
    "roofline_efficiency": ("roof_fraction", 1),
    "optimal_flop_rate": ("roof_flops_per_second", 1e9),
}


def roof_held(activity, theirs):
    """Both record sets of XProf's roofline, with its row of the whole program."""
    roof = roofline.peaks(activity)
    assert roof.flops_per_second / 1e9 == pytest.approx(
        float(theirs.attrs["peak_flop_rate"]), rel=1e-5
    )
    assert roof.bytes_per_second / GIB == pytest.approx(
        float(theirs.attrs["peak_hbm_bw"]), rel=1e-5
    )
    assert roof.ridge_point == pytest.approx(float(theirs.attrs["hbm_ridge_point"]), rel=1e-5)
    count = 0
    for transfers in (True, False):
        rows = theirs[(theirs["step"] == "Total") & (theirs["include_infeed_outfeed"] == transfers)]
        found = hlo.measured(activity, as_xprof=True)
        ours, total = roofline.frame(activity, roof, found, transfers=transfers)
        whole, rows = rows.iloc[0], rows.iloc[1:].reset_index(drop=True)
        if transfers:
            assert total["time_us"] == pytest.approx(whole["total_time"])
            assert total["flops_per_second"] / 1e9 == pytest.approx(whole["measured_flop_rate"])
            tables = (
                1e12
                * found[0].loc[found[0]["category"] == "tuple", "memory"].sum()
                / (total["time_us"] * 1e6)
            )
            assert (total["bytes_per_second"] - tables) / GIB == pytest.approx(whole["hbm_bw"])
            told = pytest.approx(whole["roofline_efficiency"], rel=1e-6 if not tables else 1e-3)
            assert total["roof_fraction"] == told
            assert str(total["bound_by"]).replace("Device memory", "HBM") == whole["bound_by"]
        same(ours["op"], rows["operation"], "op")
        same(ours["category"], rows["category"], "category")
        sent = ours["bytes_per_second"].notna().to_numpy()
        for key, (column, unit) in ROOF.items():
            known = (
                sent & (rows["measured_flop_rate"] > 0).to_numpy()
                if key == "optimal_flop_rate"
                else sent
            )
            same(
                ours.loc[known, column].fillna(0.0) / unit,
                rows.loc[known, key],
                f"roofline {column}",
                absolute=1e-15,
            )
        same(
            ours.loc[sent, "bound_by"].replace({"": "Unknown", "Device memory": "HBM"}),
            rows.loc[sent, "bound_by"],
            "bound by",
        )
        count += int(sent.sum())
    return count


@pytest.mark.parametrize("name", JAX)
def test_the_roofline_is_xprofs(name):
    p, theirs = by_its_peaks(name), peer.xprof(name, "roofline_model")[0]
    assert roof_held(p.run.activity, theirs) >= 2
    ours = p.roofline.peaks.on_chip
    if "shared_memory" in ours:
        # XProf takes NVIDIA's 32 banks of 4 bytes for twice as many.
        factor = 2 if "Nvidia" in theirs.attrs["device_type"] else 1
        assert factor * ours["shared_memory"] / GIB == pytest.approx(
            float(theirs.attrs["peak_vmem_write_bw"]), rel=1e-5
        )
    else:
        assert {level: f"{peak / GIB:.6g}" for level, peak in ours.items()} == {
            level: theirs.attrs[f"peak_{level}_bw"] for level in ("vmem_read", "vmem_write")
        }


@pytest.mark.parametrize("name", AMD)
def test_no_op_of_an_mi300_moves_more_than_its_memory_can(name):
    p = peer.profile(name)
    assert by_its_peaks(name).roofline.frame["bandwidth_fraction"].max() > 1.1
    assert p.roofline.frame["bandwidth_fraction"].max() < 1


def test_memories_on_the_chip_are_xprofs(tmp_path):
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(
        test_roofline.tpu(3, 2, {**test_roofline.PEAKS, "has_merged_vmem": 1, "has_megacore": 0})
    )
    run(ASK, path, needs=CONVERTER)
    theirs = peer.table(json.loads(path.with_name(f"{path.name}.roofline_model").read_text())[0])
    rows = theirs[(theirs["step"] == "Total") & theirs["include_infeed_outfeed"]].reset_index(
        drop=True
    )
    p = load(path)
    ours = p.roofline.frame
    same(ours["op"], rows["operation"].iloc[1:].str.extract(r"%(\S+)")[0], "op")
    for level in ("cmem_read", "cmem_write", "vmem_read", "vmem_write"):
        same(ours[f"{level}_bytes_per_second"] / GIB, rows[f"{level}_bw"].iloc[1:], level)
    same(ours["bound_by"], rows["bound_by"].iloc[1:], "bound by")
    same(ours["roof_fraction"], rows["roofline_efficiency"].iloc[1:], "roof")
    assert set(ours["bound_by"]) == {"Compute", "HBM", "VMEM Read"}
    whole, total = rows.iloc[0], p.roofline.total
    assert (total["bound_by"], total["roof_fraction"]) == (
        whole["bound_by"],
        pytest.approx(whole["roofline_efficiency"]),
    )


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A GPU that ran each op of each program for 1 us, and XProf's answers about it."""
    texts = {name: hlo_programs.single(*one) for name, one in hlo_programs.OPS.items()}
    texts |= {
        f"fused {name}": hlo_programs.fusion(*one) for name, one in hlo_programs.FUSIONS.items()
    }
    texts |= {
        name: text for name, text in hlo_programs.elementwise() if name.endswith((" f32", " s8"))
    }
    programs = {name: hlo_programs.program(text) for name, text in texts.items()}
    gpu, events = PlaneWriter("/device:GPU:0", DEVICE), []
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
            # Longer from op to op, so that there is but one order.
            at = events[-1][1] if events else 0
            events.append(
                (
                    gpu.event(
                        f"kernel_{op}", at, US + 1000 * len(events), kernel_details=detail, **stats
                    ),
                    at + 2 * US,
                )
            )
    gpu.line("Stream #7(Compute)", [event for event, _ in events], line_id=7)
    path = tmp_path_factory.mktemp("hlo") / "ops.xplane.pb"
    named = {f"m({ident})": (ident, data) for ident, data in enumerate(programs.values(), 1)}
    path.write_bytes(xspace(gpu, build.metadata_plane(**named)))
    run(ASK, path, needs=CONVERTER)
    told = {
        tool: json.loads(path.with_name(f"{path.name}.{tool}").read_text())
        for tool in ("hlo_stats", "op_profile", "roofline_model")
    }
    return load(path), told


def test_every_opcode_has_xprofs_category_and_text(asked):
    p, told = asked
    theirs, ours = peer.table(told["hlo_stats"]), p.hlo.as_xprof()
    # Shardings are left out of the text.
    at = theirs.index[theirs["category"] == "domain"]
    theirs.loc[at, "hlo_op_expression"] = theirs.loc[at, "hlo_op_expression"].str.partition(
        ", domain="
    )[0]
    rows_held(theirs, ours, "live")
    assert len(ours) > 500
    assert ours["category"].nunique() > 50


def test_the_op_profile_of_many_programs_is_xprofs(asked):
    p, told = asked
    assert tree_held(p.run.activity, told["op_profile"]) > 1000


def test_the_roofline_of_many_programs_is_xprofs(asked):
    p, told = asked
    theirs = peer.table(told["roofline_model"][0])
    assert pd.Series(theirs["include_infeed_outfeed"]).nunique() == 2
    assert roof_held(p.run.activity, theirs) > 1000
