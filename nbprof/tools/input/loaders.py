"""The pipelines of DataLoaders: the way of a batch from the dataset to the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.core.guard import guarded
from nbprof.core.worker_times import (
    IN_PROCESS,
    READ_AHEAD,
    LoopTotals,
    WorkerTimes,
    WorkerTotals,
)
from nbprof.display import wording
from nbprof.tools.common import fix_lines
from nbprof.tools.input.parts import LoaderPipeline, NodeFact, PipelineNode

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_LOADERS = 8
_MS = 1e6
_QUEUE = "queue"


def loader_pipelines(run: Run) -> list[LoaderPipeline] | None:
    """The DataLoaders whose stages were timed, most time first; None without any."""
    times = run.worker_times
    timed = filter(times.of_items, {stage.loader for stage in times.stages})
    ahead = set(_ahead_of(times).values())
    loaders = sorted(set(timed) - ahead, key=lambda each: -_busy(times, each))
    if not loaders:
        return None
    limit = guarded("What limits the DataLoader", lambda: _limit(run), lambda _: None)
    return [_pipeline(run, loader, limit) for loader in loaders[:MOST_LOADERS]]


def _ahead_of(times: WorkerTimes) -> dict[int, int]:
    """By loader of grain, the one that its threads are which read ahead for it."""
    number = {loader.dataset: index for index, loader in enumerate(times.loaders)}
    return {
        number[name.removesuffix(READ_AHEAD)]: index
        for name, index in number.items()
        if name.endswith(READ_AHEAD) and name.removesuffix(READ_AHEAD) in number
    }


def _busy(times: WorkerTimes, loader: int) -> int:
    return sum(worker.busy_ns for worker in times.workers if worker.loader == loader)


class _Limit(NamedTuple):
    """The finding on a loader for which the loop waits: the loader, the stage to blame or `_QUEUE`,
    and the evidence and remedy.
    """

    loader: int
    stage: int | str | None
    evidence: str
    fix: str


def _limit(run: Run) -> _Limit | None:
    """The loader that limits the steps, by the first finding on one; None if the advice has
    none.
    """
    from nbprof.analysis.advice.cores import IN_PROCESS as IN_TRAINING
    from nbprof.analysis.advice.cores import WORKERS
    from nbprof.analysis.advice.loaders import PICKLE, SLOW_ITEMS
    from nbprof.analysis.advice.workers import SHARE
    from nbprof.analysis.input import workers

    times = run.worker_times
    service = workers.service(times)
    largest = max(times.loops, key=lambda row: row.batches, default=None)
    loader_of = {
        WORKERS: None if service is None else service.loader,
        IN_TRAINING: workers.made_in_process(times),
        SLOW_ITEMS: None if largest is None else largest.loader,
        PICKLE: None if largest is None else largest.loader,
    }
    for finding in run.advice.to_dict("records"):
        loader = loader_of.get(finding["rule"])
        if loader is None:
            continue
        stage: int | str | None = None
        heaviest = workers.heaviest(times, loader)
        if finding["rule"] == PICKLE:
            stage = _QUEUE
        elif heaviest is not None and heaviest.share >= SHARE:
            stage = times.stages.index(heaviest.stage)
        return _Limit(loader, stage, str(finding["evidence"]), str(finding["fix"]))
    return None


def _pipeline(run: Run, loader: int, limit: _Limit | None) -> LoaderPipeline:
    times = run.worker_times
    if limit is not None and limit.loader != loader:
        limit = None
    rows = [worker for worker in times.workers if worker.loader == loader and worker.batches]
    outside = [worker for worker in rows if worker.worker != IN_PROCESS and worker.processes]
    ahead = _ahead_of(times).get(loader)
    nodes = [] if ahead is None else _stage_nodes(run, ahead)
    nodes += _stage_nodes(run, loader)
    if outside:
        loop = next((row for row in times.loops if row.loader == loader), None)
        nodes += [_queue(times, loader, outside, loop), _wait(loop)]
    else:
        nodes.append(_loop_itself(rows))
    for number, node in enumerate(nodes[:-1]):
        node.parent = nodes[number + 1].id
    for node in nodes:
        node.bottleneck = limit is not None and node.id == str(limit.stage)
    return LoaderPipeline(
        name=times.loaders[loader].dataset,
        scope=wording.plural(len(outside), "worker") if outside else "in the process of the loop",
        advice="" if limit is None else limit.evidence,
        fix=[] if limit is None else fix_lines(limit.fix),
        nodes=nodes,
    )


def _stage_nodes(run: Run, loader: int) -> list[PipelineNode]:
    """The dataset, its transforms and the collation."""
    from nbprof.analysis.input import workers

    times = run.worker_times
    nodes = []
    for row in workers.flow(times, loader, run.cells).reset_index().to_dict("records"):
        stage = times.stages[row["index"]]
        code = workers.location(stage.file, stage.line, run.cells, short=True)
        facts = {
            "Kind": row["kind"],
            "Code": row["where"],
            "Without the stages that it calls": _per(row["per_item_ms"], " per item"),
            "Calls": wording.number(row["calls"], 0),
            "Longest call": wording.millis(row["longest_ms"]),
            "Most samples": row["inside"],
        }
        node = _node(
            str(row["index"]),
            row["stage"],
            code or row["kind"],
            _per(row["per_item_ms"], "/item"),
            facts,
            row["per_item_ms"],
        )
        node.percent = wording.real(row["percent"])
        nodes.append(node)
    return nodes


def _queue(
    times: WorkerTimes, loader: int, workers: list[WorkerTotals], loop: LoopTotals | None
) -> PipelineNode:
    """The batches from the workers to the loop."""
    batches = sum(worker.batches for worker in workers)
    pickled = sum(worker.pickled_bytes for worker in workers) / batches
    shared = sum(worker.shared_bytes for worker in workers) / batches
    receive_ms = None
    if loop is not None and loop.batches and loop.receive_ns:
        receive_ms = loop.receive_ns / _MS / loop.batches
    ahead = times.loaders[loader].prefetch
    note = wording.plural(len(workers), "worker")
    pickling_ms = sum(worker.pickle_ns for worker in workers) / _MS / batches
    facts = {
        "Pickling, CPU time": _per(pickling_ms, " per batch"),
        "Pickled": f"{wording.size(pickled)} per batch",
        "In shared memory": f"{wording.size(shared)} per batch",
        "Receiving and unpickling": _per(receive_ms, " per batch"),
        "Batches ahead": f"{ahead} of each worker" if ahead else "",
    }
    return _node(
        _QUEUE,
        "Queue",
        f"{note}, {ahead} ahead each" if ahead else note,
        _per(receive_ms, "/batch"),
        facts,
        receive_ms,
    )


def _wait(loop: LoopTotals | None) -> PipelineNode:
    """The wait of the loop for its batches."""
    each = None
    if loop is not None and loop.batches:
        each = loop.wait_ns / _MS / loop.batches
    facts = {
        "Wait": _per(each, " per batch"),
        "Batches": "" if loop is None else wording.number(loop.batches, 0),
    }
    note = "without each first batch"
    return _node("wait", "Wait of the loop", note, _per(each, "/batch"), facts, each)


def _loop_itself(rows: list[WorkerTotals]) -> PipelineNode:
    """The loop that makes its batches."""
    batches = sum(worker.batches for worker in rows)
    each = sum(worker.busy_ns for worker in rows) / _MS / batches if batches else None
    facts = {
        "Making them": _per(each, " per batch"),
        "Batches": wording.number(batches, 0),
    }
    note = "makes its batches itself"
    if all(worker.worker != IN_PROCESS for worker in rows):
        note = "threads of the process make them"
    return _node("wait", "Wait of the loop", note, _per(each, "/batch"), facts, each)


def _per(ms: object, unit: str) -> str:
    """A time for an item or a batch; "–" where it is unknown."""
    text = wording.millis(ms)
    return text if text == wording.MISSING else f"{text}{unit}"


def _node(
    key: str,
    name: str,
    note: str,
    value: str,
    facts: dict[str, Any],
    self_ms: float | None,
) -> PipelineNode:
    return PipelineNode(
        id=key,
        parent=None,
        name=name,
        long_name="",
        note=note,
        start_ms=None,
        total_ms=0.0,
        self_ms=wording.real(self_ms) or 0.0,
        calls=0,
        critical=True,
        bottleneck=False,
        percent=None,
        value=value,
        facts=[NodeFact(label=label, value=text) for label, text in facts.items() if text],
    )
