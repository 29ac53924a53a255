"""Baselines of a gate: small JSON files that read well in a diff."""

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
MAX_ROWS = 50
"""Ops and kernels that are stored: so many with the most time, and so many with the most calls."""
MAX_RUNS = 20
"""Runs whose step times are stored."""
MAX_CHANGES = 5
"""Ops or kernels that a failure names."""
_KEYS = {"kernels": ("kernel",), "ops": ("where", "type", "op")}
_OPTION = "option "
"""Before the name of an option of the recording, among the conditions of a step time."""
_TIMES = ("mean", "typical", "error", "typical_error")


@dataclass
class Baseline:
    """Figures and step times of earlier runs.

    Attributes
    ----------
    counts : dict
        Certain figures, by the names of `KINDS`.
    runs : list of list of Repeat
        Recorded step times of each run that was added, with its repeats.
    bare_runs : list of list of Repeat
        Step times of the same runs without the profiler, of those repeats that have them.
    machine : dict
        See `machine_of`.
    kernels, ops : list of dict
        Those with the most time and calls, `us` and `calls` per step.
    truncated : bool
        True if there were more.
    unit : str
        The kind of `Unit` that figures are given per.
    """

    counts: dict[str, float] = field(default_factory=dict)
    runs: list[list[Repeat]] = field(default_factory=list)
    bare_runs: list[list[Repeat]] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    ops: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    unit: str = STEP

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Baseline:
        """The baseline of the repeats of a run; figures that are not certain are omitted."""
        counts = {}
        for name in KINDS:
            value, doubt = figure(runs, name)
            if value is not None and not doubt:
                counts[name] = value
        times = repeats(runs)
        known = bool(times.recorded)
        side = _side(runs[0])
        steps = len(side.steps)
        kernel_rows = side.kernels.rename(columns={"total_us": "us"})
        kernels, more_kernels = _largest_rows(kernel_rows, _KEYS["kernels"], steps)
        op_rows = side.ops.rename(columns={"self_us": "us"})
        ops, more_ops = _largest_rows(op_rows, _KEYS["ops"], steps)
        return cls(
            counts=counts,
            runs=[times.recorded] * known,
            bare_runs=[times.bare] * known,
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
            The file is not a baseline, is damaged, or is from another version of nbprof.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["nbprof_baseline"] != VERSION:
                raise NbprofError(
                    f"{path} is a baseline from another version of nbprof: write it again with"
                    " --nbprof-update"
                )
            stored_runs = values["runs"]
            return cls(
                counts={str(name): _number(value) for name, value in values["counts"].items()},
                runs=_runs(stored_runs),
                # Those of a baseline without any are empty.
                bare_runs=_runs(values.get("bare_runs", [[]] * len(stored_runs))),
                machine={str(name): str(value) for name, value in values["machine"].items()},
                kernels=[_row(row, _KEYS["kernels"]) for row in values["kernels"]],
                ops=[_row(row, _KEYS["ops"]) for row in values["ops"]],
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
        """Write it to a file, atomically.

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
        """The text of the file: sorted, one line per figure, repeat, kernel and op."""
        counts = {name: _rounded(value, 12) for name, value in self.counts.items()}
        parts = [
            f'"nbprof_baseline": {VERSION}',
            _object_text("counts", counts),
            _object_text("machine", self.machine),
            _array_text("kernels", [f"  {json.dumps(row)}" for row in self.kernels]),
            _array_text("ops", [f"  {json.dumps(row)}" for row in self.ops]),
            _array_text("runs", list(map(_run_text, self.runs))),
            f'"truncated": {json.dumps(self.truncated)}',
        ]
        if self.unit != STEP:
            parts.append(f'"unit": {json.dumps(self.unit)}')
        if any(self.bare_runs):
            parts.insert(1, _array_text("bare_runs", list(map(_run_text, self.bare_runs))))
        return "{\n " + ",\n ".join(parts) + "\n}\n"

    def add(self, other: Baseline) -> None:
        """Add the step times of another run; of more than `MAX_RUNS`, the last are retained."""
        self.runs = [*self.runs, *other.runs][-MAX_RUNS:]
        self.bare_runs = [*self.bare_runs, *other.bare_runs][-MAX_RUNS:]

    @property
    def timed_bare(self) -> list[list[Repeat]]:
        """The runs that have step times without the profiler."""
        return [run for run in self.bare_runs if run]

    def changes(self, run: Run, table: str, column: str) -> list[str]:
        """The kernels or ops that changed most since the baseline, as short texts.

        Parameters
        ----------
        run : Run
        table : {"kernels", "ops"}
        column : {"calls", "us"}
            The column whose changes are compared.
        """
        stored = self.kernels if table == "kernels" else self.ops
        if not stored or not len(run.steps):
            return []
        frame = pd.DataFrame(stored, columns=[*_KEYS[table], "calls", "us"])
        before = Side("", pd.DataFrame(index=[0]), _NO_OPS, _NO_KERNELS, pd.DataFrame())
        if table == "kernels":
            before.kernels = frame.rename(columns={"us": "total_us", "calls": "occurrences"})
            rows = compare.kernels(before, _side(run))
        else:
            before.ops = frame.rename(columns={"us": "self_us", "calls": "occurrences"})
            rows = compare.ops(before, _side(run))
        if self.truncated and len(frame) >= MAX_ROWS:
            # Rows below the largest by time and by calls may have been there before.
            least_us = frame["us"].nlargest(MAX_ROWS).min()
            least_calls = frame["calls"].nlargest(MAX_ROWS).min()
            small = (rows["after_us"] <= least_us) & (rows["after_calls"] <= least_calls)
            rows = rows[~((rows["state"] == "new") & small)]
        change = rows[f"after_{column}"].fillna(0.0) - rows[f"before_{column}"].fillna(0.0)
        scale = rows[[f"after_{column}", f"before_{column}"]].max(axis=1)
        rows = rows.assign(change=change)[change.abs() > 1e-3 * scale]
        if column == "us":
            # Rows that became faster do not explain a slower step.
            rows = rows[rows["change"] > 0]
        order = rows["change"].abs().sort_values(ascending=False, kind="stable").index
        largest = rows.loc[order[:MAX_CHANGES]].to_dict("records")
        name = _KEYS[table][-1]
        unit = Unit(self.unit)
        return [_change_text(str(row[name]), row, column, unit) for row in largest]


def machine_of(run: Run) -> dict[str, str]:
    """The conditions of a step time: machine, devices, versions, and options that cost time.

    It is empty if the recording does not state its machine.
    """
    capture = run.capture
    if capture is None or not capture.machine:
        return {}
    overview = run.overview
    conditions = dict(capture.machine)
    # It follows from the model of the CPU.
    conditions.pop("bf16", None)
    conditions["devices"] = "none"
    if overview["devices"]:
        conditions["devices"] = f"{overview['devices']} × {overview['device_kind']}"
    for name, version in overview["environment"]["versions"].items():
        conditions[f"version of {name}"] = str(version)
    for name, value in capture.costly_options.items():
        conditions[f"{_OPTION}{name}"] = value
    return conditions


def machine_difference(
    before: Mapping[str, str], after: Mapping[str, str], *, bare: bool = False
) -> str:
    """Why step times of two machines cannot be compared; '' if they can.

    Parameters
    ----------
    before, after : mapping
        See `machine_of`.
    bare : bool
        The options of the recording do not count, for the steps ran without it.
    """
    if not before or not after:
        subject = "the profile" if before else "the baseline"
        return (
            f"{subject} does not identify the machine it was recorded on: record it with nbprof, or"
            " confirm it with same_machine=True"
        )
    differences = []
    for name in sorted({*before, *after}):
        there, here = before.get(name, "unknown"), after.get(name, "unknown")
        if there != here and not (bare and name.startswith(_OPTION)):
            differences.append(f"{name} {there} there, {here} here")
    if not differences:
        return ""
    return f"the baseline is from another machine ({'; '.join(differences)})"


def _empty(*columns: str) -> pd.DataFrame:
    return pd.DataFrame({column: pd.Series([], dtype=object) for column in columns})


_NO_OPS = _empty("where", "type", "op", "self_us", "occurrences")
_NO_KERNELS = _empty("kernel", "total_us", "occurrences")


def _side(run: Run) -> Side:
    """The frames of a run that are compared here, without those that need a verdict."""
    return Side("", run.steps, run.ops_in_steps, run.kernels_in_steps, run.input_ops)


def _largest_rows(
    frame: pd.DataFrame, keys: tuple[str, ...], steps: int
) -> tuple[list[dict[str, Any]], bool]:
    """The rows with the most time and the most calls per step, and whether there are more."""
    if not len(frame) or not steps:
        return [], False
    if "type" in keys:
        frame = frame[frame["type"] != "IDLE"]
    grouped = frame.astype(dict.fromkeys(keys, str)).groupby(list(keys))
    per_step = grouped[["us", "occurrences"]].sum() / steps
    by_time = per_step["us"].sort_values(ascending=False, kind="stable").index[:MAX_ROWS]
    by_calls = per_step["occurrences"].sort_values(ascending=False, kind="stable").index[:MAX_ROWS]
    largest = per_step[per_step.index.isin(by_time.union(by_calls))].sort_index().reset_index()
    rows = []
    for record in largest.to_dict("records"):
        row = {key: record[key] for key in keys}
        row["calls"] = _rounded(record["occurrences"], 6)
        row["us"] = _rounded(record["us"], 4)
        rows.append(row)
    return rows, len(largest) < len(per_step)


def _object_text(name: str, values: Mapping[str, object]) -> str:
    rows = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(values.items())]
    if not rows:
        return f'"{name}": {{}}'
    return f'"{name}": {{\n' + ",\n".join(rows) + "\n }"


def _array_text(name: str, rows: list[str]) -> str:
    if not rows:
        return f'"{name}": []'
    return f'"{name}": [\n' + ",\n".join(rows) + "\n ]"


def _runs(stored: list[list[Mapping[str, Any]]]) -> list[list[Repeat]]:
    return [list(map(_repeat, run)) for run in stored]


def _run_text(run: list[Repeat]) -> str:
    if not run:
        return "  []"
    rows = []
    for repeat in run:
        fields = {name: _rounded(value, 5) for name, value in repeat._asdict().items()}
        rows.append(json.dumps(fields))
    return "  [\n   " + ",\n   ".join(rows) + "\n  ]"


def _repeat(fields: Mapping[str, Any]) -> Repeat:
    times = {name: _number(fields[name]) for name in _TIMES}
    return Repeat(**times, steps=int(fields["steps"]))


def _rounded(value: float, digits: int) -> float | int | None:
    if math.isnan(value):
        return None
    short = float(f"{value:.{digits}g}")
    if short.is_integer() and abs(short) < 2**53:
        return int(short)
    return short


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _kind(value: Any) -> str:
    if value not in UNITS:
        raise ValueError(f"{value!r} is not a unit of work")
    return str(value)


def _row(row: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {key: str(row[key]) for key in keys}
    for name in ("calls", "us"):
        result[name] = _rounded(_number(row[name]), 6)
    return result


def _change_text(name: str, row: Mapping[Any, Any], column: str, unit: Unit) -> str:
    if len(name) > 80:
        name = f"{name[:79]}…"
    before, after = _or_zero(row[f"before_{column}"]), _or_zero(row[f"after_{column}"])
    measure = {"calls": "calls", "us": "µs"}[column]
    note = {"new": " (new)", "gone": " (gone)"}.get(str(row["state"]), "")
    return f"{name}: {before:,.4g} → {after:,.4g} {measure} {unit.per}{note}"


def _or_zero(value: Any) -> float:
    """The value; 0 for a row that one of the two runs does not have."""
    return 0.0 if pd.isna(value) else float(value)
