"""Advice rule about library versions that are known to be slow, if the profile has the slow op.

Each row needs the public page of the library's maintainers that names the versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nbprof.analysis.advice.checks import PART_HIGH, PART_MODERATE
from nbprof.analysis.advice.facts import KERNELS, AdviceRule, Facts
from nbprof.analysis.rule import INFERRED, PYTORCH, Found, Rule, Shown, Threshold
from nbprof.display import wording

NAME = "slow_versions"


class Slow(NamedTuple):
    """Versions of a library in which ops that match `ops` run slow code: from `first` up to, but
    excluding, `fixed`.

    `unless` is another library and the version of it from which on these ops are not slow.
    """

    library: str
    first: tuple[int, ...]
    fixed: tuple[int, ...]
    unless: tuple[str, tuple[int, ...]] | None
    ops: re.Pattern[str]
    why: str
    remedy: str
    source: str


_CONV3D = re.compile(r"aten::slow_conv_dilated3d\Z")

KNOWN = (
    Slow(
        library="PyTorch",
        first=(2, 9),
        fixed=(2, 9, 1),
        unless=None,
        ops=_CONV3D,
        why="16-bit 3D convolutions do not use cuDNN",
        remedy=(
            "+assert torch.__version__ >= '2.9.1'  # with nvidia-cudnn-cu12>=9.15, or PyTorch 2.10"
        ),
        source="https://github.com/pytorch/pytorch/issues/166122",
    ),
    Slow(
        library="PyTorch",
        first=(2, 9, 1),
        fixed=(2, 10),
        unless=("cuDNN", (9, 15)),
        ops=_CONV3D,
        why="16-bit 3D convolutions do not use cuDNN before 9.15",
        remedy=(
            "+assert torch.backends.cudnn.version() >= 91500  # pip install"
            " 'nvidia-cudnn-cu12>=9.15', or PyTorch 2.10"
        ),
        source="https://github.com/pytorch/pytorch/issues/166643",
    ),
)


def version(text: str) -> tuple[int, ...]:
    """`2.9.1+cu128` as numbers; () for anything else."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def may_be_slow(versions: Mapping[str, str]) -> list[Slow]:
    """The rows that hold for these versions; a row on an unknown version does not."""
    return [
        row
        for row in KNOWN
        if row.first <= version(versions.get(row.library, "")) < row.fixed
        and _lacks(row.unless, versions)
    ]


def _lacks(unless: tuple[str, tuple[int, ...]] | None, versions: Mapping[str, str]) -> bool:
    return unless is None or () < version(versions.get(unless[0], "")) < unless[1]


def _slow_versions(facts: Facts, limit: Threshold) -> Found | None:
    kernels, kernel_us = facts.computing
    if not kernel_us:
        return None
    versions = facts.evidence.versions
    for row in may_be_slow(versions):
        slow_kernels = kernels[kernels["op"].astype(str).str.match(row.ops)]
        gain = facts.compute_ms * float(slow_kernels["total_us"].sum()) / kernel_us
        share = 100 * gain / facts.mean["step_time"]
        if 100 * gain < limit["moderate"] * facts.mean["step_time"]:
            continue
        other_library = ""
        if row.unless:
            other_library = f" with {row.unless[0]} **{versions[row.unless[0]]}**"
        text = (
            f"**{wording.millis(gain)}** {facts.unit.per} are in {slow_kernels['op'].iloc[0]}: in"
            f" {row.library} **{versions[row.library]}**{other_library}, {row.why} ({row.source})."
        )
        return Found(text, severity=limit.severity(share), gain_ms=gain, fix=row.remedy)
    return None


def _versions_text(row: Slow) -> str:
    text = f"{row.library} from {_dotted(row.first)} to before {_dotted(row.fixed)}"
    if row.unless:
        text += f" with {row.unless[0]} before {_dotted(row.unless[1])}"
    return text


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


RULES: tuple[AdviceRule, ...] = (
    Rule(
        NAME,
        _slow_versions,
        threshold=Threshold(
            "≥ {moderate:g} % of step time (high from {high:g} %)",
            moderate=PART_MODERATE,
            high=PART_HIGH,
        ),
        source="; ".join(row.source for row in KNOWN),
        target=KERNELS,
        applies=PYTORCH,
        looks_at=(
            "Ops that are slow in the recorded version of a library:"
            f" {'; '.join(map(_versions_text, KNOWN))}"
        ),
        title="Update a library whose version is slow here",
        certainty=INFERRED,
        refuted_by="{the} takes as long with the recommended version",
        done=Shown("Another version"),
    ),
)
