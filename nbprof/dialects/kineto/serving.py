"""Iterations of inference engines, by the annotations that these make around each: how many requests and tokens it has, and of which kind.

vLLM (`annotate_profile` in vllm/v1/worker/gpu_worker.py, around the model's run, without sampling):

- `execute_context_2(40)_generation_3(3)`: requests and tokens of prefill, then of decode. With `detailed_trace_annotation`
  `execute_43_context_2(sq40sk…)_generation_3(sq3sk…)`: `sq` counts the tokens that are computed, the number in front is their sum.
- `execute_new_1_cached_3` in older versions: requests that are new, and others, which decode or go on with their prompt.
- `gpu_model_runner: forward`, with `VLLM_CUSTOM_SCOPES_FOR_PROFILING`, where nothing else is there.

SGLang (`build_step_span_name` in python/sglang/srt/utils/profile_utils.py, around the forward pass; modes are those of `ForwardMode`):

- `step[EXTEND bs=4 toks=100]`, `step[DECODE bs=64]`, `step[MIXED bs=5 c=1 g=4 c_sq=100 … g_sq=4 …]`, of which all behind `bs` is there with
  roofline annotations alone. Those of a draft model begin with `draft` and are parts of an iteration.
- `run_batch` of the scheduler, an annotation or a call of Python, with `forward_extend` or `forward_decode` in it, in traces of versions
  that annotate no steps.

What is not annotated is not known: nothing is taken from the shapes of tensors or the names of kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.core.intervals import ends_before
from nbprof.core.trace import Int64s
from nbprof.dialects import torchnames
from nbprof.dialects.kineto.lanes import ANNOTATION, CALL, OP, PYTHON

if TYPE_CHECKING:
    from nbprof.dialects.kineto.links import Links
    from nbprof.dialects.kineto.steps import Steps

PREFILL, DECODE, MIXED, IDLE = "prefill", "decode", "mixed", "idle"


class Iteration(NamedTuple):
    """What the annotation of an iteration says; kind "" and -1 where it doesn't.

    Attributes
    ----------
    kind : str
        `PREFILL`, `DECODE`, `MIXED` of both, `IDLE` without a request.
    requests : int
        Sequences in the batch.
    prefill_requests, prefill_tokens, decode_requests, decode_tokens : int
        Tokens are those that the iteration computes.
    """

    kind: str = ""
    requests: int = -1
    prefill_requests: int = -1
    prefill_tokens: int = -1
    decode_requests: int = -1
    decode_tokens: int = -1


# Numbers of more digits count nothing.
_N = r"(\d{1,12})"
_VLLM = re.compile(rf"execute_(?:\d{{1,12}}_)?context_{_N}\((?:sq)?{_N}(?:sk[a-z\d]*)?\)_generation_{_N}\((?:sq)?{_N}(?:sk[a-z\d]*)?\)\Z")
_VLLM_OLD = re.compile(rf"execute_new_{_N}_cached_{_N}\Z")
_SGLANG = re.compile(rf"step\[([A-Z][A-Z_\d]*) bs={_N}((?: \w{{1,12}}=\d{{1,18}})*)\]\Z")
_SGLANG_MODES = {"EXTEND": PREFILL, "SPLIT_PREFILL": PREFILL, "DECODE": DECODE, "TARGET_VERIFY": DECODE, "MIXED": MIXED, "IDLE": IDLE}
_RUN_BATCH = re.compile(r"(?:.*\bscheduler\.py\(\d+\): |scheduler\.)?run_batch\Z")
_FORWARD = re.compile(r"(?:.*\bmodel_runner\.py\(\d+\): )?forward_(extend|decode|idle)\Z")
_MODES_OF_FORWARD = {"extend": PREFILL, "decode": DECODE, "idle": IDLE}
_SCOPE = "gpu_model_runner: forward"


@lru_cache(maxsize=1 << 16)
def annotated(name: str) -> Iteration | None:
    """What the name of an annotation says about the iteration around which it is; None for another name."""
    if name.startswith("execute_"):
        return _of_vllm(name)
    return _of_sglang(name) if name.startswith("step[") else None


def _of_vllm(name: str) -> Iteration | None:
    if found := _VLLM.match(name):
        context, context_tokens, generation, generation_tokens = map(int, found.groups())
        kind = (MIXED if generation else PREFILL) if context else DECODE if generation else IDLE
        return Iteration(kind, context + generation, context, context_tokens, generation, generation_tokens)
    if found := _VLLM_OLD.match(name):
        new, cached = map(int, found.groups())
        if cached:
            return Iteration("", new + cached)
        return Iteration(PREFILL if new else IDLE, new, new, -1 if new else 0, 0, 0)
    return None


def _of_sglang(name: str) -> Iteration | None:
    found = _SGLANG.match(name)
    if found is None or found[1].startswith("DRAFT"):
        return None
    kind, requests = _SGLANG_MODES.get(found[1], ""), int(found[2])
    said = {key: int(value) for key, value in (pair.split("=") for pair in found[3].split())}
    if kind == PREFILL:
        return Iteration(kind, requests, requests, said.get("toks", said.get("c_sq", -1)), 0, 0)
    if kind == DECODE:
        # What is verified are tokens of a draft; a sequence that decodes has one.
        return Iteration(kind, requests, 0, 0, requests, requests if found[1] == "DECODE" else -1)
    if kind == MIXED:
        return Iteration(kind, requests, *(said.get(key, -1) for key in ("c", "c_sq", "g", "g_sq")))
    return Iteration(kind, requests) if kind != IDLE else Iteration(kind, requests, 0, 0, 0, 0)


class Found(NamedTuple):
    """The iterations of a host: what marks them, what that says, when the host began and ended each, ps, and what they are called."""

    marks: Int64s
    said: list[Iteration]
    begun: Int64s
    done: Int64s
    what: str


def find(links: Links, host: int) -> Found | None:
    """The iterations of a host in time order; None where nothing marks any, and of a program that trains as well."""
    trace, events = links.trace, links.trace.events
    names = [str(name) for name in trace.names]
    said = {code: one for code, name in enumerate(names) if (one := annotated(name)) is not None}
    batches = {code for code, name in enumerate(names) if name.endswith("run_batch") and _RUN_BATCH.match(name)}
    scopes = {code for code, name in enumerate(names) if name == _SCOPE}
    for codes, what in ((set(said), "annotations"), (batches, "calls of run_batch"), (scopes, f"annotations {_SCOPE!r}")):
        if not codes:
            continue
        rows = links.rows(ANNOTATION)
        rows = rows[np.isin(events.name[rows], list(codes)) & (links.host[rows] == host)]
        if codes is batches and not len(rows):
            rows = links.rows(PYTHON)
            rows = rows[np.isin(events.name[rows], list(codes)) & (links.host[rows] == host)]
        marks = _one_thread(links, rows)
        if not len(marks) or _training(links, host, marks):
            continue
        read = _by_forward(links, marks) if codes is batches else [said.get(code, Iteration()) for code in events.name[marks].tolist()]
        ahead = codes is not scopes and not names[int(events.name[marks[0]])].startswith("execute_")
        return Found(marks, read, *_bounds(links, host, marks, ahead), what)
    return None


def _one_thread(links: Links, rows: Int64s) -> Int64s:
    """Those of the lane with most of them, without those inside another one."""
    events = links.trace.events
    if not len(rows):
        return rows
    lanes, counts = np.unique(events.lane[rows], return_counts=True)
    rows = rows[events.lane[rows] == lanes[counts.argmax()]]
    return rows[events.start[rows] >= ends_before(events.end[rows])]


def _training(links: Links, host: int, marks: Int64s) -> bool:
    """Whether the iterations are parts of steps: of a trainer that generates with an engine in its process."""
    trace, events = links.trace, links.trace.events
    rows = links.rows(ANNOTATION)
    rows = rows[links.host[rows] == host]
    optimizers, profiled = (
        [code for code, name in enumerate(trace.names) if pattern.match(str(name))] for pattern in (torchnames.OPTIMIZER, torchnames.STEP)
    )
    if np.isin(events.name[rows], optimizers).any():
        return True
    steps = rows[np.isin(events.name[rows], profiled)]
    begun = events.start[marks]
    inside = np.searchsorted(begun, events.end[steps]) - np.searchsorted(begun, events.start[steps])
    # vLLM calls the profiler's step() once an iteration.
    return bool((inside > 1).any())


def _by_forward(links: Links, marks: Int64s) -> list[Iteration]:
    """The kinds of batches by the pass that runs in each: the first of its thread."""
    trace, events = links.trace, links.trace.events
    modes = {code: found[1] for code, name in enumerate(trace.names) if (found := _FORWARD.match(str(name)))}
    rows = links.rows(ANNOTATION, PYTHON)
    rows = rows[(events.lane[rows] == events.lane[marks[0]]) & np.isin(events.name[rows], list(modes))]
    first = np.searchsorted(events.start[rows], events.start[marks])
    out = []
    for at, end in zip(first.tolist(), events.end[marks].tolist(), strict=True):
        inside = at < len(rows) and events.start[rows[at]] < end
        out.append(Iteration(_MODES_OF_FORWARD[modes[int(events.name[rows[at]])]] if inside else ""))
    return out


def _bounds(links: Links, host: int, marks: Int64s, ahead: bool) -> tuple[Int64s, Int64s]:
    """When the host began and ended each iteration, with what it launched between two annotations.

    Sampling comes after the annotation: what is launched up to the next one belongs to the iteration before. Where the host prepares
    a batch before its annotation (`ahead`), that holds up to the longest pause; what comes after it belongs to the iteration that follows.
    Without a device, ops of the thread stand for launches.
    """
    events = links.trace.events
    begun, done = events.start[marks].copy(), events.end[marks].copy()
    launches = np.unique(links.launch[(links.launch >= 0) & (links.host[links.work] == host)])
    if not len(launches):
        launches = links.rows(OP, CALL)
        launches = launches[events.lane[launches] == events.lane[marks[0]]]
    launches = launches[np.argsort(events.start[launches], kind="stable")]
    start, end = events.start[launches], events.end[launches]
    low = np.searchsorted(start, done)
    high = np.append(np.searchsorted(start, begun[1:]), len(start))
    for i in np.flatnonzero(low < high).tolist():
        first, last = int(low[i]), int(high[i])
        if ahead and i + 1 < len(marks):
            pauses = np.append(start[first:last], begun[i + 1]) - np.append(done[i], np.maximum.accumulate(end[first:last]))
            last = first + int(pauses.argmax())
            if last < int(high[i]):
                begun[i + 1] = start[last]
        if first < last:
            done[i] = min(int(end[first:last].max()), int(begun[i + 1]) if i + 1 < len(marks) else np.iinfo(np.int64).max)
    return begun, done


def labels(said: list[Iteration]) -> list[str]:
    """What the steps are called: `decode 12`; an iteration of unknown kind is `iteration 12`."""
    return [f"{one.kind or 'iteration'} {i}" for i, one in enumerate(said)]


COUNTS = Iteration._fields[1:]


def table(links: Links, steps: Steps, out: act.Activity) -> pd.DataFrame:
    """The `engine_iterations` table of the activity; the rows of hosts of which steps are iterations."""
    rows = [i for i, step in enumerate(zip(steps.host.tolist(), steps.group.tolist(), strict=True)) if step in steps.iterations]
    said = [steps.iterations[int(steps.host[i]), int(steps.group[i])] for i in rows]
    names = [str(links.trace.names[code]) for code in links.trace.events.name[steps.event[rows]].tolist()]
    return pd.DataFrame(
        {
            **{key: getattr(steps, key)[rows] for key in ("event", "host", "group", "start", "end", "begun", "done")},
            "name": [out.texts.code(name) for name in names],
            "kind": [out.texts.code(one.kind) if one.kind else -1 for one in said],
            **{key: [getattr(one, key) for one in said] for key in COUNTS},
        }
    ).astype(act.ENGINE_ITERATIONS)
