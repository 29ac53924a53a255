"""The answer first: verdict, figures, what to do next, the ops that cost most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    plain,
    unit_of,
    unit_of_gpu,
    without_work,
)
from nbprof.tools.names import NAMES
from nbprof.tools.overview import lines, ranges
from nbprof.tools.overview.parts import (
    Advice,
    CheckResult,
    Confidence,
    HostPart,
    Overview,
    Probe,
    TraceTarget,
)
from nbprof.tools.parts import Evidence, Figure, Table, Verdict, no_table
from nbprof.tools.tables import floats, hidden, longest, table
from nbprof.tools.tool import asked

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ADVICE = 5


def payload(run: Run) -> Overview:
    """The verdict, its evidence and advice."""
    first = early(run)
    advice, no_advice = guarded(
        "The advice", lambda: _findings(run), lambda sentence: ([], sentence)
    )
    return replace(
        first,
        figures=figures(run),
        advice=advice,
        no_advice=no_advice,
        top_ops=guarded("The table of the top ops", lambda: _top_ops(run), lambda _: first.top_ops),
        top_ops_where="host" if run.answer.get("top_ops_where") == "host" else "device",
        checks=_checks(run, run.answer.get("checks")),
        run=[*_of_file(run), *_facts(run.overview)] if plain(run) else _facts(run.overview),
        plain=plain(run),
        code=asked(lines.payload, run, otherwise=None, part="The table of lines of code"),
        ranges=asked(ranges.payload, run, otherwise=None, part="The table of ranges"),
    )


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
    return advice, "" if advice else _no_advice(run)


def early(run: Run) -> Overview:
    """The same as far as it follows from the steps alone: the ops, what is advised, and the tabs
    that it leads to, take longer.
    """
    facts = run.first_answer
    bound, probe = facts.get("bound"), facts.get("probe")
    return Overview(
        bound=bound if bound in BY_KEY else None,
        verdict=Verdict(
            word=facts.get("verdict") or "Unknown",
            text=facts.get("verdict_text") or "",
            detail=facts.get("verdict_detail") or "",
        ),
        confidence=Confidence(
            level=facts.get("confidence") or "none",
            evidence=[
                Evidence(ok=bool(ok), text=text)
                for ok, text in facts.get("confidence_evidence") or []
            ],
        ),
        figures=[
            _average(run),
            _waiting(run),
            *([_busy(run)] if has_device(run) else [_host_compute(run), *_rate(run, facts)]),
        ],
        host_parts=_host_parts(run),
        advice=[],
        contention=facts.get("contention") or "",
        probe=Probe(text=probe["text"], detail=probe["detail"]) if probe else None,
        no_advice="Recommendations appear when the analysis has finished.",
        code=None,
        ranges=None,
        top_ops=table(frames.empty("overview.top_ops"), "overview.top_ops", _TOP),
        top_ops_where="device" if has_device(run) else "host",
        run=_facts(facts),
        checks=[],
    )


def _host_parts(run: Run) -> list[HostPart]:
    """Rows below a category in the breakdown; none below one that is not split further."""
    frame = run.host_parts
    split = set(frame.loc[frame["part"] != "host", "category"])
    rows = frame[frame["category"].isin(split) & (frame["percent"] >= _LEAST_PART)].sort_values(
        "percent", ascending=False
    )
    return [
        HostPart(
            category=str(row["category"]),
            text=str(row["text"]),
            ms=float(row["ms"]),
            percent=float(row["percent"]),
        )
        for row in rows.to_dict("records")
    ]


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


def _checks(run: Run, checks: Any) -> list[CheckResult]:
    """Every check with its percentage and the conclusion."""
    if not isinstance(checks, pd.DataFrame):
        return []
    return [
        CheckResult(
            label=_CHECKS.get(str(row["check"]), str(row["check"]).replace("_", " ").capitalize()),
            percent=wording.real(row["percent"]),
            level=str(row["level"]),
            statement=str(row["statement"]),
            view=_place(run, str(row["view"])),
        )
        for row in checks.to_dict("records")
    ]


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts of the run as it states them, with devices, versions and time from the recording
    itself.
    """
    environment = facts.get("environment") or {}
    values = {str(label): str(value) for label, value in facts.get("run_facts") or []}
    if devices := [_device(group) for group in environment.get("devices") or []]:
        values["Device"] = "; ".join(devices)
    # JAX states the platform "cpu" as the version of itself.
    versions = [
        f"{name} {version}"
        for name, version in (environment.get("versions") or {}).items()
        if version != name
    ]
    # A run that nbprof recorded has those of its framework in its name.
    if versions := [one for one in versions if one not in values.get("Framework", "").split(", ")]:
        values["Versions"] = ", ".join(versions)
    return [(label, wording.one_line(value)) for label, value in values.items()]


def _of_file(run: Run) -> list[tuple[str, str]]:
    """Format and size of a trace without a known framework."""
    lanes = asked(lambda: run.trace.lanes, otherwise=None)
    held = wording.plural(run.as_read.receipt.events, "event")
    if lanes is not None:
        processes = len(lanes[["host", "process"]].drop_duplicates())
        held += (
            f" on {wording.plural(int((lanes['events'] > 0).sum()), 'lane')} of"
            f" {wording.plural(processes, 'process', 'processes')}"
        )
    names = [by_name(run.files.format).label] if run.files is not None else []
    return [*(("Format", name) for name in names), ("Holds", held)]


def _device(group: Mapping[str, Any]) -> str:
    """`4 × Tesla T4 (sm_75), 40 cores, 14.56 GiB` of what is known of a kind of device."""
    count, capability, cores = (
        group.get("count") or 1,
        group.get("compute_capability"),
        wording.real(group.get("cores")),
    )
    name = str(group.get("name") or group.get("kind") or "device")
    unit = unit_of_gpu([name])
    # A number of CUDA's: the names of AMD's have the architecture.
    short = (
        f"sm_{str(capability).replace('.', '')}" if capability and unit == "multiprocessor" else ""
    )
    parts = [f"{name} ({short})" if short and short not in name else name]
    if cores:
        parts.append(
            wording.plural(int(cores), unit) if capability else wording.plural(int(cores), "core")
        )
    if memory := wording.real(group.get("memory_bytes")):
        parts.append(wording.size(memory))
    if group.get("megacore"):
        parts.append("Megacore")
    if sparse_cores := wording.real(group.get("sparse_cores")):
        parts.append(wording.plural(int(sparse_cores), "SparseCore"))
    return (f"{count} × " if count > 1 else "") + ", ".join(parts)


def figures(run: Run) -> list[Figure]:
    """The six key figures; with no device recorded, host figures take the place of those that need
    one.
    """
    facts = run.answer
    on_device = has_device(run)
    of_tpu = (
        facts.get("flops_utilization_percent") is not None and (run.devices["kind"] == "TPU").any()
    )
    of_device = [
        _busy(run),
        *([_flops(run), _bandwidth(run)] if of_tpu else [_op_time(run), _precision(facts)]),
    ]
    middle = of_device if on_device else [_host_compute(run), *_rate(run, facts), _eager(run)]
    return [_average(run), _waiting(run), *middle, _memory(run)]


def _summary(run: Run, category: str) -> dict[Any, Any]:
    summary = run.steps_summary
    rows = summary[summary["category"] == category]
    return dict(rows.iloc[0]) if len(rows) else {}


def _average(run: Run) -> Figure:
    row = _summary(run, "step_time")
    mean, spread = (
        wording.real(run.first_answer.get("step_time_ms")),
        wording.real(run.first_answer.get("step_time_sd_ms")),
    )
    unit_of_work = unit_of(run)
    note = "no steps" if mean is None else ""
    # All of the card in one unit.
    unit, size = wording.time_unit(mean)
    if (low := wording.real(row.get("min_ms"))) is not None and mean is not None:
        high = wording.real(row.get("max_ms"))
        median, p95 = (wording.number(float(row[key]) / size, 2) for key in ("median_ms", "p95_ms"))
        note = (
            f"median {median}, p95 {p95}, range"
            f" {wording.number(low / size, 2)}–{wording.number(high and high / size, 2)}"
        )
        if len(run.steps) == 1:
            note = "first to last event" if unit_of_work.whole else f"one {unit_of_work.noun}"
    deviation = None
    if spread is not None and mean is not None and len(run.steps) > 1:
        deviation = f"± {wording.number(spread / size, 2)}"
    return figure(
        "step_time", unit_of_work.average, mean and mean / size, unit, 2, note, spread=deviation
    )


def _of_each(run: Run, ms: Any) -> str:
    """`3.78 ms per step`; of the recording, of which the card is in full, the time alone."""
    unit = unit_of(run)
    return wording.millis(ms) if unit.whole else f"{wording.millis(ms)} {unit.per}"


def _waiting(run: Run) -> Figure:
    percent, mean = (
        wording.real(run.first_answer.get("input_percent")),
        wording.real(run.first_answer.get("step_time_ms")),
    )
    note = "no steps" if mean is None else "input was not traced"
    if percent is not None:
        note = _of_each(run, percent * mean / 100) if mean is not None else ""
    hot = run.first_answer.get("bound") == "input"
    return figure(
        "input", "Waiting for input", percent, "%", 1, note, bar=bar(("input", percent)), hot=hot
    )


def _busy(run: Run) -> Figure:
    percent = run.first_answer.get("device_busy_percent")
    note = "no steps" if run.steps.empty else "not recorded"
    if wording.real(percent) is not None:
        devices, used = len(run.devices), run.busy_devices
        note = f"of {unit_of(run).time}"
        if devices > 1:
            # A device that ran nothing may not have been traced: it is in no mean.
            note += (
                f", mean of {devices:,} devices"
                if used in (0, devices)
                else f", {_that_worked(used, devices)}"
            )
        note += (
            "; copies and infeed count"
            if (run.devices["kind"] == "TPU").any()
            else "; copies count"
        )
    return figure(
        "device_busy", "Device busy", percent, "%", 1, note, bar=bar(("device_compute", percent))
    )


def _that_worked(used: int, devices: int) -> str:
    """The devices that ran anything, where others ran nothing."""
    return (
        f"the one of {devices:,} devices that ran"
        if used == 1
        else f"mean of the {used:,} of {devices:,} devices that ran"
    )


def _flops(run: Run) -> Figure:
    """FLOP rate of TPUs by their peak. (Their ops are compiled, so their place and precision say
    little.)
    """
    rate, peak = (
        wording.real(value)
        for value in (
            run.answer.get("flops_per_second"),
            run.devices["peak_flops_per_second"].max(),
        )
    )
    note = (
        f"{wording.number((rate or 0) / 1e12, 3)} of {wording.number((peak or 0) / 1e12)} TFLOP/s"
        " per device"
    )
    if (counter := wording.real(run.answer.get("mxu_utilization_percent"))) is not None:
        note += f"; MXU counter {wording.percent(counter)}"
    percent = run.answer.get("flops_utilization_percent")
    note += _unknown(run)
    return figure(
        "flops_utilization",
        "FLOPS utilization",
        percent,
        "%",
        1,
        note,
        bar=bar(("device_compute", percent)),
    )


def _bandwidth(run: Run) -> Figure:
    percent, rate = (
        run.answer.get("memory_bandwidth_utilization_percent"),
        run.answer.get("memory_bytes_per_second"),
    )
    known = wording.real(percent) is not None
    peak = wording.real(run.devices["memory_bytes_per_second"].max())
    rates = (
        f"{wording.number((rate or 0) / 1e9, 2)} of {wording.number((peak or 0) / 1e9)} GB/s per"
        " device"
    )
    note = f"{rates}{_unknown(run)}" if known else "not recorded"
    return figure(
        "memory_bandwidth",
        "Memory bandwidth",
        percent,
        "%",
        1,
        note,
        bar=bar(("device_compute", percent)),
    )


def _unknown(run: Run) -> str:
    """The share of op time whose FLOPs and bytes are unknown, as the end of a note."""
    percent = wording.real(run.answer.get("unknown_cost_percent")) or 0.0
    return f"; cost unknown for {wording.percent(percent)} of op time" if percent >= 0.05 else ""


def _no_ops(run: Run) -> str:
    """Why figures of the ops of hosts are not known."""
    activity = run.activity
    if without := len(activity.hosts_without_ops):
        return f"no ops recorded on {without:,} of {len(activity.hosts):,} hosts"
    return (
        "no ops recorded on the host"
        if run.answer.get("top_ops_where") == "device"
        else "no ops recorded"
    )


def _op_time(run: Run) -> Figure:
    device, host = (
        wording.real(run.answer.get(f"{side}_op_percent")) for side in ("device", "host")
    )
    note = f"on host {wording.percent(host)}" if device is not None else _no_ops(run)
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
    half, full = (
        wording.real(facts.get("compute_16bit_percent")),
        wording.real(facts.get("compute_32bit_percent")),
    )
    note = (
        f"32-bit {wording.percent(full)}"
        if half is not None
        else "precision not recorded"
        if facts.get("steps")
        else "no steps"
    )
    return figure(
        "compute_16bit", "16-bit compute", half, "%", 1, note, bar=bar(("device_compute", half))
    )


def _host_compute(run: Run) -> Figure:
    row = _summary(run, "host_compute")
    percent = wording.real(row.get("percent"))
    note = "no steps" if run.steps.empty else "no ops recorded on the host"
    if percent is not None:
        note = _of_each(run, row.get("mean_ms"))
    return figure(
        "host_compute", "Host compute", percent, "%", 1, note, bar=bar(("host_compute", percent))
    )


def _rate(run: Run, facts: Mapping[str, Any]) -> list[Figure]:
    """Units of work per second; none for a recording that is not divided."""
    unit = unit_of(run)
    if unit.whole:
        return []
    mean = wording.real(facts.get("step_time_ms"))
    note = "no accelerator" if mean else "no steps"
    covered = covered_by_steps(run.steps)
    if mean and covered is not None and covered < COVERED:
        note = f"without the time between {unit.plural}"
    label = f"{unit.plural.capitalize()} per second"
    return [figure("steps_per_second", label, 1000 / mean if mean else None, "", 1, note)]


def _eager(run: Run) -> Figure:
    percent = wording.real(run.answer.get("eager_host_percent"))
    outside = "of op time, not compiled" if by_torch(run) else "of op time on host"
    note = outside if percent is not None else _no_ops(run)
    return figure("eager", "Eager ops", percent, "%", 1, note, bar=bar(("host_compute", percent)))


def _memory(run: Run) -> Figure:
    peak = wording.real(run.answer.get("peak_memory_bytes"))
    if peak is None:
        return bytes_figure("peak_memory", "Peak memory", None, "")
    note = ""
    summary = run.known_memory
    if len(summary):
        at_peak = summary[summary["peak_bytes"] == peak]
        largest = (
            at_peak
            if len(at_peak)
            else summary.sort_values("peak_bytes", ascending=False, kind="stable")
        ).iloc[0]
        note = str(largest["memory_id"])
        capacity = wording.real(largest["capacity_bytes"])
        # Host allocators state no limit, or one so large that a part of it says nothing.
        if capacity and peak <= capacity < 2**44:
            note = f"of {wording.size(capacity)} ({wording.percent(100 * peak / capacity)})"
        if not largest["whole"]:
            note = "lower bound: earlier allocations are not included"
    return bytes_figure("peak_memory", "Peak memory", peak, note)


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
        return TraceTarget(kind="gap") if run.activity.has_device else None
    if begin := _CALLS.get(rule):
        named = next((str(name) for name in run.trace.names if str(name).startswith(begin)), "")
        return TraceTarget(kind="name", name=named) if named else None
    if rule not in _COPIES:
        return None
    copies = run.input_ops[run.input_ops["category"] == "enqueue"]
    if len(copies):
        return TraceTarget(
            kind="input", name=str(copies["op"].iloc[int(copies["total_ms"].to_numpy().argmax())])
        )
    return TraceTarget(kind="name", name=_COPY) if _COPY in set(run.trace.names) else None


def _place(run: Run, view: str) -> str:
    """A tab, or the one that shows the same where the dashboard of this run lacks it or has nothing
    on it.
    """

    def shows(tab: str) -> bool:
        return (
            tab in NAMES
            and asked(register.tool(tab).has, run, otherwise=False)
            and register.tool(tab).count(run) != 0
        )

    # Kernels are ops, and so is what ran in compiled programs.
    return next(tab for tab in (view, "ops", "op_profile", "trace") if shows(tab))


def _advice(run: Run, row: dict[Any, Any]) -> Advice:
    view, link = row.get("view"), row.get("link")
    if isinstance(view, str) and view and (place := _place(run, view)) != view:
        view, link = place, NAMES[place].label
    unit = gain_unit(run.first_answer, row.get("gain_ms_per_step"))
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
        view=view if isinstance(view, str) and view else "overview",
        link=link.replace("GPU kernels", f"{chip(run)} kernels") if isinstance(link, str) else "",
        target=_target(run, str(row.get("rule") or "")) if view == "trace" else None,
    )


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
    frame = run.answer["top_ops"]
    keys = [*_TOP]
    if "flops_per_second" in frame.columns and frame["flops_per_second"].notna().any():
        frame = frame.assign(gflops_per_second=floats(frame["flops_per_second"]) / 1e9)
        keys.append("gflops_per_second")
    if run.steps.empty and len(frame):
        # The screen has one column for both, and calls it "ms".
        frame = frame.assign(ms_per_step=frame["self_ms"])
    # Beside the time of a step stands what one device takes of it, not the sum of all.
    devices = (
        len(run.activity.device_extents)
        if len(run.steps) and run.answer.get("top_ops_where") == "device"
        else 1
    )
    if devices > 1 and len(frame):
        # The sum was divided by the steps of all hosts, and each host has its own.
        hosts = run.steps["host"].nunique()
        frame = frame.assign(ms_per_step=floats(frame["ms_per_step"]) * hosts / devices)
    side = ("host" if run.answer.get("top_ops_where") == "host" else "device",)
    top_ops = hidden(
        table(frame.head(10), "overview.top_ops", keys),
        *longest(frame.head(10), run.longest_calls, side),
    )
    top_ops.head("percent").label = f"% of {side[0]}"
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
