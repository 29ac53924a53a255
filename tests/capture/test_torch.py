"""Recordings of PyTorch as it is installed, on the CPU."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import itertools
import os
import re
import shutil
import signal
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import pytest

import nbprof
from nbprof.activity.activity import NEXT_ITEM
from nbprof.capture import torch_trace
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.profiles.load import open_recording
from tests.capture.notes import keys, text_of
from tests.capture.torches import Training, counts, document, events, steps
from tests.support import programs
from tests.support.cells import lines_of, run_cell


@pytest.fixture
def record(record):
    """Record a function that uses PyTorch and give the recording."""

    def of_torch(function, **options):
        return record(function, source="import torch", **options)

    return of_torch


def hooks_left():
    return importlib.import_module("torch.optim.optimizer")._global_optimizer_post_hooks


def test_a_step_ends_with_each_optimizer_step(torch, record, profile):
    training = Training(torch)
    recording = record(lambda: training.run(6))
    assert [number for number, *_ in steps(recording)] == [1, 2, 3, 4, 5, 6]
    assert recording.info.steps_seen == recording.info.steps_marked == 6
    assert keys(recording.info.notes) == ["step_origins"]
    assert recording.info.notes[0].text == "steps: optimizer steps of torch.optim"
    assert recording.info.framework.startswith(f"PyTorch {torch.__version__}")
    frame = profile(recording).steps.frame
    assert frame.step.tolist() == [1, 2, 3, 4, 5, 6]
    measured = frame.step_time_ms[1:].tolist()
    for number, step_ms in enumerate(measured):
        least_ms, most_ms = training.bounds_ms(number, number + 1)
        assert least_ms <= step_ms <= most_ms


def test_steps_touch_and_end_where_their_optimizer_step_does(torch, record):
    recording = record(lambda: Training(torch, 0).run(4))
    found = steps(recording)
    optimizer = sorted(
        event["ts"] + event["dur"]
        for event in events(recording)
        if event.get("name") == "Optimizer.step#SGD.step"
    )
    assert len(found) == len(optimizer) == 4
    for (_, _, end, _), ends in zip(found, optimizer, strict=True):
        assert end == pytest.approx(ends, abs=0.002)
    for one, two in itertools.pairwise(found):
        assert two[1] == pytest.approx(one[2], abs=0.002)


def test_what_follows_the_last_optimizer_step_is_no_step(torch, record):
    def run():
        training = Training(torch)
        training.run(2)
        training.backward()

    recording = record(run)
    assert [number for number, *_ in steps(recording)] == [1, 2]
    assert not [
        name
        for name in counts(recording)
        if name and "ProfilerStep" in name and name not in ("ProfilerStep#1", "ProfilerStep#2")
    ]


def test_ops_memory_and_backward_are_there(torch, record, profile):
    recording = record(lambda: Training(torch).run(3))
    found = counts(recording)
    assert found["aten::addmm"] == 6
    assert found["[memory]"] > 10
    opened = profile(recording)
    assert "AddmmBackward0" in set(opened.ops.frame.op)
    arrows = [event for event in events(recording) if event.get("cat") == "fwdbwd"]
    assert (
        len([event for event in arrows if event["ph"] == "s"])
        == len([event for event in arrows if event["ph"] == "f"])
        > 0
    )
    assert len(opened.memory.timeline)


@pytest.mark.parametrize(
    "asked", [{}, {"memory": False}, {"shapes": False}, {"stacks": True}, {"python": True}]
)
def test_each_option_changes_what_the_trace_holds(torch, record, asked):
    recording = record(lambda: Training(torch).run(2), **asked)
    found = events(recording)
    ops = [event for event in found if event.get("name") == "aten::addmm"]
    assert len(ops) == 4
    assert any(event.get("name") == "[memory]" for event in found) == asked.get("memory", True)
    assert all("Input Dims" in event["args"] for event in ops) == asked.get("shapes", True)
    assert any(event.get("cat") == "python_function" for event in found) == bool(
        asked.get("stacks") or asked.get("python")
    )
    # The Python calls around an op are its stack, which no text has to repeat.
    assert not any("Call stack" in event["args"] for event in ops)


@pytest.mark.parametrize("memory", [True, False])
def test_events_of_pytorch_are_freed_when_the_recording_ends(torch, record, memory):
    """And not by the garbage collector within a step of the next recording."""
    kind = importlib.import_module("torch.autograd.profiler").profile
    gc.collect()
    gc.disable()
    try:
        record(lambda: Training(torch).run(2), memory=memory)
        # Not `isinstance`, which makes deprecated names of PyTorch warn.
        left = [thing for thing in gc.get_objects() if type(thing) is kind]
    finally:
        gc.enable()
    assert left == []


def test_no_memory_records_every_thread(torch, record):
    training = Training(torch)

    def run():
        thread = threading.Thread(target=training.run, args=(5,))
        thread.start()
        thread.join()

    recording = record(run, memory=False)
    found = steps(recording)
    assert [number for number, *_ in found] == [1, 2, 3, 4, 5]
    least_ms, most_ms = training.bounds_ms()
    assert least_ms <= sum(end - start for _, start, end, _ in found[1:]) / 1e3 <= most_ms
    ops = {event["tid"] for event in events(recording) if event.get("name") == "aten::addmm"}
    assert ops == {thread for *_, thread in found}
    assert "thread" not in " ".join(keys(recording.info.notes))


def test_a_training_on_another_thread_is_told_when_it_could_not_be_recorded(torch, record):
    training = Training(torch)

    def run():
        thread = threading.Thread(target=training.run, args=(3,))
        thread.start()
        thread.join()

    recording = record(run)
    assert counts(recording)["aten::addmm"] == 0
    assert "optimizer_thread_not_recorded" in keys(recording.info.notes)
    # When the steps were is known all the same.
    assert len(steps(recording)) == 3


@pytest.mark.parametrize(("workers", "start"), [(0, None), (2, "fork"), (2, "spawn")])
def test_waiting_for_a_loader_is_input_of_its_step(
    torch, record, profile, workers, start, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_rows.py").write_text(
        "import time\nimport torch\n\nclass Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 24\n\n"
        "    def __getitem__(self, i):\n        time.sleep(0.02)\n        return torch.ones(16) + i\n"
    )
    rows = importlib.import_module("slow_rows").Rows()
    loader = torch.utils.data.DataLoader(
        rows, batch_size=4, num_workers=workers, multiprocessing_context=start
    )
    training = Training(torch)

    def run():
        for batch in loader:
            training.optimizer.zero_grad()
            training.model(batch).square().mean().backward()
            training.update()

    recording = record(run)
    sys.modules.pop("slow_rows")
    assert len(steps(recording)) == 6
    opened = profile(recording)
    frame = opened.steps.frame
    least_ms, most_ms = training.bounds_ms()
    assert least_ms <= sum(frame.step_time_ms[1:]) <= most_ms
    waits = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events(recording)
        if str(event.get("name")).startswith("enumerate(DataLoader)")
    )
    for number, begin, end, _ in steps(recording):
        inside = [b - a for a, b in waits if begin <= a and b <= end]
        # One wait in each; the last of the six may hold the end of the loader too.
        assert inside, number
    found = steps(recording)
    waited = sum(b - a for a, b in waits if a >= found[0][2] and b <= found[-1][2]) / 1e3
    assert frame.input_ms[1:].sum() == pytest.approx(waited, rel=0.2, abs=2)


@pytest.mark.parametrize("memory", [True, False])
def test_waiting_for_any_iterator_is_input_of_its_step(torch, record, profile, memory):
    training = Training(torch, wait_s=0.02)

    def batches():
        for n in range(4):
            time.sleep(0.05)
            yield n

    p = profile(record(lambda: [training.step() for _ in nbprof.steps(batches())], memory=memory))
    steps = p.steps.frame
    assert len(steps) == 4
    assert steps["input_ms"].min() >= 50
    assert (steps["step_time_ms"] - steps["input_ms"]).min() >= 20
    row = p.input_pipeline.frame.iloc[0]
    assert (row["op"], row["category"], row["occurrences"]) == (NEXT_ITEM, "other", 5), (
        "the last call finds no item"
    )
    finding = p.advice.set_index("rule").loc["loader_none"]
    assert "which is not a DataLoader" in finding["evidence"]


def test_pytorch_does_not_warn_of_cycles_while_it_starts(torch, record, monkeypatch):
    """It warns of events that a second cycle would clear; a recording has one."""
    start = torch.profiler.profile.start

    def warning(self):
        warnings.warn("Warning: Profiler clears events at the end of each cycle.", stacklevel=1)
        warnings.warn("another", stacklevel=1)
        start(self)

    monkeypatch.setattr(torch.profiler.profile, "start", warning)
    with pytest.warns(UserWarning, match="another") as caught:
        record(lambda: None)
    assert not [w for w in caught if "clears events" in str(w.message)]


def test_a_loader_in_nbprof_steps_is_counted_once(torch, record, profile):
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, at):
            time.sleep(0.03)
            return torch.ones(16)

    training = Training(torch, wait_s=0)
    p = profile(
        record(lambda: [training.step() for _ in nbprof.steps(torch.utils.data.DataLoader(Data()))])
    )
    steps, table = p.steps.frame, p.input_pipeline.frame.set_index("op")
    assert steps["input_ms"].min() >= 30
    assert (steps["input_ms"] <= steps["step_time_ms"]).all()
    loader = next(name for name in table.index if "DataLoader" in name)
    assert table.loc[loader, "category"] == "demanded_file_read"
    assert table.loc[NEXT_ITEM, "self_ms"] < table.loc[loader, "total_ms"]
    assert "loader_in_process" in p.advice["rule"].tolist()


def test_a_gan_has_one_step_a_batch(torch, record):
    def run():
        one, other = Training(torch), Training(torch)
        for _ in range(5):
            one.step()
            other.step()

    recording = record(run)
    found = steps(recording)
    assert [number for number, *_ in found] == [1, 2, 3, 4, 5]
    turns = sorted(
        event["ts"] for event in events(recording) if event.get("name") == "Optimizer.step#SGD.step"
    )
    for _, begin, end, _ in found:
        assert sum(begin <= turn < end for turn in turns) == 2


def test_a_critic_that_steps_more_often_makes_the_steps(torch, record):
    def run():
        critic, generator = Training(torch, 0), Training(torch, 0)
        for _ in range(3):
            critic.run(5)
            generator.step()

    assert len(steps(record(run))) == 15


def test_an_optimizer_for_each_parameter_is_one_step(torch, record):
    def run():
        training = Training(torch)
        optimizers = {
            parameter: torch.optim.SGD([parameter], lr=0.1)
            for parameter in training.model.parameters()
        }

        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(update)
        for _ in range(4):
            training.model(torch.ones(8, 16)).sum().backward()

    assert len(steps(record(run))) == 4


def test_trials_one_after_the_other_all_have_their_steps(torch, record):
    def run():
        for _ in range(3):
            Training(torch).run(4)

    assert len(steps(record(run))) == 12


@pytest.mark.parametrize("kept", [False, True])
def test_an_optimizer_for_each_round_is_a_step_each(torch, record, kept):
    """As a finder of batch sizes does; one that nobody refers to may have a cycle (a scheduler's)
    that keeps it for a while.
    """
    held = []

    def run():
        training = Training(torch)
        for _ in range(9):
            training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)
            if kept:
                held.append(torch.optim.lr_scheduler.StepLR(training.optimizer, 10))
            training.step()

    found = steps(record(run))
    assert len(found) == 9
    assert all(begin - end < 1 for (_, _, end, _), (_, begin, _, _) in itertools.pairwise(found))


@pytest.mark.parametrize("both", [False, True])
def test_a_gan_whose_optimizers_are_made_anew_in_each_round(torch, record, both):
    def run():
        discriminator, generator = Training(torch, 0), Training(torch)
        for _ in range(5):
            for one in (discriminator, generator) if both else (generator,):
                one.optimizer = torch.optim.SGD(one.model.parameters(), lr=0.1)
            discriminator.step()
            generator.step()

    recording = record(run)
    found = steps(recording)
    assert len(found) == 5
    turns = sorted(
        event["ts"] for event in events(recording) if event.get("name") == "Optimizer.step#SGD.step"
    )
    assert [sum(begin <= at < end for at in turns) for _, begin, end, _ in found] == 5 * [2]


def test_a_gan_whose_optimizers_are_made_when_they_are_first_used_is_as_any(torch, record):
    def run():
        made = {}
        for _ in range(5):
            for name in ("discriminator", "generator"):
                made.setdefault(name, Training(torch)).step()

    assert len(steps(record(run))) == 5


@pytest.mark.parametrize("kept", [False, True])
def test_what_lies_between_two_trainings_is_of_no_step(torch, record, kept):
    held = []

    def run():
        for _ in range(2):
            time.sleep(0.5)
            one = Training(torch)
            one.run(5)
            if kept:
                held.append(one)

    recording = record(run)
    found = steps(recording)
    assert len(found) == 10
    assert found[5][1] - found[4][2] > 450_000, "the pause"
    note = text_of(recording.info.notes, "between_trainings")
    paused = re.match(
        r"the time between two trainings, until the optimizer of the next was made \(([\d.]+) (ms|s)",
        note,
    )
    assert float(paused[1]) >= {"ms": 500, "s": 0.5}[paused[2]]


def test_an_optimizer_of_an_inner_loop_leaves_nothing_of_the_outer_one_out(torch, record):
    """Five steps of a learner made anew, then one of the outer loop, which is work of the loop."""

    def run():
        outer = Training(torch, 0.1)
        for _ in range(3):
            Training(torch).run(5)
            outer.step()

    recording = record(run)
    found = steps(recording)
    assert len(found) == 15
    assert all(begin - end < 1 for (_, _, end, _), (_, begin, _, _) in itertools.pairwise(found))
    assert "between_trainings" not in keys(recording.info.notes)


def test_accumulated_gradients_are_one_step(torch, record):
    def run():
        training = Training(torch, 0)
        for _ in range(3):
            for _ in range(4):
                training.backward()
            training.optimizer.step()

    recording = record(run)
    found = steps(recording)
    assert len(found) == 3
    forwards = [event["ts"] for event in events(recording) if event.get("name") == "aten::square"]
    assert [sum(begin <= at < end for at in forwards) for _, begin, end, _ in found] == [4, 4, 4]


def test_closures_of_lbfgs_lie_in_one_step(torch, record):
    def run():
        training = Training(torch)
        optimizer = torch.optim.LBFGS(training.model.parameters(), max_iter=3)
        for _ in range(3):
            optimizer.step(training.backward)

    assert len(steps(record(run))) == 3


def test_steps_that_a_scaler_skips_are_steps_and_told(torch, record):
    def run():
        training = Training(torch)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for i in range(5):
            training.optimizer.zero_grad()
            loss = training.model(torch.ones(8, 16)).sum() * (float("inf") if i == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(training.optimizer)
            scaler.update()

    recording = record(run)
    assert len(steps(recording)) == 5
    assert text_of(recording.info.notes, "steps_without_update").startswith("1 step without")
    assert "_original" not in torch.amp.grad_scaler.GradScaler.step.__code__.co_varnames


def test_an_evaluation_between_epochs_is_in_no_step(torch, record):
    spans = []

    def run():
        training = Training(torch, 0)
        for _ in range(2):
            training.model.train()
            training.run(3)
            training.model.eval()
            began = time.time_ns() / 1e3
            with torch.no_grad():
                for _ in range(3):
                    time.sleep(0.02)
                    training.model(torch.ones(8, 16))
            spans.append((began, time.time_ns() / 1e3))

    before = torch.nn.Module.train
    recording = record(run)
    assert torch.nn.Module.train is before
    assert len(steps(recording)) == 6
    base = document(recording)["baseTimeNanoseconds"] / 1e3
    for _, begin, end, _ in steps(recording):
        assert not any(begin + base < (a + b) / 2 < end + base for a, b in spans)
    text = text_of(recording.info.notes, "evaluation_mode")
    assert text.startswith("a period with the model in evaluation mode (")


def test_layers_that_stay_in_evaluation_mode_leave_steps_whole(torch, record):
    class Frozen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.layer = torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

        def forward(self, x):
            return self.layer(self.norm(x))

    training = Training(torch)

    def run():
        training.model = Frozen()
        training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)
        for _ in range(4):
            time.sleep(0.02)
            training.model.train()
            training.backward()
            training.update()

    recording = record(run)
    found = steps(recording)
    least_ms, most_ms = training.bounds_ms()
    assert least_ms <= sum(end - begin for _, begin, end, _ in found[1:]) / 1e3 <= most_ms
    assert not {"evaluation_mode", "evaluation_passes"} & set(keys(recording.info.notes))


def test_the_first_step_begins_with_the_loop(torch, record):
    rows = torch.utils.data.TensorDataset(torch.ones(8, 16))

    def run():
        time.sleep(0.3)
        training = Training(torch, 0)
        for (batch,) in torch.utils.data.DataLoader(rows, batch_size=4):
            training.optimizer.zero_grad()
            training.model(batch).sum().backward()
            training.optimizer.step()

    recording = record(run)
    found = steps(recording)
    began = next(
        event["ts"]
        for event in events(recording)
        if event.get("name") == "Iteration Start: PyTorch Profiler"
    )
    assert len(found) == 2
    assert found[0][1] - began > 300_000


def test_a_loop_without_optimizer_has_no_steps_and_what_marks_them_is_said(torch, record, profile):
    import nbprof

    model = torch.nn.Linear(16, 4)

    def predict(batches):
        model.eval()
        with torch.no_grad():
            for _ in batches:
                model(torch.ones(8, 16))

    recording = record(lambda: predict(range(3)))
    assert not steps(recording)
    assert "no_optimizer_steps" in keys(recording.info.notes)
    unit = profile(recording).run.activity.unit
    assert unit.kind != "step"
    assert "nbprof.steps" in unit.how
    recording = record(lambda: predict(nbprof.steps(range(3))))
    assert len(steps(recording)) == 3
    assert "no_optimizer_steps" not in keys(recording.info.notes)


def test_a_loop_of_the_persons_own_markers_wins(torch, record):
    import nbprof

    training = Training(torch)

    def run():
        for _ in range(3):
            with nbprof.step():
                training.run(2)

    assert len(steps(record(run))) == 3


def test_a_marker_of_the_person_keeps_its_beginning(torch, record):
    import nbprof

    rows = torch.utils.data.TensorDataset(torch.ones(8, 16))

    def run():
        with nbprof.step():
            time.sleep(0.2)
            for (batch,) in torch.utils.data.DataLoader(rows, batch_size=8):
                Training(torch, 0).model(batch)

    ((_, begin, end, _),) = steps(record(run))
    assert end - begin > 200_000


@pytest.mark.parametrize("error", [ValueError("bad batch"), MemoryError("no")])
def test_an_exception_leaves_the_whole_steps(torch, record, profile, error):
    training = Training(torch)

    def run():
        training.run(3)
        training.backward()
        raise error

    recording = record(run)
    assert recording.info.cell_failed
    assert len(steps(recording)) == 3
    assert len(profile(recording).steps.frame) == 3
    assert not hooks_left()


def test_out_of_memory_is_named_and_memory_stands(torch, record, profile):
    training = Training(torch)

    def run():
        training.run(2)
        torch.empty(1 << 50, dtype=torch.uint8)

    recording = record(run)
    assert recording.info.out_of_memory
    assert recording.info.error.startswith("cell failed")
    assert len(profile(recording).memory.timeline)


def test_an_interrupt_leaves_the_whole_steps(torch, place):
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session

    training = Training(torch)
    session = Session(Options(), source="import torch").start()
    caught = None
    try:
        training.run(3)
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        caught = error
    recording = session.stop(caught)
    assert caught is not None
    assert recording.info.error.startswith("cell was interrupted")
    assert len(steps(recording)) == 3


def test_a_profiler_of_the_person_that_records_already_is_left_alone(torch, place):
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session
    from nbprof.core.errors import CaptureError

    written = place / "theirs.json"
    plan = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with torch.profiler.profile(
        schedule=plan, on_trace_ready=lambda theirs: theirs.export_chrome_trace(str(written))
    ) as theirs:
        for _ in range(2):
            session = Session(Options(), source="import torch")
            with contextlib.suppress(CaptureError):
                session.start()
            Training(torch).run(1)
            assert session.stop() is None
            assert "already running" in session.failure
            theirs.step()
    assert "aten::addmm" in written.read_text()


def test_a_profiler_of_the_person_that_begins_later_comes_first(torch, place):
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session

    before = torch.autograd.profiler.profile._prepare_trace
    session = Session(Options(), source="import torch").start()
    training = Training(torch)
    training.run(2)
    with torch.profiler.profile() as theirs:
        training.run(2)
    recording = session.stop()
    assert len(theirs.events()) > 10
    assert len(steps(recording)) == 2
    assert "own_profiler_started" in keys(recording.info.notes)
    assert torch.autograd.profiler.profile._prepare_trace is before


def test_recordings_one_after_the_other_leave_nothing(torch, record):
    before = len(gc.get_objects())
    for _ in range(3):
        recording = record(lambda: Training(torch, 0).run(2), save=False)
    assert not hooks_left()
    assert not [
        hooked
        for hooked in (torch.nn.Module.train, torch.utils.data.DataLoader.__iter__)
        if hasattr(hooked, "__wrapped__")
    ]
    home = recording.path
    del recording
    gc.collect()
    assert not home.exists()
    assert len(gc.get_objects()) < before + 20_000


def test_nothing_of_the_recorder_is_written_to_stderr(torch, record, capfd):
    record(lambda: (Training(torch).run(1), print("mine", file=sys.stderr, flush=True)))
    err = capfd.readouterr().err
    assert "mine" in err
    assert "profiler_st" not in err


def test_a_window_of_steps(torch, record):
    recording = record(lambda: Training(torch).run(8), steps=(3, 5))
    found = steps(recording)
    assert [number for number, *_ in found] == [3, 4, 5]
    assert all(end > begin for _, begin, end, _ in found)
    assert 3 <= counts(recording)["aten::square"] <= 4


def test_the_last_step_of_a_window_does_not_last_until_the_profiler_has_stopped(
    torch, record, monkeypatch
):
    """The profiler stops in the hook of the optimizer's call, which is open in the trace then."""
    worker = torch_trace.worker

    def slow():
        time.sleep(0.2)
        return worker()

    monkeypatch.setattr(torch_trace, "worker", slow)
    recording = record(lambda: Training(torch).run(8), steps=(3, 5))
    p = open_recording(recording)
    by_clock = p.steps.clock.set_index("step")["duration_ms"]
    assert by_clock.index.tolist() == list(range(1, 9))
    assert p.steps.clock["recorded"].tolist() == [3 <= step <= 5 for step in by_clock.index]
    for step, ms in zip(p.steps.frame["step"], p.steps.frame["step_time_ms"], strict=True):
        assert ms <= by_clock[step] + 100
    rows = events(recording)
    calls = [row for row in rows if row["name"].startswith("Optimizer.step")]
    last = max(row["ts"] + row["dur"] for row in rows if row["name"] == "ProfilerStep#5")
    assert max(row["ts"] + row["dur"] for row in calls) == pytest.approx(last, abs=1e-3)


@pytest.mark.parametrize("when", ["inside", "inside a function"])
def test_torch_is_recorded_wherever_it_is_imported(torch, place, when):
    script = f"""
        from nbprof.capture.options import Options
        from nbprof.capture.session import Session
        source = "import torch" if {when!r} == "inside" else "train()"
        session = Session(Options(), source=source).start()

        def train():
            import torch
            layer = torch.nn.Linear(4, 4)
            optimizer = torch.optim.Adam(layer.parameters())
            for _ in range(3):
                layer(torch.ones(2, 4)).sum().backward()
                optimizer.step()

        train()
        recording = session.stop()
        assert recording is not None, session.failure
        print(recording.info.backend, recording.info.steps_seen, recording.info.steps_marked)
    """
    assert programs.run(script, needs="nbprof", cwd=place).stdout.split() == ["torch", "3", "3"]


def test_a_compiled_model_has_its_steps(torch, record):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler, and there is none here")

    def run():
        training = Training(torch, 0)
        # The command with which PyTorch calls the C++ compiler has no quotes around its own folder.
        training.model = torch.compile(
            training.model, backend="aot_eager" if " " in torch.__file__ else "inductor"
        )
        training.run(4)

    recording = record(run)
    found = steps(recording)
    assert [number for number, *_ in found] == [1, 2, 3, 4]
    # The first compiles.
    assert found[0][2] - found[0][1] > 5 * (found[3][2] - found[3][1])
    assert any("Torch-Compiled Region" in str(name) for name in counts(recording))


class Wrapped:
    """An optimizer as Accelerate and Lightning wrap it: one that has an optimizer and hands calls
    on, with a closure or without.
    """

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def zero_grad(self):
        self.optimizer.zero_grad()


def test_loops_of_trainers_have_their_steps(torch, record):
    """What the loops of Lightning (a closure with forward and backward in the optimizer's step) and
    Accelerate do; they are not installed.
    """

    def lightning():
        training = Training(torch, 0)
        optimizer = Wrapped(training.optimizer)
        for _ in range(2):
            training.model.train()
            for _ in range(3):
                optimizer.step(closure=training.backward)
            training.model.eval()
            with torch.no_grad():
                training.model(torch.ones(8, 16))

    def accelerate():
        training = Training(torch, 0)

        class AcceleratedOptimizer(torch.optim.Optimizer):
            def __init__(self, optimizer):
                self.optimizer = optimizer

            def step(self, closure=None):
                self.optimizer.step(closure)

        optimizer = AcceleratedOptimizer(training.optimizer)
        for i in range(8):
            training.backward()
            # Gradients of two batches are accumulated.
            if i % 2:
                optimizer.step()

    assert len(steps(record(lightning))) == 6
    assert len(steps(record(accelerate))) == 4


def test_an_evaluation_of_lightning_is_in_no_step(torch, record, monkeypatch):
    """A stand-in of what Lightning 2 does: it sets `training` of the modules itself when an
    evaluation is over.
    """
    room = types.ModuleType("lightning.pytorch.utilities.model_helpers")

    class _ModuleMode:
        def restore(self, model):
            for module in model.modules():
                module.training = True

    room._ModuleMode = _ModuleMode
    original = _ModuleMode.restore
    training = Training(torch, 0.01)

    def run():
        # It is imported after the recording has begun.
        monkeypatch.setitem(sys.modules, room.__name__, room)
        for _ in range(2):
            training.run(3)
            training.model.eval()
            time.sleep(0.3)
            room._ModuleMode().restore(training.model)

    recording = record(run)
    found = steps(recording)
    assert len(found) == 6
    assert found[3][1] - found[2][2] > 0.29e6, "between the epochs"
    assert "evaluation_mode" in keys(recording.info.notes)
    assert _ModuleMode.restore is original


def test_the_garbage_collection_of_python_is_seen_where_python_is(torch, record):
    def run():
        Training(torch, 0).run(1)
        gc.collect()

    assert counts(record(run, python=True))["Python GC"] >= 1


def test_an_async_training_has_its_steps(torch, record):
    async def run():
        training = Training(torch, 0)
        for _ in range(3):
            await asyncio.sleep(0.01)
            training.step()

    assert len(steps(record(lambda: asyncio.run(run())))) == 3


def test_two_trainings_at_once_do_not_mix(torch, record):
    """Each step in the file is of one thread, and they follow each other."""
    trainings = [Training(torch, 0.01), Training(torch, 0.01)]

    def run():
        threads = [threading.Thread(target=training.run, args=(6,)) for training in trainings]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = steps(record(run, memory=False))
    assert found
    for one, two in itertools.pairwise(found):
        assert two[1] >= one[2] - 0.002


def test_a_child_that_trains_by_itself_is_not_counted(torch, record, place):
    """A process that was forked from a recorded one has its own life."""

    def run():
        training = Training(torch, 0)
        training.run(2)
        child = os.fork()
        if child == 0:
            try:
                # No product of matrices: the threads that OpenMP would use for it are not in the
                # child.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(30)
                for _ in range(3):
                    training.optimizer.step()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        training.run(1)

    recording = record(run)
    assert len(steps(recording)) == 3
    assert [path.name for path in recording.path.iterdir() if path.name.endswith(".gz")] == [
        recording.host_file.name
    ]


def test_a_profiler_of_the_person_that_only_waits_is_let_begin(torch, place):
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session

    plan = torch.profiler.schedule(wait=3, warmup=1, active=1, repeat=1)
    ready = []
    training = Training(torch, 0)
    with torch.profiler.profile(
        schedule=plan, on_trace_ready=lambda theirs: ready.append(len(theirs.events()))
    ) as theirs:
        session = Session(Options(), source="import torch").start()
        for _ in range(6):
            training.step()
            theirs.step()
        recording = session.stop()
    assert ready
    assert ready[0] > 5
    # Their marks are in our trace, and no second set of ours.
    assert [number for number, *_ in steps(recording)] == [1, 2]
    assert {"steps_of_own_profiler", "own_profiler_started"} <= set(keys(recording.info.notes))


@pytest.mark.parametrize("memory", [True, False])
def test_a_recording_that_another_thread_ends(torch, place, memory):
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session

    session = Session(Options(memory=memory), source="import torch")

    def begin():
        session.start()
        Training(torch, 0).run(2)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    recording = session.stop()
    if memory:
        assert recording.info.backend == "python"
        assert keys(recording.info.notes)[0] == "framework_not_recorded"
        assert "--no-memory" in recording.info.notes[0].text
    else:
        assert len(steps(recording)) == 2
    # The next one is as good as any.
    again = Session(Options(), source="import torch").start()
    Training(torch, 0).run(2)
    recording = again.stop()
    assert recording is not None, again.failure
    assert counts(recording)["aten::addmm"] == 4


def test_a_bound_without_a_step_after_it_is_said(torch, record, monkeypatch):
    monkeypatch.setattr("nbprof.capture.windows.WAIT_S", 0.1)
    training = Training(torch)

    def cell():
        for _ in range(30):
            training.backward()
            time.sleep(0.02)

    recording = record(cell, seconds=0.2)
    assert "recording_not_ended" in keys(recording.info.notes)
    recording = record(cell, seconds=0.2, memory=False)
    assert "recording_not_ended" not in keys(recording.info.notes)
    assert "and no step ended in" in text_of(recording.info.notes, "recording_ended")
    recording = record(lambda: training.run(40), seconds=0.2)
    assert "recording_not_ended" not in keys(recording.info.notes)
    assert recording.info.steps_marked < 40


def test_files_that_are_not_kept_go_with_whoever_holds_the_recording(torch, place):
    training = Training(torch)
    gc.collect()
    gc.disable()
    try:
        session = Session(Options(save=False, backend="torch")).start()
        training.run(2)
        folder = session.stop().path
        assert folder.is_dir()
        del session
        assert not folder.exists(), "not only when garbage is collected"
    finally:
        gc.enable()


def test_a_batch_that_was_fetched_before_training_mode_is_input_of_the_step_that_uses_it(
    torch, record, profile
):
    """Trainers fetch the batches of a step, and put the model into training mode for each of
    them.
    """
    training = Training(torch, wait_s=0)
    training.model.eval()

    def collate(items):
        time.sleep(0.02)
        return torch.stack(items)

    loader = iter(
        torch.utils.data.DataLoader([torch.ones(16)] * 100, batch_size=2, collate_fn=collate)
    )

    def run():
        for number in range(6):
            for batch in [next(loader), next(loader)]:
                training.model.train()
                training.model(batch).square().mean().backward()
            training.optimizer.step()
            if number == 2:
                training.model.eval()
                for _ in range(3):
                    training.model(next(loader))

    recording = record(run)
    p = profile(recording)
    frame = p.steps.frame
    assert len(frame) == 6
    assert frame["input_ms"].min() >= 40
    loads = [
        event for event in events(recording) if "enumerate(DataLoader)" in str(event.get("name"))
    ]
    assert len(loads) == 15
    inside = [
        sum(step["ts"] <= load["ts"] < step["ts"] + step["dur"] for load in loads)
        for step in events(recording)
        if str(step.get("name")).startswith("ProfilerStep#")
    ]
    assert inside == [2] * 6, "the batches of the evaluation are of no step"
    assert "each step takes 2 batches from DataLoaders" in str(p.receipt)
    # The first step has both of its forward passes.
    forward = [event for event in events(recording) if event.get("name") == "aten::addmm"]
    first = next(event for event in events(recording) if event.get("name") == "ProfilerStep#1")
    assert sum(first["ts"] <= event["ts"] < first["ts"] + first["dur"] for event in forward) == 4


def test_each_op_is_in_the_line_of_the_cell_that_called_it(torch, record, profile):
    training = Training(torch)
    names = {"training": training, "torch": torch, "x": torch.ones(64, 64)}
    run_cell("1", "def product(x):\n    y = x @ x\n    return y.tanh()\n", names)
    cell = (
        "for i in range(3):\n    y = product(x)\n    z = y.exp()\n    training.optimizer.step()\n"
    )
    p = profile(record(lambda: run_cell("2", cell, names), stacks=True))
    assert {name: lines_of(p, f"aten::{name}") for name in ("mm", "tanh", "exp")} == {
        "mm": {("1", 2)},
        "tanh": {("1", 3)},
        "exp": {("2", 3)},
    }
    frame = p.lines.frame
    ran = [(row.file, row.line, row.calls) for row in frame.itertuples()]
    assert ran == [
        ("Cell", 1, 4),
        ("Cell", 2, 3),
        ("Cell", 3, 3),
        ("Cell", 4, 3),
        ("Cell", 2, 3),
        ("Cell", 3, 3),
    ]
    assert frame["code"].tolist()[2] == "    z = y.exp()"
    assert (frame["host_us"] > 0).all()
    # Nothing runs on a device here.
    assert frame["device_us"].isna().all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a forked process in /proc")
def test_ops_of_a_forked_process_are_not_recorded_in_it(torch):
    """They would take about 1.5 KB each, in the workers of a loader to the end of the recording."""

    def memory():
        # Without the files that it maps: a forked process reads the libraries' pages anew.
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")

    def grows():
        before = []
        for _ in range(3):
            before.append(memory())
            for _ in range(20_000):
                torch.full((3,), 1.0)
        # The first of the three fills caches of the allocator.
        return memory() - before[1] > 20e6

    with nbprof.profile(save=False, steps="all"):
        torch.full((3,), 1.0)
        child = os.fork()
        if not child:
            status = 2
            with contextlib.suppress(BaseException):
                status = int(grows())
            os._exit(status)
        status = os.waitpid(child, 0)[1]
        torch.full((3,), 1.0)
    assert os.waitstatus_to_exitcode(status) == 0
