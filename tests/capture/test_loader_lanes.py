"""The batches of recorded DataLoaders in the trace, and the waits that used them."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

from nbprof.capture.loader_workers import reports
from tests.capture.torches import Training

BATCHES = 5
ROWS = f"""
import time
import torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return {4 * BATCHES}

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.ones(16) + index

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, count = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, {4 * BATCHES}, count):
            time.sleep(0.02)
            yield torch.ones(16) + index
"""


@pytest.fixture
def rows(torch, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rows_of_lanes.py").write_text(ROWS)
    yield importlib.import_module("rows_of_lanes")
    sys.modules.pop("rows_of_lanes")


def arrows(run):
    """Of each arrow, in the order of the ops: begin and end of the batch, of the op, in ps, and the
    name of the batch.
    """
    tracks = run.timeline.tracks
    extra, events = tracks.extra, tracks.events
    found = [
        (events.start[op], events.end[op], extra.start[row], extra.end[row], str(tracks.names[extra.name[row]]))
        for row, op in zip(*tracks.feeds, strict=True)
    ]  # fmt: skip
    return sorted(found)


@pytest.mark.parametrize(
    ("dataset", "options", "epochs"),
    [
        ("Rows", {"num_workers": 2, "multiprocessing_context": "fork"}, 1),
        ("Rows", {"num_workers": 2, "multiprocessing_context": "spawn"}, 1),
        ("Rows", {"num_workers": 2, "multiprocessing_context": "fork"}, 2),
        (
            "Rows",
            {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
            2,
        ),
        ("Stream", {"num_workers": 2, "multiprocessing_context": "fork"}, 2),
        ("Rows", {"num_workers": 0}, 2),
        ("Stream", {"num_workers": 0}, 1),
    ],
    ids=["fork", "spawn", "epochs", "persistent", "stream", "in-process", "stream-in-process"],
)
def test_each_batch_feeds_the_wait_that_used_it(
    torch, rows, record, profile, monkeypatch, dataset, options, epochs
):
    # On a busy machine answers of workers that stay take their time.
    monkeypatch.setattr(reports, "ANSWER_S", 60.0)
    loader = torch.utils.data.DataLoader(getattr(rows, dataset)(), batch_size=4, **options)
    training = Training(torch)
    used = []

    def run():
        for _ in range(epochs):
            for batch in loader:
                used.append(len(batch))
                training.optimizer.zero_grad()
                training.model(batch).square().mean().backward()
                training.update()

    opened = profile(record(run, source="import torch")).run
    found = arrows(opened)
    trace = opened.trace
    waits = np.flatnonzero([str(name).endswith("__next__") for name in trace.names])
    ops = np.sort(trace.events.start[np.isin(trace.events.name, waits)])
    # On a busy machine the clock may be read too late to find the op of a short wait.
    assert 2 * len(found) > len(ops) - epochs
    assert len({op for op, *_ in found}) == len(found)
    per_epoch = len(used) // epochs
    for op_start, op_end, start, end, name in found:
        # Each epoch counts its batches from 0 on; its last wait finds none.
        rank = int(np.searchsorted(ops, op_start))
        epoch, number = divmod(rank, per_epoch + 1)
        items = used[epoch * per_epoch + number]
        assert name == f"batch {number} ({items} item{'s' if items > 1 else ''})"
        # By the clocks of two processes.
        slack = 10**9
        assert end <= op_end + slack
        assert end - start >= items * 20 * 10**9
        if options["num_workers"] == 0:
            assert op_start - slack <= start
    lanes = {lane.name for lane in opened.timeline.tracks.lanes if lane.derived and lane.process == f"DataLoader of {dataset}"}  # fmt: skip
    workers = options["num_workers"]
    assert lanes == ({f"worker {number}" for number in range(workers)} or {"main process"})
    # While the loop waits for its first batch, a worker makes it.
    op_start, op_end, start, end, _ = found[0]
    assert min(op_end, end) > max(op_start, start)
