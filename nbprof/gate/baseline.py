"""A baseline: what a gate compares with, as a small JSON file that is made to be read in a diff."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from nbprof.activity.unit import KINDS as UNITS
from nbprof.activity.unit import STEP, Unit
from nbprof.analysis.compare import compare
from nbprof.analysis.compare.compare import Side
from nbprof.analysis.compare.repeats import Repeat
from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.gate.figures import KINDS, figure, repeats, unit_of
from nbprof.run.run import Run

VERSION = 1
MOST_NAMES = 50
"""Ops and kernels that are kept: so many of the most time, and so many of the most calls."""
MOST_RUNS = 20
"""Runs whose step times are kept."""
MOST_NAMED = 5
"""Ops or kernels that a failure names."""
_KEPT = {"kernels": ("kernel",), "ops": ("where", "type", "op")}
_TIMES = ("mean", "typical", "error", "typical_error")
_OPTIONS = ("host_level", "memory", "python", "shapes", "stacks")
"""Options of a recording that cost time."""


@dataclass
class Baseline:
    """What a gate knows of the run before.

    Attributes
    ----------
    counts : dict
        By the names of `KINDS`; those that were known.
    runs : list of list of Repeat
        Step times of each run that was added, with its repeats.
    machine : dict
        See `machine_of`.
    kernels, ops : list of dict
        Those with the most time and calls, `us` and `calls` per step.
    truncated : bool
        Whether there were more.
    unit : str
        The kind of `Unit` that figures are given per.
    """

    counts: dict[str, float] = field(default_factory=dict)
    runs: list[list[Repeat]] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    ops: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    unit: str = STEP

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Baseline:
        """The baseline that some repeats make. What is not certain is not in it."""
        found = {name: figure(runs, name) for name in KINDS}
        times, _ = repeats(runs)
        mine = _side(runs[0])
        kernels, more_kernels = _names(
            mine.kernels.rename(columns={"total_us": "us"}), _KEPT["kernels"], len(mine.steps)
        )
        ops, more_ops = _names(
            mine.ops.rename(columns={"self_us": "us"}), _KEPT["ops"], len(mine.steps)
        )
        return cls(
            counts={
                name: one.value
                for name, one in found.items()
                if one.value is not None and not one.unknown
            },
            runs=[times] if times else [],
            machine=machine_of(runs[0]),
            kernels=kernels,
            ops=ops,
            truncated=more_kernels or more_ops,
            unit=unit_of(runs).kind,
        )

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """The baseline in a file.

        Raises
        ------
        NbprofError
            It is none, or of another version.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["nbprof_baseline"] != VERSION:
                raise NbprofError(
                    f"{path} is a baseline from another version of nbprof: write it again with"
                    " --nbprof-update"
                )
            return cls(
                counts={str(name): _number(value) for name, value in values["counts"].items()},
                runs=[
                    [
                        Repeat(
                            **{name: _number(one[name]) for name in _TIMES}, steps=int(one["steps"])
                        )
                        for one in run
                    ]
                    for run in values["runs"]
                ],
                machine={str(name): str(value) for name, value in values["machine"].items()},
                kernels=[_row(row, _KEPT["kernels"]) for row in values["kernels"]],
                ops=[_row(row, _KEPT["ops"]) for row in values["ops"]],
                truncated=bool(values["truncated"]),
                unit=_kind(values.get("unit", STEP)),
            )
        except OSError as error:
            raise NbprofError(
                f"{path}: the baseline could not be read ({error.strerror})"
            ) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NbprofError(
                f"{path} is not a baseline, or is damaged ({error}): write it again with"
                " --nbprof-update"
            ) from error

    def write(self, path: Path) -> None:
        """Put it in a file, whole or not at all.

        Raises
        ------
        NbprofError
            It could not be written.
        """
        text = self.text()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NbprofError(
                f"{path.parent}: the folder of the baseline could not be made ({error.strerror})"
            ) from error
        with atomic_write(path, "baseline", len(text)) as file:
            file.write(text.encode())

    def text(self) -> str:
        """The file: sorted, a line for each figure, repeat, kernel and op."""
        parts = [f'"nbprof_baseline": {VERSION}']
        for name, values in (
            ("counts", {key: _rounded(value, 12) for key, value in self.counts.items()}),
            ("machine", self.machine),
        ):
            rows = [
                f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(values.items())
            ]
            parts.append(
                f'"{name}": {{\n' + ",\n".join(rows) + "\n }" if rows else f'"{name}": {{}}'
            )
        for name, listed in (("kernels", self.kernels), ("ops", self.ops)):
            rows = [f"  {json.dumps(one)}" for one in listed]
            parts.append(f'"{name}": [\n' + ",\n".join(rows) + "\n ]" if rows else f'"{name}": []')
        times = [
            [
                json.dumps({key: _rounded(value, 5) for key, value in one._asdict().items()})
                for one in run
            ]
            for run in self.runs
        ]
        rows = ["  [\n   " + ",\n   ".join(run) + "\n  ]" for run in times]
        parts.append('"runs": [\n' + ",\n".join(rows) + "\n ]" if rows else '"runs": []')
        parts.append(f'"truncated": {json.dumps(self.truncated)}')
        if self.unit != STEP:
            parts.append(f'"unit": {json.dumps(self.unit)}')
        return "{\n " + ",\n ".join(parts) + "\n}\n"

    def add(self, other: Baseline) -> None:
        """Add the step times of another run; of more than `MOST_RUNS`, the last are kept."""
        self.runs = [*self.runs, *other.runs][-MOST_RUNS:]

    def changes(self, run: Run, what: str, of: str) -> list[str]:
        """The kernels or ops that changed most since, as short texts.

        Parameters
        ----------
        run : Run
        what : {"kernels", "ops"}
        of : {"calls", "us"}
            By what.
        """
        kept = self.kernels if what == "kernels" else self.ops
        if not kept or not len(run.steps):
            return []
        frame = pd.DataFrame(kept, columns=[*_KEPT[what], "calls", "us"])
        before = Side("", pd.DataFrame(index=[0]), _NONE["ops"], _NONE["kernels"], pd.DataFrame())
        if what == "kernels":
            before.kernels = frame.rename(columns={"us": "total_us", "calls": "occurrences"})
            rows = compare.kernels(before, _side(run))
        else:
            before.ops = frame.rename(columns={"us": "self_us", "calls": "occurrences"})
            rows = compare.ops(before, _side(run))
        if self.truncated and len(frame) >= MOST_NAMES:
            # What is not among the largest of either kind may have been there before.
            least = {column: frame[column].nlargest(MOST_NAMES).min() for column in ("us", "calls")}
            small = (rows["after_us"] <= least["us"]) & (rows["after_calls"] <= least["calls"])
            rows = rows[~((rows["state"] == "new") & small)]
        change = rows[f"after_{of}"].fillna(0.0) - rows[f"before_{of}"].fillna(0.0)
        scale = rows[[f"after_{of}", f"before_{of}"]].max(axis=1)
        rows = rows.assign(change=change)[change.abs() > 1e-3 * scale]
        if of == "us":
            # What has become faster does not explain a step that is slower.
            rows = rows[rows["change"] > 0]
        order = rows["change"].abs().sort_values(ascending=False, kind="stable").index[:MOST_NAMED]
        name = _KEPT[what][-1]
        return [
            _change(str(row[name]), row, of, Unit(self.unit))
            for row in rows.loc[order].to_dict("records")
        ]


def machine_of(run: Run) -> dict[str, str]:
    """What a step time is of: machine, devices, versions, and what the recording itself cost; {}
    where it does not say.
    """
    capture = run.capture
    if capture is None or not capture.machine:
        return {}
    overview = run.overview
    versions = {
        f"version of {name}": str(value)
        for name, value in overview["environment"]["versions"].items()
    }
    options = {
        f"option {name}": str(capture.options[name]) for name in _OPTIONS if name in capture.options
    }
    devices = (
        f"{overview['devices']} × {overview['device_kind']}" if overview["devices"] else "none"
    )
    # The instructions follow from the model of the CPU.
    stated = {name: value for name, value in capture.machine.items() if name != "bf16"}
    return {**stated, "devices": devices, **versions, **options}


def another(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Why step times of two machines cannot be compared; '' if they can."""
    if not before or not after:
        which = "the baseline" if not before else "the profile"
        return (
            f"{which} does not identify the machine it was recorded on: record it with nbprof, or"
            " confirm it with same_machine=True"
        )
    named = sorted({*before, *after})
    different = [
        f"{name} {before.get(name, 'unknown')} there, {after.get(name, 'unknown')} here"
        for name in named
        if before.get(name) != after.get(name)
    ]
    return f"the baseline is from another machine ({'; '.join(different)})" if different else ""


_NONE = {
    "ops": pd.DataFrame(
        {
            name: pd.Series([], dtype=object)
            for name in ("where", "type", "op", "self_us", "occurrences")
        }
    ),
    "kernels": pd.DataFrame(
        {name: pd.Series([], dtype=object) for name in ("kernel", "total_us", "occurrences")}
    ),
}


def _side(run: Run) -> Side:
    """What is compared of a run here: nothing that needs a verdict."""
    return Side("", run.steps, run.ops_in_steps, run.kernels_in_steps, run.input_ops)


def _names(
    frame: pd.DataFrame, keys: tuple[str, ...], steps: int
) -> tuple[list[dict[str, Any]], bool]:
    """The rows with the most time and the most calls, by name, per step; and whether there are
    more.
    """
    if not len(frame) or not steps:
        return [], False
    if "type" in keys:
        frame = frame[frame["type"] != "IDLE"]
    added = (
        frame.astype(dict.fromkeys(keys, str)).groupby(list(keys))[["us", "occurrences"]].sum()
        / steps
    )
    top = [
        added[column].sort_values(ascending=False, kind="stable").index[:MOST_NAMES]
        for column in ("us", "occurrences")
    ]
    kept = added[added.index.isin(top[0].union(top[1]))].sort_index().reset_index()
    rows = [
        {
            **{key: row[key] for key in keys},
            "calls": _rounded(row["occurrences"], 6),
            "us": _rounded(row["us"], 4),
        }
        for row in kept.to_dict("records")
    ]
    return rows, len(kept) < len(added)


def _rounded(value: float, digits: int) -> float | int | None:
    if math.isnan(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == round(short) and abs(short) < 2**53 else short


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _kind(value: Any) -> str:
    if value not in UNITS:
        raise ValueError(f"{value!r} is no unit of work")
    return str(value)


def _row(row: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {
        **{key: str(row[key]) for key in keys},
        **{name: _rounded(_number(row[name]), 6) for name in ("calls", "us")},
    }


def _change(name: str, row: Mapping[Any, Any], of: str, unit: Unit) -> str:
    short = name if len(name) <= 80 else f"{name[:79]}…"
    before, after = (
        0.0 if pd.isna(row[f"{when}_{of}"]) else float(row[f"{when}_{of}"])
        for when in ("before", "after")
    )
    what = "calls" if of == "calls" else "µs"
    note = {"new": " (new)", "gone": " (gone)"}.get(str(row["state"]), "")
    return f"{short}: {before:,.4g} → {after:,.4g} {what} {unit.per}{note}"
