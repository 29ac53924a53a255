"""The whole dashboard as one payload: the parts of the views and what stands around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__
from nbprof.display import wording
from nbprof.display.categories import BY_KEY
from nbprof.display.codec import Delta
from nbprof.run.cache.values import record
from nbprof.tools.allocator import payload as allocator
from nbprof.tools.ascend import payload as ascend
from nbprof.tools.device_time import payload as device_time
from nbprof.tools.header import created, facts, label, notice, out_of_memory
from nbprof.tools.hlo import payload as roofline
from nbprof.tools.input import payload as input_pipeline
from nbprof.tools.kernels import payload as kernels
from nbprof.tools.memory import payload as memory
from nbprof.tools.memory_viewer import payload as memory_viewer
from nbprof.tools.op_profile import payload as op_profile
from nbprof.tools.ops import payload as ops
from nbprof.tools.overview import payload as overview
from nbprof.tools.pods import payload as pods
from nbprof.tools.steps import payload as steps
from nbprof.tools.torch_ops import ops_torch
from nbprof.tools.trace import payload as trace

if TYPE_CHECKING:
    from nbprof.run.run import Run

TABS = {
    "overview": "Overview",
    "input": "Steps & input",
    "ops": "Ops",
    "op_profile": "Op profile",
    "hlo": "HLO & roofline",
    "kernels": "GPU kernels",
    "device_time": "Device time",
    "ascend": "Ascend",
    "memory": "Memory",
    "allocator": "Allocator",
    "memory_viewer": "Program memory",
    "pods": "Pods",
    "trace": "Trace",
}
_ALSO = {"steps": "input", "input_pipeline": "input", "roofline": "hlo"}
"""Other words for a tab."""

_MOST_SHOWN = 60
"""Letters of a wrong value in the sentence about it."""

_ROOMS: dict[str, Callable[..., dict[str, Any]]] = {
    "input": input_pipeline.payload,
    "ops": ops.payload,
    "op_profile": op_profile.payload,
    "hlo": roofline.payload,
    "kernels": kernels.payload,
    "device_time": device_time.payload,
    "ascend": ascend.payload,
    "memory": memory.payload,
    "allocator": allocator.payload,
    "memory_viewer": memory_viewer.payload,
    "pods": pods.payload,
    "trace": trace.payload,
}
_WHERE_KNOWN: dict[str, Callable[[Run], bool]] = {
    "ascend": ascend.has,
    "op_profile": op_profile.has,
    "kernels": overview.may_have_kernels,
    "pods": pods.has,
    "hlo": roofline.has,
    "memory_viewer": memory_viewer.has,
    "device_time": device_time.has,
    "allocator": allocator.has,
}
"""Tabs that are there only where they have something to show, unless they are asked for."""
# Parts are kept in the cache, and this is the one type of their own that they hold.
record(Delta)

_POINTS_TO = {
    "input": "input",
    "output": "trace",
    "kernel_launch": "trace",
    "device_collectives": "trace",
    "device_to_device": "trace",
    "compile": "trace",
    "device_compute": "kernels",
    "host_compute": "ops",
}
"""The tab where the verdict is followed up."""


def dashboard(run: Run, views: Iterable[str] | None = None, events: int | None = None) -> dict[str, Any]:
    """The `Payload` of js/lib/payload.ts, ready for `nbprof.display.codec.pack`.

    Parameters
    ----------
    run : Run
    views : iterable of str, optional
        The tabs to show, out of "overview", "input", "ops", "op_profile", "hlo", "kernels", "device_time", "ascend", "memory",
        "allocator", "memory_viewer", "pods", "trace". All when
        not given: "op_profile" then only where an op of a compiled program ran, "kernels" not where all devices are of another kind than
        GPUs, "pods" only where there are several workers, "memory_viewer" where there are compiled programs whose memory is known. Data of
        tabs that are not shown are left out, but for the overview and the steps, on which the static report stands.
    events : int, optional
        How many events of the trace to hold; 20,000 when not given, 0 for none of them.

    Raises
    ------
    NbprofError
        A view that does not exist, or a number of events that is none.
    """
    most = budget(events)
    asked = chosen(views)
    shown = [tab for tab in asked if views or tab not in _WHERE_KNOWN or _WHERE_KNOWN[tab](run)]
    if not views and allocator.alone(run):
        shown = ["allocator"]
    elif not views and (tabs := ascend.only(run)):
        shown = tabs
    payload: dict[str, Any] = {"overview": overview.payload(run), "steps": _kept(run, "steps", steps.payload)}
    for tab, room in _ROOMS.items():
        if tab == "trace" and tab in asked:
            payload[tab] = {**_kept(run, f"{tab} of {most}", partial(room, most=most)), "key": run.source.content_key()}
        else:
            # A snapshot beside a trace is no file of the run, by which the cache would know whether it is still the same.
            make = room if tab == "allocator" else partial(_kept, part=tab, make=room)
            payload[tab] = make(run) if tab in asked else left_out(tab)
    # Last, because it states how long the analysis took.
    return {"meta": meta(run, shown, most), **payload}


def budget(events: Any) -> int:
    """How many events of the trace a report holds, from what a person gave for it: None, or a whole number of any type (`1e5`).

    Raises
    ------
    NbprofError
        It is no whole number, or less than 0.
    """
    if events is None:
        return trace.MOST_EVENTS
    whole = -1
    number = isinstance(events, Real) and not isinstance(events, bool | np.bool_)
    if number:
        with suppress(ValueError, OverflowError):
            whole = int(events)
    if whole < 0 or whole != events:
        raise NbprofError(f"events= takes how many events of the trace to hold, a whole number from 0 on, not {_short(events)}")
    return min(whole, int(np.iinfo(np.int64).max))


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, np.generic) else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _kept(run: Run, part: str, make: Callable[[Run], dict[str, Any]]) -> dict[str, Any]:
    """A part of the payload, out of the cache where the run has one. What it says may also follow from how the run was recorded."""
    how = f"{run.overview.get('framework')}, {'found' if run.capture is None else 'recorded'}"
    return run.kept(f"view {part}, {how}", partial(make, run))


def select(payload: dict[str, Any], views: Iterable[str] | None) -> dict[str, Any]:
    """A payload with fewer tabs and without the data of the others, as `dashboard` would have made it."""
    shown = chosen(views)
    known = {tab["id"]: tab for tab in payload["meta"]["tabs"]}
    # A tab that is asked for by name is there, if only to say why it is empty.
    tabs = [known.get(tab) or {"id": tab, "label": TABS[tab], "count": None, "flag": None} for tab in shown if views or tab in known]
    if next(iter(known), "") == "memory":
        tabs.sort(key=lambda tab: tab["id"] != "memory")
    dropped = {tab: left_out(tab) for tab in _ROOMS if tab not in shown}
    return {**payload, **dropped, "meta": {**payload["meta"], "tabs": tabs}}


def chosen(views: Iterable[str] | None) -> list[str]:
    """The tabs in their fixed order; an unknown one is an error that names those there are."""
    if isinstance(views, str):
        views = [view for view in re.split(r"[,\s]+", views) if view]
    names = [_ALSO.get(name, name) for name in views or TABS]
    if unknown := [name for name in names if name not in TABS]:
        raise NbprofError(f"there is no view {unknown[0]!r}; the views are {', '.join(TABS)}")
    return [tab for tab in TABS if tab in names]


def left_out(key: str) -> dict[str, Any]:
    """A part that was not asked for: empty, and saying so."""
    empty = {"title": "Not in this report", "text": "This view was left out when the report was made."}
    nothing: dict[str, Any] = {"columns": [], "data": {}, "rows": 0}
    nan = float("nan")
    parts: dict[str, dict[str, Any]] = {
        "input": {
            "total_ms": 0.0,
            "per_step_ms": None,
            "categories": [],
            "statement": "",
            "next_step": "",
            "share": [],
            "pipelines": [],
            "ops": nothing,
            "bottleneck": np.zeros(0, np.uint8),
        },
        "ops": {
            "table": nothing,
            "totals": dict.fromkeys(("device_us", "host_us", "device_idle_us", "host_idle_us"), nan),
            "modules": None,
            "shapes": None,
        },
        "op_profile": op_profile.nothing(),
        "hlo": roofline.nothing(),
        "kernels": {"chip": "GPU", "table": nothing, "figures": []},
        "device_time": device_time.nothing(),
        "ascend": ascend.nothing(),
        "memory": {"ids": []},
        "allocator": allocator.nothing(),
        "memory_viewer": memory_viewer.nothing(),
        "pods": pods.nothing(empty),
        "trace": trace.nothing(),
    }
    return {**parts[key], "empty": empty}


def meta(run: Run, shown: list[str], most: int = trace.MOST_EVENTS) -> dict[str, Any]:
    """What stands around the views: header, tabs, notice, footer, receipt."""
    source, receipt = run.source, run.receipt
    if out_of_memory(run):
        # What has to be looked at is what stood in the memory.
        shown = sorted(shown, key=lambda tab: tab != "memory")
    return {
        "version": __version__,
        "label": label(run),
        "facts": facts(run),
        "created": created(run),
        "framework": str(run.overview.get("framework") or ""),
        "has_device": overview.has_device(run),
        "notice": notice(run),
        "tabs": [{"id": tab, "label": tab_label(run, tab), "count": _count(run, tab), "flag": _flag(run, tab)} for tab in shown],
        "footer": {
            "events": receipt.events,
            "dropped": receipt.dropped,
            "analysed_s": source.analysed_s,
            "file": wording.one_line(source.file or ""),
            "bytes": source.bytes,
        },
        "receipt": [{"level": line.level, "text": line.text} for line in receipt.lines] + _omissions(run, most),
    }


def tab_label(run: Run, tab: str) -> str:
    """What a tab is called: the kernels by what they ran on."""
    return TABS[tab].replace("GPU", overview.chip(run)) if tab == "kernels" else TABS[tab]


def _count(run: Run, tab: str) -> int | None:
    if tab == "ops":
        return len(ops.without_idle(run.ops))
    if tab == "pods":
        return run.pods["worker"].nunique() if pods.several(run) else run.pods_cores["worker"].nunique()
    return len(run.kernels) if tab == "kernels" else None


def _flag(run: Run, tab: str) -> str | None:
    bound = run.overview.get("bound")
    if bound not in BY_KEY:
        return None
    target = _POINTS_TO.get(bound)
    if target == "kernels" and run.kernels.empty:
        target = "ops"
    return bound if tab == target else None


def _omissions(run: Run, most: int) -> list[dict[str, str]]:
    """Receipt lines for what the payload, not the analysis, leaves out."""
    lines = []
    if count := ops.left_out(run):
        lines.append(f"The table of ops leaves out the {count:,} with the least self time; p.ops.frame has all.")
    lines += ops_torch.omissions(run)
    if count := op_profile.left_out(run):
        lines.append(f"The op profile has {count:,} ops in sums, those with the least self time; p.op_profile.frame has all.")
    if roofline.has(run) and (count := len(run.hlo) - roofline.MOST_ROWS) > 0:
        lines.append(f"The table of HLO ops leaves out the {count:,} with the least self time; p.hlo.frame has all.")
    if len(run.kernels) > kernels.MOST_ROWS:
        lines.append(
            f"The table of kernels leaves out the {len(run.kernels) - kernels.MOST_ROWS:,} with the least time; p.kernels.frame has all."
        )
    if (total := run.kept("events", lambda: int(run.trace.lanes["events"].sum()))) > most:
        what = f"the longest of the {total:,} events, about {most:,}, with" if most else f"none of the {total:,} events one by one, but"
        lines.append(f"The report holds {what} every lane and the density of the rest; events= of p.save and of outputs sets how many.")
    return [{"level": "info", "text": text} for text in lines]
