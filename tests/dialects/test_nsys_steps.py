"""Which NVTX ranges are steps: right, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbprof
from nbprof.activity.unit import ITERATION
from nbprof.dialects.gpu.ranges import counted
from tests.support import nsys
from tests.support.nsys import US


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("step 12", (12,)),
        ("Step_3", (3,)),
        ("iteration3", (3,)),
        ("Iteration 7/100", (7,)),
        ("Epoch 2 batch 40", (2, 40)),
        ("train_step", ()),
        ("trainStep #5", (5,)),
        ("training step [8]", (8,)),
        ("global_step=11", (11,)),
        ("mini-batch: 4 of 10", (4,)),
    ],
)
def test_names_that_mark_steps(name: str, numbers: tuple[int, ...]) -> None:
    found = counted(name)
    assert found is not None
    assert found[1] == numbers


@pytest.mark.parametrize(
    "name",
    [
        "layer 3",
        "optimizer_step 7",
        "Optimizer.step#SGD.step",
        "forward",
        "epoch 3",
        "batch_norm_2",
        "micro batch 1",
        "timestep 4",
        "aten::step",
        "step 1 loss",
        "lr_scheduler step 2",
        "stepper 3",
        "iter_args 5",
        "",
    ],
)
def test_names_that_mark_none(name: str) -> None:
    assert counted(name) is None


def ranges(tmp_path: Path, *names: list[str], work: bool = True, tid: int = 4321) -> nbprof.Profile:
    """A run of four stretches of 100 µs, each with the ranges of some names one in another, and a
    kernel.
    """
    export = nsys.Export()
    nsys.facts(export, 0)
    for i in range(4):
        at = 1000 * US + 100 * US * i
        for depth, of in enumerate(names):
            export.range(of[i % len(of)], at + depth * US, at + (90 - depth) * US, tid=tid)
        if work:
            ident = export.call("cudaLaunchKernel_v7000", at + 20 * US, at + 25 * US, tid=4330)
            export.kernel("k", at + 30 * US, at + 40 * US, ident)
    export.call("cudaDeviceSynchronize_v3020", 1390 * US, 1395 * US)
    if not work:
        for i in range(8):
            ident = export.call(
                "cudaLaunchKernel_v7000", (1400 + 10 * i) * US, (1401 + 10 * i) * US
            )
            export.kernel("k", (1402 + 10 * i) * US, (1405 + 10 * i) * US, ident)
    return nbprof.load(export.sqlite(tmp_path / "a.sqlite"))


def test_the_longest_family_wins(tmp_path: Path) -> None:
    inner = [f"batch {i}" for i in range(4)]
    profile = ranges(tmp_path, [f"step {i}" for i in range(4)], inner)
    assert profile.steps.frame["name"].tolist() == ["step 0", "step 1", "step 2", "step 3"]
    assert "called 'step N'; 'batch N' could mark steps too." in str(profile.receipt)


def test_ranges_that_do_not_count_are_numbered(tmp_path: Path) -> None:
    assert ranges(tmp_path, ["train_step"]).steps.frame["name"].tolist() == [
        f"train_step {i}" for i in range(4)
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["layer 0", "layer 1", "layer 2", "layer 3"],
        ["step 1", "step 0"],
        ["step 3", "step 3"],
        ["optimizer step 1", "optimizer step 2"],
    ],
    ids=["layers", "falling", "the same", "parts of steps"],
)
def test_what_does_not_count_up_is_no_step(tmp_path: Path, names: list[str]) -> None:
    unit = ranges(tmp_path, names).run.activity.unit
    assert unit.kind == ITERATION
    assert "No steps are marked. The units are the 4 ranges called" in unit.how, (
        "an estimate by what repeats"
    )


def test_ranges_that_launch_nothing_are_no_steps(tmp_path: Path) -> None:
    profile = ranges(tmp_path, [f"step {i}" for i in range(4)], work=False)
    assert profile.steps.frame["name"].tolist() == ["recording"]
