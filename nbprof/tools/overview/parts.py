"""The payload of the tab Overview."""

from __future__ import annotations

from typing import Annotated, Literal

from nbprof.display.markup import FixLine
from nbprof.display.payload import CategoryKey, Marked, Part, TabId
from nbprof.tools.parts import Empty, Evidence, Figure, Severity, Tab, Table, Verdict


class Confidence(Part):
    """The confidence of the verdict, with the evidence for and against it."""

    level: Annotated[str, '"high" | "medium" | "low" | "none"']
    evidence: list[Evidence]


class HostPart(Part):
    """A part of *host compute*, or of the time outside ops."""

    category: CategoryKey
    text: str
    """"Python: augment, Cell [3] line 12"."""
    ms: float
    """Per unit."""
    percent: float


class BareTime(Part):
    """Time of a category in a step without a profiler."""

    category: CategoryKey
    ms: float
    percent: float


class Bare(Part):
    """The parts of a step without a profiler."""

    step_ms: float
    categories: list[BareTime]
    note: str
    """Which of the times are estimates."""


class TraceTarget(Part):
    """The place in the trace that shows the evidence of a rule."""

    kind: Literal["gap", "input", "name"]
    name: str | None = None


class Advice(Part):
    """A finding and what to do about it."""

    severity: Severity
    title: str
    gain_ms: float | None
    """Gain in ms per step."""
    gain_is: Annotated[str, '"up to" | "about" | "at least" | ""']
    """"" where there is no gain."""
    per: str | None = None
    """What else than a step it is given per: "per call"; of a recording also how much of it."""
    gain_percent: float | None = None
    evidence: Marked
    certainty: str
    refuted_by: str
    """What would refute it, as the end of "Wrong if …"."""
    fix: list[FixLine]
    view: TabId
    link: str
    target: TraceTarget | None
    tries: str = ""
    """The rule, if the kernel that recorded the run has an experiment for it."""


class Probe(Part):
    """The result of a second run without input (`--probe`), and how it was made."""

    text: str
    detail: str


class Change(Part):
    """The change of the person's own cell that an experiment recommends."""

    experiment: str
    row: int
    """Of the table."""
    lines: list[FixLine]


class Tried(Part):
    """Results of experiments (`--try`), and a sentence on those that were not run."""

    text: str
    table: Table
    changes: list[Change]
    """The recommended changes whose place in the cell is known."""
    code: list[FixLine]
    """The other changes that are recommended."""


class CodeCell(Part):
    """A cell of the notebook: its lines with their times."""

    title: str
    table: Table


class Code(Part):
    """Cells of the notebook, the recorded one first."""

    cells: list[CodeCell]
    notes: list[str]
    """How much of the time is not attributed to any line."""


class Pools(Part):
    """Process pools that the recorded code waited for."""

    tasks: Table
    """One row per function that ran in their workers."""
    workers: Table
    notes: list[str]
    """What is known of each pool."""


class Compiles(Part):
    """Functions that were compiled while the cell ran."""

    table: Table
    """One row per function and kind of cause."""
    notes: list[str]
    """How many there are, and what the table leaves out."""


class GraphBreaks(Part):
    """Lines at which functions of `torch.compile` break into several graphs."""

    table: Table
    """One row per line."""
    notes: list[str]
    """What they cost together, and what the table leaves out."""


class RangeGroup(Part):
    """A group of ranges, from a row of the table on."""

    title: str
    row: int


class Ranges(Part):
    """Ranges that the program names: those of the main thread, of other threads, and scopes of
    ops.
    """

    step_ms: float
    """The time of a unit."""
    groups: list[RangeGroup]
    table: Table
    """A tree in preorder with `_depth`."""
    notes: list[str]


class CheckResult(Part):
    """Something that was checked, found or not."""

    label: str
    percent: float | None
    level: Annotated[str, '"high" | "moderate" | "no" | "unknown"']
    statement: str
    view: TabId


class Overview(Tab):
    """The answer first."""

    empty: Empty | None = None
    bound: CategoryKey | None
    verdict: Verdict
    confidence: Confidence
    figures: list[Figure]
    host_parts: list[HostPart]
    """Rows below a category: what the host did in its time, largest first."""
    bare: Bare | None
    """None where it is unknown."""
    advice: list[Advice]
    contention: str
    """That other processes took cores while it was recorded."""
    probe: Probe | None
    no_advice: str
    """Why there is no advice, when there is none."""
    code: Code | None
    """None where no line is known."""
    ranges: Ranges | None
    """None where the program names none."""
    pools: Pools | None = None
    """None where no task of one was timed."""
    compiles: Compiles | None = None
    """None where nothing was compiled, or it was not recorded."""
    graph_breaks: GraphBreaks | None = None
    """None where no graph breaks, or it is unknown."""
    top_ops: Table
    top_ops_where: Literal["device", "host"]
    run: list[tuple[str, str]]
    """What the run ran on, as label and value."""
    checks: list[CheckResult]
    tried: Tried | None = None
    plain: bool = False
    """No known framework wrote the trace: what follows from steps and ops is left out."""
    only: Literal["advice"] | None = None
    """Where only this part is shown: `p.advice` in a cell."""
