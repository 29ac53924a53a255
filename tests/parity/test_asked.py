"""XProf, asked here and now: tables `as_xprof` of made files and of real ones without an answer of
XProf beside them.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from nbprof.profiles.load import load
from tests.parity.peer import same, tables
from tests.parity.test_kernels import COLUMNS as KERNEL_COLUMNS
from tests.parity.test_live import ASK
from tests.parity.test_ops import COLUMNS, RATES
from tests.support.profiles import ROOT
from tests.support.programs import CONVERTER, run
from tests.support.xspace import MS, PlaneWriter, xspace

FINDINGS = ("D2-tf-trace-json/sandor", "D5-program-id/host0", "D9-D10-custom-calls/934987a2fc2f")
TILES = ("Gemm", "Flatmm", "Fmha", "FmhaBwd", "SageAttn", "FmhaFwd", "FusedMoeGemm")


def custom_call():
    """A Pallas kernel of a TPU: what it computes stands with its runs, and of a second one with its
    name.
    """
    tpu = PlaneWriter(
        "/device:TPU:0",
        {
            "device_type_string": "TPU v6 Lite",
            "peak_teraflops_per_second": 900.0,
            "peak_hbm_bw_gigabytes_per_second": 1600.0,
        },
    )
    both = []
    for ident, (said, each) in enumerate(
        (
            ({}, {"flops": 10**9, "bytes_accessed": 10**6}),
            ({"flops": 10**9, "bytes_accessed": 10**6}, {}),
        ),
        1,
    ):
        name = f"%call.{ident} = f32[8]{{0}} custom-call(f32[8]{{0}} %p)"
        tpu.stated(
            name,
            hlo_category="custom-call",
            program_id=5,
            symbol_id=ident,
            tf_op=f"jit(f)/call_{ident}:",
            **said,
        )
        both += [tpu.event(name, (2 * i + ident) * MS, MS // 4, **each) for i in range(3)]
    tpu.line("XLA Ops", both, line_id=3)
    return xspace(tpu)


def amd_kernels():
    """Kernels of ck_tile: the shape of the tile is among the arguments of the templates."""
    gpu = PlaneWriter(
        "/device:GPU:0", {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 5}
    )
    detail = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:50"
    names = [
        f"void ck_tile::kentry<ck_tile::Tile{tile}Shape<ck_tile::sequence<16>>>()" for tile in TILES
    ]
    gpu.line(
        "Stream #1(Kernel)",
        [
            gpu.event(
                name, i * MS, MS - i, correlation_id=i + 1, kernel_details=detail, tf_op="a/B:B"
            )
            for i, name in enumerate(names)
        ],
        line_id=1,
    )
    return xspace(gpu)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """By name a file that XProf has answered about; its answers lie beside it."""
    folder = tmp_path_factory.mktemp("asked")
    for name, make in {"custom_call": custom_call, "amd_kernels": amd_kernels}.items():
        (folder / name).mkdir()
        (folder / name / f"{name}.xplane.pb").write_bytes(make())
    for name in FINDINGS:
        if (path := ROOT / "findings" / f"{name}.xplane.pb").exists():
            (folder / path.parent.name).mkdir()
            shutil.copy(path, folder / path.parent.name)
    run(ASK, folder, "framework_op_stats,kernel_stats", needs=CONVERTER)
    return folder


@pytest.mark.parametrize(
    "name", ["custom_call", "amd_kernels", *(one.partition("/")[0] for one in FINDINGS)]
)
def test_ops_and_kernels_have_its_rows_in_its_order(asked, name):
    folder = asked / name
    if not folder.exists():
        pytest.skip(f"the real profile {name} is not beside this checkout")
    p = load(folder)
    for at, idle in enumerate((True, False)):
        theirs, ours = (
            tables((folder / "framework_op_stats.json").read_bytes())[at],
            p.ops.as_xprof(with_idle=idle),
        )
        for key, column in COLUMNS.items():
            same(ours[column], theirs[key], f"{name} {column}", absolute=1e-12)
        for key, (column, unit) in RATES.items():
            same(
                ours[column] / unit if column in ours else np.zeros(len(ours)),
                theirs[key],
                f"{name} {column}",
                absolute=1e-12,
            )
        same(
            ours["bound_by"] if "bound_by" in ours else ["Unknown"] * len(ours),
            theirs["bound_by"],
            f"{name} bound by",
        )
    theirs, ours = tables((folder / "kernel_stats.json").read_bytes())[0], p.kernels.as_xprof()
    assert len(ours) == len(theirs)
    for key, column in KERNEL_COLUMNS.items() if len(theirs) else ():
        same(ours[column], theirs[key], f"{name} {column}")
