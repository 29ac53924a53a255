"""Tables of Ascend's profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend import iterations as ascend_iterations
from nbprof.analysis.ascend import ops as ascend_ops
from nbprof.analysis.ascend import pmu as ascend_pmu
from nbprof.analysis.ascend import rules as ascend_rules
from nbprof.analysis.ascend import tables as ascend_tables
from nbprof.analysis.ascend import verdict as ascend_verdict
from nbprof.analysis.ascend import waits as ascend_waits
from nbprof.analysis.ascend.facts import Facts as AscendFacts
from nbprof.dialects.msprof import tasks as msprof_tasks
from nbprof.run.frame import Group, cached, frame
from nbprof.run.frames.recording import Recording
from nbprof.schema.frames import shaped

LACKS = {
    "iterations": (
        "The profile has no iteration trace. msprof writes step_trace for graphs of TensorFlow and"
        " MindSpore, with training_trace on; PyTorch runs single ops, which have no iterations."
    ),
    "op_types": (
        "The profile has neither op_statistic nor op_summary: record with task_trace on, and"
        " export it."
    ),
    "ops": (
        "The profile has no op_summary or kernel_details: record with task_trace on, and export it."
    ),
    "cores": (
        "The profile has no op_summary or kernel_details, so where ops run is known only by their"
        " types."
    ),
    "pmu": (
        "The profile has no core counters: record with aic_metrics, such as PipeUtilization, and"
        " task_time l1."
    ),
    "waits": (
        "The profile has no op_summary or kernel_details with start times, so waits are unknown."
    ),
    "fusion": "The profile has no fusion_op: it exists only for graphs that the compiler fused.",
    "api": "The profile has no api_statistic: record with runtime_api on.",
}
"""Why a frame has no rows, and what to do about it."""


class AscendFrames(Group[Recording]):
    """Measurements of msprof on an NPU: `run.ascend`."""

    prefix = "ascend_"

    @cached
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of each kind, over all recordings; {} if the profile is not from an Ascend
        profiler.
        """
        if self.parts is not None and not self.run.stated["tables"]:
            return {}
        trace = self.run.trace
        tables = ascend.gathered(getattr(trace, "tables", {}), trace.hosts)
        if tables and "op_summary" not in tables:
            tasks = msprof_tasks.tasks(trace)
            if not len(tasks) and "task_time" in tables:
                tasks = msprof_tasks.of_table(tables["task_time"])
            if len(tasks):
                tables["op_summary"] = tasks
        return tables

    def _from_table(
        self, kind: str, compute: Callable[[pd.DataFrame], pd.DataFrame]
    ) -> pd.DataFrame | None:
        table = self.tables.get(kind)
        return None if table is None else compute(table)

    @frame
    def kinds(self) -> list[str]:
        """Kinds of tables that the profile has."""
        return list(self.tables)

    @frame
    def _iterations(self) -> tuple[pd.DataFrame, list[str]]:
        table = self.tables.get("step_trace")
        frame, doubts = (None, []) if table is None else ascend_iterations.frame(table)
        return shaped("ascend.iterations.frame", frame), doubts

    @property
    def iterations(self) -> pd.DataFrame:
        """The breakdown of each iteration."""
        return self._iterations[0]

    @frame
    def iterations_summary(self) -> pd.DataFrame:
        """The mean iteration of each model on each device."""
        return shaped("ascend.iterations.summary", ascend_iterations.summary(self.iterations))

    @frame
    def ops(self) -> pd.DataFrame:
        """Tasks of the devices."""
        return shaped(
            "ascend.ops.frame",
            self._from_table("op_summary", lambda table: ascend_ops.frame(table, self.iterations)),
        )

    @frame
    def op_types(self) -> pd.DataFrame:
        """Time by type of op."""
        return shaped(
            "ascend.op_types.frame", ascend_ops.types(self.ops, self.tables.get("op_statistic"))
        )

    @frame
    def cores(self) -> pd.DataFrame:
        """Time by kind of core."""
        return shaped("ascend.op_types.cores", ascend_ops.by_core(self.ops))

    @frame
    def pmu(self) -> pd.DataFrame:
        """Counters of the cores, by task."""
        tables = self.tables
        frame = self._from_table(
            "op_summary", lambda table: ascend_pmu.frame(table, self.ops, tables.get("l2_cache"))
        )
        return shaped("ascend.pmu.frame", frame)

    @frame
    def pmu_types(self) -> pd.DataFrame:
        """Counters of the cores, by type of op."""
        return shaped("ascend.pmu.types", ascend_pmu.by_type(self.pmu))

    @frame
    def pmu_groups(self) -> list[str]:
        """Groups of counters that were recorded."""
        table = self.tables.get("op_summary")
        return [] if table is None else ascend_pmu.groups(table)

    @frame
    def waits(self) -> pd.DataFrame:
        """Idle times of streams."""
        return shaped("ascend.waits.frame", ascend_waits.frame(self.ops, self.iterations))

    @frame
    def fusion(self) -> pd.DataFrame:
        """Ops of the compiled graph, and the ops they were fused from."""
        return shaped(
            "ascend.fusion.frame",
            self._from_table("fusion_op", lambda table: ascend_tables.fusion(table, self.ops)),
        )

    @frame
    def api(self) -> pd.DataFrame:
        """Calls of the host, summed up."""
        return shaped("ascend.api.frame", self._from_table("api_statistic", ascend_tables.api))

    @cached
    def facts(self) -> AscendFacts:
        """Input of the rules."""
        return AscendFacts(
            iterations=self.iterations,
            summary=self.iterations_summary,
            ops=self.ops,
            types=self.op_types,
            pmu=self.pmu,
            waits=self.waits,
            fusion=self.fusion,
            api=self.api,
            ai_cores=self._core_counts(),
        )

    def _core_counts(self) -> dict[tuple[str, int], int]:
        """Cores of each device, by recording and number, where the profile tells them."""
        devices = self.run.devices
        if not {"host", "device", "cores"} <= set(devices.columns):
            return {}
        rows = devices[pd.to_numeric(devices["cores"], errors="coerce") > 0]
        numbers: list[Any] = rows["device"].astype(str).str.extract(r"(\d+)$")[0].tolist()
        counts = zip(rows["host"], numbers, rows["cores"], strict=True)
        return {
            (str(host), int(number)): int(cores)
            for host, number, cores in counts
            if isinstance(number, str)
        }

    @frame
    def rules(self) -> pd.DataFrame:
        """The rules of Ascend's tools, with their results."""
        if not self.kinds:
            return shaped("ascend.rules.frame", None)
        return shaped(
            "ascend.rules.frame", ascend_rules.frame(self.facts, self.tables.get("prof_rule"))
        )

    @frame
    def verdict(self) -> dict[str, Any]:
        """The bottleneck of the iterations: `bound verdict text detail`."""
        return ascend_verdict.verdict(self.iterations_summary, self.ops, self.waits)

    @frame
    def notes(self) -> list[str]:
        """Contradictions between the tables, in sentences."""
        notes = list(self._iterations[1])
        statistic = self.tables.get("op_statistic")
        disagreement = ""
        if statistic is not None:
            disagreement = ascend_ops.disagreement(self.ops, statistic)
        if disagreement:
            notes.append(disagreement)
        return notes
