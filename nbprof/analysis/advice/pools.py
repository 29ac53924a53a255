"""The finding on process pools that a cell waits for: what in their workers takes the time, and
whether these are busy or wait themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nbprof.analysis.advice.facts import Facts
from nbprof.analysis.rule import Found, Threshold
from nbprof.analysis.verdict import location_text
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.analysis.pools import PoolWait

BUSY, IDLE, STARTING = 0.8, 0.5, 0.3
"""Share of the time in which tasks are unfinished from which on processes are busy, up to which
they are idle, and from which on they are late.
"""
_WAITING_TASKS = 0.5
"""The cores that tasks use are stated below this share of their time."""
_LARGER = (
    "-results = list(pool.imap(work, items))\n"
    "+results = list(pool.imap(work, items, chunksize=64))  # fewer, larger messages"
)
_FIRST = (
    "-results = pool.map(work, items)\n"
    "+items = sorted(items, key=cost, reverse=True)  # the longest first\n"
    "+results = pool.map(work, items, chunksize=1)"
)
_BATCHES = (
    "-results = pool.map(work, items)\n"
    "+results = pool.map(work_on_batch, batches)  # one vectorized call for many items"
)
_PER_CORE = "-pool = multiprocessing.Pool(2)\n+pool = multiprocessing.Pool()  # a process per core"
_KEPT = (
    "+pool = multiprocessing.Pool()  # once, in a cell before\n"
    "-with multiprocessing.Pool() as pool:\n"
    "-    results = pool.map(work, items)\n"
    "+results = pool.map(work, items)"
)


class _Cause(NamedTuple):
    """Why the wait takes so long, the remedy, and the part of the wait that it may save."""

    title: str
    text: str
    fix: str
    part: float


def finding(facts: Facts, wait: PoolWait, limit: Threshold) -> Found:
    """The finding on a wait for a pool."""
    wait_ms = wait.percent * facts.mean["step_time"] / 100
    line = f", in {location_text(wait.function)}" if wait.function is not None else ""
    text = (
        f"For **{wording.millis(wait_ms)}** {facts.unit.per} (**{wait.percent:.0f}%**) the program"
        f" waits for the process pool {wait.name}{line}."
    )
    cause = _cause(wait, _free_cores(facts))
    sentences = [text, _function(wait), cause.text]
    return Found(
        " ".join(filter(None, sentences)),
        severity=limit.severity(wait.percent),
        gain_ms=cause.part * wait_ms,
        title=cause.title,
        fix=cause.fix,
        recording_cost=0.0,
    )


def _function(wait: PoolWait) -> str:
    """The function and line that take the time of the workers."""
    work, heaviest = wait.work, wait.work.heaviest()
    if heaviest is None or not wait.code:
        return ""
    _, stage = heaviest
    text = (
        f"Its workers spend **{100 * work.share_of(stage):.0f}%** of the time of tasks in"
        f" {wait.code}, **{wording.millis(stage.total_ns / stage.calls / 1e6)}** per call"
    )
    if wait.sampled:
        text += f", by samples in {wait.sampled}"
    if not work.complete:
        text += f" ({work.timed:,} of {work.pool.sent:,} calls were timed)"
    return f"{text}."


def _cause(wait: PoolWait, free_cores: float) -> _Cause:
    work, busy = wait.work, wait.work.about_busy
    cheaper = "Make the tasks of the pool cheaper"
    if busy is None:
        return _Cause(cheaper, "", _BATCHES, 1.0)
    processes = wording.plural(work.pool.processes, "process", "processes")
    about = "" if work.complete else "about "
    in_tasks = f"its {processes} run tasks for {about}**{100 * busy:.0f}%** of that time"
    task = work.long_task() if busy < BUSY else None
    if task is not None:
        subject = f"One of **{task.chunks:,}** tasks"
        if task.calls > 1:
            subject = f"One of **{task.chunks:,}** chunks, with {task.calls:,} calls,"
        return _Cause(
            "Divide the longest task of the pool, or start it first",
            f"{subject} takes **{wording.millis(task.ms)}**, **{100 * task.share:.0f}%** of the"
            f" time in which any is unfinished; {in_tasks}.",
            _FIRST,
            1 - busy,
        )
    starting = (work.starting_ns or 0) / (work.unfinished_ns or 1)
    if starting >= STARTING:
        return _Cause(
            "Keep the pool for several calls",
            f"The first task begins **{wording.millis((work.starting_ns or 0) / 1e6)}** after it"
            f" was sent, **{100 * starting:.0f}%** of the time in which any is unfinished: until"
            " then its processes start, import modules and receive it.",
            _KEPT,
            min(starting, 1.0),
        )
    if busy < IDLE:
        return _Cause(
            "Give the processes of the pool more to do at a time",
            f"Tasks are unfinished for **{_unfinished(wait)}**: {in_tasks} and have none for the"
            " rest of it.",
            _LARGER,
            1 - busy,
        )
    text = f"Tasks are unfinished for **{_unfinished(wait)}**: {in_tasks}."
    if work.cpu < _WAITING_TASKS:
        text += (
            f" Tasks use a core for **{100 * work.cpu:.0f}%** of their time, and none for the rest."
        )
    if free_cores < 1:
        return _Cause(cheaper, text, _BATCHES, 1.0)
    text += f" **{free_cores:.1f}** cores had no work, on average of the recording."
    more = "Take more processes for the pool, or make its tasks cheaper"
    return _Cause(more, text, _PER_CORE, 1.0)


def _unfinished(wait: PoolWait) -> str:
    return wording.millis((wait.work.unfinished_ns or 0) / 1e6)


def _free_cores(facts: Facts) -> float:
    """Cores that no process used; 0 where that is unknown."""
    host = facts.evidence.host
    if host is None:
        return 0.0
    cores, own_cores, other_cores = (
        host.contention.get(key, 0.0) for key in ("cores", "own_cores", "other_cores")
    )
    return max(cores - own_cores - other_cores, 0.0)
