"""Evidence of how a step is written: types, callbacks, loops, attention, ungraded passes.

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
from nbprof.analysis import hlo
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
    """A part of a step: how often it runs, its ms, its name, and the number of its ops."""

    times: float = 0.0
    ms: float = 0.0
    name: str = ""
    ops: float = 0.0


class Callbacks(NamedTuple):
    """Calls back into Python per step: their number, ms, and the one with the most time.

    `alone_ms` is the part of the time in which nothing else of the step was recorded as running. In
    the rest an op runs at the same time, and the step may take as long without the callback; or the
    op is slower because of it, as they share cores.
    """

    times: float
    ms: float
    name: str
    alone_ms: float


@dataclass(frozen=True)
class StepCode:
    """Properties of the code of a step; None if the profile does not have or show them.

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
        The most rows of a product of the training pass; for JAX, on the CPU alone, of a forward
        product.
    """

    float64_percent: float | None = None
    float64_op: str = ""
    callbacks: Callbacks | None = None
    cells: Part | None = None
    attention: Part | None = None
    ungraded: Part | None = None
    most_rows: int | None = None


def gather(activity: Activity, steps: pd.DataFrame) -> StepCode:
    """The code of the counted ones of the steps `Run.steps`."""
    used = counted(steps)
    if not len(used):
        return StepCode()
    if activity.framework is PYTORCH:
        ops = _TorchOps(activity, used)
        return ops.step_code() if len(ops.rows) else StepCode()
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

    On the CPU a callback is an op of the program; from a GPU it is in events of the thread that
    launches.
    """
    calls = _custom_calls(activity)
    if calls is None:
        calls = _python_calls(activity)
    step = _step_of(activity, used, calls.rows)
    rows, names = calls.rows[step >= 0], calls.names[step >= 0]
    if not len(rows):
        return None
    time = (rows["end"] - rows["start"]).to_numpy(np.float64)
    totals = _totals_over_hosts(rows, calls.other_work)
    per_step = 1.0 / len(used)
    return Callbacks(
        times=per_step * totals.calls,
        ms=per_step * totals.any_ps / 1e9,
        name=str(pd.Series(time).groupby(names).sum().idxmax()),
        alone_ms=per_step * totals.alone_ps / 1e9,
    )


class _PythonCalls(NamedTuple):
    """Calls back into Python: their rows and names, and other work at the same time."""

    rows: pd.DataFrame
    names: npt.NDArray[Any]
    other_work: pd.DataFrame


def _custom_calls(activity: Activity) -> _PythonCalls | None:
    """Custom calls of compiled programs that run Python; None without them, or if the calls are
    recorded as events of the host.
    """
    parts, runs = hlo.ran(activity)
    category = parts["category"].astype(str)
    custom = parts[category == "custom-call"]
    python = []
    if activity.programs is not None:
        keys = zip(custom["host"], custom["program"], custom["name"].astype(str), strict=True)
        for part, (host, program, name) in zip(custom.index, keys, strict=True):
            instruction = activity.programs.find(int(host), int(program), name)
            if instruction is not None and CALLS_PYTHON.search(instruction.target):
                python.append(part)
    calling = runs["part"].isin(python).to_numpy(np.bool_)
    rows = runs[calling]
    if not len(rows) or len(activity.python_calls):
        return None
    names = parts["name"].astype(str).to_numpy()[rows["part"].to_numpy(np.int64)]
    containers = parts.index[category.isin(hlo.CONTAINERS)]
    other_work = runs[~calling & ~runs["part"].isin(containers).to_numpy(np.bool_)]
    return _PythonCalls(rows, names, other_work)


def _python_calls(activity: Activity) -> _PythonCalls:
    """Events of the host in which a program runs Python, or TensorFlow's ops that do."""
    rows = activity.python_calls.frame() if len(activity.python_calls) else _py_funcs(activity)
    if not len(rows):
        return _PythonCalls(rows, np.empty(0, object), rows)
    # Calls for tf.data are of its functions, or belong to no step.
    rows = rows[~rows["in_dataset"] & rows["event"].isin(activity.work.event)]
    if not len(rows):
        return _PythonCalls(rows, np.empty(0, object), rows)
    return _PythonCalls(
        rows, activity.ops.values[rows["op"].to_numpy()], _other_work(activity, rows)
    )


def _py_funcs(activity: Activity) -> pd.DataFrame:
    """TensorFlow's ops that run Python."""
    types = [activity.types.codes[kind] for kind in _PY_FUNCS if kind in activity.types.codes]
    return activity.host_ops.take(np.isin(activity.host_ops.type, types)).frame()


def _other_work(activity: Activity, python: pd.DataFrame) -> pd.DataFrame:
    """Other work of a TensorFlow step, on host threads or devices, while ops run Python: `host`,
    `start` and `end`.

    Events inside such an op are part of it, events around it wait for it, and so does a function
    that another thread called.
    """
    ops = activity.host_ops.frame()
    kinds = [
        code
        for kind, code in activity.types.codes.items()
        if kind in _FUNCTION_CALLS or kind.startswith("__")
    ]
    ops = ops[~ops["dataset"] & ~ops["event"].isin(python["event"]) & ~ops["type"].isin(kinds)]
    columns = ["host", "start", "end"]
    work = activity.work.frame()
    tables = [work.loc[work["device"] >= 0, columns]]
    for lane, ops_of_lane in ops.groupby("lane", sort=False):
        # Spans of a thread are nested or separate.
        nested, _ = Intervals.of_rows(python[python["lane"] == lane]).overlapping(
            ops_of_lane["start"].to_numpy(np.int64), ops_of_lane["end"].to_numpy(np.int64)
        )
        separate = np.ones(len(ops_of_lane), np.bool_)
        separate[nested] = False
        tables.append(ops_of_lane.loc[separate, columns])
    return pd.concat(tables, ignore_index=True)


class _Totals(NamedTuple):
    """Number of callbacks, time in ps in which any runs, and time in which nothing else does."""

    calls: float
    any_ps: float
    alone_ps: float


def _totals_over_hosts(callbacks: pd.DataFrame, other_work: pd.DataFrame) -> _Totals:
    """The sums over hosts, each with its device with the most time."""
    keys = ["host", "device"] if "device" in callbacks else ["host"]
    other_by_key = dict(iter(other_work.groupby(keys, sort=False)))
    rows = []
    for key, calls in callbacks.groupby(keys, sort=False):
        times = Intervals.of_rows(calls)
        other = Intervals.of_rows(other_by_key.get(key, other_work.head(0)))
        any_ps = times.total()
        rows.append((calls["host"].iloc[0], len(calls), any_ps, any_ps - times.overlap(other)))
    devices = pd.DataFrame(rows, columns=["host", *_Totals._fields])
    busiest = devices.loc[devices.groupby("host")["any_ps"].idxmax()]
    return _Totals(*(float(busiest[name].sum()) for name in _Totals._fields))


class _TorchOps:
    """PyTorch's ops in the counted steps."""

    def __init__(self, activity: Activity, used: pd.DataFrame) -> None:
        table = activity.torch_ops.frame()
        self.activity, self.steps = activity, len(used)
        self.step = _step_of(activity, used, table)
        self.rows = np.flatnonzero(self.step >= 0)
        self.parent = table["parent"].to_numpy(np.int64)
        self.start = table["start"].to_numpy(np.int64)
        self.end = table["end"].to_numpy(np.int64)
        self.host_time = table["own"].to_numpy(np.float64)
        self.time = self.host_time
        if activity.has_device:
            self.time = table["device_own"].to_numpy(np.float64)
        self.is_op = table["kind"].to_numpy() == TORCH_OP
        self.op = table["op"].to_numpy(np.int64)
        self.forward = table["forward"].to_numpy(np.int64)
        self.shape = table["shape"].to_numpy(np.int64)
        self.types = table["types"].to_numpy(np.int64)
        self.names = [str(name) for name in activity.ops.values]
        self.texts = [*activity.texts.codes]
        levels = nesting.levels(self.parent.astype(np.int32))[1:] if len(table) else []
        self._levels = [level for level in levels if len(level)]
        self.numbered = self._with_inner(table["numbered"].to_numpy(np.bool_))
        self._lists: dict[int, list[Any]] = {}

    def step_code(self) -> StepCode:
        """All that the ops tell about the code of a step."""
        percent, op = self._float64()
        return StepCode(
            float64_percent=percent,
            float64_op=op,
            cells=self._cells(),
            attention=self._attention(),
            ungraded=self._ungraded(),
            most_rows=self._most_rows(),
        )

    def _with_inner(self, flags: Flags) -> Flags:
        """Events, and all events inside them."""
        result = flags.copy()
        for level in self._levels:
            result[level] |= result[self.parent[level]]
        return result

    def _matching(self, pattern: re.Pattern[str]) -> Flags:
        """Events whose name matches."""
        codes = [code for code in np.unique(self.op).tolist() if pattern.search(self.names[code])]
        return np.isin(self.op, codes)

    def _named(self, *names: str) -> Int64s:
        """The ops of these names in the counted steps."""
        codes = [self.activity.ops.codes[name] for name in names if name in self.activity.ops.codes]
        rows: Int64s = self.rows[np.isin(self.op[self.rows], codes) & self.is_op[self.rows]]
        return rows

    def _shapes(self, row: int) -> list[Any]:
        """The shapes of the inputs of an op; [] if they were not recorded."""
        return self._list(int(self.shape[row]))

    def _list(self, code: int) -> list[Any]:
        """A recorded text parsed as a list; [] for anything else."""
        if code not in self._lists:
            try:
                parsed = json.loads(self.texts[code]) if code >= 0 else []
            except ValueError:
                parsed = []
            self._lists[code] = parsed if isinstance(parsed, list) else []
        return self._lists[code]

    def _part(
        self, times: npt.NDArray[np.float64], count: int, flags: Flags, name: str = ""
    ) -> Part:
        """The time of ops, and of those of the backward pass that belong to them."""
        with_backward = flags | ((self.forward >= 0) & flags[self.forward])
        rows = self.rows[with_backward[self.rows] & self.is_op[self.rows]]
        return Part(
            times=count / self.steps,
            ms=float(times[rows].sum()) / 1e9 / self.steps,
            name=name,
            ops=len(rows) / self.steps,
        )

    def _float64(self) -> tuple[float | None, str]:
        """Percent of op time on tensors of float64, and the op with the most.

        An input without dimensions may be a Python number and does not count.
        """
        rows = self.rows[self.is_op[self.rows]]
        if not (self.types[rows] >= 0).any():
            return None, ""
        first, kind = unique_rows(self.types[rows], self.shape[rows])
        wide = np.zeros(len(first), np.bool_)
        for index, row in enumerate(rows[first].tolist()):
            wide[index] = _on_float64(self._list(int(self.types[row])), self._shapes(row))
        wide_rows = rows[wide[kind]]
        total = float(self.time[rows].sum())
        if not total:
            return None, ""
        times = np.bincount(self.op[wide_rows], self.time[wide_rows], len(self.names))
        longest = self.names[int(times.argmax())] if len(wide_rows) else ""
        return 100 * float(times.sum()) / total, longest

    def _cells(self) -> Part | None:
        """Cells of recurrent networks that Python calls, outside of ops over a sequence."""
        in_layers = self._with_inner(np.isin(np.arange(len(self.op)), self._named(*_RECURRENT)))
        cells = self._matching(_CELL) & ~in_layers
        rows = self.rows[cells[self.rows] & (self.forward[self.rows] < 0)]
        if not len(rows):
            return None
        name = self.names[int(np.bincount(self.op[rows]).argmax())]
        return self._part(self.host_time, len(rows), self._with_inner(cells), name)

    def _attention(self) -> Part | None:
        """Softmax between two batched products, of which the second reads its result."""
        softmax, products = self._named(_SOFTMAX), self._named(*_BATCHED)
        if not len(softmax) or len(products) < 2:
            return None
        fused = self._with_inner(self._matching(_FUSED_ATTENTION))
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
        return self._part(self.time, count, attention) if count else None

    def _ungraded(self) -> Part | None:
        """Passes through the entire model that autograd does not record.

        Each of its weights is multiplied in the training pass and also outside of it. Work of a
        function of autograd, such as the first pass of a checkpoint, is inside an op that autograd
        numbers; an optimizer is not a pass.
        """
        products = self._named(*_PRODUCTS)
        products = products[self.forward[products] < 0]
        if not len(products):
            return None
        update = self._with_inner(self._matching(_UPDATE))
        training = products[self.numbered[products]]
        ungraded = products[~self.numbered[products] & ~update[products]]
        model = {self._weights(row) for row in training.tolist()}
        weights = [self._weights(row) for row in ungraded.tolist()]
        # Without shapes, all weights look alike.
        if not model or "" in model or not model <= set(weights):
            return None
        ungraded = ungraded[[name in model for name in weights]]
        begin = pd.Series(self.start[ungraded]).groupby(self.step[ungraded]).min()
        end = pd.Series(self.end[ungraded]).groupby(self.step[ungraded]).max()
        outside = self.is_op & ~self.numbered & ~update & (self.forward < 0)
        rows = self.rows[outside[self.rows]]
        first = begin.reindex(self.step[rows]).to_numpy()
        last = end.reindex(self.step[rows]).to_numpy()
        in_pass = (self.start[rows] >= first) & (self.start[rows] <= last)
        return Part(
            times=len(begin) / self.steps,
            ms=float(self.time[rows][in_pass].sum()) / 1e9 / self.steps,
            ops=float(in_pass.sum()) / self.steps,
        )

    def _most_rows(self) -> int | None:
        """The most rows of a product of the training pass; None if one of them is unknown."""
        if len(self._named(*_RECURRENT)):
            # Products inside a recurrent layer are not recorded.
            return None
        products = self._named(*_PRODUCTS, *_BATCHED)
        training = products[(self.forward[products] < 0) & self.numbered[products]]
        rows = [self._rows_of_product(row) for row in training.tolist()]
        return max(rows) if rows and 0 not in rows else None

    def _rows_of_product(self, row: int) -> int:
        """Examples times their positions; 0 if no shapes were recorded."""
        shapes, name = self._shapes(row), self.names[int(self.op[row])]
        position = _PRODUCTS.get(name, 0)
        batch: list[int] = shapes[position] if len(shapes) > position else []
        if not batch:
            return 0
        if name == "aten::convolution":
            return prod(batch[:1] + batch[2:])
        return prod(batch[:-1])

    def _weights(self, row: int) -> str:
        """The shape of the weights of a product; '' if it was not recorded."""
        shapes = self._shapes(row)
        position = _PRODUCTS[self.names[int(self.op[row])]] + 1
        return str(shapes[position]) if len(shapes) > position else ""


def _on_float64(types: Iterable[Any], shapes: Iterable[Any]) -> bool:
    return any(
        kind in ("double", "c10::complex<double>") and bool(shape)
        for kind, shape in zip(types, shapes, strict=False)
    )


def _attends(factors: list[Any], over: list[int], then: list[Any]) -> bool:
    """True if products of these shapes and a softmax between them are attention of several
    queries.
    """
    if len(factors) != 2 or not then or len(over) < 3:
        return False
    if any(len(shape) != 3 for shape in (*factors, then[0])):
        return False
    queries, keys = factors
    scores = [queries[0], queries[1], keys[2]]
    if scores != then[0] or scores[1:] != over[-2:]:
        return False
    return bool(prod(scores) == prod(over) and scores[1] > 1)
