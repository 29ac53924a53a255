"""The payload of the tab Steps & input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.display.markup import FixLine
from nbprof.display.payload import Marked, Part
from nbprof.tools.parts import Figure, Tab, Table
from nbprof.tools.steps.parts import ServingTables


class InputCategory(Part):
    """A kind of input work; `per_step_ms` and `percent` are scaled where part of the step is
    enqueuing.
    """

    key: str
    label: str
    time_ms: float | None
    """Self time as recorded."""
    percent: float | None
    advice: str
    per_step_ms: float | None


class NodeFact(Part):
    """A line about a node."""

    label: str
    value: str


class PipelineNode(Part):
    """An iterator of tf.data, or a stage of a DataLoader."""

    id: str
    parent: str | None
    name: str
    long_name: str
    note: str
    """Second line of the node: a parameter or a plain remark ("" when none)."""
    start_ms: float | None
    """Start of its first call."""
    total_ms: float
    self_ms: float
    calls: int
    critical: bool
    bottleneck: bool
    percent: float | None
    """Of the self time of all iterators of the graph; of a DataLoader, of the time in which batches
    are made."""
    value: str | None = None
    """In place of its self time, of a stage of a DataLoader."""
    facts: list[NodeFact] | None = None
    """In place of its times, of a stage of a DataLoader."""


class TfDataCall(Part):
    """A call of a pipeline's root: its iterators with the times of this call alone."""

    start_ms: float
    duration_us: float
    critical_ms: float | None
    """Self time of the iterators on the critical path."""
    nodes: list[PipelineNode]


class Pipeline(Part):
    """A tf.data pipeline."""

    name: str
    host: str
    calls: int
    slow_calls: int
    mean_us: float | None
    min_us: float | None
    max_us: float | None
    advice: Marked
    """What limits this pipeline and what helps."""
    fix: list[FixLine]
    critical_ms: float | None
    """Of all calls together."""
    nodes: list[PipelineNode]
    slowest: list[TfDataCall]
    """The longest first."""


class LoaderPipeline(Part):
    """The way of a batch from the dataset of a DataLoader to the loop."""

    name: str
    """The class of its dataset."""
    scope: str
    """What makes its batches."""
    advice: Marked
    """What limits it; "" if the loop does not wait for it."""
    fix: list[FixLine]
    nodes: list[PipelineNode]


class Input(Tab):
    """Input time by kind of work, pipeline and op."""

    total_ms: float
    """Self time of all input ops."""
    per_step_ms: float | None
    categories: list[InputCategory]
    missing: list[str]
    """Why the times of some are unknown."""
    statement: str
    """How much of the steps is input."""
    next_step: str
    share: list[Figure]
    pipelines: list[Pipeline]
    pipeline_table: Table | None = None
    """One row per pipeline, where there are several."""
    call_table: Table | None = None
    """The longest calls of each pipeline, by pipeline and rank."""
    loaders: list[LoaderPipeline] | None = None
    """DataLoaders whose batches were timed where they are made, most time first."""
    transforms: Table | None = None
    """One row per stage of the items of loaders with workers, where these were recorded."""
    workers: Table | None = None
    """One row per worker."""
    ops: Table
    bottleneck: npt.NDArray[np.uint8]
    """By row of `ops`: 1 for the bottleneck of a pipeline."""
    noun: str | None = None
    """What a row of `ops` is: "op" or "iterator"."""
    serving: ServingTables | None = None
    """Where steps are iterations of an inference engine."""
