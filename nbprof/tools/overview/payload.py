"""The answer first: verdict, figures, what to do next, the ops that cost most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from nbprof.analysis.verdict import COVERED, covered_by_steps
from nbprof.core.guard import guarded
from nbprof.display import wording
from nbprof.display.categories import BY_KEY
from nbprof.formats.register import by_name
from nbprof.schema import frames
from nbprof.tools import register
from nbprof.tools.common import (
    bar,
    by_torch,
    bytes_figure,
    chip,
    figure,
    fix_lines,
    gain_unit,
    has_device,
    percent_figure,
    plain,
    unit_of,
    unit_of_gpu,
    without_work,
)
from nbprof.tools.names import NAMES
from nbprof.tools.overview import compiles, graph_breaks, lines, pools, ranges
from nbprof.tools.overview.parts import (
    Advice,
    Bare,
    BareTime,
    Change,
    CheckResult,
    Confidence,
    HostPart,
    Overview,
    Probe,
    TraceTarget,
    Tried,
)
from nbprof.tools.parts import Evidence, Figure, Table, Verdict, no_table
from nbprof.tools.tables import floats, hidden, longest, table
from nbprof.tools.tool import ask

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ADVICE = 5


def payload(run: Run) -> Overview:
    """The verdict, its evidence and advice."""
    first = early(run)
    advice, no_advice = guarded(
        "The advice", lambda: _findings(run), lambda sentence: ([], sentence)
    )
    facts = _facts(run.overview)
    if plain(run):
        facts = [*_of_file(run), *facts]
    return replace(
        first,
        figures=figures(run),
        advice=advice,
        no_advice=no_advice,
        top_ops=guarded("The table of the top ops", lambda: _top_ops(run), lambda _: first.top_ops),
        top_ops_where=_top_ops_side(run),
        checks=_checks(run, run.answer.get("checks")),
        run=facts,
        plain=plain(run),
        tried=_tried(run),
        code=ask(lines.payload, run, otherwise=None, part="The table of lines of code"),
        ranges=ask(ranges.payload, run, otherwise=None, part="The table of ranges"),
        compiles=ask(compiles.payload, run, otherwise=None, part="The table of compilations"),
        graph_breaks=ask(
            graph_breaks.payload, run, otherwise=None, part="The table of graph breaks"
        ),
        pools=ask(pools.payload, run, otherwise=None, part="The tables of process pools"),
    )


def _top_ops_side(run: Run) -> Literal["device", "host"]:
    return "host" if run.answer.get("top_ops_where") == "host" else "device"


def fallback(run: Run, sentence: str) -> Overview:
    """The first picture, for a run whose overview could not be computed."""
    return replace(early(run), no_advice=sentence)


def nothing() -> Overview:
    """The part of a run that was not analysed."""
    return Overview(
        bound=None,
        verdict=Verdict(word="Unknown", text="", detail=""),
        confidence=Confidence(level="none", evidence=[]),
        figures=[],
        host_parts=[],
        bare=None,
        advice=[],
        contention="",
        probe=None,
        no_advice="",
        code=None,
        ranges=None,
        top_ops=no_table(),
        top_ops_where="host",
        run=[],
        checks=[],
    )


def _findings(run: Run) -> tuple[list[Advice], str]:
    """The advice, or why there is none."""
    advice = [_advice(run, row) for row in run.advice.head(MOST_ADVICE).to_dict("records")]
    if not advice:
        return [], _no_advice(run)
    return advice, ""


_TRIED = (
    "title",
    "baseline_ms",
    "gain_ms",
    "gain_low_ms",
    "gain_high_ms",
    "first_ms",
    "pays_after",
    "took_s",
    "recommended",
    "why",
)


def _tried(run: Run) -> Tried | None:
    """Results of experiments; None if none were run."""
    if run.capture is None or not run.capture.tried:
        return None
    frame = run.tried
    changes, code = [], []
    for row, result in enumerate(frame.to_dict("records")):
        if not result["recommended"]:
            continue
        if result["diff"]:
            lines = fix_lines(result["diff"])
            changes.append(Change(experiment=result["experiment"], row=row, lines=lines))
        elif result["rule"] or len(frame) == 1:
            # That of a combination stands with its parts.
            code += fix_lines(result["code"])
    return Tried(
        text=str(run.capture.tried["text"]),
        table=table(frame, "tried", _TRIED),
        changes=changes,
        code=code,
    )


def early(run: Run) -> Overview:
    """The part that follows from the steps alone: ops, advice, and the tabs that it leads to take
    longer.
    """
    facts = run.first_answer
    bound, probe = facts.get("bound"), facts.get("probe")
    on_device = has_device(run)
    top_ops_where: Literal["device", "host"] = "host"
    if on_device:
        top_ops_where, middle = "device", [_busy(run)]
    else:
        middle = [_host_compute(run), *_rate(run, facts)]
    evidence = facts.get("confidence_evidence") or []
    return Overview(
        bound=bound if bound in BY_KEY else None,
        verdict=Verdict(
            word=facts.get("verdict") or "Unknown",
            text=facts.get("verdict_text") or "",
            detail=facts.get("verdict_detail") or "",
        ),
        confidence=Confidence(
            level=facts.get("confidence") or "none",
            evidence=[Evidence(ok=bool(ok), text=text) for ok, text in evidence],
        ),
        figures=[_average(run), _waiting(run), *middle],
        host_parts=_host_parts(run),
        bare=guarded("The step without recording", lambda: _bare(run), lambda _: None),
        advice=[],
        contention=facts.get("contention") or "",
        probe=Probe(text=probe["text"], detail=probe["detail"]) if probe else None,
        no_advice="Recommendations appear when the analysis has finished.",
        code=None,
        ranges=None,
        top_ops=table(frames.empty("overview.top_ops"), "overview.top_ops", _TOP),
        top_ops_where=top_ops_where,
        run=_facts(facts),
        checks=[],
    )


def _host_parts(run: Run) -> list[HostPart]:
    """Rows below a category in the breakdown; none below one that is not split further."""
    rows = run.host_parts.to_dict("records")
    split = {row["category"] for row in rows if row["part"] != "host"}
    parts = []
    for row in rows:
        if row["category"] in split and row["percent"] >= _LEAST_PART:
            part = HostPart(
                category=str(row["category"]),
                text=str(row["text"]),
                ms=float(row["ms"]),
                percent=float(row["percent"]),
            )
            parts.append(part)
    return sorted(parts, key=lambda part: part.percent, reverse=True)


def _bare(run: Run) -> Bare | None:
    """The parts of a step without a profiler; None where they are unknown."""
    rows = run.bare_parts_frame
    if not len(rows):
        return None
    step_ms = float(rows["bare_ms"].iloc[0])
    rows = rows[rows["category"].isin(BY_KEY) & rows["bare_ms"].notna()]
    on_average = " on average" if run.bare_parts.is_mean else ""
    note = (
        f"Without recording, {unit_of(run).a} takes {wording.millis(step_ms)}{on_average}:"
        " measured. What recording cost is taken from the host's categories, so these are estimates"
    )
    if run.bare_parts.device:
        note += "; work of the device takes as long as recorded"
    return Bare(
        step_ms=step_ms,
        categories=[
            BareTime(
                category=row["category"],
                ms=float(row["bare_ms"]),
                percent=float(row["bare_percent"]),
            )
            for row in rows.to_dict("records")
        ],
        note=f"{note}.",
    )


_LEAST_PART = 0.5
"""Percent of a unit from which on a part of the host's time has a row."""

_CHECKS = {
    "input": "Waiting for input",
    "all_others_as_input": "Unexplained time as input",
    "output": "Copies to host",
    "device_collectives": "Communication",
    "kernel_launch": "Kernel launch",
    "all_others": "Unexplained time",
    "precision": "16-bit compute",
    "eager_host": "Eager on the host",
    "eager_device": "Eager on the device",
    "outside_compilation": "Outside of XLA",
    "tf_function": "Traced tf.functions",
}
"""Names of the checks on screen; one that is missing here is shown by its key."""


def _text(value: Any) -> str:
    """A text of a frame; "" where it is missing."""
    return value if isinstance(value, str) else ""


def _checks(run: Run, checks: Any) -> list[CheckResult]:
    """Every check with its percentage and the conclusion."""
    if not isinstance(checks, pd.DataFrame):
        return []
    results = []
    tabs = {view: _tab_with_data(run, view) for view in checks["view"].unique().tolist()}
    for row in checks.to_dict("records"):
        key = str(row["check"])
        results.append(
            CheckResult(
                label=_CHECKS.get(key, key.replace("_", " ").capitalize()),
                percent=wording.real(row["percent"]),
                level=str(row["level"]),
                statement=str(row["statement"]),
                view=tabs[row["view"]],
            )
        )
    return results


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts of the run as it states them, with devices, versions and time from the recording
    itself.
    """
    environment = facts.get("environment") or {}
    values = {str(label): str(value) for label, value in facts.get("run_facts") or []}
    if devices := [_device(group) for group in environment.get("devices") or []]:
        values["Device"] = "; ".join(devices)
    if versions := _versions(environment, values.get("Framework", "")):
        values["Versions"] = ", ".join(versions)
    return [(label, wording.one_line(value)) for label, value in values.items()]


def _versions(environment: Mapping[str, Any], framework: str) -> list[str]:
    """Recorded versions, except those that the name of the framework states already."""
    stated_versions = framework.split(", ")
    versions = []
    for name, version in (environment.get("versions") or {}).items():
        text = f"{name} {version}"
        # JAX states the platform "cpu" as the version of itself.
        if version != name and text not in stated_versions:
            versions.append(text)
    return versions


def _of_file(run: Run) -> list[tuple[str, str]]:
    """Format and size of a trace without a known framework."""
    facts = []
    if run.files is not None:
        facts.append(("Format", by_name(run.files.format).label))
    content = wording.plural(run.as_read.receipt.events, "event")
    lanes = ask(lambda: run.trace.lanes, otherwise=None)
    if lanes is not None:
        count = wording.plural(int((lanes["events"] > 0).sum()), "lane")
        processes = len(lanes[["host", "process"]].drop_duplicates())
        content += f" on {count} of {wording.plural(processes, 'process', 'processes')}"
    return [*facts, ("Holds", content)]


def _device(group: Mapping[str, Any]) -> str:
    """`4 × Tesla T4 (sm_75), 40 cores, 14.56 GiB` from the facts about a kind of device."""
    name = str(group.get("name") or group.get("kind") or "device")
    capability, unit = group.get("compute_capability"), unit_of_gpu([name])
    parts = [name]
    core = "core"
    # A number of CUDA's: the names of AMD's have the architecture.
    if capability and unit == "multiprocessor":
        architecture = f"sm_{str(capability).replace('.', '')}"
        if architecture not in name:
            parts = [f"{name} ({architecture})"]
    if capability:
        core = unit
    if cores := wording.real(group.get("cores")):
        parts.append(wording.plural(int(cores), core))
    if memory := wording.real(group.get("memory_bytes")):
        parts.append(wording.size(memory))
    if group.get("megacore"):
        parts.append("Megacore")
    if sparse_cores := wording.real(group.get("sparse_cores")):
        parts.append(wording.plural(int(sparse_cores), "SparseCore"))
    count = group.get("count") or 1
    if count > 1:
        parts[0] = f"{count} × {parts[0]}"
    return ", ".join(parts)


def figures(run: Run) -> list[Figure]:
    """The six key figures; with no device recorded, host figures take the place of those that need
    one.
    """
    facts = run.answer
    if not has_device(run):
        middle = [_host_compute(run), *_rate(run, facts), _eager(run)]
    elif facts.get("flops_utilization_percent") is not None and _of_tpu(run):
        middle = [_busy(run), _flops(run), _bandwidth(run)]
    else:
        middle = [_busy(run), _op_time(run), _precision(facts)]
    return [_average(run), _waiting(run), *middle, _memory(run)]


def _of_tpu(run: Run) -> bool:
    return bool((run.devices["kind"] == "TPU").any())


def _summary(run: Run, category: str) -> dict[Any, Any]:
    rows = run.steps_summary
    rows = rows[rows["category"].to_numpy(object) == category]
    return next(iter(rows.to_dict("records")), {})


def _average(run: Run) -> Figure:
    facts = run.first_answer
    mean, spread = (
        wording.real(facts.get("step_time_ms")),
        wording.real(facts.get("step_time_sd_ms")),
    )
    label = unit_of(run).average
    if mean is None:
        return figure("step_time", label, None, "ms", 2, "no steps")
    # All of the card in one unit.
    unit, size = wording.time_unit(mean)
    deviation = None
    if spread is not None and len(run.steps) > 1:
        deviation = f"± {wording.number(spread / size, 2)}"
    note = _average_note(run, size)
    return figure("step_time", label, mean / size, unit, 2, note, spread=deviation)


def _average_note(run: Run, size: float) -> str:
    """Median, p95 and range of the steps, in a unit of so many ms."""
    row = _summary(run, "step_time")
    if wording.real(row.get("min_ms")) is None:
        return ""
    unit = unit_of(run)
    if len(run.steps) == 1:
        return "first to last event" if unit.is_recording else f"one {unit.noun}"
    numbers = {}
    for key in ("median_ms", "p95_ms", "min_ms", "max_ms"):
        numbers[key] = wording.number(float(row[key]) / size, 2)
    note = "median {median_ms}, p95 {p95_ms}, range {min_ms}–{max_ms}".format(**numbers)
    bare = run.bare_steps
    if not bare.reason:
        median, low, high = (
            wording.number(ms / size, 2) for ms in (bare.median_ms, bare.low_ms, bare.high_ms)
        )
        note += f"; median without recording {median} [{low}, {high}]"
        if bare.note:
            note += f": {bare.note}"
    return note


def _of_each(run: Run, ms: Any) -> str:
    """`3.78 ms per step`; of the recording, of which the card is in full, the time alone."""
    unit, time = unit_of(run), wording.millis(ms)
    if unit.is_recording:
        return time
    return f"{time} {unit.per}"


def _waiting(run: Run) -> Figure:
    facts = run.first_answer
    percent = wording.real(facts.get("input_percent"))
    mean = wording.real(facts.get("step_time_ms"))
    note = _waiting_note(run, percent, mean)
    hot = facts.get("bound") == "input"
    return percent_figure("input", "Waiting for input", percent, note, "input", hot=hot)


def _waiting_note(run: Run, percent: float | None, mean: float | None) -> str:
    if mean is None:
        return "no steps" if percent is None else ""
    if percent is None:
        return "input was not traced"
    return _of_each(run, percent * mean / 100)


def _busy(run: Run) -> Figure:
    percent = wording.real(run.first_answer.get("device_busy_percent"))
    if percent is not None:
        note = _busy_note(run)
    elif run.steps.empty:
        note = "no steps"
    else:
        note = "not recorded"
    return percent_figure("device_busy", "Device busy", percent, note)


def _busy_note(run: Run) -> str:
    devices, used = len(run.devices), run.busy_devices
    note = f"of {unit_of(run).time}"
    # A device that ran nothing may not have been traced: it is in no mean.
    if devices > 1 and used in (0, devices):
        note += f", mean of {devices:,} devices"
    elif devices > 1 and used == 1:
        note += f", the one of {devices:,} devices that ran"
    elif devices > 1:
        note += f", mean of the {used:,} of {devices:,} devices that ran"
    if _of_tpu(run):
        return f"{note}; copies and infeed count"
    return f"{note}; copies count"


def _flops(run: Run) -> Figure:
    """FLOP rate of TPUs by their peak. (Their ops are compiled, so their place and precision say
    little.)
    """
    rate = wording.real(run.answer.get("flops_per_second")) or 0
    peak = wording.real(run.devices["peak_flops_per_second"].max()) or 0
    note = f"{wording.number(rate / 1e12, 3)} of {wording.number(peak / 1e12)} TFLOP/s per device"
    if (counter := wording.real(run.answer.get("mxu_utilization_percent"))) is not None:
        note += f"; MXU counter {wording.percent(counter)}"
    percent = run.answer.get("flops_utilization_percent")
    return percent_figure("flops_utilization", "FLOPS utilization", percent, note + _unknown(run))


def _bandwidth(run: Run) -> Figure:
    percent = wording.real(run.answer.get("memory_bandwidth_utilization_percent"))
    note = "not recorded"
    if percent is not None:
        rate = run.answer.get("memory_bytes_per_second") or 0
        peak = wording.real(run.devices["memory_bytes_per_second"].max()) or 0
        note = f"{wording.number(rate / 1e9, 2)} of {wording.number(peak / 1e9)} GB/s per device"
        note += _unknown(run)
    return percent_figure("memory_bandwidth", "Memory bandwidth", percent, note)


def _unknown(run: Run) -> str:
    """The share of op time whose FLOPs and bytes are unknown, as the end of a note."""
    percent = wording.real(run.answer.get("unknown_cost_percent")) or 0.0
    if percent < 0.05:
        return ""
    return f"; cost unknown for {wording.percent(percent)} of op time"


def _no_ops(run: Run) -> str:
    """Why figures of the ops of hosts are not known."""
    activity = run.activity
    if without := len(activity.hosts_without_ops):
        return f"no ops recorded on {without:,} of {len(activity.hosts):,} hosts"
    if run.answer.get("top_ops_where") == "device":
        return "no ops recorded on the host"
    return "no ops recorded"


def _op_time(run: Run) -> Figure:
    device = wording.real(run.answer.get("device_op_percent"))
    host = wording.real(run.answer.get("host_op_percent"))
    note = _no_ops(run)
    if device is not None:
        note = f"on host {wording.percent(host)}"
    return figure(
        "op_runs_on_device",
        "Op runs on device",
        device,
        "%",
        1,
        note,
        bar=bar(("device_compute", device), ("host_compute", host)),
    )


def _precision(facts: Mapping[str, Any]) -> Figure:
    half = wording.real(facts.get("compute_16bit_percent"))
    if half is not None:
        note = f"32-bit {wording.percent(facts.get('compute_32bit_percent'))}"
    elif facts.get("steps"):
        note = "precision not recorded"
    else:
        note = "no steps"
    return percent_figure("compute_16bit", "16-bit compute", half, note)


def _host_compute(run: Run) -> Figure:
    row = _summary(run, "host_compute")
    percent = wording.real(row.get("percent"))
    if percent is not None:
        note = _of_each(run, row.get("mean_ms"))
    elif run.steps.empty:
        note = "no steps"
    else:
        note = "no ops recorded on the host"
    return percent_figure("host_compute", "Host compute", percent, note, "host_compute")


def _rate(run: Run, facts: Mapping[str, Any]) -> list[Figure]:
    """Units of work per second; none for a recording that is not divided."""
    unit = unit_of(run)
    if unit.is_recording:
        return []
    label = f"{unit.plural.capitalize()} per second"
    mean = wording.real(facts.get("step_time_ms"))
    if not mean:
        return [figure("steps_per_second", label, None, "", 1, "no steps")]
    note = "no accelerator"
    covered = covered_by_steps(run.steps)
    if covered is not None and covered < COVERED:
        note = f"without the time between {unit.plural}"
    return [figure("steps_per_second", label, 1000 / mean, "", 1, note)]


def _eager(run: Run) -> Figure:
    percent = wording.real(run.answer.get("eager_host_percent"))
    if percent is None:
        note = _no_ops(run)
    elif by_torch(run):
        note = "of op time, not compiled"
    else:
        note = "of op time on host"
    return percent_figure("eager", "Eager ops", percent, note, "host_compute")


def _memory(run: Run) -> Figure:
    peak = wording.real(run.answer.get("peak_memory_bytes"))
    note = ""
    if peak is not None and len(run.known_memory):
        note = _peak_note(run.known_memory, peak)
    return bytes_figure("peak_memory", "Peak memory", peak, note)


def _peak_note(summary: pd.DataFrame, peak: float) -> str:
    """The allocator with the peak, or its capacity."""
    rows = summary[summary["peak_bytes"] == peak]
    if rows.empty:
        rows = summary.sort_values("peak_bytes", ascending=False, kind="stable")
    largest = rows.iloc[0]
    if not largest["whole"]:
        return "lower bound: earlier allocations are not included"
    capacity = wording.real(largest["capacity_bytes"])
    # Host allocators state no limit, or one so large that a share of it says nothing.
    if capacity and peak <= capacity < 2**44:
        return f"of {wording.size(capacity)} ({wording.percent(100 * peak / capacity)})"
    return str(largest["memory_id"])


# Rules whose evidence in the trace is the longest copy to the device, or the time when it was idle.
_COPIES = ("pinned_memory", "input_ahead", "input_copies", "copies_exposed")
_IDLE = ("waits", "other", "between_steps", "host_bound")
# Rules whose evidence is calls of one kind, by how their names begin.
_CALLS = {"optimizer_loop": "Optimizer.step#", "gloo": "gloo:"}
# The name of a copy to a GPU in traces of XLA and TensorFlow.
_COPY = "MemcpyH2D"


def _target(run: Run, rule: str) -> TraceTarget | None:
    """The place in the trace that shows the evidence of a rule; None if all of the trace is
    evidence, or if it is in the trace of a host that was read separately.
    """
    if run.parts is not None:
        return None
    if rule in _IDLE:
        if not run.activity.has_device:
            return None
        return TraceTarget(kind="gap")
    if rule in _CALLS:
        for name in map(str, run.trace.names):
            if name.startswith(_CALLS[rule]):
                return TraceTarget(kind="name", name=name)
        return None
    if rule not in _COPIES:
        return None
    copies = run.input_ops[run.input_ops["category"] == "enqueue"]
    if len(copies):
        longest_copy = copies["op"].iloc[int(copies["total_ms"].to_numpy().argmax())]
        return TraceTarget(kind="input", name=str(longest_copy))
    if _COPY not in set(run.trace.names):
        return None
    return TraceTarget(kind="name", name=_COPY)


def _tab_with_data(run: Run, view: str) -> str:
    """A tab, or the one that shows the same where the dashboard of this run lacks it or has nothing
    on it.
    """

    def shows(tab: str) -> bool:
        if tab not in NAMES:
            return False
        tool = register.tool(tab)
        return ask(tool.has, run, otherwise=False) and tool.count(run) != 0

    # Kernels are ops, and so is what ran in compiled programs.
    return next(tab for tab in (view, "ops", "op_profile", "trace") if shows(tab))


def _advice(run: Run, row: dict[Any, Any]) -> Advice:
    view, link = _text(row.get("view")), _text(row.get("link"))
    if view and (tab := _tab_with_data(run, view)) != view:
        view, link = tab, NAMES[tab].label
    unit = gain_unit(run.first_answer, row)
    target = None
    if view == "trace":
        target = _target(run, str(row.get("rule") or ""))
    return Advice(
        severity=str(row.get("severity") or "low"),
        title=str(row["title"]),
        gain_ms=wording.real(row.get("gain_ms_per_step")),
        gain_is=str(row.get("gain_is") or ""),
        per=unit.per,
        gain_percent=unit.gain_percent,
        evidence=str(row.get("evidence") or ""),
        certainty=str(row.get("certainty") or ""),
        refuted_by=str(row.get("refuted_by") or ""),
        fix=fix_lines(row.get("fix")),
        view=view or "overview",
        link=link.replace("GPU kernels", f"{chip(run)} kernels"),
        target=target,
        tries=_tries(run, str(row.get("rule") or "")),
    )


def _tries(run: Run, rule: str) -> str:
    """The rule, if this process can try its remedy."""
    return rule if run.origin is not None and rule in run.origin.rules else ""


def _no_advice(run: Run) -> str:
    if run.steps.empty and without_work(run):
        return "The recording contains no work, so there is nothing to analyse."
    if run.steps.empty:
        return "Without steps, costs cannot be compared, so there is no advice."
    if any(sentence.startswith("The rule ") for sentence in run.memo.failures.sentences):
        return "No recommendations, but some rules could not be evaluated: see the receipt."
    return "No recommendations: no rule found a measurable gain in this run."


_TOP = ("rank", "op", "type", "ms_per_step", "percent", "cumulative_percent")


def _top_ops(run: Run) -> Table:
    frame, side = run.answer["top_ops"], _top_ops_side(run)
    keys = [*_TOP]
    if "flops_per_second" in frame.columns and frame["flops_per_second"].notna().any():
        frame = frame.assign(gflops_per_second=floats(frame["flops_per_second"]) / 1e9)
        keys.append("gflops_per_second")
    devices = 1
    if run.steps.empty and len(frame):
        # The screen has one column for both, and calls it "ms".
        frame = frame.assign(ms_per_step=frame["self_ms"])
    elif len(run.steps) and run.answer.get("top_ops_where") == "device":
        # The table shows the time on one device, like the time of a step, not the sum of all.
        devices = len(run.activity.device_extents)
    if devices > 1 and len(frame):
        # The sum was divided by the steps of all hosts, and each host has its own.
        hosts = run.steps["host"].nunique()
        frame = frame.assign(ms_per_step=floats(frame["ms_per_step"]) * hosts / devices)
    frame = frame.head(10)
    top_ops = table(frame, "overview.top_ops", keys)
    top_ops = hidden(top_ops, *longest(frame, run.longest_calls, (side,)))
    top_ops.head("percent").label = f"% of {side}"
    head = top_ops.head("ms_per_step")
    if run.steps.empty:
        head.label = "ms"
        head.help = (
            "Self time in the whole profile, summed over devices and threads: there are no steps to"
            " normalize by."
        )
    elif devices > 1:
        head.help = (
            f"Self time per step, mean of {devices} devices. see p.overview['top_ops'] for the sum."
        )
    return top_ops
