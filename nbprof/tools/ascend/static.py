"""What Ascend's profiler measured, in plain HTML: the mean iteration, what to do, and the types of ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbprof.display import markup, wording

_ROWS, _MOST_GROUPS = 5, 4


def html(payload: dict[str, Any]) -> str:
    """Nothing without tables of Ascend."""
    part = payload["ascend"]
    if part["empty"] or not part["sections"]:
        return ""
    said = part["verdict"]
    fact = f"{said['word']}: {said['text']}" if said["text"] else said["word"]
    parts = [markup.paragraph(f"<b>On the NPU: {markup.text(fact)}.</b> {markup.text(said['detail'])}")]
    parts += [_iterations(group) for group in part["iterations"][:_MOST_GROUPS]]
    found = [rule for rule in part["rules"] if rule["state"] == "found"][:_ROWS]
    rows = [[markup.text(said) for said in (one["severity"].capitalize(), one["title"], one["evidence"], one["fix"])] for one in found]
    parts.append(markup.table("Rules of Ascend's tools", "what they find", ["", "What to do", "Evidence", "How"], rows, "llll"))
    types = next((section for section in part["sections"] if section["id"] == "op_types"), None)
    if types is None:
        # A table that was opened by itself.
        return "".join([parts[0], *(_plain(section) for section in part["sections"])])
    return "".join([*parts, _types(types)])


def _plain(section: dict[str, Any]) -> str:
    heads, data = section["table"]["columns"], section["table"]["data"]
    rows = [[markup.text(_cell(data[head["key"]], i, head)) for head in heads] for i in range(min(section["table"]["rows"], 2 * _ROWS))]
    sides = "".join("l" if head["kind"] == "text" else "r" for head in heads)
    return markup.table(section["title"], section["scope"], [markup.text(head["label"]) for head in heads], rows, sides)


def _cell(values: Any, row: int, head: dict[str, Any]) -> str:
    if head["kind"] == "text":
        return str(values["values"][int(values["codes"][row])])
    return wording.size(values[row]) if head["kind"] == "bytes" else wording.number(values[row], head.get("digits", 0))


def _iterations(group: dict[str, Any]) -> str:
    steps = group["steps"]
    counted = np.asarray(steps["warmup"]) == 0
    times = np.asarray(steps["step_time_ms"], np.float64)[counted]
    if not np.isfinite(times).any():
        return ""
    mean = float(np.nanmean(times))
    rows = [["<b>End to end</b>", wording.number(mean, 2), wording.percent(100)]]
    for key, label in steps["labels"].items():
        values = np.asarray(steps["categories"][key], np.float64)[counted]
        own = float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
        rows.append([markup.text(label), wording.number(own, 2), wording.percent(100 * own / mean if mean > 0 else None)])
    scope = f"{group['label']}, mean of {wording.plural(int(counted.sum()), 'iteration')}"
    return markup.table("Where an iteration goes", scope, ["Part", "ms", "%"], rows, "lrr")


def _types(section: dict[str, Any]) -> str:
    # Columns without a value are left out of the table.
    data = section["table"]["data"]
    time = data.get("total_us")
    rows = [
        [
            markup.text(_text(data, "op_type", i)),
            markup.text(_text(data, "core", i)),
            wording.number(data["tasks"][i] if "tasks" in data else None),
            wording.number(None if time is None else float(time[i]) / 1000, 2),
            wording.percent(data["fraction"][i] if "fraction" in data else None),
        ]
        for i in range(min(section["table"]["rows"], 2 * _ROWS))
    ]
    return markup.table("NPU ops by type", section["scope"], ["Type", "Runs on", "Count", "ms", "%"], rows, "llrrr")


def _text(data: dict[str, Any], key: str, row: int) -> str:
    return str(data[key]["values"][int(data[key]["codes"][row])]) if key in data else ""
