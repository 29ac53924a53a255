"""Memory by role in recordings of programs whose bytes are known by arithmetic."""

from __future__ import annotations

import gc
import gzip
import json
import sys
import types
import weakref

import numpy as np
import pytest

import nbprof
from nbprof.capture import torch_tensors
from nbprof.core.memory_roles import TENSORS
from nbprof.profiles.load import load
from tests.support.cells import run_cell

BATCH, INPUTS, HIDDEN, CLASSES = 128, 64, 256, 10
WEIGHTS = (INPUTS * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES)
PARAMETERS = 4 * sum(WEIGHTS)
STEPS = 4


@pytest.fixture(autouse=True)
def of_this_test_alone(monkeypatch, torch):
    """Models that other tests of this process have left are not those of the program."""
    found = torch_tensors._live
    others = found(torch)
    known = {id(each) for part in others for each in part}

    def live(torch):
        parts = found(torch)
        return type(parts)(*([each for each in part if id(each) not in known] for part in parts))

    monkeypatch.setattr(torch_tensors, "_live", live)
    yield
    del others


@pytest.fixture
def record(record):
    """Record a function that uses PyTorch and give the recording."""

    def recorded(function, **options):
        return record(function, source="import torch", steps="all", **options)

    return recorded


@pytest.fixture
def mlp(torch):
    """A model of known size, and its steps."""

    class Mlp:
        def __init__(self, optimizer="SGD", **options):
            self.model = torch.nn.Sequential(
                torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
            )
            self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), **options)
            self.x, self.y = torch.ones(BATCH, INPUTS), torch.zeros(BATCH, dtype=torch.long)

        def train(self, steps=STEPS, kept=None):
            for _ in range(steps):
                self.optimizer.zero_grad()
                out = self.model(self.x)
                loss = torch.nn.functional.cross_entropy(out, self.y)
                loss.backward()
                self.optimizer.step()
                if kept is not None:
                    kept.append(out)

    return Mlp


def in_use(rows):
    """The columns of roles of memory in use."""
    names = [name for name in rows if name.endswith("_bytes")]
    return rows[[name for name in names if not name.startswith("reserved")]]


def checked(p):
    """The roles over time of the only allocator, after what holds for any."""
    rows, timeline, peak = p.memory.roles_over_time, p.memory.timeline, p.memory.roles
    assert len(rows) == len(timeline) < 1000
    assert in_use(rows).sum(axis=1).tolist() == timeline["in_use_bytes"].tolist()
    assert (in_use(rows) >= 0).all(axis=None)
    (summary,) = p.memory.summary.to_dict("records")
    assert peak["bytes"].sum() == summary["peak_bytes"]
    assert peak["percent"].sum() == pytest.approx(100)
    return rows


@pytest.mark.parametrize(
    ("optimizer", "options", "state"),
    [
        ("SGD", {}, 0),
        ("SGD", {"momentum": 0.9}, PARAMETERS),
        # Two averages, and the number of the step for each parameter.
        ("Adam", {}, 2 * PARAMETERS + 4 * len(WEIGHTS)),
    ],
)
@pytest.mark.parametrize("created", ["before", "within"])
def test_what_a_model_takes_is_exact(mlp, record, profile, optimizer, options, state, created):
    models = []
    if created == "before":
        models.append(mlp(optimizer, **options))

    def run():
        if not models:
            models.append(mlp(optimizer, **options))
        models[0].train()

    p = profile(record(run))
    rows = checked(p)
    assert rows["parameters_bytes"].iloc[-1] == PARAMETERS
    assert (rows["parameters_bytes"] == PARAMETERS).all() == (created == "before")
    assert rows["gradients_bytes"].max() == PARAMETERS
    assert rows["optimizer_state_bytes"].iloc[-1] == rows["optimizer_state_bytes"].max() == state
    assert rows["buffers_bytes"].max() == rows["communication_bytes"].max() == 0
    peak = p.memory.roles.set_index("role")["bytes"]
    assert peak["parameters"] == PARAMETERS
    assert peak.get("optimizer state", 0) == state


def test_activations_are_those_that_the_forward_pass_leaves(mlp, record, profile):
    training = mlp()
    p = profile(record(training.train))
    rows, timeline = checked(p), p.memory.timeline
    # What ReLU saves, the logits and their logarithms, the loss and the weight of the batch: at the
    # begin of the backward pass those of the step before are gone.
    left = 4 * (BATCH * HIDDEN + 2 * BATCH * CLASSES + 1 + 1)
    begun = (timeline["op"] == "aten::nll_loss_backward") & (timeline["event"] == "allocation")
    assert rows.loc[begun, "activations_bytes"].tolist() == [left] * STEPS


def test_without_gradients_nothing_is_an_activation(torch, mlp, record, profile):
    model = mlp().model

    def run():
        with torch.no_grad():
            for _ in nbprof.steps(range(4)):
                model(torch.ones(BATCH, INPUTS))

    rows = checked(profile(record(run)))
    assert rows["activations_bytes"].max() == rows["gradients_bytes"].max() == 0
    assert rows["parameters_bytes"].min() == PARAMETERS
    assert rows["temporaries_bytes"].max() >= 4 * BATCH * HIDDEN


def test_what_grew_from_one_run_to_another(mlp, record, profile):
    """A larger batch takes activations, another optimizer state; parameters are the same."""
    small, large = mlp(), mlp("SGD", momentum=0.9)
    large.x, large.y = large.x.repeat(2, 1), large.y.repeat(2)
    runs = [profile(record(training.train)) for training in (small, large)]
    rows = nbprof.compare(*runs).memory.set_index("role")
    sides = [run.memory.roles.set_index("role")["bytes"] for run in runs]
    for column, side in zip(("before_bytes", "after_bytes"), sides, strict=True):
        assert rows[column][rows[column] > 0].to_dict() == side.to_dict()
    assert rows["change_bytes"].tolist() == sorted(rows["change_bytes"], key=abs, reverse=True)
    assert rows.loc["optimizer state", "change_bytes"] == PARAMETERS
    # Both models are there in both recordings.
    sizes = ["before_bytes", "after_bytes", "change_bytes"]
    assert rows.loc["parameters", sizes].tolist() == [2 * PARAMETERS, 2 * PARAMETERS, 0]
    assert rows["change_bytes"].sum() == sides[1].sum() - sides[0].sum()


def test_buffers_are_not_parameters(torch, record, profile):
    def run():
        layer = torch.nn.BatchNorm1d(32)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            layer(torch.ones(8, 32)).sum().backward()
            optimizer.step()
        kept.append(layer)

    kept = []
    rows = checked(profile(record(run)))
    # Mean and variance, and the number of batches.
    assert rows["buffers_bytes"].iloc[-1] == 4 * (32 + 32) + 8
    assert rows["parameters_bytes"].iloc[-1] == 4 * (32 + 32)


def test_outputs_that_a_list_keeps_are_activations(mlp, record, profile):
    kept = []
    training = mlp()
    p = profile(record(lambda: training.train(24, kept)))
    rows = checked(p)
    assert len(kept) == 24
    assert rows["activations_bytes"].iloc[-1] >= 24 * 4 * BATCH * CLASSES
    left = p.memory.unfreed.iloc[0]
    assert (left["role"], left["op"], left["steps"]) == ("activations", "aten::addmm", 23)
    assert left["bytes_per_step"] == 4 * BATCH * CLASSES
    # What was made once: nothing by this optimizer.
    assert (p.memory.unfreed["steps"] > 1).tolist() == [True] * len(p.memory.unfreed)
    (finding,) = p.advice[p.advice["rule"] == "memory_growth"].to_dict("records")
    assert "allocated by aten::addmm (activations)" in finding["evidence"]


def test_what_each_step_leaves_has_the_line_that_allocates_it(torch, record, profile):
    cell = """kept = []
for _ in range(24):
    optimizer.zero_grad()
    out = model(x)
    out.sum().backward()
    optimizer.step()
    kept.append(out)
"""
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {"model": model, "optimizer": optimizer, "x": torch.ones(128, 64)}
    p = profile(record(lambda: run_cell("2", cell, names), stacks=True))
    left = p.memory.unfreed.iloc[0]
    assert (left["op"], left["steps"]) == ("aten::addmm", 23)
    assert (left["line"], left["line_source"]) == ("Cell:4", "recorded lines")
    (finding,) = p.advice[p.advice["rule"] == "memory_growth"].to_dict("records")
    assert "allocated by aten::addmm (activations) at **Cell:4**." in finding["evidence"]


def test_what_is_made_once_is_no_leak(mlp, record, profile):
    training = mlp("Adam")
    p = profile(record(lambda: training.train(12)))
    kept = p.memory.unfreed
    assert set(kept["role"]) == {"optimizer state"}
    assert set(kept["steps"]) == {1}
    assert kept["bytes"].sum() == 2 * PARAMETERS + 4 * len(WEIGHTS)
    assert not (p.advice["rule"] == "memory_growth").any()


def test_batches_of_a_loader_are_inputs(torch, record, profile):
    def run():
        data = torch.utils.data.TensorDataset(torch.ones(64, 16))
        model = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (x,) in torch.utils.data.DataLoader(data, batch_size=16):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    rows = checked(profile(record(run)))
    assert rows["inputs_bytes"].max() in (4 * 16 * 16, 2 * 4 * 16 * 16)


def test_a_trace_alone_tells_gradients_and_state(mlp, record, profile, tmp_path):
    models = []

    def run():
        models.append(mlp("Adam"))
        models[0].train()

    recording = record(run)
    with gzip.open(recording.host_file) as file:
        document = json.load(file)
    known = document.pop(TENSORS)
    assert known["tensors"]
    alone = tmp_path / "alone.pt.trace.json"
    alone.write_text(json.dumps(document))
    told, rows = checked(profile(recording)), checked(load(alone))
    assert rows["parameters_bytes"].max() == 0
    for role in ("gradients", "optimizer_state", "activations", "temporaries"):
        name = f"{role}_bytes"
        assert rows[name].tolist() == told[name].tolist(), role
    unknown = told["unknown_bytes"] + told["parameters_bytes"]
    assert rows["unknown_bytes"].tolist() == unknown.tolist()


def test_memory_that_is_not_the_allocators_is_left_out(torch, record, profile):
    """Memory of NumPy is in no event, and so not in the bytes in use."""
    model = torch.nn.Linear(16, 4)
    model.weight = torch.nn.Parameter(torch.from_numpy(np.ones((4, 16), np.float32)))
    p = profile(record(lambda: model(torch.ones(8, 16)).sum().backward()))
    assert p.memory.roles_over_time["parameters_bytes"].max() == 4 * 4


def test_tensors_without_memory_are_left_out(torch, record, profile, recwarn):
    """Such as `nbprof.fits` leaves; PyTorch warns where their address is read."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        without = torch.nn.Linear(64, 64)
    model = torch.nn.Linear(16, 4)
    p = profile(record(lambda: model(torch.ones(8, 16)).sum().backward()))
    assert p.memory.roles_over_time["parameters_bytes"].max() == 4 * (16 * 4 + 4)
    assert not any("FakeTensor" in str(warning.message) for warning in recwarn)
    assert without.weight.nbytes


def test_nothing_is_kept_alive(mlp, record):
    models = []

    def run():
        models.append(mlp("Adam"))
        models[0].train()

    record(run)
    gone = [weakref.ref(models[0].model), weakref.ref(models[0].optimizer)]
    gone += [weakref.ref(each) for each in models[0].model.parameters()]
    models.clear()
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_objects_that_cannot_be_read_break_nothing(torch, mlp, record, profile):
    class Odd(torch.nn.Module):
        def __getattr__(self, name):
            raise RuntimeError(name)

    odd = Odd()
    vars(odd)["_parameters"] = {"weight": object(), "none": None}
    strange = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    strange.param_groups = [{}]
    training = mlp()
    rows = checked(profile(record(training.train)))
    assert set(rows["parameters_bytes"]) == {PARAMETERS}
    del odd, strange


HEADS, WIDTH, TOKENS = 2, 16, 6


@pytest.fixture
def generating(torch, monkeypatch):
    """A model and its caches as those of transformers: one that grows by copies, one of fixed
    size.
    """

    class Layer:
        keys = values = None

        def update(self, keys, values):
            if self.keys is not None:
                keys, values = torch.cat([self.keys, keys]), torch.cat([self.values, values])
            self.keys, self.values = keys.clone(), values.clone()

    class Fixed(Layer):
        def __init__(self):
            self.keys, self.values = (torch.zeros(TOKENS, HEADS, WIDTH) for _ in range(2))

        def update(self, keys, values):
            self.keys[0], self.values[0] = keys[0], values[0]

    class Cache:
        def __init__(self, layer):
            self.layers = [layer(), layer()]

    class GenerationMixin:
        def generate(self, cache):
            arguments = {"cache": cache}
            for _ in range(TOKENS):
                self.forward(**arguments)
                arguments = self._update_model_kwargs_for_generation(arguments)

        def forward(self, cache):
            for layer in cache.layers:
                layer.update(torch.ones(1, HEADS, WIDTH), torch.ones(1, HEADS, WIDTH))

        def _update_model_kwargs_for_generation(self, arguments):
            return arguments

    caches, utils = types.ModuleType("cache_utils"), types.ModuleType("utils")
    caches.Cache, utils.GenerationMixin = Cache, GenerationMixin
    monkeypatch.setitem(sys.modules, "transformers.cache_utils", caches)
    monkeypatch.setitem(sys.modules, "transformers.generation.utils", utils)
    return types.SimpleNamespace(
        model=GenerationMixin(), growing=lambda: Cache(Layer), fixed=lambda: Cache(Fixed)
    )


BYTES_OF_TOKEN = 2 * 2 * 4 * HEADS * WIDTH


def test_keys_and_values_that_a_model_caches_while_it_generates(generating, record, profile):
    original = vars(type(generating.model))["_update_model_kwargs_for_generation"]
    rows = checked(profile(record(lambda: generating.model.generate(generating.growing()))))
    sizes = set(rows["kv_cache_bytes"])
    # After each token; and the longer copies of one layer beside the shorter ones.
    assert {BYTES_OF_TOKEN * length for length in range(1, TOKENS + 1)} <= sizes
    assert max(sizes) == BYTES_OF_TOKEN * TOKENS + BYTES_OF_TOKEN // 2 * (TOKENS - 1)
    assert vars(type(generating.model))["_update_model_kwargs_for_generation"] is original


def test_a_cache_that_outlives_the_recording_needs_no_generation(generating, record, profile):
    held = [generating.fixed()]

    def run():
        held.append(generating.fixed())
        for cache in held:
            generating.model.forward(cache)

    rows = checked(profile(record(run)))
    # The one from before the recording, then both.
    assert rows["kv_cache_bytes"].iloc[0] >= BYTES_OF_TOKEN * TOKENS
    assert rows["kv_cache_bytes"].max() == 2 * BYTES_OF_TOKEN * TOKENS
    assert held


def test_caches_are_noted_up_to_a_limit(generating, record, profile, monkeypatch):
    monkeypatch.setattr(torch_tensors, "_MOST_CACHED", 4)
    rows = checked(profile(record(lambda: generating.model.generate(generating.growing()))))
    assert 0 < rows["kv_cache_bytes"].max() < 2 * BYTES_OF_TOKEN


def test_a_cache_that_cannot_be_read_leaves_generation_alone(generating, record, profile):
    def run():
        cache = generating.growing()
        cache.layers = 5
        generating.model._update_model_kwargs_for_generation({"cache": cache})
        generating.model.generate(generating.growing())

    rows = checked(profile(record(run)))
    assert rows["kv_cache_bytes"].max() == 0


def test_caches_of_transformers(torch, record, profile):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=HEADS * WIDTH,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        vocab_size=50,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.ones(1, 3, dtype=torch.long)

    def sizes(**options):
        def run():
            model.generate(prompt, max_new_tokens=TOKENS - 2, do_sample=False, **options)

        p = profile(record(run))
        assert "KV cache" in set(p.memory.roles["role"])
        return set(p.memory.roles_over_time["kv_cache_bytes"])

    assert {BYTES_OF_TOKEN * length for length in range(3, TOKENS + 1)} <= sizes()
    assert max(sizes(cache_implementation="static")) == BYTES_OF_TOKEN * TOKENS
