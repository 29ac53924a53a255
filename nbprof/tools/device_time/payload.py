"""The time of devices: what they did, what they waited for, and what the step could not have been
shorter without.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.unit import Unit
from nbprof.display import wording
from nbprof.display.codec import short
from nbprof.schema import frames as schema
from nbprof.tools.common import figure, share, unit_of
from nbprof.tools.device_time.parts import (
    DevicePath,
    DevicePlace,
    DeviceSeries,
    DeviceTime,
    PathKind,
)
from nbprof.tools.parts import ColumnData, Empty, Figure, Table, no_table
from nbprof.tools.tables import floats, table_of
from nbprof.tools.tool import ask

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_DEVICES, MOST_STEPS = 64, 60
"""Devices that are drawn, those with the most idle time where there are more, and steps to choose
from.
"""
MOST_ROWS, MOST_STREAMS, BINS = 50, 5, 250
_MOST_OF = {
    "device_idle_causes": "idle_ms",
    "device_overlap": "exposed_communication_ms",
    "device_queue": "works",
    "device_launches": "call_us",
    "device_bandwidth": "time_ms",
    "device_collectives": "wait_ms",
    "device_stragglers": "cost_ms",
}
"""Of what the rows that are listed have most, where there are too many."""
_LONGEST = 160
_TEXT_DEVICES = 8
"""Devices in plain text."""
_NO_LAUNCHES = "no known launches"
_SPAN = "from first to last work"
"""The time that the parts of a device are of: not that of the steps."""


_MOST_CELLS, _MOST_WINDOWS = 4000, 1000
PARTS = ("compute", "communication", "memory", "idle")
WAITS = ("host_wait", "kernel_wait", "other")
_TABLES = {
    "device_idle_causes": "host device cause idle_ms percent",
    "device_overlap": (
        "host device compute_ms communication_ms memory_ms compute_communication_ms"
        " exposed_communication_ms communication_overlap_percent"
    ),
    "device_queue": (
        "host device stream works mean_length median_length max_length empty_percent full_percent"
    ),
    "device_launches": (
        "host device kernel launches call_us max_call_us kernel_us delay_us median_delay_us"
        " max_delay_us short slow_calls long_delays"
    ),
    "device_bandwidth": (
        "host device copy copies bytes time_ms gb_per_second median_gb_per_second max_gb_per_second"
    ),
    "device_collectives": (
        "collective process_group group_size bytes calls time_ms wait_ms wait_percent real_us"
        " algorithm_gb_per_second bus_gb_per_second"
    ),
    "device_stragglers": (
        "step host device collectives last_in late_ms wait_ms cost_ms waited_for straggler"
    ),
    "device_critical_path": "kind name op pieces total_us percent longest_us",
}


def payload(run: Run) -> DeviceTime:
    """Time of devices by class of work."""
    frames = run.device_time.frames
    if not len(frames["device_time"]):
        return nothing(Empty(title="No device time", text=run.device_time.missing))
    times = _device_parts(frames["device_time"], unit_of(run))
    return DeviceTime(
        empty=None,
        statement=statement(run),
        figures=_figures(frames, len(run.devices)),
        devices=times.devices,
        places=[DevicePlace(host=str(host), device=int(device)) for host, device in times.keys],
        windows=times.windows,
        parts_ms=times.parts_ms,
        waits=_waits(frames["device_idle"], times.keys),
        # Hosts that were read separately have the sums, and no curves.
        streams=ask(_queues, run, otherwise=[]) + ask(_rates, run, otherwise=[]),
        tables={name: _table(name, rows) for name, rows in _rows(frames).items()},
        path=_path(run),
        left_out=_left_out(frames),
    )


def _path(run: Run) -> DevicePath:
    """The critical path of a step, or of the whole recording."""
    frame = run.device_time.frames["device_critical_path"]
    path, rest = frame.head(MOST_ROWS), frame.iloc[MOST_ROWS:]
    step = run.device_time.critical_path_step()
    name = host = ""
    if step is not None:
        name = str(step["name"])
        if len(run.hosts) > 1:
            host = str(step["host"])
    return DevicePath(
        step=name,
        host=host,
        kinds=_kinds(frame),
        table=_table("device_critical_path", path).with_columns(_jumps(path)),
        rest=_rest(rest),
    )


def nothing(empty: Empty | None = None) -> DeviceTime:
    """The part without devices."""
    none = no_table()
    return DeviceTime(
        empty=empty,
        statement="",
        figures=[],
        devices=[],
        places=[],
        windows=[],
        parts_ms=np.zeros(0, np.float32),
        waits=[],
        streams=[],
        tables={name: none for name in _TABLES if name != "device_critical_path"},
        path=DevicePath(step="", host="", kinds=[], table=none, rest=""),
        left_out="",
    )


def has(run: Run) -> bool:
    """True if the profile has device work."""
    return bool(len(run.device_time.frames["device_time"]))


def statement(run: Run) -> str:
    """Two sentences on the time of the devices; marked."""
    frames = run.device_time.frames
    sums = _sums_of_recording(frames["device_time"], ("time", *PARTS))
    time = sums["time"]
    if not time:
        return ""
    percent = {part: 100 * sums[part] / time for part in PARTS}
    used = _rows_of_recording(frames["device_time"])
    subject = _subject(used, len(run.devices))
    text = f"{subject} computed **{_percent(percent['compute'])}** of the time"
    for part, verb in (("communication", "communicated"), ("memory", "copied")):
        if percent[part] >= 1:
            text += f", {verb} another {_percent(percent[part])}"
    was = "was" if used == 1 else "were"
    text += f" and {was} idle **{_percent(percent['idle'])}**."
    if percent["idle"] >= 1:
        text += _waiting_for_host(frames)
    return text


def _waiting_for_host(frames: dict[str, pd.DataFrame]) -> str:
    """A sentence on the idle time in which the host had not launched work; "" without any."""
    idle = frames["device_idle"]
    idle_ms, of_device = idle["idle_ms"], idle["stream"] == ""
    total = float(idle_ms[of_device].sum())
    host_wait = idle_ms[of_device & (idle["category"] == "host_wait")]
    if not total or host_wait.empty:
        return ""
    percent = 100 * float(host_wait.sum()) / total
    text = f" In {_percent(percent)} of the idle time, the host had not launched the next work yet"
    causes = frames["device_idle_causes"].groupby("cause")["idle_ms"].sum()
    if len(causes) and percent >= 1:
        text += f"; meanwhile, it was mostly {causes.idxmax()}"
    return f"{text}."


def _of_all(used: int, devices: int) -> str:
    """The number of devices that ran work, with the total number if that is more."""
    if used >= devices:
        return wording.plural(used, "device")
    return f"{used:,} of {devices:,} devices"


def _subject(used: int, devices: int) -> str:
    """The devices that ran work, as the subject of a sentence."""
    if devices <= used == 1:
        return "The device"
    count = f"{used:,}"
    if used >= devices:
        return f"The {count} devices"
    if used == 1:
        count = "one"
    return f"The {count} of {devices:,} devices that ran work"


def text(run: Run) -> str:
    """The time of devices in a few lines."""
    recording = _of_recording(run.device_time.frames["device_time"])
    if not len(recording):
        return f"<nbprof device_time: {run.device_time.missing}>"
    lines = [wording.plain(statement(run))]
    for row in recording.head(_TEXT_DEVICES).to_dict("records"):
        parts = [f"{part} {wording.percent(row[f'{part}_percent'])}" for part in PARTS]
        host = wording.one_line(str(row["host"]))
        lines.append(f"  {host}, device {row['device']}: {', '.join(parts)}")
    if len(recording) > _TEXT_DEVICES:
        lines.append(f"  and {len(recording) - _TEXT_DEVICES:,} more devices")
    lines.append(
        "p.device_time.frame is the DataFrame; see also .idle, .overlap, .launches, .collectives,"
        " .critical_path …"
    )
    return "\n".join(lines)


def _percent(value: float) -> str:
    return wording.percent(value, 0)


def _of_recording(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that cover the whole recording, not a step."""
    return frame[frame["step"].isna()]


def _rows_of_recording(frame: pd.DataFrame) -> int:
    return int(frame["step"].isna().sum())


def _sums_of_recording(frame: pd.DataFrame, parts: Iterable[str]) -> dict[str, float]:
    """Time of parts over the rows that cover the whole recording, ms."""
    rows = frame["step"].isna()
    return {part: float(frame[f"{part}_ms"][rows].sum()) for part in parts}


def _name(row: Any, hosts: int) -> str:
    name = f"device {row.device}"
    if hosts > 1:
        name = f"{row.host}, {name}"
    return wording.one_line(name)


class _DeviceParts(NamedTuple):
    """The time of devices by window, device and part, in one column; `keys` are host and number of
    each device.
    """

    devices: list[str]
    keys: list[tuple[Any, Any]]
    windows: list[str]
    parts_ms: npt.NDArray[np.float32]


def _device_parts(frame: pd.DataFrame, unit: Unit) -> _DeviceParts:
    """The time of each device, for the whole recording and step by step."""
    recording = _rows_with_most(_of_recording(frame), "idle_ms", MOST_DEVICES)
    hosts = frame["host"].nunique()
    # A number that comes again on a device is another step.
    turn = frame.groupby(["host", "device", "step"], sort=False, dropna=False).cumcount()
    keys = list(zip(turn.tolist(), frame["step"].fillna(-1).astype("int64").tolist(), strict=True))
    numbered = frame["step"].notna().to_numpy(np.bool_)
    steps: list[tuple[int, int]] = []
    # An undivided recording is the first window already.
    if not unit.is_recording:
        steps = list(dict.fromkeys(compress(keys, numbered)))
    crowded = len(recording) * len(steps) > _MOST_CELLS
    steps = steps[: MOST_STEPS if crowded else _MOST_WINDOWS]
    # Row of each device and window of each step; -1 for those that are not drawn.
    device_of = {
        key: i for i, key in enumerate(zip(recording["host"], recording["device"], strict=True))
    }
    devices = zip(frame["host"], frame["device"], strict=True)
    row = np.array([device_of.get(key, -1) for key in devices], np.int64)
    window_of = {step: i + 1 for i, step in enumerate(steps)}
    window = np.where(numbered, np.array([window_of.get(key, -1) for key in keys], np.int64), 0)
    parts = np.full((len(steps) + 1, len(recording), len(PARTS)), np.nan, np.float32)
    drawn = np.flatnonzero((row >= 0) & (window >= 0))
    times = frame[[f"{part}_ms" for part in PARTS]].to_numpy(np.float32)
    parts[window[drawn], row[drawn]] = times[drawn]
    return _DeviceParts(
        [_name(device, hosts) for device in recording.itertuples()],
        list(device_of),
        ["Whole recording", *(f"{unit.noun.capitalize()} {step}" for _, step in steps)],
        parts.reshape(-1),
    )


def _waits(idle: pd.DataFrame, devices: list[tuple[Any, Any]]) -> list[list[float | None]]:
    """Time of each wait by device (host and number), ms."""
    columns = [idle[key].tolist() for key in ("stream", "host", "device", "category", "idle_ms")]
    by_wait = {}
    for stream, host, device, category, idle_ms in zip(*columns, strict=True):
        if stream == "":
            by_wait[host, device, category] = idle_ms
    if not by_wait:
        return []
    rows = []
    for host, device in devices:
        rows.append([wording.real(by_wait.get((host, device, wait))) for wait in WAITS])
    return rows


def _figures(frames: dict[str, pd.DataFrame], devices: int) -> list[Figure]:
    sums = _sums_of_recording(frames["device_time"], ("time", "compute", "idle"))
    computing = share(sums["compute"], sums["time"])
    idle = share(sums["idle"], sums["time"])
    used = _of_all(_rows_of_recording(frames["device_time"]), devices)
    return [
        figure("compute", "Computing", computing, "%", 1, _SPAN),
        figure("idle", "Idle", idle, "%", 1, f"{used}, {_SPAN}"),
        _host_wait_figure(frames["device_idle"]),
        _hidden_figure(frames["device_overlap"], sums["time"]),
        *_launch_figures(frames["device_launches"]),
    ]


def _host_wait_figure(idle: pd.DataFrame) -> Figure:
    of_device = idle["stream"] == ""
    waits = idle["idle_ms"][of_device].groupby(idle["category"][of_device]).sum()
    percent, note = None, _NO_LAUNCHES
    if "host_wait" in waits:
        percent, note = share(float(waits["host_wait"]), float(waits.sum())), "of idle time"
    return figure("host_wait", "Waiting for the host", percent, "%", 1, note)


def _hidden_figure(overlap: pd.DataFrame, time: float) -> Figure:
    """The part of communication that is hidden behind computation."""
    parts = ("communication", "compute_communication", "exposed_communication")
    sums = _sums_of_recording(overlap, parts)
    communication = sums["communication"]
    hidden = share(sums["compute_communication"], communication)
    exposed = share(sums["exposed_communication"], time)
    note = "nothing communicated"
    if communication and exposed is not None:
        note = f"{exposed:.1f}% of the time is exposed communication"
    return figure("communication_hidden", "Communication hidden", hidden, "%", 1, note)


def _launch_figures(launches: pd.DataFrame) -> list[Figure]:
    """The mean delay of launches, and the share of those that take longer than their kernel."""
    delay = short_percent = None
    delay_note = short_note = _NO_LAUNCHES
    of_device = launches[launches["kernel"] == ""]
    count = float(of_device["launches"].sum())
    if count:
        delay = float((of_device["delay_us"] * of_device["launches"]).sum()) / count
        delay_note = "mean, from call to kernel"
        short_percent = share(float(of_device["short"].sum()), count)
        short_note = "of launches take longer than their kernel"
    return [
        figure("launch_delay", "Launch delay", delay, "µs", 1, delay_note),
        figure("short_kernels", "Short kernels", short_percent, "%", 1, short_note),
    ]


def _rows(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    overlap = frames["device_overlap"]
    tables = {name: frames[name] for name in _TABLES if name != "device_critical_path"}
    tables["device_overlap"] = overlap[overlap["step"].isna() & (overlap["communication_ms"] > 0)]
    if len(tables["device_queue"]):
        tables["device_queue"] = tables["device_queue"].sort_values(
            "works", ascending=False, kind="stable"
        )
    return {name: _rows_with_most(rows, _MOST_OF[name], MOST_ROWS) for name, rows in tables.items()}


def _rows_with_most(rows: pd.DataFrame, key: str, count: int) -> pd.DataFrame:
    """The rows that have most of something, in the order in which they are."""
    if len(rows) <= count:
        return rows
    return rows.iloc[np.sort(np.argsort(-floats(rows[key]), kind="stable")[:count])]


def _left_out(frames: dict[str, pd.DataFrame]) -> str:
    """A sentence on the rows and devices that are not listed."""
    parts = []
    for name in _TABLES:
        more = len(frames[name]) - MOST_ROWS
        if more > 0 and name != "device_overlap":
            parts.append(f"{more:,} more rows of {name.removeprefix('device_').replace('_', ' ')}")
    more_devices = _rows_of_recording(frames["device_time"]) - MOST_DEVICES
    if more_devices > 0:
        parts.append(f"{more_devices:,} more devices")
    if not parts:
        return ""
    text = f"Not listed here: {', '.join(parts)}; p.device_time has all of them."
    if more_devices > 0:
        text += f" Shown are the {MOST_DEVICES} devices that were idle for the longest time."
    return text


def _table(name: str, rows: pd.DataFrame) -> Table:
    frame = f"device_time.{name.removeprefix('device_')}"
    columns = [schema.column(frame, key) for key in _TABLES[name].split()]
    if len(rows):
        for col in columns:
            if col.kind in ("text", "code"):
                texts = [wording.shortened(text, _LONGEST) for text in rows[col.name]]
                rows = rows.assign(**{col.name: texts})
    return table_of(rows, columns)


def _rest(rows: pd.DataFrame) -> str:
    """A sentence on the rows of the path that are not listed."""
    if rows.empty:
        return ""
    percent = wording.percent(float(rows["percent"].sum()))
    return f"{wording.plural(len(rows), 'more row')} with {percent} of the path."


def _kinds(path: pd.DataFrame) -> list[PathKind]:
    by = (
        path.groupby("kind", sort=False)[["total_us", "percent"]]
        .sum()
        .sort_values("total_us", ascending=False, kind="stable")
    )
    return [
        PathKind(kind=str(kind), total_us=float(row["total_us"]), percent=float(row["percent"]))
        for kind, row in by.iterrows()
    ]


def _jumps(path: pd.DataFrame) -> dict[str, ColumnData]:
    return {
        key: short(np.round(path[key].to_numpy(np.float64), 6)) for key in ("_at_ms", "_for_ms")
    }


def _queues(run: Run) -> list[DeviceSeries]:
    """The queues of the busiest streams: the longest of each box of time."""
    busy = run.device_time.frames["device_queue"]
    if not len(busy):
        return []
    busiest = busy.sort_values("works", ascending=False, kind="stable").head(MOST_STREAMS)
    curves = run.device_time.queue_curves(
        list(zip(busiest["host"], busiest["device"], busiest["stream"], strict=True))
    )
    hosts = busy["host"].nunique()
    lines = []
    for row, curve in zip(busiest.itertuples(), curves, strict=True):
        label = f"Queue: {_name(row, hosts)}, {row.stream}"
        lines.append(_line(label, _device(row), "count", *curve))
    return lines


def _rates(run: Run) -> list[DeviceSeries]:
    copies = run.device_time.frames["device_bandwidth"]
    if not len(copies):
        return []
    series = run.device_time.bandwidth_series()
    busiest = (
        copies[copies["peak_gb_per_second"].notna()]
        .sort_values("time_ms", ascending=False, kind="stable")
        .head(MOST_STREAMS)
    )
    hosts = copies["host"].nunique()
    host, device, copy = (series[key].to_numpy(object) for key in ("host", "device", "copy"))
    time, rate = (series[key].to_numpy(np.float64) for key in ("time_ms", "gb_per_second"))
    curves = []
    for row in busiest.itertuples():
        curve = (host == row.host) & (device == row.device) & (copy == row.copy)
        label = f"Copies: {_name(row, hosts)}, {row.copy}"
        curves.append(_line(label, _device(row), "GB/s", time[curve], rate[curve]))
    return curves


def _device(row: Any) -> DevicePlace:
    return DevicePlace(host=str(row.host), device=int(row.device))


def _line(
    label: str,
    device: DevicePlace,
    unit: str,
    time: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
) -> DeviceSeries:
    """A step function as the largest value of each of so many boxes of its time, so that no peak is
    lost.
    """
    first, last = float(time[0]), float(time[-1])
    edges = np.linspace(first, last, BINS + 1)
    # The value at the start of a box, then those within it.
    before = np.maximum(np.searchsorted(time, edges[:-1], side="right") - 1, 0)
    largest = value[before].copy()
    box = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, BINS - 1)
    np.maximum.at(largest, box, value)
    return DeviceSeries(
        label=wording.shortened(wording.one_line(label), _LONGEST),
        device=device,
        unit=unit,
        from_ms=first,
        to_ms=last,
        most=largest.astype(np.float32),
    )
