"""Steps of JAX programs that mark none: the runs of the compiled program that takes most of the
time.

A loop of training or evaluation in JAX runs one compiled program again and again. Its n-th step
goes from the end of the run before to the end of its own run on the device (with several devices:
on the last of them). So waiting for input, and what the host does between, lie in the step that
waits; and a step ends when the device is done, not when the call that started it returns. What a
loop does before its first run nothing in the file tells from what was done before the loop: the
first step begins at its call, and is left out of averages.

XProf has no steps for such files. A program that marks any step itself has those alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.tables import Markers
from nbprof.core import clip_to_steps
from nbprof.core.factorize import heads, starting, unique_rows
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.xplane import tpu as xplane_tpu
from nbprof.dialects.xplane.event_links import match
from nbprof.dialects.xplane.grouping import Groups, inherit

_RUN = ["host", "module", "run"]
LEAST_RUNS = 2
LEAST_SHARE = 0.2
"""The least share of the time of all programs for the one whose runs are steps."""
OWN_LOOP_SHARE = 0.1
"""Another program that is run in a loop of its own (evaluation) has steps of its own, where its
runs take so much of the main one's.
"""
PART_OF_STEP = 0.5
"""A program that runs with so many runs of the main one is part of its steps."""
ALIKE = 0.8
"""Of the stretches between the runs of a program that closes steps, with equally many runs of
another.
"""

# What `jnp.add(a, b)` outside of `jit` runs is a program too, named after the function. Steps are
# never runs of these.
_OF_CALLS = re.compile(
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
# A program that updates what is trained closes a step, however little of its time is its own; one
# that measures does not.
_UPDATES = re.compile(r"(?:\A|_)(?:train|step|update|fit|optimi[sz]er?|apply)", re.IGNORECASE)
_MEASURES = re.compile(r"eval|valid|test|predict|infer|metric|accuracy|\Aloss|_loss", re.IGNORECASE)
EAGER_OP = "EagerKernelExecute "
"""How the name of a group begins that is a single op of TensorFlow."""
# What runs one program on one device; kernels are launched inside.
_EXECUTES = (
    "PjRtStreamExecutorLoadedExecutab",
    "CommonPjRtLoadedExecutable::Execu",
    "GpuExecutable::ExecuteThunks",
)
LAUNCH = "PjitFunction("
# An instruction of this opcode, as it stands in the bytes of a program.
_LOOP = b"\x12\x05while"


@dataclass
class ProgramSteps:
    """Steps that were found, in time order on each host.

    Attributes
    ----------
    table : DataFrame
        ``host group event begin end name``: where the step lies, ps, the first event of its run,
        and what the step is called.
    notes : list of str
        How they were found.
    on_device : frozenset of int
        Hosts whose runs were seen on GPUs.
    runs : DataFrame
        ``host module start end`` of every run of a program on these hosts.
    marked : frozenset of int
        Hosts that mark their steps; here is when these really ended.
    of_cores : DataFrame
        The same of each core of a TPU: ``host device group event start end``. Cores run apart where
        nothing makes them wait for each other.
    """

    table: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    on_device: frozenset[int] = frozenset()
    of_cores: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(
            {name: np.zeros(0, np.int64) for name in Markers.columns}
        )
    )
    runs: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(
            {name: [] for name in ("host", "module", "start", "end")}
        )
    )

    marked: frozenset[int] = frozenset()
    taken_over: frozenset[tuple[int, int]] = frozenset()
    """(host, group) of steps with which another compiled program took over for good: time between
    two loops may lie in them.
    """
    complete: bool = False
    """Whether all that these steps did is known and is theirs: units of a recording rather than
    runs of a program.
    """

    @property
    def first(self) -> set[tuple[int, int]]:
        """(host, group) of the first step of each loop, of which it is not known what the loop did
        before its run.
        """
        if self.complete:
            return set()
        several = self.table.groupby("host")["group"].transform("size") > 1
        begins = self.table[several & ~self.table["host"].isin(list(self.marked))].drop_duplicates(
            "host"
        )
        return {
            *zip(begins["host"].tolist(), begins["group"].tolist(), strict=True),
            *self.taken_over,
        }

    @property
    def hosts(self) -> Int64s:
        """The hosts that have such steps."""
        return np.asarray(self.table["host"].unique(), np.int64)

    def place(self, trace: Trace, marked: Int32s, host: npt.NDArray[np.integer]) -> Int32s:
        """int32[events]: on the hosts that have such steps the one in which each event begins, on
        others `marked`.
        """
        out = marked.copy()
        for at in self.hosts.tolist():
            begin, end, group = self._of(at)
            rows = np.flatnonzero(host == at)
            start = trace.events.start[rows]
            step = np.searchsorted(end, start, side="right")
            inside = (step < len(end)) & (start >= np.append(begin, 0)[step])
            out[rows] = np.where(inside, np.append(group, -1)[step], -1)
        return out

    def beside(self, other: ProgramSteps | None) -> ProgramSteps:
        """These, and those of other hosts."""
        if other is None:
            return self
        return ProgramSteps(
            *(
                pd.concat([self.table, other.table], ignore_index=True),
                list(dict.fromkeys([*self.notes, *other.notes])),
            ),
            on_device=self.on_device | other.on_device,
            of_cores=pd.concat([self.of_cores, other.of_cores], ignore_index=True),
            runs=pd.concat([self.runs, other.runs], ignore_index=True),
            marked=self.marked | other.marked,
            taken_over=self.taken_over | other.taken_over,
        )

    def _of(self, host: int) -> tuple[Int64s, Int64s, Int64s]:
        mine = self.table[self.table["host"] == host]
        return (
            mine["begin"].to_numpy(np.int64),
            mine["end"].to_numpy(np.int64),
            mine["group"].to_numpy(np.int64),
        )

    def cut(self, work: pd.DataFrame) -> pd.DataFrame:
        """Pieces of work that reach over the end of a step, once for each step that they reach
        into.

        The host runs ahead of the device: what it does belongs to each step in whose time it is
        done.
        """
        of_host = work["host"].to_numpy()
        others = ~np.isin(of_host, self.hosts)
        parts = [work[others]] if others.any() else []
        for host in self.hosts.tolist():
            parts.append(clip_to_steps.cut(work, *self._of(host), np.flatnonzero(of_host == host)))
        return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def find(
    trace: Trace, groups: Groups, host: npt.NDArray[np.integer], lane_kind: npt.NDArray[np.object_]
) -> ProgramSteps | None:
    """Steps of the hosts on which no step is marked, or None.

    Parameters
    ----------
    trace : Trace
    groups : Groups
        What the marks in the file say.
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
    others = sorted(set(open_) - set(of_cores["host"].tolist()))
    runs, on_device = (
        runs_of_programs(trace, host, lane_kind, others)
        if "hlo_module" in trace.args and others
        else (of_cores.iloc[:0], set())
    )
    runs = pd.concat([runs, of_cores], ignore_index=True)
    parts, notes = [], []
    taken_over: set[tuple[int, int]] = set()
    for at in open_:
        mine = runs[runs["host"] == at]
        if not len(mine):
            continue
        # Groups of eager ops (TensorFlow's, that feed the program) keep their numbers.
        above = int(groups.group[host == at].max(initial=-1)) + 1
        steps, how, again = _steps(
            mine.reset_index(drop=True),
            _first_call(trace, host, at),
            above,
            partial(_may_loop, trace, at),
        )
        if steps is None:
            continue
        parts.append(steps)
        taken_over |= {(at, group) for group in again}
        notes.append(how if len(trace.hosts) < 2 else f"{trace.hosts[at]}: {how}")
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    ran = runs.loc[runs["host"].isin(table["host"]), ["host", "module", "start", "end"]]
    of_cores = _steps_of_cores(table, cores)
    return ProgramSteps(
        table,
        list(dict.fromkeys(notes)),
        frozenset(on_device),
        of_cores,
        ran,
        taken_over=frozenset(taken_over),
    )


def marked_hosts(groups: Groups, host: npt.NDArray[np.integer]) -> set[int]:
    """Hosts on which anything but an eager op of TensorFlow is the root of a group."""
    named = {at for at, _ in groups.names}
    grouped = set(np.flatnonzero(np.bincount(host[groups.group >= 0], minlength=1)).tolist())
    return (grouped - named) | {
        at for (at, _), name in groups.names.items() if not name.startswith(EAGER_OP)
    }


def called(launch: str) -> str:
    """The function that an event `PjitFunction(f)` calls, as `plain` writes it."""
    return plain(launch[len(LAUNCH) : -1])


def plain(function: str) -> str:
    """A function's name without what XLA cannot have in the name of its program: `<lambda>` is
    `jit__lambda` there.
    """
    return re.sub(r"\W", "_", function).strip("_")


def function_of(module: str) -> str:
    """What the function of a compiled program is called: ``jit_train_step`` and ``pmap_train_step``
    are ``train_step``.
    """
    return re.sub(r"\A(?:jit|pmap|pjit|xmap)_(?=.)", "", module)


def runs_of_programs(
    trace: Trace,
    host: npt.NDArray[np.integer],
    lane_kind: npt.NDArray[np.object_],
    hosts: list[int],
) -> tuple[pd.DataFrame, set[int]]:
    """Runs of programs on some hosts, by end: ``host module run event start end turns``; and the
    hosts where devices recorded them.

    `turns` is how often the second most frequent op of the run was run on one device: more than
    once, the program loops. (One op alone may be several kernels.)
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
    of_host, module, device, op, end = (
        table[name].to_numpy() for name in ("host", "module", "device", "op", "end")
    )
    first, run = unique_rows(of_host, module, pd.factorize(number)[0])
    last = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(last, run, end)
    on_device, part = unique_rows(run, device)
    turns = np.ones(len(first), np.int64)
    np.maximum.at(turns, run[on_device], _second_most(part, op))
    out = table.iloc[first][["host", "module", "event", "start", "program"]].assign(
        run=number[first], end=last, turns=turns
    )
    out = out[[*_RUN, "event", "start", "end", "program", "turns"]]
    out["module"] = trace.texts(out["module"].to_numpy(np.int64))
    return out.sort_values(["host", "end"], kind="stable", ignore_index=True), with_device


def _second_most(part: Int64s, op: Int64s) -> Int64s:
    """By part: how often its second most frequent op is there, 0 where it has one op."""
    first, one = unique_rows(part, op)
    often, of_part = np.bincount(one), part[first]
    order = np.lexsort((-often, of_part))
    begins = np.flatnonzero(np.diff(of_part[order], prepend=-1))
    several = np.diff(np.append(begins, len(order))) > 1
    out = np.zeros(len(begins), np.int64)
    out[several] = often[order[begins[several] + 1]]
    return out


def _runs_of_cores(trace: Trace, host: npt.NDArray[np.integer], lanes: Int64s) -> pd.DataFrame:
    """Runs of programs on each core of the TPUs: ``host device module run event start end``.

    Each core counts its runs by itself, so that the n-th run of a program on each core is taken for
    one run.
    """
    events = trace.events
    rows = np.flatnonzero(np.isin(events.lane, lanes) & (events.duration > 0))
    # The name ends in the program's fingerprint: "jit_f(12190760917235803885)".
    code, seen = pd.factorize(events.name[rows])
    called = np.array(
        [re.sub(r"\(\d+\)\Z", "", str(trace.names[one])) for one in seen.tolist()], object
    )
    table = pd.DataFrame(
        {
            "host": host[rows].astype(np.int64),
            "device": trace.lanes["device"].to_numpy(np.int64)[events.lane[rows]],
            "module": called[code] if len(seen) else np.zeros(0, object),
            "event": rows,
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
        }
    )
    if not len(rows):
        # Most programs run on no TPU.
        return table.assign(run=np.zeros(0, np.int64))
    table["run"] = table.groupby(["host", "device", "module"], sort=False).cumcount()
    # A run that the recording has of some cores alone was cut off on the others.
    most = table.groupby(["host", "module"])["device"].transform("nunique")
    return table[table.groupby(_RUN)["device"].transform("nunique") == most].reset_index(drop=True)


def _of_all_cores(cores: pd.DataFrame) -> pd.DataFrame:
    """Runs on all cores of a host, from the first that begins to the last that ends: as
    `runs_of_programs`.
    """
    if not len(cores):
        return cores[[*_RUN, "event", "start", "end"]].assign(program=-1, turns=1)
    out = (
        cores.groupby(_RUN, sort=False)
        .agg(event=("event", "first"), start=("start", "min"), end=("end", "max"))
        .reset_index()
    )
    return out.assign(program=-1, turns=1).sort_values(
        ["host", "end"], kind="stable", ignore_index=True
    )


def _steps_of_cores(steps: pd.DataFrame, cores: pd.DataFrame) -> pd.DataFrame:
    """The steps of each core: from the end of its run before to the end of its own; the first
    begins with that of the host.
    """
    if not len(cores):
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in Markers.columns})
    keys = cores.merge(steps[["event", "group"]], on="event")[[*_RUN, "group"]]
    mine = cores.merge(keys, on=_RUN).sort_values(["host", "device", "end"], kind="stable")
    before = mine.groupby(["host", "device"])["end"].shift()
    first = mine["host"].map(steps.groupby("host")["begin"].min()) if len(mine) else before
    return (
        mine.assign(start=before.fillna(first))[list(Markers.columns)]
        .astype(np.int64)
        .reset_index(drop=True)
    )


def _run_numbers(trace: Trace, host: npt.NDArray[np.integer], table: pd.DataFrame) -> Int64s:
    """Which run of its program an op belongs to: as the recorder states it, else the n-th on its
    device.
    """
    rows = table["event"].to_numpy(np.int64)
    stated = trace.args.get("run_id")
    known = np.isin(rows, stated.event) if stated is not None else np.zeros(len(rows), np.bool_)
    if known.all():
        return np.asarray(trace.arg("run_id", rows=rows), np.int64)
    # GPUs state none: a run is what one call to execute launched; where such calls are not known, a
    # run begins with the program's first op.
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
    """int64[rows]: the call on the host that executed the program for one device, by the launch of
    each kernel; -1 where not known.
    """
    events, correlation, machine = trace.events, trace.arg("correlation_id"), host.astype(np.int64)
    table = starting(heads(trace.names), *(text[:32] for text in _EXECUTES))
    executes = np.flatnonzero(table[events.name])
    if not len(executes):
        return np.full(len(rows), -1, np.int64)
    own = np.full(len(events), -1, np.int64)
    own[executes] = executes
    call = inherit(events.parent, events.depth, own)
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


def _first_call(trace: Trace, host: npt.NDArray[np.integer], at: int) -> dict[str, int]:
    """By function: when it was first called on a host, ps."""
    events = trace.events
    calls = starting(heads(trace.names), LAUNCH)
    rows = np.flatnonzero(calls[events.name] & (host == at))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    code, first = np.unique(events.name[rows], return_index=True)
    return {
        called(str(trace.names[c])): int(events.start[rows[i]])
        for c, i in zip(code.tolist(), first.tolist(), strict=True)
    }


def _steps(
    runs: pd.DataFrame, called: dict[str, int], above: int, may_loop: Callable[[str], bool]
) -> tuple[pd.DataFrame | None, str, list[int]]:
    """The steps of one host from its runs in order of their ends, a sentence on them, and with
    which of them another loop begins.

    There are none where no program can be what is looped.

    `may_loop` tells of a program whether it may loop inside. Where it does not, an op that ran
    several times was several kernels.
    """
    spans = dict(list((runs["end"] - runs["start"]).groupby(runs["module"])))
    total = {name: int(of.sum()) for name, of in spans.items()}
    able = [
        name
        for name, of in spans.items()
        if len(of) >= LEAST_RUNS and not _OF_CALLS.fullmatch(function_of(name))
    ]
    main = max(able, key=total.__getitem__, default="")
    if not main or total[main] < LEAST_SHARE * sum(total.values()):
        return None, "", []
    main = _closing(runs["module"], main, able)
    names = [
        main,
        *_loops(runs["module"], main, able, {name: float(spans[name].median()) for name in able}),
    ]
    used = runs[runs["module"].isin(names)].reset_index(drop=True)
    end = used["end"].to_numpy(np.int64)
    first = min(
        int(used["start"].iloc[0]),
        called.get(plain(function_of(str(used["module"].iloc[0]))), int(used["start"].iloc[0])),
    )
    begin = np.append(first, end[:-1])
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
    several = "the programs " + " and ".join(names) if len(names) > 1 else f"the program {main}"
    how = f"steps: runs of {several}, each from the end of the previous run to its own end"
    if len(used) > 1:
        how += (
            "; the first is shown but not averaged, because what the loop did before that run was"
            " not recorded"
        )
    again = [above + at for at in _taken_over(used)]
    if again:
        how += (
            f"; nor is step {again[0] - above + 1}, with which another compiled program took over:"
            " time between two loops may lie in it"
        )
    if function_of(main) == "_fun":
        how += "; JAX gives pmap programs this name"
    if (used.loc[used["module"] == main, "turns"] > 1).mean() > 0.5 and may_loop(main):
        how += "; the program contains a loop, so one step here may be several training steps"
    return steps, how, again


def _taken_over(runs: pd.DataFrame) -> list[int]:
    """The run with which one compiled program takes the place of another for good, where there is
    one such change alone.

    A new batch size may do that too; what changes more often is the loop's own way of working.
    """
    program, module = runs["program"].to_numpy(np.int64), pd.factorize(runs["module"])[0]
    changed = np.flatnonzero((np.diff(program) != 0) | (np.diff(module) != 0)) + 1
    if (
        len(changed) != 1
        or not LEAST_RUNS <= changed[0] <= len(runs) - LEAST_RUNS
        or (program < 0).any()
    ):
        return []
    return [int(changed[0])]


def _may_loop(trace: Trace, host: int, name: str) -> bool:
    """Whether a program of a name has a loop, as far as the file has it."""
    alike = [
        one
        for one in trace.modules
        if one.host == host and name in (one.name, one.name.rpartition("(")[0])
    ]
    return not alike or any(_LOOP in one.data for one in alike)


def _closing(module: pd.Series, main: str, able: list[str]) -> str:
    """The program that closes each step, where that is not the one with the most time: an update
    after several runs that make gradients.
    """
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
    """Other programs that are run again and again without the main one between, as an evaluation
    is.
    """
    out = []
    for name in able:
        if name == main or usual[name] < OWN_LOOP_SHARE * usual[main]:
            continue
        order = module[module.isin([main, name])].to_numpy()
        mine = order == name
        stretches = int(mine[0]) + int((mine[1:] & ~mine[:-1]).sum())
        part = stretches > max(PART_OF_STEP * (~mine).sum(), 1)
        if mine.sum() >= LEAST_RUNS * stretches and not part:
            out.append(name)
    return out
