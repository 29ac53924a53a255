"""Steps of JAX programs without step markers: runs of the program that takes most of the time.

A loop of training or evaluation in JAX runs one compiled program again and again. A step goes from
the end of the previous run to the end of the next one on the device (with several devices, on the
last of them). A step therefore includes waiting for its input and the host's work between runs, and
it ends when the device is done, not when the call that started it returns. The file does not show
when the loop began: the first step begins at its call, and is left out of averages.

XProf has no steps for such files. A program that marks any step itself has only those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.tables import Markers, Work
from nbprof.core.factorize import heads, starting, unique_rows
from nbprof.core.intervals import Intervals
from nbprof.core.receipt import Note
from nbprof.core.runs import rows_by_code
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.xplane import notes
from nbprof.dialects.xplane import tpu as xplane_tpu
from nbprof.dialects.xplane.event_links import match
from nbprof.dialects.xplane.grouping import Groups, inherit

_RUN = ["host", "module", "run"]
_RAN = ["host", "module", "start", "end"]
_FINGERPRINT = re.compile(r"\(\d+\)\Z")
"""The end of a program's name in a file of TPUs: `jit_f(12190760917235803885)`."""
LEAST_RUNS = 2
LEAST_SHARE = 0.2
"""Least share of the time of all programs that the program whose runs are steps takes."""
OWN_LOOP_SHARE = 0.1
"""Least time of a run, as a share of the main program's, for a second loop (evaluation)."""
PART_OF_STEP = 0.5
"""A program that runs with this share of the main one's runs is part of its steps."""
ALIKE = 0.8
"""Share of the intervals between runs of a closing program that hold equally many other runs."""

# `jnp.add(a, b)` outside of `jit` runs a program as well, named after the function. Its runs are
# never steps.
_EAGER_FUNCTION = re.compile(
    "(?:add|subtract|multiply|divide|true_divide|floor_divide|power|integer_pow|float_power|square|"
    "sqrt|rsqrt|cbrt|exp|exp2|expm1|log|log2|log10|log1p|logaddexp|sin|cos|tan|tanh|sinh|cosh|"
    "arctan2?|negative|abs|absolute|sign|floor|ceil|round|clip|maximum|minimum|mod|remainder|"
    "matmul|dot|dot_general|vdot|inner|outer|tensordot|einsum|_einsum|transpose|swapaxes|moveaxis|"
    "reshape|ravel|squeeze|expand_dims|broadcast_in_dim|broadcast_to|concatenate|stack|split|"
    "_split|tile|repeat|pad|_pad|flip|roll|_roll.*|where|_where|select_n|select|equal|not_equal|"
    "less|less_equal|greater|greater_equal|logical_.*|bitwise_.*|isnan|isinf|isfinite|any|all|"
    "convert_element_type|_astype|astype|copy|iota|arange|_linspace|linspace|eye|_eye|tril|triu|"
    "diag|ones_like|zeros_like|full_like|_mean|mean|_var|var|_std|std|_?reduce_.*|_cum.*|cumsum|"
    "cumprod|argmax|argmin|_argmax|_argmin|sort|argsort|_sort|top_k|gather|scatter.*|dynamic_slice|"
    "dynamic_update_slice|_?multi_slice|slice|_take|take|take_along_axis|_threefry.*|threefry.*|"
    "_random_.*|random_.*|_uniform|_normal.*|_randint|_bernoulli|_shuffle|_permutation|relu|silu|"
    "gelu|sigmoid|logistic|softmax|_softmax|log_softmax|_one_hot|one_hot|fn|_unstack|unstack|_psum|"
    "_identity_fn|identity|_?conv(?:_general_dilated|olve)?|_?reduce_window.*|select_and_.*|"
    "ragged_dot.*|add_any|sub|mul|div|rem|neg|pow|conj|real|imag|rev|and|or|not|xor|eq|ne|ge|gt|le|"
    "lt|max|min|clamp|erf.*|is_finite|nan_to_num|cum(?:max|min|logsumexp)|bitcast_convert_type|"
    "reduce|rng_.*|empty|stop_gradient|cholesky|qr|svd|eigh?|lu|fft|inv|solve|det|norm|"
    "triangular_solve|softplus|elu|leaky_relu|_power|_flip|_diag|_broadcast_arrays|_linalg.*|"
    "median|quantile|allclose|isclose|trace)"
)
# A program that updates parameters closes a step, however short it is; one that evaluates does not.
_UPDATES = re.compile(r"(?:\A|_)(?:train|step|update|fit|optimi[sz]er?|apply)", re.IGNORECASE)
_MEASURES = re.compile(r"eval|valid|test|predict|infer|metric|accuracy|\Aloss|_loss", re.IGNORECASE)
EAGER_OP = "EagerKernelExecute "
"""Prefix of the names of groups that are a single op of TensorFlow."""
# Calls that run one program on one device; kernels are launched inside.
_EXECUTES = (
    "PjRtStreamExecutorLoadedExecutab",
    "CommonPjRtLoadedExecutable::Exec",
    "GpuExecutable::ExecuteThunks",
)
EAGER_CALL = "EagerLocalExecute: "
"""Prefix of TensorFlow's calls of single ops, and of functions."""
LAUNCH = "PjitFunction("
# An instruction of this opcode, as it stands in the bytes of a program.
_LOOP = b"\x12\x05while"


@dataclass
class ProgramSteps:
    """Steps that are runs of programs, in time order on each host.

    Attributes
    ----------
    table : DataFrame
        ``host group event begin end name``: begin and end in ps, the first event of the run, and
        the name of the step.
    notes : list of Note
        How the steps were found.
    on_device : frozenset of int
        Hosts whose runs were recorded on GPUs.
    of_cores : DataFrame
        The steps of each core of a TPU: ``host device group event start end``. Cores drift apart
        unless something makes them wait for each other.
    runs : DataFrame
        ``host module start end`` of every run of a program on these hosts.
    marked : frozenset of int
        Hosts that mark their steps; `table` has their actual ends.
    taken_over : frozenset of (int, int)
        (host, group) of steps with which another compiled program took over for good: time between
        two loops may lie in them.
    complete : bool
        The steps contain all of their work: they are units of a recording, not runs of a program.
    """

    table: pd.DataFrame
    notes: list[Note] = field(default_factory=list)
    on_device: frozenset[int] = frozenset()
    of_cores: pd.DataFrame = field(default_factory=lambda: _no_rows(Markers.columns))
    runs: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_RAN))
    marked: frozenset[int] = frozenset()
    taken_over: frozenset[tuple[int, int]] = frozenset()
    complete: bool = False

    @property
    def first(self) -> set[tuple[int, int]]:
        """(host, group) of the first step of each loop, whose beginning is unknown."""
        if self.complete:
            return set()
        several = self.table.groupby("host")["group"].transform("size") > 1
        unmarked = ~self.table["host"].isin(list(self.marked))
        begins = self.table[several & unmarked].drop_duplicates("host")
        keys = zip(begins["host"].tolist(), begins["group"].tolist(), strict=True)
        return {*keys, *self.taken_over}

    @property
    def hosts(self) -> Int64s:
        """The hosts that have such steps."""
        return np.asarray(self.table["host"].unique(), np.int64)

    def assign(self, trace: Trace, marked: Int32s, host: npt.NDArray[np.integer]) -> Int32s:
        """int32[events]: the step in which each event begins; `marked` on hosts without steps."""
        step_of_event = marked.copy()
        for host_index in self.hosts.tolist():
            begin, end, group = self._spans(host_index)
            rows = np.flatnonzero(host == host_index)
            start = trace.events.start[rows]
            step = np.searchsorted(end, start, side="right")
            in_step = (step < len(end)) & (start >= np.append(begin, 0)[step])
            step_of_event[rows] = np.where(in_step, np.append(group, -1)[step], -1)
        return step_of_event

    def with_hosts(self, other: ProgramSteps | None) -> ProgramSteps:
        """These steps and those of other hosts."""
        if other is None:
            return self
        return ProgramSteps(
            table=pd.concat([self.table, other.table], ignore_index=True),
            notes=_unique([*self.notes, *other.notes]),
            on_device=self.on_device | other.on_device,
            of_cores=pd.concat([self.of_cores, other.of_cores], ignore_index=True),
            runs=pd.concat([self.runs, other.runs], ignore_index=True),
            marked=self.marked | other.marked,
            taken_over=self.taken_over | other.taken_over,
        )

    def _spans(self, host: int) -> tuple[Int64s, Int64s, Int64s]:
        """Begin, end and group of the steps of a host."""
        rows = self.table[self.table["host"] == host]
        return (
            rows["begin"].to_numpy(np.int64),
            rows["end"].to_numpy(np.int64),
            rows["group"].to_numpy(np.int64),
        )

    def split(self, work: Work) -> Work:
        """Splits pieces of work that reach over the end of a step, one row per step.

        The host runs ahead of the device: its work belongs to each step in whose time it is done.
        """
        elsewhere = ~np.isin(work.host, self.hosts)
        parts = []
        if elsewhere.any():
            parts.append(work.take(elsewhere))
        for host in self.hosts.tolist():
            begin, end, group = self._spans(host)
            rows = np.flatnonzero(work.host == host)
            piece, step = Intervals(begin, end).overlapping(work.start[rows], work.end[rows])
            parts.append(work.take(rows[piece]).with_(group=group[step]))
        return Work.concat(parts)


def find(
    trace: Trace, groups: Groups, host: npt.NDArray[np.integer], lane_kind: npt.NDArray[np.object_]
) -> ProgramSteps | None:
    """Steps of the hosts on which no step is marked, or None.

    Parameters
    ----------
    trace : Trace
    groups : Groups
        The groups by the markers in the file.
    host : int[events]
    lane_kind : object[lanes]
    """
    lanes = xplane_tpu.module_lanes(trace)
    if "hlo_module" not in trace.args and not len(lanes):
        return None
    open_ = sorted(set(range(len(trace.hosts))) - marked_hosts(groups, host))
    if not open_:
        return None
    cores = _runs_of_cores(trace, host, lanes)
    of_cores = _of_all_cores(cores)
    runs = of_cores.iloc[:0]
    other_hosts = sorted(set(open_) - set(of_cores["host"].tolist()))
    on_device: set[int] = set()
    if "hlo_module" in trace.args and other_hosts:
        runs, on_device = runs_of_programs(trace, host, lane_kind, other_hosts)
    runs = pd.concat([runs, of_cores], ignore_index=True)
    parts, lines = [], []
    taken_over: set[tuple[int, int]] = set()
    for host_index in open_:
        host_runs = runs[runs["host"] == host_index]
        if not len(host_runs):
            continue
        # Groups of eager ops (TensorFlow's, that feed the program) keep their numbers.
        above = int(groups.group[host == host_index].max(initial=-1)) + 1
        steps = _steps(
            host_runs.reset_index(drop=True),
            _first_call(trace, host, host_index),
            above,
            partial(_may_loop, trace, host_index),
        )
        if steps is None:
            continue
        parts.append(steps.table)
        taken_over.update((host_index, group) for group in steps.taken_over)
        host_name = trace.hosts[host_index] if len(trace.hosts) > 1 else ""
        lines.append(notes.steps_by_programs(steps.explanation, host_name))
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    ran = runs.loc[runs["host"].isin(table["host"]), _RAN]
    of_cores = _steps_of_cores(table, cores)
    return ProgramSteps(
        table,
        _unique(lines),
        frozenset(on_device),
        of_cores,
        ran,
        taken_over=frozenset(taken_over),
    )


def _no_rows(columns: Iterable[str]) -> pd.DataFrame:
    return pd.DataFrame(columns=list(columns), dtype=np.int64)


def _unique(lines: list[Note]) -> list[Note]:
    return [note for i, note in enumerate(lines) if note not in lines[:i]]


def marked_hosts(groups: Groups, host: npt.NDArray[np.integer]) -> set[int]:
    """Hosts on which anything but an eager op of TensorFlow is the root of a group."""
    grouped = set(np.flatnonzero(np.bincount(host[groups.group >= 0], minlength=1)).tolist())
    named: set[int] = set()
    marked: set[int] = set()
    for (host_index, _), name in groups.names.items():
        named.add(host_index)
        if not name.startswith(EAGER_OP):
            marked.add(host_index)
    return (grouped - named) | marked


def called(launch: str) -> str:
    """The function that an event `PjitFunction(f)` calls, as `plain` writes it."""
    return plain(launch[len(LAUNCH) : -1])


def plain(function: str) -> str:
    """A function's name as XLA writes it in the name of a program: `<lambda>` is `lambda`."""
    return re.sub(r"\W", "_", function).strip("_")


def function_of(module: str) -> str:
    """Name of a compiled program's function: ``train_step`` for ``jit_train_step``."""
    return re.sub(r"\A(?:jit|pmap|pjit|xmap)_(?=.)", "", module)


def runs_of_programs(
    trace: Trace,
    host: npt.NDArray[np.integer],
    lane_kind: npt.NDArray[np.object_],
    hosts: list[int],
) -> tuple[pd.DataFrame, set[int]]:
    """Runs of programs on some hosts, and the hosts whose devices recorded them.

    The columns are ``host module run event start end program turns``, in order of the end. `turns`
    is how often the second most frequent op of the run ran on one device: if more than once, the
    program loops. (A single op may be several kernels.)
    """
    events = trace.events
    used = np.isin(lane_kind, ("device", "host"))[events.lane]
    rows = np.flatnonzero(trace.above("hlo_module", -1, text=True) & used & (events.duration > 0))
    rows = rows[np.isin(host[rows], hosts)]
    of_device = (lane_kind == "device")[events.lane[rows]]
    with_device = set(np.unique(host[rows[of_device]]).tolist())
    # On a host with devices, the calls of the host that launched kernels name the program too.
    rows = rows[of_device | ~np.isin(host[rows], list(with_device))]
    ordinal = np.maximum(
        trace.arg("device_ordinal", rows=rows),
        trace.lanes["device"].to_numpy(np.int64)[events.lane[rows]],
    )
    columns: dict[str, Int64s] = {
        "host": host[rows].astype(np.int64),
        "module": trace.text_arg("hlo_module", rows),
        "device": ordinal,
        "op": trace.text_arg("hlo_op", rows),
        "event": rows,
        "start": events.start[rows],
        "end": events.start[rows] + events.duration[rows],
        "program": trace.arg("program_id", rows=rows),
    }
    in_time = np.argsort(columns["start"], kind="stable")
    table = pd.DataFrame({name: values[in_time] for name, values in columns.items()}, copy=False)
    if not len(table):
        return table.assign(run=0, turns=0), with_device
    number = _run_numbers(trace, host, table)
    module = table["module"].to_numpy()
    first, run = unique_rows(table["host"].to_numpy(), module, pd.factorize(number)[0])
    last = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(last, run, table["end"].to_numpy())
    on_device, part = unique_rows(run, table["device"].to_numpy())
    turns = np.ones(len(first), np.int64)
    np.maximum.at(turns, run[on_device], _second_most(part, table["op"].to_numpy()))
    result = table.iloc[first][["host", "module", "event", "start", "program"]].assign(
        run=number[first], end=last, turns=turns
    )
    result = result[[*_RUN, "event", "start", "end", "program", "turns"]]
    result["module"] = trace.texts(result["module"].to_numpy(np.int64))
    return result.sort_values(["host", "end"], kind="stable", ignore_index=True), with_device


def _second_most(part: Int64s, op: Int64s) -> Int64s:
    """By part: how often its second most frequent op occurs, 0 if it has only one op."""
    first, pair = unique_rows(part, op)
    often, of_part = np.bincount(pair), part[first]
    order = np.lexsort((-often, of_part))
    begins = np.flatnonzero(np.diff(of_part[order], prepend=-1))
    several = np.diff(np.append(begins, len(order))) > 1
    second = np.zeros(len(begins), np.int64)
    second[several] = often[order[begins[several] + 1]]
    return second


def _runs_of_cores(trace: Trace, host: npt.NDArray[np.integer], lanes: Int64s) -> pd.DataFrame:
    """Runs of programs on each core of the TPUs: ``host device module run event start end``.

    Each core counts its runs by itself: the n-th runs of a program on all cores are one run.
    """
    events = trace.events
    rows = np.flatnonzero(np.isin(events.lane, lanes) & (events.duration > 0))
    code, seen = pd.factorize(events.name[rows])
    called = np.array([_FINGERPRINT.sub("", str(name)) for name in trace.names[seen]], object)
    table = pd.DataFrame(
        {
            "host": host[rows].astype(np.int64),
            "device": trace.lanes["device"].to_numpy(np.int64)[events.lane[rows]],
            "module": called[code],
            "event": rows,
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
        }
    )
    if not len(rows):
        return table.assign(run=np.zeros(0, np.int64))
    table["run"] = table.groupby(["host", "device", "module"], sort=False).cumcount()
    # A run that only some cores recorded was cut off on the others.
    core_count = table.groupby(["host", "module"])["device"].transform("nunique")
    return table[table.groupby(_RUN)["device"].transform("nunique") == core_count].reset_index(
        drop=True
    )


def _of_all_cores(cores: pd.DataFrame) -> pd.DataFrame:
    """Runs on all cores of a host, from the first begin to the last end, as `runs_of_programs`."""
    if not len(cores):
        return cores[[*_RUN, "event", "start", "end"]].assign(program=-1, turns=1)
    runs = (
        cores.groupby(_RUN, sort=False)
        .agg(event=("event", "first"), start=("start", "min"), end=("end", "max"))
        .reset_index()
    )
    return runs.assign(program=-1, turns=1).sort_values(
        ["host", "end"], kind="stable", ignore_index=True
    )


def _steps_of_cores(steps: pd.DataFrame, cores: pd.DataFrame) -> pd.DataFrame:
    """Steps of each core, from the end of its previous run to the end of this run.

    The first step begins with that of the host.
    """
    if not len(cores):
        return _no_rows(Markers.columns)
    keys = cores.merge(steps[["event", "group"]], on="event")[[*_RUN, "group"]]
    core_runs = cores.merge(keys, on=_RUN).sort_values(["host", "device", "end"], kind="stable")
    before = core_runs.groupby(["host", "device"])["end"].shift()
    first = before
    if len(core_runs):
        first = core_runs["host"].map(steps.groupby("host")["begin"].min())
    return (
        core_runs.assign(start=before.fillna(first))[list(Markers.columns)]
        .astype(np.int64)
        .reset_index(drop=True)
    )


def _run_numbers(trace: Trace, host: npt.NDArray[np.integer], table: pd.DataFrame) -> Int64s:
    """Number of the run that each op belongs to: `run_id` if recorded, else counted per device."""
    rows = table["event"].to_numpy(np.int64)
    run_id = trace.args.get("run_id")
    has_run_id = np.zeros(len(rows), np.bool_)
    if run_id is not None:
        has_run_id = np.isin(rows, run_id.event)
    if has_run_id.all():
        return np.asarray(trace.arg("run_id", rows=rows), np.int64)
    # GPUs state none: one call to execute launches a run. If such calls are unknown, a run begins
    # with the first op of its program.
    call = _execute_calls(trace, host, rows)
    of_program = table.groupby(["host", "module", "device"], sort=False)
    begins = table["op"] == of_program["op"].transform("first")
    calls = pd.Series(call, table.index)
    changed = calls != calls.groupby(
        [table["host"], table["module"], table["device"]], sort=False
    ).shift(fill_value=-2)
    begins = begins.where(call < 0, changed)
    number = begins.groupby([table["host"], table["module"], table["device"]], sort=False).cumsum()
    return np.asarray(number, np.int64)


def _execute_calls(trace: Trace, host: npt.NDArray[np.integer], rows: Int64s) -> Int64s:
    """int64[rows]: the call that executed the program of each kernel; -1 if unknown."""
    events, correlation, machine = trace.events, trace.arg("correlation_id"), host.astype(np.int64)
    table = starting(heads(trace.names), *_EXECUTES)
    executes = np.flatnonzero(table[events.name])
    if not len(executes):
        return np.full(len(rows), -1, np.int64)
    call_of_event = np.full(len(events), -1, np.int64)
    call_of_event[executes] = executes
    call = inherit(events.parent, events.depth, call_of_event)
    launches = np.flatnonzero((correlation > 0) & (call >= 0))
    up, down = match(
        launches,
        [correlation[launches], machine[launches]],
        rows,
        [correlation[rows], machine[rows]],
    )
    of_event = np.full(len(events), -1, np.int64)
    of_event[down] = call[up]
    return of_event[rows]


def _first_call(trace: Trace, host: npt.NDArray[np.integer], host_index: int) -> dict[str, int]:
    """Time of the first call on a host by function, ps."""
    events = trace.events
    calls = starting(heads(trace.names), LAUNCH)
    rows = np.flatnonzero(calls[events.name] & (host == host_index))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    code, first = np.unique(events.name[rows], return_index=True)
    functions = map(called, map(str, trace.names[code]))
    return dict(zip(functions, events.start[rows[first]].tolist(), strict=True))


class _HostSteps(NamedTuple):
    """Steps of one host, a sentence on them, and the groups with which another loop begins."""

    table: pd.DataFrame
    explanation: str
    taken_over: list[int]


def _steps(
    runs: pd.DataFrame, called: dict[str, int], above: int, may_loop: Callable[[str], bool]
) -> _HostSteps | None:
    """Steps of one host; None if no program can be that of a loop.

    Parameters
    ----------
    runs : DataFrame
        The runs of the host in order of their ends.
    called : dict of str to int
        Time of the first call of each function, ps.
    above : int
        The first free group of the host.
    may_loop : callable
        False if a program has no loop inside: an op that ran several times was several kernels.
    """
    programs = _programs_of_loop(runs)
    if not programs:
        return None
    used = runs[runs["module"].isin(programs)].reset_index(drop=True)
    end = used["end"].to_numpy(np.int64)
    started = int(used["start"].iloc[0])
    call = called.get(plain(function_of(str(used["module"].iloc[0]))), started)
    begin = np.append(min(started, call), end[:-1])
    steps = pd.DataFrame(
        {
            "host": used["host"],
            "group": above + np.arange(len(used)),
            "event": used["event"],
            "begin": begin,
            "end": end,
        }
    )
    steps["name"] = [f"{function_of(m)} {n}" for n, m in enumerate(used["module"], 1)]
    taken_over = _taken_over(used)
    how = _explanation(used, programs, taken_over, may_loop)
    return _HostSteps(steps, how, [above + row for row in taken_over])


def _programs_of_loop(runs: pd.DataFrame) -> list[str]:
    """Programs whose runs end steps, the main one first; empty if there is none."""
    code, names = pd.factorize(runs["module"].to_numpy(object), sort=True)
    length = (runs["end"] - runs["start"]).to_numpy(np.int64)
    spans = {str(name): length[rows] for name, rows in zip(names, rows_by_code(code), strict=True)}
    total: dict[str, int] = {}
    candidates = []
    for name, durations in spans.items():
        total[name] = int(durations.sum())
        is_eager = _EAGER_FUNCTION.fullmatch(function_of(name))
        if len(durations) >= LEAST_RUNS and not is_eager:
            candidates.append(name)
    main = max(candidates, key=total.__getitem__, default="")
    if not main or total[main] < LEAST_SHARE * sum(total.values()):
        return []
    main = _closing(runs["module"], main, candidates)
    usual = {name: float(np.median(spans[name])) for name in candidates}
    return [main, *_loops(runs["module"], main, candidates, usual)]


def _explanation(
    runs: pd.DataFrame, programs: list[str], taken_over: list[int], may_loop: Callable[[str], bool]
) -> str:
    """A sentence on how the steps of a host were found."""
    main = programs[0]
    named = f"the program {main}"
    if len(programs) > 1:
        named = "the programs " + " and ".join(programs)
    how = f"steps: runs of {named}, each from the end of the previous run to its own end"
    if len(runs) > 1:
        how += (
            "; the first is shown but not averaged, because what the loop did before that run was"
            " not recorded"
        )
    if taken_over:
        how += (
            f"; nor is step {taken_over[0] + 1}, with which another compiled program took over:"
            " time between two loops may lie in it"
        )
    if function_of(main) == "_fun":
        how += "; JAX gives pmap programs this name"
    if (runs.loc[runs["module"] == main, "turns"] > 1).mean() > 0.5 and may_loop(main):
        how += "; the program contains a loop, so one step here may be several training steps"
    return how


def _taken_over(runs: pd.DataFrame) -> list[int]:
    """The run with which one compiled program replaces another for good, if it is the only one.

    A new batch size may do that too; if programs change more often, that is how the loop works.
    """
    program, module = runs["program"].to_numpy(np.int64), pd.factorize(runs["module"])[0]
    changed = np.flatnonzero((np.diff(program) != 0) | (np.diff(module) != 0)) + 1
    if len(changed) != 1 or (program < 0).any():
        return []
    if not LEAST_RUNS <= changed[0] <= len(runs) - LEAST_RUNS:
        return []
    return [int(changed[0])]


def _may_loop(trace: Trace, host: int, name: str) -> bool:
    """True if a program of this name contains a loop, or is not in the file."""
    in_file = False
    for module in trace.modules:
        if module.host == host and name in (module.name, module.name.rpartition("(")[0]):
            in_file = True
            if _LOOP in module.data:
                return True
    return not in_file


def _closing(module: pd.Series, main: str, able: list[str]) -> str:
    """The program that closes each step: `main`, or an update after several runs of it."""
    if _UPDATES.search(function_of(main)):
        return main
    for name in able:
        if not _UPDATES.search(function_of(name)) or _MEASURES.search(function_of(name)):
            continue
        order = module[module.isin([main, name])].to_numpy()
        between = np.diff(np.flatnonzero(order == name), prepend=-1) - 1
        usual = int(np.median(between))
        if usual > 1 and (between == usual).mean() >= ALIKE:
            return name
    return main


def _loops(module: pd.Series, main: str, able: list[str], usual: dict[str, float]) -> list[str]:
    """Other programs that run again and again without the main one between, as an evaluation."""
    loops = []
    for name in able:
        if name == main or usual[name] < OWN_LOOP_SHARE * usual[main]:
            continue
        order = module[module.isin([main, name])].to_numpy()
        is_other = order == name
        series = int(is_other[0]) + int((is_other[1:] & ~is_other[:-1]).sum())
        part_of_step = series > max(PART_OF_STEP * (~is_other).sum(), 1)
        if is_other.sum() >= LEAST_RUNS * series and not part_of_step:
            loops.append(name)
    return loops
