"""Payloads that several tabs share: tables, figures, rings, and why a tab is empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy.typing as npt

from nbprof.display.codec import Coded
from nbprof.display.payload import CategoryKey, Part, TabId

ColumnData = Annotated[npt.NDArray[Any] | Coded, "ColumnData"]
"""A column of a table: numbers, or texts as codes."""
Severity = Annotated[str, '"high" | "medium" | "low"']


class Column(Part):
    """Name and format of a table column, as `nbprof/schema` declares it."""

    key: str
    label: str
    """Head of the column on screen, with its unit where it has one ("Total µs")."""
    kind: Annotated[str, '"text" | "code" | "number" | "bytes" | "percent" | "bool"']
    """text: a name; code: a path or kernel name; percent: 0…100; bool: 1, 0 or NaN."""
    help: str
    """One sentence for the tooltip of the head."""
    digits: int | None = None


class Table(Part):
    """The columns of a frame."""

    columns: list[Column]
    data: dict[str, ColumnData]
    """By key. `_at_ms` and `_for_ms` are start and duration of a row's longest call; they have no
    head.
    """
    rows: int

    def cell(self, key: str, row: int) -> Any:
        """A text, or a number."""
        column = self.data[key]
        if isinstance(column, Coded):
            return column.values[int(column.codes[row])]
        return float(column[row])

    def head(self, key: str) -> Column:
        """The head of a column."""
        return next(column for column in self.columns if column.key == key)

    def with_columns(self, columns: dict[str, ColumnData]) -> Table:
        """With further columns that have no head."""
        return replace(self, data=self.data | columns)


def no_table() -> Table:
    """A table without columns and rows."""
    return Table(columns=[], data={}, rows=0)


class Empty(Part):
    """Why a view has nothing to show, and how to get it; `code` is a snippet to copy."""

    title: str
    text: str
    code: str | None = None


class Tab(Part):
    """The part of a tab."""

    empty: Empty | None


class BarPart(Part):
    """A part of the bar below a figure, in percent."""

    category: CategoryKey
    percent: float


class Figure(Part):
    """A key figure, found by its key; a value of None was not measured, and the note says why."""

    key: str
    label: str
    value: float | None
    unit: str
    digits: int
    note: str
    """Small line below: "3.78 ms per step"."""
    bar: list[BarPart] | None = None
    spread: str | None = None
    """"± 0.38", small, behind the value."""
    hot: bool = False


class RingPart(Part):
    """A part of a ring; "others" is grey, "idle" hatched."""

    label: str
    percent: float
    kind: Literal["rank", "others", "idle"]


class Ring(Part):
    """The largest parts of a time."""

    ms: float
    parts: list[RingPart]


class TitledRing(Part):
    """A ring with its heading."""

    title: str
    ms: float
    parts: list[RingPart]


class Evidence(Part):
    """Something that speaks for a statement (`ok`) or against it."""

    ok: bool
    text: str


class Verdict(Part):
    """The bottleneck of the run: "Input-bound", "61% of step time is spent waiting for data", and a
    longer text.
    """

    word: str
    text: str
    detail: str


class UnitWords(Part):
    """Words for the unit of work of a run without steps: those of `nbprof.activity.unit`."""

    kind: Annotated[str, '"step" | "iteration" | "call" | "recording"']
    noun: str
    plural: str
    a: str
    the: str
    time: str
    """What a percentage is of: "step time", "the recording"."""
    per: str
    counted: str
    """What a count is given per: "per step", "in the recording"."""
    label: str
    average: str


class Notice(Part):
    """The line below the header: that the recording failed, is partial or has no steps."""

    kind: Literal["failed", "partial", "no_steps", "static"]
    title: str
    text: str
    code: str | None = None


class TabHead(Part):
    """A tab as the bar of tabs shows it; `note` is small text behind the label."""

    id: TabId
    label: str
    count: int | None
    flag: CategoryKey | None
    note: str | None = None


class Footer(Part):
    """The analysed file: events, size, time of the analysis."""

    events: int
    dropped: int
    analysed_s: float | None
    file: str
    bytes: int | None


class ReceiptLine(Part):
    """One note on the reading: events skipped, values that look wrong."""

    level: Annotated[str, '"info" | "warning"']
    text: str


class HostDevices(Part):
    """The devices of a host, by their numbers there."""

    host: str
    devices: list[int]


class Meta(Part):
    """Header, notice, tabs, footer and receipt."""

    version: str
    label: str
    """"run 7"."""
    facts: list[str]
    """What follows the label: ["32 steps", "1.3 s", "CPU", "14:02:31"]."""
    created: str
    framework: str
    has_device: bool
    notice: Notice | None
    heads: dict[str, list[Column]]
    """Columns of the tables that views draw row by row, by the frame that they show."""
    hosts: list[str] | None = None
    """Those that recorded, where there are several."""
    devices: list[HostDevices] | None = None
    """Of each host that has several."""
    footer: Footer
    receipt: list[ReceiptLine]
    tabs: list[TabHead]
    pending: str | None = None
    """Shown beside the tabs while the others are computed."""
    tab: TabId | None = None
    """The tab that is shown first, where that is not the first one."""
    unit: UnitWords | None = None
