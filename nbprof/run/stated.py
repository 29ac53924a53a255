"""Facts that a profile states about itself: of one host from its activity, of several combined.

`activity` builds an Activity without events from them, for everything that needs no events.
"""

from __future__ import annotations

import itertools
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
from nbprof.run.frame import Hosts

_FLAGS = ("has_device", "has_host_ops", "reads_infeed", "captures", "works_ahead")
_COUNTED = re.compile(r"(.*): (\d+)\Z")


class NeedsHostError(NbprofError):
    """Raised for what needs the events of a host, if the hosts were read separately."""

    def __init__(self) -> None:
        super().__init__(
            "this needs the events of a host. When many hosts are read, events stay in each host's"
            " file: open one with p.rank(0)."
        )


def of(activity: Activity, programs: int) -> dict[str, Any]:
    """The facts of one host; `programs` is the number of compiled programs in its file."""
    extents = activity.device_extents
    hosts_without_ops = set(range(len(activity.hosts)))
    if activity.has_host_ops:
        hosts_without_ops = activity.hosts_without_ops
    return {
        "framework": activity.framework.title,
        "unit": activity.unit.to_dict(),
        "has_device": bool(activity.has_device),
        "has_host_ops": bool(activity.has_host_ops),
        "hosts_without_ops": sorted(hosts_without_ops),
        "reads_infeed": bool(activity.reads_infeed),
        "traits": sorted(activity.traits),
        "missing": dict(activity.missing),
        "environment": dict(activity.environment),
        "eager_calls": tuple(map(int, activity.eager_calls)),
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
    """Launches were captured into a graph."""
    # The texts are complete only when the calls were read.
    kinds = np.unique(activity.calls.kind)
    return "captured" in activity.texts.values[kinds].tolist()


def works_ahead(activity: Activity) -> bool:
    """A pipeline prepares batches during the steps."""
    codes = pd.unique(activity.iterators.name).tolist()
    return tf_data.works_ahead(str(activity.ops.values[code]) for code in codes)


def combined(values: list[dict[str, Any]], hosts: Hosts) -> dict[str, Any]:
    """The facts of a run from those of its hosts."""
    of_hosts = {name: [value[name] for value in values] for name in values[0]}
    facts: dict[str, Any] = {name: any(of_hosts[name]) for name in _FLAGS}
    # Ops on CPUs are left out if there are devices.
    relevant = [value for value in values if value["has_device"] == facts["has_device"]]
    peaks = set(of_hosts["xprof_bytes_per_second"])
    return {
        **facts,
        "framework": next(filter(None, of_hosts["framework"]), ""),
        "unit": best(list(map(Unit.from_dict, of_hosts["unit"]))).to_dict(),
        "hosts_without_ops": _host_numbers(of_hosts["hosts_without_ops"], hosts),
        "ops_of_programs": any(value["ops_of_programs"] for value in relevant),
        "programs": sum(of_hosts["programs"]),
        "tables": sorted(set(itertools.chain.from_iterable(of_hosts["tables"]))),
        "traits": _traits(of_hosts["traits"]),
        "missing": _missing(of_hosts["missing"]),
        "environment": _environment(of_hosts["environment"]),
        "eager_calls": tuple(map(sum, zip(*of_hosts["eager_calls"], strict=True))),
        "extents": _extents(of_hosts["extents"], hosts),
        "host_of_extents": _host_numbers(of_hosts["host_of_extents"], hosts),
        "xprof_bytes_per_second": peaks.pop() if len(peaks) == 1 else float("nan"),
    }


def _host_numbers(values: list[list[int]], hosts: Hosts) -> list[int]:
    """The numbers that hosts have in the run, from lists of their numbers in each group."""
    numbers = []
    for first, group_numbers in zip(before(hosts), values, strict=True):
        numbers += [first + host for host in group_numbers]
    return numbers


def _missing(values: list[dict[str, str]]) -> dict[str, str]:
    """Why views are empty; a view is not if one host recorded something for it."""
    common = set(values[0]).intersection(*values[1:])
    return {view: text for view, text in values[0].items() if view in common}


def _extents(values: list[list[list[int]]], hosts: Hosts) -> list[list[int]]:
    """Device, start and end of all hosts, in ps on the clock of the run."""
    extents = []
    for value, offset_ms in zip(values, hosts.clock_offsets_ms, strict=True):
        offset = round(offset_ms * 1e9)
        extents += [[device, start + offset, end + offset] for device, start, end in value]
    return extents


def activity(stated: dict[str, Any], hosts: list[str], devices: pd.DataFrame) -> Activity:
    """An Activity without events; its tables of events raise `NeedsHostError` when read."""
    result = _StatedActivity(hosts)
    result.has_device = stated["has_device"]
    result.reads_infeed = stated["reads_infeed"]
    result.missing = stated["missing"]
    result.environment = stated["environment"]
    result.eager_calls = stated["eager_calls"]
    result.xprof_bytes_per_second = stated["xprof_bytes_per_second"]
    result.framework = titled(stated["framework"])
    result.unit = Unit.from_dict(stated["unit"])
    result.set_hosts_with_ops(set(range(len(hosts))) - set(stated["hosts_without_ops"]))
    result.traits = set(stated["traits"])
    result.devices = devices
    result.notes, result.program_notes, result.tables, result.given_peaks = [], [], {}, {}
    device, start, end = np.array(stated["extents"], np.int64).reshape(-1, 3).T
    result.device_extents = Extents(
        host=np.array(stated["host_of_extents"], np.int32), device=device, start=start, end=end
    )
    return result


class _StatedActivity(Activity):
    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in Activity.__annotations__:
            raise NeedsHostError
        raise AttributeError(name)


def _traits(values: list[list[str]]) -> list[str]:
    """The traits of any host; traits with a count are added up."""
    counts: dict[str, int] = {}
    plain_traits: set[str] = set()
    for trait in itertools.chain.from_iterable(values):
        counted = _COUNTED.match(trait)
        if counted is None:
            plain_traits.add(trait)
        else:
            counts[counted[1]] = counts.get(counted[1], 0) + int(counted[2])
    plain_traits.update(f"{trait}: {count}" for trait, count in counts.items())
    return sorted(plain_traits)


def _environment(values: list[dict[str, Any]]) -> dict[str, Any]:
    """Where and when the program ran.

    The earliest start, the longest recording, the mean of each counter, and of everything else the
    first host that states it.
    """
    result: dict[str, Any] = {}
    for value in values:
        for name, fact in value.items():
            first = result.get(name)
            if isinstance(fact, dict) and isinstance(first, dict):
                result[name] = {**fact, **first}
            elif first is None:
                result[name] = fact
    for name, choose in (("start_time", min), ("duration_s", max)):
        values_of_name = [value[name] for value in values if value.get(name)]
        if values_of_name:
            result[name] = choose(values_of_name)
    if "counters" in result:
        shares: dict[str, list[float]] = {}
        for value in values:
            for name, share in (value.get("counters") or {}).items():
                shares.setdefault(name, []).append(share)
        result["counters"] = {name: sum(each) / len(each) for name, each in shares.items()}
    return result
