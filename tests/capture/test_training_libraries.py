"""DeepSpeed, torchtune and Ray Train, whose trainings nbprof records without a callback: with the libraries
where they are installed, and DeepSpeed with a stand-in whose engine steps its optimizer as ZeRO does.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nbprof
from tests.support.programs import run

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


def installed(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: it is not among what the tests need")


def python(folder, *words, **environment):
    """Run Python with the packages of the tests and the modules of a folder, to its end."""
    paths = os.pathsep.join([str(ROOT), str(folder)])
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended


ENGINE = """
class DeepSpeedEngine:
    def __init__(self, optimizer, accumulate):
        self.basic_optimizer, self.accumulate = optimizer, accumulate
        self.global_steps = self.skipped_steps = self.batches = 0

    def step(self):
        self.batches += 1
        if self.batches % self.accumulate == 0:
            self._take_model_step(None)

    def _take_model_step(self, lr_kwargs):
        optimizer = self.basic_optimizer
        if self.global_steps == 4:
            self.skipped_steps += 1
        else:
            groups = optimizer.param_groups
            for group in groups:
                optimizer.param_groups = [group]
                optimizer.step()
            optimizer.param_groups = groups
        self.global_steps += 1
"""

STAND_IN = """
import sys, torch, nbprof
sys.path.insert(0, sys.argv[1])

def train(groups, accumulate):
    from deepspeed.runtime.engine import DeepSpeedEngine
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD([{"params": [each]} for each in list(model.parameters())[:groups]], lr=0.1)
    engine = DeepSpeedEngine(optimizer, accumulate)
    for _ in range(6 * accumulate):
        model(torch.ones(2, 4)).sum().backward()
        engine.step()
    assert engine.global_steps == 6

def check(groups, accumulate):
    with nbprof.profile(steps="all", save=False) as run:
        train(groups, accumulate)
    assert len(run.steps.frame) == 6, run.steps.frame
    passes = run.ops.frame.set_index("op")["occurrences"]
    assert passes["autograd::engine::evaluate_function: SumBackward0"] == 6 * accumulate
    assert "steps: steps of the engine of DeepSpeed" in str(run.receipt)
    assert "1 step without an update" in str(run.receipt)

# It is imported within the first recording, and is there before the second.
check(groups=2, accumulate=1)
check(groups=1, accumulate=3)
from deepspeed.runtime import engine
assert engine.DeepSpeedEngine._take_model_step.__module__ == "deepspeed.runtime.engine"
"""


def test_a_step_of_deepspeed_is_an_update_by_its_engine(tmp_path):
    runtime = tmp_path / "deepspeed" / "runtime"
    runtime.mkdir(parents=True)
    for folder in (runtime.parent, runtime):
        (folder / "__init__.py").touch()
    (runtime / "engine.py").write_text(ENGINE, "utf-8")
    run(STAND_IN, tmp_path, needs="torch")


DEEPSPEED = """
import torch, nbprof, deepspeed
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(96, 8), torch.zeros(96, dtype=torch.long))

def check(stage, accumulate, more=None):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2))
    named = list(model.named_parameters())
    groups = [
        {"params": [each for name, each in named if "weight" in name], "weight_decay": 0.1},
        {"params": [each for name, each in named if "bias" in name], "weight_decay": 0.0},
    ]
    settings = {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": accumulate,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        **(more or {}),
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups), config=settings)
    dtype = next(engine.parameters()).dtype
    with nbprof.profile(steps="all", save=False) as run:
        for x, y in DataLoader(data, 8):
            loss = torch.nn.functional.cross_entropy(engine(x.to(dtype)), y)
            engine.backward(loss)
            engine.step()
    assert engine.global_steps == 12 // accumulate
    assert len(run.steps.frame) == engine.global_steps, (stage, len(run.steps.frame))
    assert "steps: steps of the engine of DeepSpeed" in str(run.receipt)
    skipped = f"{engine.skipped_steps} step"
    assert (skipped in str(run.receipt)) is bool(engine.skipped_steps), (skipped, str(run.receipt))
    return engine.skipped_steps

for stage in (0, 1, 2, 3):
    assert check(stage, accumulate=1) == 0
assert check(2, accumulate=3, more={"bf16": {"enabled": True}}) == 0
"""


def test_deepspeed_itself(tmp_path):
    installed("deepspeed")
    (tmp_path / "train.py").write_text(DEEPSPEED, "utf-8")
    job = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "DS_ACCELERATOR": "cpu"}
    python(tmp_path, "train.py", **job, MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")


TINY = """
import torch
from torchtune import training
from torchtune.models.llama3_2 import llama3_2

class Tokenizer:
    pad_id = 0

class Data(torch.utils.data.Dataset):
    def __init__(self, tokenizer, **_): pass
    def __len__(self): return 32
    def __getitem__(self, i): return {"tokens": [1 + i] * 8, "labels": [1 + i] * 8}

def model():
    return llama3_2(vocab_size=64, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=32,
        max_seq_len=16, intermediate_dim=64)

class Checkpointer:
    def __init__(self, **_): pass
    def load_checkpoint(self): return {training.MODEL_KEY: model().state_dict()}
    def save_checkpoint(self, *_, **__): pass
"""

RECIPE = """
output_dir: out
model: {_component_: tiny.model}
tokenizer: {_component_: tiny.Tokenizer}
dataset: {_component_: tiny.Data, packed: False}
checkpointer: {_component_: tiny.Checkpointer}
resume_from_checkpoint: False
seed: 1
shuffle: True
batch_size: 4
epochs: 2
optimizer: {_component_: torch.optim.AdamW, lr: 1e-5}
optimizer_in_bwd: False
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
max_steps_per_epoch: null
gradient_accumulation_steps: 1
clip_grad_norm: null
compile: False
device: cpu
dtype: fp32
enable_activation_checkpointing: False
enable_activation_offloading: False
metric_logger: {_component_: torchtune.training.metric_logging.DiskLogger, log_dir: out/logs}
log_every_n_steps: 1
log_peak_memory_stats: False
"""


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ("optimizer_in_bwd=False", 16),
        ("gradient_accumulation_steps=4", 4),
        # One optimizer for each parameter.
        ("optimizer_in_bwd=True", 16),
    ],
)
def test_a_recipe_of_torchtune(tmp_path, change, steps):
    installed("torchtune")
    (tmp_path / "tiny.py").write_text(TINY, "utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, "utf-8")
    recorder = ("-m", "nbprof", "run", "--steps", "all", "--logdir", "logs", "-m")
    recipe = ("torchtune._cli.tune", "run", "full_finetune_single_device")
    python(tmp_path, *recorder, *recipe, "--config", "recipe.yaml", change)
    profile = nbprof.load(tmp_path / "logs")
    assert len(profile.steps.frame) == steps
    assert "steps: optimizer steps of torch.optim" in str(profile.receipt)


RAY = """
import sys, torch, ray, nbprof
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

def loop(logdir):
    model = prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nbprof.profile(logdir=logdir, steps="all") as run:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    assert len(run.steps.frame) == 12

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
    TorchTrainer(
        loop,
        train_loop_config=sys.argv[1],
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
"""


def test_the_workers_of_ray_train_are_the_hosts_of_one_run(tmp_path):
    installed("ray")
    (tmp_path / "train.py").write_text(RAY, "utf-8")
    logdir = tmp_path / "logs"
    python(tmp_path, "train.py", str(logdir))
    (path,) = (logdir / "plugins" / "profile").iterdir()
    profile = nbprof.load(path)
    assert profile.hosts == ["rank 0", "rank 1"]
    assert not len(profile.pods.missing)
    assert [len(profile.rank(rank).steps.frame) for rank in range(2)] == [12, 12]
    assert not list(logdir.glob(".job-*"))
