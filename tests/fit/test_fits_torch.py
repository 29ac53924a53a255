"""The predicted peak of a step is the one that PyTorch's profiler records on the CPU."""

from __future__ import annotations

import copy
import functools
import pickle
import random
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nbprof
from nbprof.capture.fit.program import Program, Variant
from nbprof.capture.fit.roles import Role
from nbprof.core.errors import NbprofError
from nbprof.schema import frames
from tests.fit.measured import measured_peak
from tests.fit.models import CASES, Language, Recurrent, convolutional, encoder, mlp, tokens

CAPACITIES = [1.03**power for power in range(-20, 21)]
"""Of a device, as parts of the measured peak: from 55% to 181%."""


@functools.cache
def peaks() -> dict[str, tuple[int, int]]:
    """Measured and predicted peaks by case."""
    pairs = {}
    for name, case in CASES.items():
        measured = measured_peak(case)
        fit = nbprof.fits(
            case.model(), case.batch(), optimizer=case.optimizer, loss=case.loss, device="cpu"
        )
        pairs[name] = measured, fit.peak_bytes
    return pairs


def test_nine_of_ten_peaks_are_within_five_percent():
    errors = {name: predicted / measured - 1 for name, (measured, predicted) in peaks().items()}
    wrong = {name: round(error, 3) for name, error in errors.items() if abs(error) > 0.05}
    assert len(errors) >= 40
    assert len(wrong) <= 0.1 * len(errors), wrong


def test_most_peaks_are_exact():
    # What is left out are workspaces of convolutions, and of nothing else.
    errors = [abs(predicted / measured - 1) for measured, predicted in peaks().values()]
    assert np.quantile(errors, 0.75) < 0.01


def test_the_verdict_is_right_for_98_percent_of_capacities():
    right = [
        (measured <= part * measured) == (predicted <= part * measured)
        for measured, predicted in peaks().values()
        for part in CAPACITIES
    ]
    assert np.mean(right) >= 0.98


def state_of(*values: object) -> list[bytes]:
    return [pickle.dumps(value) for value in values]


def test_nothing_of_the_person_is_changed():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x, y = torch.randn(4, 8), torch.randint(2, (4,))
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    model.eval()
    numpy_state = np.random.get_state()[1].tolist()
    before = state_of(model, optimizer.state_dict(), x, y, torch.get_rng_state().tolist())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    addresses = [(parameter.data_ptr(), parameter._version) for parameter in model.parameters()]
    settings = torch._C._get_mkldnn_enabled(), torch.is_grad_enabled(), random.getstate()
    fit = nbprof.fits(model, (x, y), optimizer=optimizer, loss=nn.CrossEntropyLoss(), device="T4")
    assert fit.largest_batch
    assert len(fit.levers) == 5
    assert state_of(model, optimizer.state_dict(), x, y, torch.get_rng_state().tolist()) == before
    assert all(
        torch.equal(p.grad, gradient)
        for p, gradient in zip(model.parameters(), gradients, strict=True)
    )
    assert [(p.data_ptr(), p._version) for p in model.parameters()] == addresses
    assert (torch._C._get_mkldnn_enabled(), torch.is_grad_enabled(), random.getstate()) == settings
    assert np.random.get_state()[1].tolist() == numpy_state
    assert not model.training


def test_roles_add_up_and_are_those_of_the_step():
    model = mlp(1000, 1000)
    fit = nbprof.fits(model, (8, 1000), optimizer=torch.optim.Adam, device="cpu")
    weights = 4 * 1001 * 1000
    assert fit.roles[Role.PARAMETERS] == weights
    assert fit.roles[Role.OPTIMIZER_STATE] == 2 * weights + 2 * 4
    assert fit.roles[Role.INPUTS] == 4 * 8000
    assert sum(fit.roles.values()) == fit.peak_bytes == fit.frame["bytes"].sum()
    assert list(fit.frame.columns) == frames.names("fits.frame")
    assert fit.frame["percent"].sum() == pytest.approx(100)


def test_an_optimizer_as_instance_class_and_function_is_the_same():
    model = mlp(64, 64)
    optimizers = (
        torch.optim.Adam(model.parameters(), amsgrad=True),
        lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
        partial(torch.optim.Adam, amsgrad=True),
    )
    found = {nbprof.fits(model, (8, 64), optimizer=each).peak_bytes for each in optimizers}
    assert len(found) == 1
    assert found != {nbprof.fits(model, (8, 64), optimizer=torch.optim.Adam).peak_bytes}


def test_a_model_without_memory_is_predicted_as_one_with():
    with torch.device("meta"):
        huge = mlp(100_000, 100_000)
    fit = nbprof.fits(huge, (8, 100_000), optimizer=torch.optim.SGD, device="A100-80GB")
    assert fit.roles[Role.PARAMETERS] >= 4 * 100_000**2
    assert fit.fits is True
    assert fit.on("V100-32GB").fits is False
    assert fit.on("V100-32GB").largest_batch == 0


def test_the_largest_batch_fits_and_a_larger_one_does_not():
    model = encoder()
    fit = nbprof.fits(model, (4, 16, 64), optimizer=torch.optim.AdamW, device=8 * 2**20)
    largest = fit.largest_batch
    assert largest > 4

    def peak(size: int) -> int:
        batch = torch.empty(size, 16, 64)
        return nbprof.fits(model, batch, optimizer=torch.optim.AdamW).peak_bytes

    assert peak(largest) <= 8 * 2**20 < peak(largest + 1)


def test_levers_need_less():
    model = nn.Sequential(*(mlp(64, 256, 64, layer=nn.GELU) for _ in range(3)))
    fit = nbprof.fits(model, (512, 64), optimizer=torch.optim.SGD, device=4 * 2**20)
    levers = fit.levers.set_index("lever")
    assert list(fit.levers.columns) == frames.names("fits.levers")
    for lever in ("autocast to bfloat16", "gradient checkpointing", "accumulation of 2 parts"):
        assert levers.loc[lever, "peak_bytes"] < fit.peak_bytes, lever
        assert levers.loc[lever, "largest_batch"] > fit.largest_batch, lever
    assert levers.loc["both", "largest_batch"] >= levers["largest_batch"].drop("both").iloc[2]


def test_checkpointing_is_as_if_it_were_written():
    def peak(model: nn.Module, variant: Variant) -> dict[Role, int]:
        return Program.of(model, tokens(), torch.optim.SGD, None, False).peak(variant)

    written = peak(Language(checkpointed=True), Variant())
    assert peak(Language(), Variant(checkpointing=True)) == written
    assert written != peak(Language(), Variant())


def test_a_model_without_blocks_has_no_checkpointing():
    levers = nbprof.fits(nn.Linear(8, 8), (4, 8), optimizer=torch.optim.SGD, device=2**20).levers
    row = levers.set_index("lever").loc["gradient checkpointing"]
    assert "no nn.ModuleList" in row["note"]
    assert pd.isna(row["largest_batch"])
    assert pd.isna(row["peak_bytes"])


def test_a_gpu_keeps_masks_of_a_byte_and_no_attention_weights():
    x = torch.empty(8, 256, 64)
    on_host = nbprof.fits(encoder(0.1), x, optimizer=torch.optim.SGD, device="cpu")
    on_gpu = nbprof.fits(encoder(0.1), x, optimizer=torch.optim.SGD, device="T4")
    weights = 4 * 8 * 4 * 256 * 256
    assert on_host.peak_bytes - on_gpu.peak_bytes > 2 * weights


def test_a_gpu_updates_all_parameters_at_once():
    model = mlp(*(256,) * 9)
    gpu = {"optimizer": torch.optim.AdamW, "device": "T4"}
    loop = {"optimizer": partial(torch.optim.AdamW, foreach=False), "device": "T4"}
    difference = (
        nbprof.fits(model, (1, 256), **gpu).peak_bytes
        - nbprof.fits(model, (1, 256), **loop).peak_bytes
    )
    assert difference > 4 * 256 * 256 * 6


def test_blocks_of_a_gpu_are_rounded():
    fit = nbprof.fits(nn.Linear(3, 3), (1, 3), device="T4")
    assert all(value % 512 == 0 for value in fit.roles.values())
    assert fit.roles[Role.PARAMETERS] == 1024


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return self.layer(x)
        return x


class Selection(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (Branch(), {}, ["test_fits_torch.py, line", "values of a tensor", "_local_scalar_dense"]),
        (Selection(), {}, ["test_fits_torch.py, line", "values of a tensor", "nonzero"]),
        (nn.Linear(5, 4), {}, ["cannot be traced", "[3, 4] X [5, 4]", "batch of these shapes"]),
        (nn.LazyLinear(4), {}, ["no shape yet", "call the model once"]),
        (nn.Linear(4, 4), {"optimizer": 3}, ["optimizer is 3"]),
        (nn.Linear(4, 4), {"optimizer": lambda _: None}, ["not an optimizer"]),
        (nn.Linear(4, 4), {"device": "T1000"}, ["T1000", "its bytes", "A100-80GB"]),
        (nn.Linear(4, 4), {"device": 0}, ["more than 0"]),
        (nn.Linear(4, 4), {"margin": -1}, ["margin is -1"]),
        (nn.Embedding(9, 4, sparse=True), {"optimizer": torch.optim.SparseAdam}, ["sparse"]),
    ],
)
def test_what_cannot_be_predicted_is_an_error_with_a_remedy(model, options, words):
    batch = torch.ones(3, 4)
    if isinstance(model, nn.Embedding):
        batch = batch.long()
    with pytest.raises(NbprofError) as caught:
        nbprof.fits(model, batch, **options)
    for word in words:
        assert word in str(caught.value)


def test_an_optimizer_of_another_model_is_an_error():
    optimizer = torch.optim.SGD(nn.Linear(4, 4).parameters())
    with pytest.raises(NbprofError, match="no parameter of this model"):
        nbprof.fits(nn.Linear(4, 4), (3, 4), optimizer=optimizer)


def test_an_op_without_a_shape_function_is_named():
    with torch.library._scoped_library("nbprof_test", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: 2 * x, "CPU")

        class Custom(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ops.nbprof_test.double(x)

        with pytest.raises(NbprofError, match=r"nbprof_test\.double.*register_fake"):
            nbprof.fits(Custom(), torch.ones(3))


def test_a_loss_that_reads_the_model_itself_changes_nothing():
    model = nn.Linear(4, 4)
    with pytest.raises(NbprofError, match="another model"):
        nbprof.fits(
            model,
            torch.ones(3, 4),
            optimizer=torch.optim.SGD,
            loss=lambda output: output.sum() + model.weight.sum(),
        )
    assert model.weight.grad is None


def test_tensors_that_a_loss_refers_to_are_inputs():
    target = torch.randn(64, 1000)
    fit = nbprof.fits(
        mlp(10, 1000),
        torch.ones(64, 10),
        optimizer=torch.optim.SGD,
        loss=lambda output: F.mse_loss(output, target),
        device="cpu",
    )
    assert fit.roles[Role.INPUTS] == 4 * (64 * 10 + 64 * 1000)


def test_the_step_is_that_of_the_mode_it_trains_in():
    model = nn.Sequential(nn.Linear(256, 256), nn.Dropout()).eval()
    training = nbprof.fits(model, (512, 256), optimizer=torch.optim.SGD)
    assert training.roles[Role.ACTIVATIONS] > 0
    assert not model.training
    assert Role.ACTIVATIONS not in nbprof.fits(model, (512, 256)).roles


def test_the_answer_is_a_sentence_and_a_table():
    model = convolutional(norm=nn.BatchNorm2d)
    fit = nbprof.fits(model, (8, 3, 32, 32), optimizer=torch.optim.SGD, device=2**24)
    text, html = repr(fit), fit._repr_html_()
    assert text.startswith("A training step of Sequential of batch 8 needs ")
    assert f"The largest batch that fits is {fit.largest_batch}" in text
    assert "workspaces of libraries" in text
    for role in fit.frame["role"]:
        assert role in text
        assert role in html
    small = fit.on(2**20)
    assert small.fits is False
    assert "does not fit in 1.00 MiB" in repr(small)
    assert "Pass device=" in repr(nbprof.fits(nn.Linear(2, 2), (1, 2)))


def test_the_margin_counts():
    fit = nbprof.fits(nn.Linear(1000, 1000), (8, 1000), device=2**30)
    assert fit.margin_bytes == 0
    assert fit.on(fit.peak_bytes).fits is True
    assert fit.on(fit.peak_bytes, margin=1000).fits is False
    assert fit.on(fit.peak_bytes, margin=0.1).margin_bytes == round(0.1 * fit.peak_bytes)
    assert fit.on("T4").margin_bytes == round(0.05 * fit.peak_bytes) + 2**29


def test_recurrent_layers_say_how_they_are_predicted():
    fit = nbprof.fits(Recurrent(nn.LSTM), (2, 3, 64), optimizer=torch.optim.SGD, device="T4")
    assert "cuDNN keeps other tensors" in repr(fit)


def test_shared_parameters_count_once():
    tied = nbprof.fits(Language(tied=True), tokens())
    untied = nbprof.fits(Language(tied=False), tokens())
    assert untied.roles[Role.PARAMETERS] - tied.roles[Role.PARAMETERS] == 4 * 500 * 64


def test_the_copies_take_no_memory():
    model = mlp(64, 64)
    fit = nbprof.fits(model, (8, 64), optimizer=torch.optim.Adam)
    # What the answer keeps for later has no data.
    tensors = [value for value in _reachable(fit) if isinstance(value, torch.Tensor)]
    assert tensors
    assert all(type(tensor).__name__ == "FakeTensor" for tensor in tensors)
    assert copy.copy(fit).peak_bytes == fit.peak_bytes


def _reachable(value: object) -> list[object]:
    import gc
    from types import FunctionType, ModuleType

    seen: dict[int, object] = {}
    pending = [value]
    while pending:
        current = pending.pop()
        if id(current) in seen or isinstance(current, ModuleType | type):
            continue
        seen[id(current)] = current
        if isinstance(current, FunctionType):
            pending += [cell.cell_contents for cell in current.__closure__ or ()]
        elif not isinstance(current, torch.Tensor):
            pending += gc.get_referents(current)
    return list(seen.values())
