"""The environment of a run: stated versions, start and duration of the recording."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from nbprof.core.trace import Plane, Trace
from nbprof.dialects import sanity

# Newest and oldest start that a clock can have meant, in ns: the year 2000 and 2100.
_SANE_NS = (946_684_800 * 10**9, 4_102_444_800 * 10**9)
COUNTERS = ("matrix_unit_utilization_percent", "hbm_utilization_percent")
_VERSION = re.compile(r"(.+)_version\Z")


def environment(trace: Trace) -> dict[str, object]:
    """Facts about the run that the file states.

    Returns
    -------
    dict
        `versions` (by what they are of, as written), `start_time` (ISO, UTC; None where the file
        has no clock), `duration_s` (None without events), `counters` (of TPUs: percent by the name
        of the stat, as a mean of hosts), `processes` (PyTorch: of how many the job has), and `rank`
        where it is one of several.
    """
    versions: dict[str, str] = {}
    counters: dict[str, float] = {}
    for plane in trace.planes:
        for key, value in plane.stats.items():
            _version(versions, key, value)
    facts: dict[str, object] = {
        "versions": versions,
        "start_time": _when(origin_ns(trace)),
        "duration_s": _duration_s(trace),
    }
    for key, value in trace.metadata.items():
        _version(versions, key, value)
    for key in COUNTERS:
        percents = [plane.stats.get(key) for plane in trace.planes]
        values = [float(percent) for percent in percents if isinstance(percent, (int, float))]
        if values:
            counters[key] = sum(values) / len(values)
    facts["counters"] = counters
    job = trace.metadata.get("distributedInfo")
    if isinstance(job, dict) and isinstance(job.get("world_size"), int):
        facts["processes"] = job["world_size"]
    return facts


def origin_ns(trace: Trace) -> int:
    """The moment 0 of the trace in ns since 1970; 0 where the file has no clock."""
    return min(_moments(trace.planes, "profile_start_time"), default=trace.epoch_ns)


def _duration_s(trace: Trace) -> float | None:
    """Length of the recording, as stated or by its events; the longest of several hosts."""
    rows = sanity.recorded(trace)
    seconds = ((rows["end"] - rows["begin"]) / 1e12).where(rows["events"] > 0, 0.0)
    length = dict(zip(rows["host"], seconds, strict=True))
    by_host: dict[str, list[Plane]] = {}
    for plane in trace.planes:
        by_host.setdefault(plane.host, []).append(plane)
    for host, planes in by_host.items():
        starts = _moments(planes, "profile_start_time")
        stops = _moments(planes, "profile_stop_time")
        if starts and stops and max(stops) > min(starts):
            length[host] = (max(stops) - min(starts)) / 1e9
    return max(length.values(), default=0.0) or None


def _moments(planes: Iterable[Plane], key: str) -> list[int]:
    """Integers that planes state under a key, in ns; other values are damaged."""
    texts = [str(plane.stats[key]) for plane in planes if key in plane.stats]
    return [int(text) for text in texts if text.isascii() and text.isdigit()]


def _version(versions: dict[str, str], key: str, value: object) -> None:
    match = _VERSION.match(key)
    if (
        match
        and isinstance(value, (str, int, float))
        and not isinstance(value, bool)
        and str(value)
    ):
        versions.setdefault(match.group(1), _cuda(match.group(1), value))


def _cuda(name: str, value: str | float) -> str:
    """CUDA states 12040 for 12.4, HIP 70253211 for 7.2.53211."""
    if "hip" in name and isinstance(value, int) and value >= 10**7:
        return f"{value // 10**7}.{value // 10**5 % 100}.{value % 10**5}"
    if (
        ("cuda" in name or name in ("runtime", "driver"))
        and isinstance(value, int)
        and value >= 1000
    ):
        return f"{value // 1000}.{value % 1000 // 10}"
    return str(value)


def _when(nanoseconds: object) -> str | None:
    if not isinstance(nanoseconds, int) or not _SANE_NS[0] <= nanoseconds < _SANE_NS[1]:
        return None
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(timespec="seconds")
