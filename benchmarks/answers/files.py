"""Files that other people recorded and files that the benchmark writes, with their truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import periods
from cells import Units, loop
from periods import Story

PROFILES = Path(__file__).resolve().parents[3] / "shared" / "profiles"
"""Published profiles beside the checkout."""


@dataclass(frozen=True)
class Recorded:
    """A recorded file, and what is true of it.

    Parameters
    ----------
    name : str
        Its path below the folder of its set.
    units : mapping
        Accepted kinds of units and their counts; empty where only an answer is asked for.
    unit_ms : float or None
        How long a unit takes on average; None where that is not known.
    """

    name: str
    units: Units = field(default_factory=dict)
    unit_ms: float | None = None
    bound: frozenset[str] = frozenset()
    named: tuple[str, ...] = ()

    @property
    def control(self) -> bool:
        return set(self.units) == {"recording"}

    @property
    def counted(self) -> bool:
        return bool(self.units) and not self.control


def _marked(count: int) -> Mapping[str, tuple[int, ...]]:
    return {"step": (count,)}


# Steps that are marked were counted by the names of their marks (`ProfilerStep#7`); those of
# TensorFlow are stated where the files come from. The loop of `train_resnet18` has no marks but
# five calls of its optimizer, and five times 472 kernels.
RECORDED = tuple(
    Recorded(name, units)
    for name, units in (
        ("tf-gpu/rtx5000-cnn-batch8", _marked(21)),
        ("tf-gpu/rtx5000-cnn-batch64", _marked(21)),
        ("tf-gpu/rtx5000-cnn-batch512", _marked(21)),
        ("tf-gpu/t4-one-step", _marked(1)),
        ("tf-gpu/v100x8-collectives", {}),
        ("tf-cpu/prefetch-example", {}),
        ("tf-cpu/prefetch-128-empty-gpu-plane", {}),
        ("jax/mi300-jax08_attention", {}),
        ("jax/mi300-jax_conv_minimal_08", {}),
        ("jax/tpu-v6e-inference", {}),
        ("jax/gtx1080ti-reactant", {}),
        ("kineto/h100-bert", _marked(1)),
        ("kineto/v100-resnet50-workers0", _marked(6)),
        ("kineto/v100-resnet50-workers4", _marked(6)),
        ("kineto/a100-nccl-ranks", _marked(2)),
        ("kineto/mi300-ddp-resnet18", loop(5)),
        ("ascend/msprof-old-layout", {}),
        ("ascend/msprof-op-run", {}),
        ("findings/D1-first-step/rank0.json.gz", _marked(5)),
        ("findings/D1-first-step/resnet_act_checkpoint.json.gz", _marked(3)),
        ("findings/D13-small/triton_example.json.gz", _marked(1)),
        ("findings/D2-tf-trace-json/sandor.trace.json.gz", {}),
        ("findings/D3-mtia/mtia_rank_0.json.gz", _marked(1)),
        ("findings/D4-graph-capture/bs_32_rank0.json.gz", _marked(1)),
        ("findings/D5-program-id", {}),
        ("findings/D6-compiled-called-eager/profile_trace_rank_0.json.gz", _marked(1)),
        ("findings/D7-tensor-cores/worker0.pt.trace.json.gz", _marked(6)),
        ("findings/D7-tensor-cores/dc3b0e7228dd_851.1752215573993169006.pt.trace.json", _marked(3)),
        ("findings/D8-copies/jax_conv_minimal_legacy", {}),
        ("findings/D9-D10-custom-calls", {}),
        ("reports/08-launches-without-kernels.json", _marked(4)),
        ("reports/08-gpu-run-without-cuda-activity.json", _marked(4)),
        ("reports/08-calls-without-launches.json", _marked(4)),
        ("reports/file-own-kernel-mixed-precision.json", _marked(6)),
    )
)


def of_story(story: Story) -> Recorded:
    return Recorded(story.name, story.units, story.unit_ms)


SYNTHETIC = tuple(of_story(story) for story in periods.STORIES.values())


def path_of(item: Recorded, folder: Path) -> Path | None:
    """Where the file is, written to `folder` first if it is synthetic; None if it is absent."""
    if item.name in periods.STORIES:
        return periods.write(periods.STORIES[item.name], folder)
    path = PROFILES / item.name
    return path if path.exists() else None
