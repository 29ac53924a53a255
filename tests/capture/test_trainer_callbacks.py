"""``nbprof.transformers.Callback`` and ``nbprof.lightning.Callback``: with the libraries where they are
installed, and with trainers that call back in the order that these document.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import re
import sys
import types

import pytest

from nbprof.capture import session as room
from nbprof.core.errors import CaptureError
from tests.capture.torches import Training
from tests.support.programs import run


class HuggingFace:
    """Calls back as `Trainer.train` of Transformers does."""

    loop, origin = "Trainer.train", "steps of the Trainer of Transformers"

    def __init__(self, torch, callback, *, failing=None, accumulate=1, evaluate=0, completed=0):
        self.training = Training(torch, 0)
        self.callback, self.failing, self.accumulate = callback, failing, accumulate
        self.evaluate, self.completed = evaluate, completed

    @staticmethod
    def module():
        return {"transformers": types.SimpleNamespace(TrainerCallback=type("Base", (), {}))}

    def call(self, name):
        getattr(self.callback, name)(None, self.state, self.control, model=None)

    def train(self, steps):
        def inner_training_loop():
            return self._loop(steps)

        return inner_training_loop()

    def _loop(self, steps):
        self.state = types.SimpleNamespace(
            global_step=self.completed, is_world_process_zero=self.is_first()
        )
        self.control = types.SimpleNamespace(should_evaluate=False, should_save=False)
        self.call("on_train_begin")
        while self.state.global_step < steps:
            self.call("on_step_begin")
            for _ in range(self.accumulate):
                if self.state.global_step + 1 == self.failing:
                    raise ValueError("bad batch")
                self.training.backward()
            self.training.update()
            self.state.global_step += 1
            self.control.should_evaluate = self.evaluates(self.state.global_step)
            self.call("on_step_end")
            if self.control.should_evaluate:
                self.evaluation()
        self.call("on_epoch_end")
        self.call("on_train_end")

    def evaluates(self, step):
        return bool(self.evaluate) and step % self.evaluate == 0

    def evaluation(self):
        self.training.torch.ones(8, 16).sum()

    def is_first(self):
        return True


class Lightning(HuggingFace):
    """Calls back as `Trainer.fit` of Lightning does."""

    loop, origin = "Trainer.fit", "steps of the Trainer of Lightning"

    @staticmethod
    def module():
        inner = types.SimpleNamespace(Callback=type("Base", (), {}))
        return {"lightning": types.SimpleNamespace(pytorch=inner), "lightning.pytorch": inner}

    def train(self, steps):
        self.global_step, self.is_global_zero = self.completed, self.is_first()
        try:
            self.callback.on_train_start(self, None)
            batch = 0
            while self.global_step < steps:
                self.callback.on_train_batch_start(self, None, None, batch)
                if self.global_step + 1 == self.failing:
                    raise ValueError("bad batch")
                self.training.backward()
                batch += 1
                if batch % self.accumulate == 0:
                    self.training.update()
                    self.global_step += 1
                self.callback.on_train_batch_end(self, None, None, None, batch)
                if self.evaluates(self.global_step):
                    self.callback.on_validation_start(self, None)
                    self.evaluation()
            self.callback.on_train_epoch_end(self, None)
            self.callback.on_train_end(self, None)
        except ValueError as error:
            self.callback.on_exception(self, None, error)
            raise


@pytest.fixture(params=[HuggingFace, Lightning], ids=["transformers", "lightning"])
def trainer(request, torch, place, monkeypatch):
    """Makes a trainer and its callback, which notes what it says."""
    kind = request.param
    for name, module in kind.module().items():
        monkeypatch.setitem(sys.modules, name, module)
    name = f"nbprof.{'lightning' if kind is Lightning else 'transformers'}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    # The one that was imported here derives from the stand-in.
    monkeypatch.delitem(sys.modules, name)

    def make(callback=None, more=(), **options):
        said = []
        callback = module.Callback(**(callback or {}), say=said.append)
        built = type("Built", (kind,), dict(more))(torch, callback, **options)
        built.said = said
        return built

    make.Callback = module.Callback
    yield make
    assert room.active() is None


def steps_of(trainer):
    return trainer.callback.result.steps.frame["step"].tolist()


def test_the_window_is_recorded_and_one_line_says_where(trainer, place):
    built = trainer({"steps": (3, 5), "logdir": str(place / "logs")})
    built.train(9)
    (path,) = built.callback.runs
    where = f"nbprof: steps 3 to 5 of {built.loop} are recorded in {path}"
    assert built.said == [f'{where}; nbprof.load("{path}") opens the run']
    assert path.parent == place / "logs" / "plugins" / "profile"
    assert steps_of(built) == [3, 4, 5]
    capture = built.callback.result.run.capture
    # The others are timed.
    assert capture.steps_seen == 9
    assert built.callback.result.steps.clock["recorded"].sum() == 3
    assert f"steps: {built.origin}" in str(capture.notes)


def test_a_step_has_all_batches_that_it_accumulates(trainer):
    built = trainer({"steps": "2:3"}, accumulate=3)
    built.train(5)
    assert steps_of(built) == [2, 3]
    frame = built.callback.result.ops.frame
    passes = frame[frame["op"].str.contains("evaluate_function: MeanBackward")]
    assert passes["occurrences"].sum() == 6


def test_an_evaluation_between_two_steps_is_in_neither(trainer):
    built = trainer({"steps": (2, 5)}, evaluate=3)
    in_evaluations = []
    built.evaluation = lambda: in_evaluations.append(built.callback._steps._root)
    built.train(8)
    assert steps_of(built) == [2, 3, 4, 5]
    assert in_evaluations == [None, None]


def test_steps_are_counted_on_after_a_checkpoint(trainer):
    built = trainer({"steps": (103, 104)}, completed=100)
    built.train(108)
    assert steps_of(built) == [103, 104]
    late = trainer({"steps": (3, 5)}, completed=100)
    late.train(104)
    assert late.callback.runs == []
    assert late.said == [
        f"nbprof: {late.loop} is not recorded: it goes on after step 100, and steps 3 to 5 were asked for"
    ]


def test_a_failure_keeps_what_was_recorded_and_leaves_nothing_behind(trainer):
    built = trainer({"steps": (2, 9)}, failing=5)
    with pytest.raises(ValueError, match="bad batch"):
        built.train(12)
    gc.collect()
    assert room.active() is None
    assert steps_of(built) == [2, 3, 4]
    (line,) = built.said
    assert re.search(r"; (training failed|Trainer\.train was ended by an exception)", line)


def test_a_second_training_is_a_second_run(trainer):
    built = trainer({"steps": 2})
    built.train(3)
    built.train(4)
    assert len(built.callback.runs) == 2
    assert steps_of(built) == [2]


def test_a_training_that_ends_early_says_so(trainer):
    built = trainer({"steps": (2, 9)})
    built.train(4)
    assert built.said[0].endswith(f"; {built.loop} ended after step 4")
    assert steps_of(built) == [2, 3, 4]
    none = trainer({"steps": (6, 9)})
    none.train(4)
    assert none.callback.runs == []
    assert none.callback.result is None
    assert "asked for step 6, but the training ended after step 4" in none.said[0]


def test_only_the_first_process_of_a_job_records(trainer):
    built = trainer({"steps": (2, 3)}, more={"is_first": lambda _: False})
    built.train(5)
    assert (built.said, built.callback.runs) == ([], [])


def test_a_recording_that_runs_is_left_alone(trainer, torch):
    running = room.Session(source="import torch").start()
    built = trainer({"steps": (2, 3)})
    built.train(4)
    assert room.active() is running
    running.stop()
    assert built.said == ["nbprof: a recording is already running; the steps are part of it"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None}, r"Callback needs the steps to record, for example steps=\(10, 15\)"),
        ({"steps": "10:"}, r"Callback: steps='10:' has no last step"),
        ({"steps": (5, 2)}, r"Callback: "),
        ({"save": False}, r"Callback has no option 'save'"),
        ({"shape": True}, r"Callback: unknown option 'shape'"),
    ],
)
def test_bad_options_are_refused_at_once(trainer, options, message):
    with pytest.raises(CaptureError, match=message):
        trainer.Callback(**options)


def installed(module):
    try:
        if importlib.util.find_spec(module) is not None:
            return
    except ValueError:
        pass
    pytest.skip(f"{module} is not installed: it is not among what the tests need")


TRANSFORMERS = """
import os, sys, torch, nbprof
sys.path += sys.argv[2].split(os.pathsep)
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from nbprof.capture.session import active
model = BertForSequenceClassification(BertConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50
))
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return {"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)}
class Failing(Trainer):
    def training_step(self, *a, **k):
        if self.state.global_step == 5: raise ValueError("bad batch")
        return super().training_step(*a, **k)
def train(kind, **more):
    callback = nbprof.transformers.Callback(steps=(3, 6), logdir=sys.argv[1])
    arguments = TrainingArguments(sys.argv[1] + "/out", per_device_train_batch_size=8, num_train_epochs=1,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, **more)
    try:
        kind(model, arguments, train_dataset=Data(), eval_dataset=Data(), callbacks=[callback]).train()
    except ValueError as error:
        assert str(error) == "bad batch"
    assert active() is None
    return callback.result.steps.frame["step"].tolist()
assert train(Trainer, eval_strategy="steps", eval_steps=4) == [3, 4, 5, 6]
assert train(Failing) == [3, 4, 5]
"""

LIGHTNING = """
import os, sys, torch, nbprof
sys.path += sys.argv[2].split(os.pathsep)
import lightning
from nbprof.capture.session import active
class Model(lightning.LightningModule):
    def __init__(self, failing):
        super().__init__()
        self.layer, self.failing = torch.nn.Linear(4, 2), failing
    def training_step(self, batch, i):
        if self.global_step == self.failing: raise ValueError("bad batch")
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
    def validation_step(self, batch, i): pass
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.TensorDataset(torch.randn(96, 4), torch.zeros(96, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, 8)
def train(failing=None, **more):
    callback = nbprof.lightning.Callback(steps="3:6", logdir=sys.argv[1])
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, callbacks=[callback],
        default_root_dir=sys.argv[1] + "/out", enable_progress_bar=False, enable_model_summary=False, **more)
    try:
        trainer.fit(Model(failing), loader, loader)
    except ValueError as error:
        assert str(error) == "bad batch"
    assert active() is None
    return callback.result.steps.frame["step"].tolist()
assert train(val_check_interval=4) == [3, 4, 5, 6]
assert train(accumulate_grad_batches=2) == [3, 4, 5, 6]
assert train(failing=5) == [3, 4, 5]
"""


@pytest.mark.parametrize(
    ("module", "program"), [("transformers", TRANSFORMERS), ("lightning", LIGHTNING)]
)
def test_the_library_itself(tmp_path, module, program):
    installed(module)
    run(program, tmp_path / "a run", os.pathsep.join(sys.path), needs="torch")
