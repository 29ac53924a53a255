"""The files of a PyTorch run, one per process: a rank of a distributed job, or all of it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from nbprof.core.trace import Trace
from nbprof.dialects.lookups import host_of_lanes

Facts = dict[str, object]

UNDESCRIBED = "undefined"
_AMD_KEYS = (
    "hip_runtime_version",
    "roctracer_version",
    "rocprofiler_version",
    "hip_driver_version",
)


class Hosts:
    """Facts that each file states; renames the hosts of the trace to their ranks, if stated.

    Parameters
    ----------
    trace : Trace
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        by_host = _mapping(trace.metadata.get("hosts"))
        self.facts: list[Facts] = []
        for name in trace.hosts:
            self.facts.append(_mapping(by_host.get(name, trace.metadata)))
        self.files = list(trace.hosts)
        self._rename()

    @cached_property
    def ranks(self) -> list[int | None]:
        """The rank of each file, None where it states none."""
        return self._of_job("rank")

    @cached_property
    def world_size(self) -> int | None:
        """Number of ranks in the job, None if no file states it."""
        sizes = self._of_job("world_size")
        return max((size for size in sizes if size is not None), default=None)

    def _of_job(self, key: str) -> list[int | None]:
        """A number that each file states on its distributed job."""
        return [_integer(_mapping(facts.get("distributedInfo")).get(key)) for facts in self.facts]

    @cached_property
    def process_groups(self) -> list[dict[str, str]]:
        """The program's descriptions of process groups (`group_desc`), by PyTorch's names.

        PyTorch calls "undefined" what the program called nothing. Source:
        `torch.distributed.distributed_c10d._get_pg_config`.
        """
        result = []
        for facts in self.facts:
            described: dict[str, str] = {}
            for group in _mappings(_mapping(facts.get("distributedInfo")).get("pg_config")):
                name, description = str(group.get("pg_name", "")), group.get("pg_desc")
                if isinstance(description, str) and description not in ("", UNDESCRIBED):
                    described[name] = description
                else:
                    described.pop(name, None)
            result.append(described)
        return result

    @cached_property
    def device_properties(self) -> list[list[Facts]]:
        """`deviceProperties` of each file."""
        return [_mappings(facts.get("deviceProperties")) for facts in self.facts]

    @cached_property
    def amd(self) -> list[bool]:
        """By file: True if its devices are AMD's."""
        result = []
        for facts, devices in zip(self.facts, self.device_properties, strict=True):
            named = any(str(device.get("name", "")).startswith("AMD") for device in devices)
            result.append(named or any(key in facts for key in _AMD_KEYS))
        return result

    def messages(self) -> list[tuple[str, str]]:
        """Messages logged by the profiler, as (host, text): its WARNING and ERROR lists."""
        messages = []
        for name, facts in zip(self.trace.hosts, self.facts, strict=True):
            for level in ("WARNING", "ERROR"):
                logged = facts.get(level)
                if isinstance(logged, str):
                    logged = [logged]
                if isinstance(logged, list):
                    messages += [(name, str(line)) for line in logged if line is not None]
        return messages

    def identical(self) -> dict[str, list[str]]:
        """Files with the same events as another: the copies of each, by its name."""
        events = self.trace.events
        host = host_of_lanes(self.trace)[events.lane]
        seen: dict[tuple[int, ...], str] = {}
        copies: dict[str, list[str]] = {}
        for i, name in enumerate(self.files):
            host_events = np.flatnonzero(host == i)
            if not len(host_events):
                continue
            start = events.start[host_events]
            weight = 1 + np.arange(len(host_events)) % 1009
            key = (
                len(host_events),
                int((start - start.min()).sum()),
                int(events.duration[host_events].sum()),
                int((events.name[host_events].astype(np.int64) * weight).sum()),
            )
            if key in seen:
                copies.setdefault(seen[key], []).append(name)
            seen.setdefault(key, name)
        return copies

    def _rename(self) -> None:
        trace = self.trace
        ranks = self.ranks
        names = []
        for host, rank in zip(trace.hosts, ranks, strict=True):
            if rank is None:
                names.append(host)
            elif ranks.count(rank) == 1:
                names.append(f"rank {rank}")
            else:
                # The names of the files tell those apart that state the same rank.
                names.append(f"rank {rank}, {host}")
        # A file may be named like the rank of another: two hosts of one name would be one host.
        count = Counter(names)
        for i, host in enumerate(trace.hosts):
            if count[names[i]] > 1 and names[i] != host:
                names[i] = f"{names[i]}, {host}"
        table = dict(zip(trace.hosts, names, strict=True))
        trace.lanes["host"] = trace.lanes["host"].map(table)
        for plane in trace.planes:
            plane.host = table.get(plane.host, plane.host)
        trace.hosts = names


def _mapping(value: object) -> Facts:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Facts]:
    if not isinstance(value, list):
        return []
    return list(map(_mapping, value))


def _integer(value: object) -> int | None:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value
