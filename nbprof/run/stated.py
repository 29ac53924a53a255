"""What a profile states about itself beside what happened: of one host from its activity, of
several combined from theirs.

`activity` makes of it an Activity without events, on which everything works that asks for no more
than this.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import Extents
from nbprof.activity.unit import Unit, best
from nbprof.analysis import hlo
from nbprof.analysis.advice import tf_data
from nbprof.core.errors import NbprofError
from nbprof.frameworks.register import titled
from nbprof.run.combine import before
from nbprof.run.lazy import Hosts

_COUNTED = re.compile(r"(.*): (\d+)\Z")


class NeedsHostError(NbprofError):
    """What was asked for is in the events of one host, and the hosts of the run were read apart."""

    def __init__(self) -> None:
        super().__init__(
            "this needs the events of a host. When many hosts are read, events stay in each host's"
            " file: open one with p.rank(0)."
        )


def of(activity: Activity, programs: int) -> dict[str, Any]:
    """What one host states; `programs` is how many compiled programs are in its file."""
    extents = activity.device_extents
    return {
        "framework": activity.framework.title,
        "unit": activity.unit.to_dict(),
        "has_device": bool(activity.has_device),
        "has_host_ops": bool(activity.has_host_ops),
        "hosts_without_ops": sorted(
            activity.hosts_without_ops if activity.has_host_ops else range(len(activity.hosts))
        ),
        "reads_infeed": bool(activity.reads_infeed),
        "traits": sorted(activity.traits),
        "missing": dict(activity.missing),
        "environment": dict(activity.environment),
        "eager_calls": tuple(int(value) for value in activity.eager_calls),
        "extents": np.stack([extents.device, extents.start, extents.end], axis=1).tolist(),
        "host_of_extents": extents.host.tolist(),
        "captures": captures(activity),
        "works_ahead": works_ahead(activity),
        "xprof_bytes_per_second": float(activity.xprof_bytes_per_second),
        "programs": programs,
        "tables": sorted(activity.tables),
        "ops_of_programs": bool(hlo.ran(activity)[0]["hlo"].any()),
    }


def captures(activity: Activity) -> bool:
    """Whether launches were captured into a graph."""
    calls = activity.calls.kind
    return bool((activity.texts.values[calls] == "captured").any()) if len(calls) else False


def works_ahead(activity: Activity) -> bool:
    """Whether a pipeline makes batches while the steps do something else."""
    return tf_data.works_ahead(
        str(activity.ops.values[code]) for code in pd.unique(activity.iterators.name).tolist()
    )


def combined(values: list[dict[str, Any]], hosts: Hosts) -> dict[str, Any]:
    """What all hosts state together."""
    frameworks = [value["framework"] for value in values if value["framework"]]
    peaks = {value["xprof_bytes_per_second"] for value in values}
    late_ps = [round(late * 1e9) for late in hosts.late_ms]
    has_device = any(value["has_device"] for value in values)
    return {
        "framework": frameworks[0] if frameworks else "",
        "unit": best([Unit.from_dict(value["unit"]) for value in values]).to_dict(),
        **{
            key: any(value[key] for value in values)
            for key in ("has_device", "has_host_ops", "reads_infeed", "captures", "works_ahead")
        },
        # What ran on CPUs is left out where there are devices.
        "hosts_without_ops": [
            at + host
            for at, value in zip(before(hosts), values, strict=True)
            for host in value["hosts_without_ops"]
        ],
        "ops_of_programs": any(
            value["ops_of_programs"] for value in values if value["has_device"] == has_device
        ),
        "programs": sum(value["programs"] for value in values),
        "tables": sorted({kind for value in values for kind in value["tables"]}),
        "traits": _traits([value["traits"] for value in values]),
        # A view has something to show if one host recorded it.
        "missing": {
            key: text
            for key, text in values[0]["missing"].items()
            if all(key in value["missing"] for value in values)
        },
        "environment": _environment([value["environment"] for value in values]),
        "eager_calls": tuple(sum(value["eager_calls"][i] for value in values) for i in range(2)),
        "extents": [
            [device, start + late, end + late]
            for value, late in zip(values, late_ps, strict=True)
            for device, start, end in value["extents"]
        ],
        "host_of_extents": [
            at + host
            for at, value in zip(before(hosts), values, strict=True)
            for host in value["host_of_extents"]
        ],
        "xprof_bytes_per_second": peaks.pop() if len(peaks) == 1 else float("nan"),
    }


def activity(stated: dict[str, Any], hosts: list[str], devices: pd.DataFrame) -> Activity:
    """An Activity that knows no events: to ask it for any is an error.

    Raises
    ------
    NeedsHostError
        Later, when a table of events is asked for.
    """
    out = _Stated(hosts)
    for name in (
        "has_device",
        "reads_infeed",
        "missing",
        "environment",
        "eager_calls",
        "xprof_bytes_per_second",
    ):
        setattr(out, name, stated[name])
    out.framework = titled(stated["framework"])
    out.unit = Unit.from_dict(stated["unit"])
    out.set_hosts_with_ops(set(range(len(hosts))) - set(stated["hosts_without_ops"]))
    out.traits = set(stated["traits"])
    out.devices = devices
    out.notes, out.program_notes, out.tables, out.given_peaks = [], [], {}, {}
    device, start, end = np.array(stated["extents"], np.int64).reshape(-1, 3).T
    out.device_extents = Extents(
        host=np.array(stated["host_of_extents"], np.int32), device=device, start=start, end=end
    )
    return out


class _Stated(Activity):
    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in Activity.__annotations__:
            raise NeedsHostError
        raise AttributeError(name)


def _traits(values: list[list[str]]) -> list[str]:
    """The traits of any host; of those that count, the sums."""
    counts: dict[str, int] = {}
    plain: set[str] = set()
    for trait in (trait for value in values for trait in value):
        if found := _COUNTED.match(trait):
            counts[found[1]] = counts.get(found[1], 0) + int(found[2])
        else:
            plain.add(trait)
    return sorted([*plain, *(f"{what}: {count}" for what, count in counts.items())])


def _environment(values: list[dict[str, Any]]) -> dict[str, Any]:
    """What the hosts say of where and when the program ran: the earliest start, the longest
    recording, else what the first says.
    """
    out: dict[str, Any] = {}
    for value in values:
        for key, said in value.items():
            known = out.get(key)
            if isinstance(said, dict) and isinstance(known, dict):
                out[key] = {**said, **known}
            elif known is None:
                out[key] = said
    if starts := [value["start_time"] for value in values if value.get("start_time")]:
        out["start_time"] = min(starts)
    if lengths := [value["duration_s"] for value in values if value.get("duration_s")]:
        out["duration_s"] = max(lengths)
    counted: dict[str, list[float]] = {}
    for value in values:
        for name, share in (value.get("counters") or {}).items():
            counted.setdefault(name, []).append(share)
    return out | (
        {"counters": {name: sum(shares) / len(shares) for name, shares in counted.items()}}
        if "counters" in out
        else {}
    )
