"""FLOPs of a recorded model beside those that PyTorch counts while it runs."""

from __future__ import annotations

import pytest

import nbprof

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

STEPS = 3


class Model(torch.nn.Module):
    """An image model with a block of attention; the block may be computed again for the backward
    pass.
    """

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.stem = torch.nn.Conv2d(3, 16, 5, stride=2, padding=1)
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.norm = torch.nn.LayerNorm(8)
        self.qkv, self.out, self.head = (
            torch.nn.Linear(8, 24),
            torch.nn.Linear(8, 8),
            torch.nn.Linear(8, 5),
        )

    def block(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = self.up(torch.relu(self.stem(x))).flatten(2).transpose(1, 2)
        # Stopped early, the last op is in the recording although it was given up.
        x = (
            checkpoint(self.block, x, use_reentrant=False, early_stop=False)
            if self.again
            else self.block(x)
        )
        return self.head(x.mean(1))


def trained(folder, again):
    """The profile of some steps, and the FLOPs of one as PyTorch counts them."""
    torch.manual_seed(0)
    model, x = Model(again), torch.randn(2, 3, 17, 17)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    with FlopCounterMode(display=False) as counter:
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(STEPS):
            step()
            recorded.step()
    path = folder / "trace.json"
    recorded.export_chrome_trace(str(path))
    return nbprof.load(path, peaks={"flops": 1e12, "bytes": 1e11}), counter.get_total_flops()


def test_a_model_and_one_that_computes_again(tmp_path):
    plain, flops = trained(tmp_path, again=False)
    (tmp_path / "again").mkdir()
    again, more = trained(tmp_path / "again", again=True)
    assert plain.roofline.total["model_flops"] == STEPS * flops
    assert plain.roofline.total["recomputed_flops"] == 0
    steps = plain.roofline.steps
    assert steps["model_flops"].tolist() == [flops] * STEPS
    assert steps["mfu_fraction"].tolist() == pytest.approx(
        [flops / (ms / 1e3) / 1e12 for ms in steps["step_time_ms"]]
    )
    # PyTorch counts what runs; what ran again is not of the model.
    total = again.roofline.total
    assert total["model_flops"] == STEPS * flops
    assert total["model_flops"] + total["recomputed_flops"] == STEPS * more
    assert total["recomputed_flops"] > 0
    frame = plain.roofline.frame
    assert frame["flops"].sum() > STEPS * flops, "elementwise ops and norms compute, too"
    assert frame["self_us"].sum() == pytest.approx(
        plain.torch_ops.frame.query("kind == 'op'")["host_self_us"].sum(), rel=1e-6
    )
