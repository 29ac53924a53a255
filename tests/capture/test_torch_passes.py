"""Passes over DataLoaders without an optimizer step, as recorded on the CPU: they are no part of a
training step.
"""

from __future__ import annotations

import json
import time

import pytest

import nbprof
from nbprof.analysis.steps.boundaries import boundaries
from nbprof.sources.recording import CaptureInfo
from tests.capture.notes import keys, text_of

BATCHES, VALIDATION = 4, 6


class Program:
    """A training and a validation, each with a loader; a batch takes 10 ms to load."""

    def __init__(self, torch, batches=BATCHES, workers=0):
        class Rows(torch.utils.data.Dataset):
            def __init__(self, count):
                self.count = count

            def __len__(self):
                return 2 * self.count

            def __getitem__(self, at):
                time.sleep(0.005)
                return torch.ones(16) * (at + 1)

        def loader(count):
            return torch.utils.data.DataLoader(
                Rows(count), batch_size=2, num_workers=workers, persistent_workers=workers > 0
            )

        self.torch = torch
        self.model = torch.nn.Linear(16, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.training, self.validation = loader(batches), loader(VALIDATION)

    def backward(self, batch):
        self.model(batch).square().mean().backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        for batch in self.training:
            self.backward(batch)
            self.update()

    def evaluate(self, most=99):
        for number, batch in enumerate(self.validation, 1):
            self.model(batch)
            if number == most:
                break


def plain(program):
    for _ in range(2):
        program.train()
        program.evaluate()


def left_early(program):
    for _ in range(2):
        program.train()
        program.evaluate(3)


def in_evaluation_mode(program):
    for _ in range(2):
        program.model.train()
        program.train()
        program.model.eval()
        program.evaluate()


def never_back_in_training_mode(program):
    for _ in range(2):
        program.train()
        program.model.eval()
        program.evaluate()


def within_an_epoch(program):
    for number, batch in enumerate(program.training, 1):
        program.backward(batch)
        program.update()
        if number % 3 == 0:
            program.evaluate()


def accumulated(program):
    for _ in range(2):
        for number, batch in enumerate(program.training, 1):
            program.backward(batch)
            if number % 2 == 0:
                program.update()
        program.evaluate()


def a_step_takes_a_whole_loader(program):
    for _ in range(4):
        for batch in program.training:
            program.backward(batch)
        program.update()
        program.evaluate()


EVALUATED = [
    plain,
    left_early,
    in_evaluation_mode,
    never_back_in_training_mode,
    within_an_epoch,
    accumulated,
    a_step_takes_a_whole_loader,
]


@pytest.mark.parametrize("run", EVALUATED, ids=lambda run: run.__name__)
def test_an_evaluation_is_in_no_step(torch, record, profile, run):
    program = Program(torch)
    recording = record(lambda: run(program), source="import torch")
    p = profile(recording)
    frame = p.steps.frame
    assert frame["counted"].all()
    # All steps ask for as many batches, but for the call that finds the loader at its end.
    assert frame["batches"].max() - frame["batches"].min() <= 1
    note = text_of(recording.info.notes, "evaluation_passes")
    evaluations = [each for each in recording.info.boundaries if each["kind"] == "evaluation"]
    assert f"({sum(each['batches'] for each in evaluations)} batches" in note
    assert "evaluation_mode" not in keys(recording.info.notes)
    assert not any("several" in str(line) for line in p.receipt.entries)


def test_evaluations_and_epochs_are_drawn_between_the_steps(torch, record, profile):
    program = Program(torch)
    p = profile(record(lambda: plain(program), source="import torch"))
    drawn = boundaries(p.steps.frame, p.run.capture.boundaries, p.run.activity.unit)
    assert [each.row for each in drawn] == [BATCHES, 2 * BATCHES]
    assert drawn[0].text.startswith(f"evaluation ({VALIDATION} batches, ")
    assert drawn[0].text.endswith("), epoch")
    assert "epoch" not in drawn[1].text


def test_workers_that_persist_make_passes_of_their_own(torch, record, profile):
    program = Program(torch, workers=1)

    def run():
        for _ in range(3):
            program.train()
            # The iterator is kept, and nothing tells that the loop over it was left.
            program.evaluate(VALIDATION)

    recording = record(run, source="import torch")
    assert [
        each["batches"] for each in recording.info.boundaries if each["kind"] == "evaluation"
    ] == [VALIDATION] * 2


def a_second_loader_in_each_step(program):
    for batch in program.training:
        program.backward(next(iter(program.validation)))
        program.backward(batch)
        program.update()


def a_step_takes_all_batches(program):
    for _ in range(4):
        for batch in program.training:
            program.backward(batch)
        program.update()


def iterators_for_each_step(program):
    for _ in range(6):
        program.backward(next(iter(program.training)))
        program.backward(next(iter(program.validation)))
        program.update()


@pytest.mark.parametrize(
    "run",
    [a_second_loader_in_each_step, a_step_takes_all_batches, iterators_for_each_step],
    ids=lambda run: run.__name__,
)
def test_what_steps_use_is_no_evaluation(torch, record, profile, run):
    program = Program(torch)
    recording = record(lambda: run(program), source="import torch")
    assert not any(each["kind"] == "evaluation" for each in recording.info.boundaries)
    assert "evaluation_passes" not in keys(recording.info.notes)
    frame = profile(recording).steps.frame
    whole = [
        frame["start_ms"].iloc[-1] + frame["step_time_ms"].iloc[-1] - frame["start_ms"].iloc[0],
        frame["step_time_ms"].sum(),
    ]
    assert whole[0] == pytest.approx(whole[1], abs=0.01)


def test_a_step_that_holds_the_batches_of_several_is_in_no_average(torch, record, profile):
    """Without a loader of the training, nothing tells whether a pass over another one feeds the
    steps.
    """
    program = Program(torch)

    def run():
        for _ in range(2):
            for _ in range(5):
                program.backward(torch.ones(2, 16))
                program.update()
            program.evaluate()

    p = profile(record(run, source="import torch"))
    frame = p.steps.frame
    full = frame[frame["batches"] > VALIDATION]
    assert full["step"].tolist() == [6]
    assert not full["counted"].any()
    assert any(
        "Averages exclude step 6 (7 requests to DataLoaders where others make 0" in str(line)
        for line in p.receipt.entries
    )
    assert (
        p.steps.summary.set_index("category")["max_ms"]["step_time"] < full["step_time_ms"].iloc[0]
    )


def test_steps_of_other_kinds_are_no_training(torch, record, profile):
    program = Program(torch)

    def run():
        for batch in nbprof.steps(program.training):
            program.backward(batch)
            program.update()
        for batch in nbprof.steps(program.validation, "test"):
            program.model(batch)

    frame = profile(record(run, source="import torch")).steps.frame
    assert frame["kind"].tolist() == ["ProfilerStep"] * BATCHES + ["test"] * VALIDATION
    assert frame["counted"].tolist() == [True] * BATCHES + [False] * VALIDATION
    assert frame["name"].iloc[-1] == f"test {BATCHES + VALIDATION}"


def test_boundaries_that_make_no_sense_are_left_out():
    good = {"before": 3, "kind": "evaluation", "batches": 6, "ms": 1.5}
    bad = [
        {**good, "before": -1},
        {**good, "ms": "1"},
        {"before": 3},
        5,
        {**good, "batches": True},
        {**good, "ms": float("nan")},
    ]
    found = CaptureInfo.from_dict(json.loads(json.dumps({"boundaries": [good, *bad]})))
    assert found.boundaries == [good]
