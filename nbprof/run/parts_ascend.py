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
from nbprof.run.lazy import Cached, Kept
from nbprof.run.parts_base import Base
from nbprof.schema.frames import shaped

LACKS = {
    "iterations": "No iteration trace is in the profile. msprof writes step_trace for graphs of TensorFlow and MindSpore, with "
    "training_trace on; PyTorch runs single ops, which have none.",
    "op_types": "Neither op_statistic nor op_summary is in the profile: record with task_trace on, and export it.",
    "ops": "No op_summary or kernel_details is in the profile: record with task_trace on, and export it.",
    "cores": "No op_summary or kernel_details is in the profile, so where ops run is known by their types alone.",
    "pmu": "No counters of the cores are in the profile: record with aic_metrics, as PipeUtilization, and task_time l1.",
    "waits": "No op_summary or kernel_details with start times is in the profile, so waits are not known.",
    "fusion": "No fusion_op is in the profile: it is there for graphs that the compiler fused.",
    "api": "No api_statistic is in the profile: record with runtime_api on.",
}
"""Why a frame has no rows, and what to do."""


class Ascend(Base):
    """Frames of what msprof measured on an NPU."""

    @Cached
    def ascend_tables(self) -> dict[str, pd.DataFrame]:
        """The tables of each kind, all recordings together; {} where no profiler of Ascend wrote the profile."""
        trace = self.trace
        out = ascend.gathered(getattr(trace, "tables", {}), trace.hosts)
        if out and "op_summary" not in out:
            tasks = msprof_tasks.tasks(trace)
            if not len(tasks) and "task_time" in out:
                tasks = msprof_tasks.of_table(out["task_time"])
            if len(tasks):
                out["op_summary"] = tasks
        return out

    def _made(self, kind: str, make: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame | None:
        table = self.ascend_tables.get(kind)
        return None if table is None else make(table)

    @Kept
    def ascend_kinds(self) -> list[str]:
        """Kinds of tables that the profile has."""
        return list(self.ascend_tables)

    @Kept
    def _ascend_iterations(self) -> tuple[pd.DataFrame, list[str]]:
        table = self.ascend_tables.get("step_trace")
        frame, doubts = (None, []) if table is None else ascend_iterations.frame(table)
        return shaped("ascend.iterations.frame", frame), doubts

    @property
    def ascend_iterations(self) -> pd.DataFrame:
        """Where the time of each iteration goes."""
        return self._ascend_iterations[0]

    @Kept
    def ascend_iterations_summary(self) -> pd.DataFrame:
        """The mean iteration of each model on each device."""
        return shaped("ascend.iterations.summary", ascend_iterations.summary(self.ascend_iterations))

    @Kept
    def ascend_ops(self) -> pd.DataFrame:
        """Tasks of the devices."""
        return shaped("ascend.ops.frame", self._made("op_summary", lambda table: ascend_ops.frame(table, self.ascend_iterations)))

    @Kept
    def ascend_op_types(self) -> pd.DataFrame:
        """Time by type of op."""
        return shaped("ascend.op_types.frame", ascend_ops.types(self.ascend_ops, self.ascend_tables.get("op_statistic")))

    @Kept
    def ascend_cores(self) -> pd.DataFrame:
        """Time by kind of core."""
        return shaped("ascend.op_types.cores", ascend_ops.by_core(self.ascend_ops))

    @Kept
    def ascend_pmu(self) -> pd.DataFrame:
        """Counters of the cores, by task."""
        tables = self.ascend_tables
        made = self._made("op_summary", lambda table: ascend_pmu.frame(table, self.ascend_ops, tables.get("l2_cache")))
        return shaped("ascend.pmu.frame", made)

    @Kept
    def ascend_pmu_types(self) -> pd.DataFrame:
        """Counters of the cores, by type of op."""
        return shaped("ascend.pmu.types", ascend_pmu.by_type(self.ascend_pmu))

    @Kept
    def ascend_pmu_groups(self) -> list[str]:
        """Groups of counters that were recorded."""
        table = self.ascend_tables.get("op_summary")
        return [] if table is None else ascend_pmu.groups(table)

    @Kept
    def ascend_waits(self) -> pd.DataFrame:
        """How long streams stood still."""
        return shaped("ascend.waits.frame", ascend_waits.frame(self.ascend_ops, self.ascend_iterations))

    @Kept
    def ascend_fusion(self) -> pd.DataFrame:
        """Ops of the compiled graph, and what they were made of."""
        return shaped("ascend.fusion.frame", self._made("fusion_op", lambda table: ascend_tables.fusion(table, self.ascend_ops)))

    @Kept
    def ascend_api(self) -> pd.DataFrame:
        """Calls of the host, summed up."""
        return shaped("ascend.api.frame", self._made("api_statistic", ascend_tables.api))

    @Cached
    def ascend_facts(self) -> AscendFacts:
        """What the rules look at."""
        return AscendFacts(
            iterations=self.ascend_iterations,
            summary=self.ascend_iterations_summary,
            ops=self.ascend_ops,
            types=self.ascend_op_types,
            pmu=self.ascend_pmu,
            waits=self.ascend_waits,
            fusion=self.ascend_fusion,
            api=self.ascend_api,
            ai_cores=self._ascend_core_counts(),
        )

    def _ascend_core_counts(self) -> dict[tuple[str, int], int]:
        """Cores of each device, by recording and number, where the profile tells them."""
        devices = self.devices
        if not {"host", "device", "cores"} <= set(devices.columns):
            return {}
        rows = devices[pd.to_numeric(devices["cores"], errors="coerce") > 0]
        numbers: list[Any] = rows["device"].astype(str).str.extract(r"(\d+)$")[0].tolist()
        known = zip(rows["host"], numbers, rows["cores"], strict=True)
        return {(str(host), int(number)): int(cores) for host, number, cores in known if isinstance(number, str)}

    @Kept
    def ascend_rules(self) -> pd.DataFrame:
        """The rules of Ascend's tools, with their results."""
        if not self.ascend_kinds:
            return shaped("ascend.rules.frame", None)
        return shaped("ascend.rules.frame", ascend_rules.frame(self.ascend_facts, self.ascend_tables.get("prof_rule")))

    @Kept
    def ascend_verdict(self) -> dict[str, Any]:
        """What limits the iterations: `bound verdict text detail`."""
        return ascend_verdict.verdict(self.ascend_iterations_summary, self.ascend_ops, self.ascend_waits)

    @Kept
    def ascend_notes(self) -> list[str]:
        """What of the tables contradicts itself, in sentences."""
        statistic = self.ascend_tables.get("op_statistic")
        apart = "" if statistic is None else ascend_ops.disagreement(self.ascend_ops, statistic)
        return [*self._ascend_iterations[1], *([apart] if apart else [])]
