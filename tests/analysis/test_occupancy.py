"""Theoretical occupancy by hand for one limit at a time, and against what recorders state."""

import numpy as np
import pytest

from nbprof.analysis.kernels import _sides
from nbprof.analysis.occupancy import LIMITS, achieved_percent, limits, theoretical_percent
from tests.parity.peer import profile
from tests.support.kineto import load
from tests.support.profiles import real


def one(capability, threads, registers, shared):
    return theoretical_percent(
        [capability], *(np.array([v], np.float64) for v in (threads, registers, shared))
    )[0]


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "percent"),
    [
        ("8.0", 256, 32, 0, 100.0),  # 8 blocks of 8 warps, 32 registers x 2048 threads
        (
            "8.0",
            256,
            64,
            0,
            50.0,
        ),  # registers: 64 x 32 = 2048 a warp, 8 warps a partition, 32 of 64
        (
            "8.0",
            256,
            65,
            0,
            37.5,
        ),  # registers are given to a warp in units of 256: 2304, 7 a partition, 28 warps, 3 blocks of 8
        ("8.0", 32, 16, 0, 50.0),  # 32 blocks of one warp
        ("8.6", 32, 16, 0, 100 * 16 / 48),
        (
            "8.0",
            128,
            32,
            40 * 1024,
            100 * 4 * 4 / 64,
        ),  # 164 KiB hold four times 40 KiB and 1 KiB kept by the system
        ("8.0", 128, 32, 41 * 1024, 100 * 3 * 4 / 64),
        ("7.0", 128, 32, 48 * 1024, 100 * 2 * 4 / 64),  # nothing is kept before 8.0
        ("7.5", 1024, 32, 0, 100.0),
        ("9.0", 384, 168, 231424, 100 * 12 / 64),  # 227 KiB are all that a block can have
        ("12.0", 1024, 32, 0, 100 * 32 / 48),
        ("8.0", 100, 32, 0, 100.0),  # a block of 100 threads has 4 warps
    ],
)
def test_one_limit_at_a_time(capability, threads, registers, shared, percent):
    assert one(capability, threads, registers, shared) == pytest.approx(percent)


def test_what_is_not_known_is_absent():
    assert np.isnan(one("9.9", 128, 32, 0))
    assert np.isnan(one(None, 128, 32, 0))
    assert np.isnan(one("8.0", np.nan, 32, 0))
    assert np.isnan(one("8.0", 128, np.nan, 0))
    assert np.isnan(one("8.0", 128, 32, np.nan))
    assert np.isnan(one("8.0", 0, 32, 0))
    assert np.isnan(one("8.0", 1024, 255, 0)), (
        "a block that fits on no multiprocessor did not run there"
    )
    assert np.isnan(one("7.5", 128, 32, 2**20))
    assert limits("8.x") is None


def test_no_device_is_more_than_full():
    shapes = [
        (t, r, s)
        for t in (1, 32, 96, 256, 768, 1024)
        for r in (1, 32, 77, 128, 255)
        for s in (0, 1, 5000, 49152, 100000)
    ]
    threads, registers, shared = (np.array(c, np.float64) for c in zip(*shapes, strict=True))
    for major, minor in LIMITS:
        value = theoretical_percent([f"{major}.{minor}"] * len(shapes), threads, registers, shared)
        assert ((value > 0) & (value <= 100) | np.isnan(value)).all()
        some = achieved_percent(
            [f"{major}.{minor}"] * len(shapes),
            threads,
            registers,
            shared,
            np.full(len(shapes), 7.0),
            np.full(len(shapes), 80.0),
        )
        assert (some <= value).all() or np.isnan(value).any()


@pytest.mark.parametrize(
    ("file", "capability", "cores"),
    [
        ("v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz", "7.0", 80),
        ("v100-resnet50-workers4/worker0.1623213129365.pt.trace.json.gz", "7.0", 80),
        ("h100-bert/h100_bert.pt.trace.json.gz", "9.0", 132),
        ("a100-nccl-ranks/sampled_rank-0.json.gz", "8.0", 108),
    ],
)
def test_pytorch_states_the_same(file, capability, cores):
    run = load(real(f"kineto/{file}")).run
    frame = run.kernels[run.kernels["occupancy_source"] == "recorded"]
    assert len(frame) > 5
    threads, blocks = (np.prod(_sides(frame[c]), axis=1) for c in ("block", "grid"))
    ours = achieved_percent(
        [capability] * len(frame),
        threads,
        frame["registers"].to_numpy(np.float64),
        frame["static_shared_bytes"].to_numpy(np.float64),
        blocks,
        np.full(len(frame), float(cores)),
    )
    # PyTorch writes whole percents.
    assert np.abs(ours - frame["occupancy_percent"].to_numpy()).max() <= 0.5 + 1e-6


def test_jax_states_the_same():
    p = profile("jax/gtx1080ti-reactant")
    row = p.kernels.frame.iloc[0]
    assert row["occupancy_source"] == "recorded"
    assert (
        row["occupancy_percent"]
        == one(
            "6.1", 128, row["registers"], row["static_shared_bytes"] + row["dynamic_shared_bytes"]
        )
        == 100.0
    )


def test_old_files_show_an_occupancy_and_amd_none():
    old = profile("tf-gpu/rtx5000-cnn-batch64").kernels.frame
    assert (old["occupancy_source"] == "computed").all()
    assert old["occupancy_percent"].between(1, 100).all()
    amd = profile("jax/mi300-jax08_attention").kernels.frame
    assert amd["occupancy_percent"].isna().all()
    assert amd["occupancy_source"].isna().all()
