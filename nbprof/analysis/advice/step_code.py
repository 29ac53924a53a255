"""Evidence of how the code of a step is written: its element types, calls back into Python, loops,
attention, passes without gradients.

All times are of the steps that averages use, in ms per step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import TORCH_OP, Activity
from nbprof.analysis import hlo, sweep
from nbprof.analysis.advice.programs import most_rows, share_of_64_bit
from nbprof.analysis.steps.step_rows import step_rows_ps
from nbprof.analysis.steps.steps import counted
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.frameworks.register import JAX, PYTORCH
from nbprof.hlo.category import CALLS_PYTHON

Flags = npt.NDArray[np.bool_]

_PY_FUNCS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_FUNCTION_CALLS = (
    "PartitionedCall",
    "StatefulPartitionedCall",
    "RemoteCall",
    "If",
    "StatelessIf",
    "Case",
    "StatelessCase",
    "While",
    "StatelessWhile",
)
"""Ops of TensorFlow that run a function, whose ops are recorded themselves."""
_PRODUCTS = {"aten::addmm": 1, "aten::mm": 0, "aten::convolution": 0}
"""Ops that multiply by weights, and which of their inputs is the batch; the one after it is the
weights.
"""
_BATCHED = ("aten::bmm", "aten::baddbmm")
_RECURRENT = ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")
_SOFTMAX = "aten::_softmax"
_FUSED_ATTENTION = re.compile(r"scaled_dot_product|multi_head_attention|transformer_encoder_layer")
_CELL = re.compile(r"aten::(lstm|gru|rnn_tanh|rnn_relu)_cell\Z")
_UPDATE = re.compile(r"Optimizer\.step#")


class Part(NamedTuple):
    """Something that a step does: how often, for how many ms, what it is called, and the number of
    its ops.
    """

    times: float = 0.0
    ms: float = 0.0
    name: str = ""
    ops: float = 0.0


class Callbacks(NamedTuple):
    """Calls back into Python per step: how often, for how many ms, the one with the most time.

    `alone_ms`: of these ms, in how many nothing else of the step was recorded as running. In the
    others an op runs beside the callback, and the step may take as long without it; or the op is
    slower for it, as they share cores.
    """

    times: float
    ms: float
    name: str
    alone_ms: float


@dataclass(frozen=True)
class StepCode:
    """What was found; None for what the profile does not tell, or does not have.

    Attributes
    ----------
    float64_percent : float, optional
        Percent of the time of all ops in ops on float64 numbers.
    float64_op : str
        The one with the most time.
    callbacks : Callbacks, optional
        Calls back into Python from compiled programs.
    cells : Part, optional
        Cells of recurrent networks that Python called one by one, with their backward pass.
    attention : Part, optional
        Attention written out in products and softmax, with its backward pass.
    ungraded : Part, optional
        Forward passes of the model without gradients.
    most_rows : int, optional
        The most rows that a product of the training pass has; of JAX, on the CPU alone, that a
        forward product has.
    """

    float64_percent: float | None = None
    float64_op: str = ""
    callbacks: Callbacks | None = None
    cells: Part | None = None
    attention: Part | None = None
    ungraded: Part | None = None
    most_rows: int | None = None


def gather(activity: Activity, steps: pd.DataFrame) -> StepCode:
    """What is to be seen in the counted ones of the steps `Run.steps`."""
    used = counted(steps)
    if not len(used):
        return StepCode()
    if activity.framework is PYTORCH:
        ran = _Ran(activity, used)
        return ran.found() if len(ran.rows) else StepCode()
    percent, op = share_of_64_bit(activity)
    return StepCode(
        float64_percent=percent,
        float64_op=op,
        callbacks=_callbacks(activity, used),
        most_rows=most_rows(activity) if activity.framework is JAX else None,
    )


def _step_of(activity: Activity, used: pd.DataFrame, table: pd.DataFrame) -> Int64s:
    """The counted step in which each row of a table begins, as a row of `used`; -1 for none."""
    return step_rows_ps(
        used, activity.hosts, table["start"].to_numpy(np.int64), table["host"].to_numpy(np.int64)
    )


def _callbacks(activity: Activity, used: pd.DataFrame) -> Callbacks | None:
    """Custom calls of compiled programs, or TensorFlow's ops, that run Python.

    What a program calls on the CPU is an op of its own; what it calls from a GPU is in events of
    the thread that launches.
    """
    parts, runs = hlo.ran(activity)
    category = parts["category"].astype(str)
    custom = parts[category == "custom-call"]
    python = [
        part
        for part, host, program, name in zip(
            custom.index, custom["host"], custom["program"], custom["name"].astype(str), strict=True
        )
        if activity.programs is not None
        and (one := activity.programs.find(int(host), int(program), name)) is not None
        and CALLS_PYTHON.search(one.target)
    ]
    calling = runs["part"].isin(python).to_numpy(np.bool_)
    found = runs[calling]
    names = parts["name"].astype(str).to_numpy()[found["part"].to_numpy(np.int64)]
    if len(found) and not len(activity.python_calls):
        others = runs[
            ~calling
            & ~runs["part"].isin(parts.index[category.isin(hlo.CONTAINERS)]).to_numpy(np.bool_)
        ]
    else:
        found = activity.python_calls.frame() if len(activity.python_calls) else _py_funcs(activity)
        # What runs for tf.data belongs to no step.
        found = found[found["event"].isin(activity.work.event)] if len(found) else found
        names = activity.ops.values[found["op"].to_numpy()] if len(found) else names
        others = _ops_besides(activity, found) if len(found) else found
    step = _step_of(activity, used, found)
    found, names = found[step >= 0], names[step >= 0]
    if not len(found):
        return None
    time = (found["end"] - found["start"]).to_numpy(np.float64)
    longest = str(pd.Series(time).groupby(names).sum().idxmax())
    count, whole, alone = (1.0 / len(used) * each for each in _on_each_host(found, others))
    return Callbacks(times=count, ms=whole / 1e9, name=longest, alone_ms=alone / 1e9)


def _py_funcs(activity: Activity) -> pd.DataFrame:
    """TensorFlow's ops that run Python."""
    types = [activity.types.codes[kind] for kind in _PY_FUNCS if kind in activity.types.codes]
    return activity.host_ops.take(np.isin(activity.host_ops.type, types)).frame()


def _ops_besides(activity: Activity, python: pd.DataFrame) -> pd.DataFrame:
    """What else a step does of TensorFlow's, on host threads or devices, while ops run Python:
    their `host`, `start` and `end`.

    What lies in such an op is its own, what lies around it waits for it, and so does a function
    that another thread called.
    """
    ops = activity.host_ops.frame()
    kinds = [
        code
        for kind, code in activity.types.codes.items()
        if kind in _FUNCTION_CALLS or kind.startswith("__")
    ]
    besides = ops[~ops["dataset"] & ~ops["event"].isin(python["event"]) & ~ops["type"].isin(kinds)]
    parts = []
    for lane, ops_of_lane in besides.groupby("lane", sort=False):
        callbacks = python[python["lane"] == lane]
        # Spans of a thread are nested, or apart.
        inner, _ = Intervals.of_rows(callbacks).overlapping(
            ops_of_lane["start"].to_numpy(np.int64), ops_of_lane["end"].to_numpy(np.int64)
        )
        separate = np.ones(len(ops_of_lane), np.bool_)
        separate[inner] = False
        parts.append(ops_of_lane[separate])
    work = activity.work.frame()
    columns = ["host", "start", "end"]
    result: pd.DataFrame = pd.concat(
        [work.loc[work["device"] >= 0, columns], *(part[columns] for part in parts)],
        ignore_index=True,
    )
    return result


def _on_each_host(callbacks: pd.DataFrame, other_work: pd.DataFrame) -> tuple[float, float, float]:
    """How many callbacks there are, the ps in which any runs, and the ps in which only they do; on
    a host's device with the most of it.
    """
    rows = []
    places = ["host", "device"] if "device" in callbacks else ["host"]
    other_by_device = dict(iter(other_work.groupby(places, sort=False)))
    for key, calls in callbacks.groupby(places, sort=False):
        spans = pd.concat(
            [
                calls[["start", "end"]],
                other_by_device.get(key, other_work.head(0))[["start", "end"]],
            ]
        )
        kinds = np.repeat(np.asarray([1, 2], np.int16), [len(calls), len(spans) - len(calls)])
        starts, ends = spans["start"].to_numpy(np.int64), spans["end"].to_numpy(np.int64)
        begins, stops, kind = sweep.flatten(starts, ends, kinds)
        alone = (stops - begins)[kind == 1]
        rows.append(
            (calls["host"].iloc[0], len(calls), Intervals.of_rows(calls).total(), int(alone.sum()))
        )
    of_devices = pd.DataFrame(rows, columns=["host", "count", "whole", "alone"])
    busiest = of_devices.loc[of_devices.groupby("host")["whole"].idxmax()]
    return (
        float(busiest["count"].sum()),
        float(busiest["whole"].sum()),
        float(busiest["alone"].sum()),
    )


class _Ran:
    """PyTorch's ops in the counted steps."""

    def __init__(self, activity: Activity, used: pd.DataFrame) -> None:
        table = activity.torch_ops.frame()
        self.activity, self.steps = activity, len(used)
        self.step = _step_of(activity, used, table)
        self.rows = np.flatnonzero(self.step >= 0)
        self.parent = table["parent"].to_numpy(np.int64)
        self.start, self.end = table["start"].to_numpy(np.int64), table["end"].to_numpy(np.int64)
        self.on_host = table["own"].to_numpy(np.float64)
        self.own = table["device_own"].to_numpy(np.float64) if activity.has_device else self.on_host
        self.is_op = table["kind"].to_numpy() == TORCH_OP
        self.op, self.forward = table["op"].to_numpy(np.int64), table["forward"].to_numpy(np.int64)
        self.shape, self.types = (
            table["shape"].to_numpy(np.int64),
            table["types"].to_numpy(np.int64),
        )
        self.names = [str(name) for name in activity.ops.values]
        self.texts = [*activity.texts.codes]
        levels = nesting.levels(self.parent.astype(np.int32))[1:] if len(table) else []
        self._levels = [level for level in levels if len(level)]
        self.numbered = self._with_inner(table["numbered"].to_numpy(np.bool_))
        self.inputs: dict[int, list[Any]] = {}

    def found(self) -> StepCode:
        percent, op = self._float64()
        return StepCode(
            float64_percent=percent,
            float64_op=op,
            callbacks=None,
            cells=self._cells(),
            attention=self._attention(),
            ungraded=self._ungraded(),
            most_rows=self._most_rows(),
        )

    def _with_inner(self, these: Flags) -> Flags:
        """Events, and all that lies in them."""
        result = these.copy()
        for level in self._levels:
            result[level] |= result[self.parent[level]]
        return result

    def _called(self, pattern: re.Pattern[str]) -> Flags:
        """Events whose name matches."""
        codes = [code for code in np.unique(self.op).tolist() if pattern.search(self.names[code])]
        return np.isin(self.op, codes)

    def _of(self, *names: str) -> Int64s:
        """The ops of these names in the counted steps."""
        codes = [self.activity.ops.codes[name] for name in names if name in self.activity.ops.codes]
        rows: Int64s = self.rows[np.isin(self.op[self.rows], codes) & self.is_op[self.rows]]
        return rows

    def _shapes(self, row: int) -> list[Any]:
        """The shapes of the inputs of an op; [] where they were not recorded."""
        return self._parsed(int(self.shape[row]))

    def _parsed(self, code: int) -> list[Any]:
        if code not in self.inputs:
            try:
                parsed = json.loads(self.texts[code]) if code >= 0 else []
            except ValueError:
                parsed = []
            self.inputs[code] = parsed if isinstance(parsed, list) else []
        return self.inputs[code]

    def _part(
        self, times: npt.NDArray[np.float64], count: int, these: Flags, name: str = ""
    ) -> Part:
        """The time of ops, and of those of the backward pass that belong to them; `own` is that of
        each.
        """
        with_backward = these | ((self.forward >= 0) & these[self.forward])
        rows = self.rows[with_backward[self.rows] & self.is_op[self.rows]]
        return Part(
            times=count / self.steps,
            ms=float(times[rows].sum()) / 1e9 / self.steps,
            name=name,
            ops=len(rows) / self.steps,
        )

    def _float64(self) -> tuple[float | None, str]:
        """Percent of op time on tensors of float64, and the op with the most. What has no
        dimensions may be a Python number.
        """
        rows = self.rows[self.is_op[self.rows]]
        if not (self.types[rows] >= 0).any():
            return None, ""
        first, kind = unique_rows(self.types[rows], self.shape[rows])
        kinds = zip(self.types[rows[first]].tolist(), self.shape[rows[first]].tolist(), strict=True)
        wide = np.array(
            [_on_float64(self._parsed(types), self._parsed(shapes)) for types, shapes in kinds],
            np.bool_,
        )
        wide_rows = rows[wide[kind]]
        total = float(self.own[rows].sum())
        if not total:
            return None, ""
        time = np.bincount(self.op[wide_rows], self.own[wide_rows], len(self.names))
        return 100 * float(time.sum()) / total, self.names[int(time.argmax())] if len(
            wide_rows
        ) else ""

    def _cells(self) -> Part | None:
        """Cells that no op runs over a whole sequence: Python calls each."""
        cells = self._called(_CELL) & ~self._with_inner(
            np.isin(np.arange(len(self.op)), self._of(*_RECURRENT))
        )
        rows = self.rows[cells[self.rows] & (self.forward[self.rows] < 0)]
        if not len(rows):
            return None
        name = self.names[int(np.bincount(self.op[rows]).argmax())]
        return self._part(self.on_host, len(rows), self._with_inner(cells), name)

    def _attention(self) -> Part | None:
        """Softmax over what a batched product made, and whose result goes into the next one."""
        softmax, products = self._of(_SOFTMAX), self._of(*_BATCHED)
        if not len(softmax) or len(products) < 2:
            return None
        fused = self._with_inner(self._called(_FUSED_ATTENTION))
        attention, count = np.zeros(len(self.op), np.bool_), 0
        for row in softmax[~fused[softmax] & (self.forward[softmax] < 0)].tolist():
            after = int(np.searchsorted(products, row))
            if not 0 < after < len(products):
                continue
            first, last = int(products[after - 1]), int(products[after])
            over: list[int] = next(iter(self._shapes(row)), [])
            if self.step[first] == self.step[last] and _attends(
                self._shapes(first)[-2:], over, self._shapes(last)
            ):
                attention[first : last + 1] = True
                count += 1
        return self._part(self.own, count, attention) if count else None

    def _ungraded(self) -> Part | None:
        """Passes through the whole model that autograd does not see.

        Each of its weights is multiplied in the training pass and also outside of it. What a
        function of autograd computes itself, such as the first pass of a checkpoint, lies in an op
        that autograd numbers; an optimizer is no pass.
        """
        products = self._of(*_PRODUCTS)
        products = products[self.forward[products] < 0]
        if not len(products):
            return None
        update = self._with_inner(self._called(_UPDATE))
        trains = products[self.numbered[products]]
        untrained = products[~self.numbered[products] & ~update[products]]
        weights = {row: self._weights(row) for row in [*trains.tolist(), *untrained.tolist()]}
        model = {weights[row] for row in trains.tolist()}
        # Without shapes, all weights look alike.
        if not model or "" in model or not model <= {weights[row] for row in untrained.tolist()}:
            return None
        untrained = untrained[[weights[row] in model for row in untrained.tolist()]]
        begin = pd.Series(self.start[untrained]).groupby(self.step[untrained]).min()
        end = pd.Series(self.end[untrained]).groupby(self.step[untrained]).max()
        outer = self.rows[
            self.is_op[self.rows]
            & ~self.numbered[self.rows]
            & ~update[self.rows]
            & (self.forward[self.rows] < 0)
        ]
        own = self.own[outer]
        of = self.step[outer]
        inside = (self.start[outer] >= begin.reindex(of).to_numpy()) & (
            self.start[outer] <= end.reindex(of).to_numpy()
        )
        return Part(
            times=len(begin) / self.steps,
            ms=float(own[inside].sum()) / 1e9 / self.steps,
            name="",
            ops=float(inside.sum()) / self.steps,
        )

    def _most_rows(self) -> int | None:
        products = self._of(*_PRODUCTS, *_BATCHED)
        rows = [
            self._rows_of(row)
            for row in products[(self.forward[products] < 0) & self.numbered[products]].tolist()
        ]
        # What runs inside a recurrent layer is not recorded, nor how many rows it has; 0 rows are
        # unknown.
        return None if not rows or 0 in rows or len(self._of(*_RECURRENT)) else max(rows)

    def _rows_of(self, row: int) -> int:
        """How many rows a product has: examples, times their positions; 0 where no shapes were
        recorded.
        """
        shapes = self._shapes(row)
        position = _PRODUCTS.get(self.names[int(self.op[row])], 0)
        batch: list[int] = shapes[position] if len(shapes) > position else []
        if not batch:
            return 0
        return (
            prod(batch[:1] + batch[2:])
            if self.names[int(self.op[row])] == "aten::convolution"
            else prod(batch[:-1])
        )

    def _weights(self, row: int) -> str:
        shapes = self._shapes(row)
        position = _PRODUCTS[self.names[int(self.op[row])]] + 1
        return str(shapes[position]) if len(shapes) > position else ""


def _on_float64(types: Iterable[Any], shapes: Iterable[Any]) -> bool:
    return any(
        kind in ("double", "c10::complex<double>") and bool(shape)
        for kind, shape in zip(types, shapes, strict=False)
    )


def _attends(factors: list[Any], over: list[int], then: list[Any]) -> bool:
    """Whether products of these shapes and a softmax between them are attention of several
    queries.
    """
    if (
        len(factors) != 2
        or not then
        or len(over) < 3
        or any(len(shape) != 3 for shape in (*factors, then[0]))
    ):
        return False
    scores = [factors[0][0], factors[0][1], factors[1][2]]
    return (
        scores == then[0]
        and scores[1:] == over[-2:]
        and prod(scores) == prod(over)
        and scores[1] > 1
    )
