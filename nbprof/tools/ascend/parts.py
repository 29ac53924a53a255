"""The payload of the tab Ascend."""

from __future__ import annotations

from typing import Annotated

from nbprof.display.payload import CategoryKey, Part
from nbprof.tools.parts import Figure, Ring, Tab, Table
from nbprof.tools.steps.parts import Steps


class AscendVerdict(Part):
    """The bottleneck of the NPU."""

    bound: CategoryKey | None
    word: str
    text: str
    detail: str


class Iterations(Part):
    """Iterations of a model on a device, as steps with a `noun` and `labels` of their own."""

    label: str
    steps: Steps


class AscendRule(Part):
    """A rule of Ascend's tools and its result."""

    title: str
    about: str
    """"Iterations", "AI CPU"."""
    state: Annotated[str, '"found" | "clear" | "unknown"']
    severity: Annotated[str, '"high" | "medium" | "low" | ""']
    """"" of a rule that was not found."""
    percent: float | None
    """Share of the time that it concerns."""
    evidence: str
    fix: str
    ops: str
    """Names of ops, the most first."""


class AscendSection(Part):
    """A table with its heading."""

    id: str
    title: str
    scope: str
    missing: str
    """Why it has no rows, and what to record."""
    note: str
    """Rows that are left out."""
    table: Table


class Ascend(Tab):
    """Measurements of Ascend's profiler on an NPU."""

    verdict: AscendVerdict
    figures: list[Figure]
    iterations: list[Iterations]
    """Of each model on each device."""
    iterations_missing: str
    rules: list[AscendRule]
    sections: list[AscendSection]
    ring: Ring
    """Time by type of op, whatever it ran on."""
    notes: list[str]
    """Contradictions in the tables."""
