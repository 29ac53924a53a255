"""N hosts that do the same are N times one host: every column of every public frame, in each format
that has hosts or ranks.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbprof.frames import SCHEMA
from nbprof.profiles.comparison import compare
from nbprof.profiles.load import load
from nbprof.schema.frames import WHERE_KNOWN
from tests.support import msprof
from tests.support.frames import WITHOUT_NOTES, below, public
from tests.support.hlo import computation, instruction, metadata_plane, program
from tests.support.host_sums import NEITHER, REASONS, SUM, extent, of_each
from tests.support.profiles import real
from tests.support.ranks import job
from tests.support.xspace import MS, PlaneWriter, chunk, gpu_run, training_run, xspace

DATA = Path(__file__).parents[1] / "data"
US = MS // 1000
N = 3
UNEVEN = 0.7310585786
"""Times it, a number of few digits is no longer where it is rounded up or down by the last bit."""
SAID = ("bound", "verdict", "verdict_text", "verdict_detail", "confidence")
COUNTED = ("hosts", "devices", "steps", "warmup_steps")


def hosts(folder: Path, data: bytes, count: int) -> Path:
    """A file a host. Files that are equal byte for byte would be one host's."""
    out = folder / f"logdir{count}" / "plugins" / "profile" / "run"
    out.mkdir(parents=True)
    for i in range(count):
        (out / f"host{i}.xplane.pb").write_bytes(data + chunk(4, f"host{i}"))
    return out


def jitted(step_ms: int = 10, scope: str = "enc") -> bytes:
    """Steps of a compiled program on a GPU, each of two ops, one of which is two kernels; gaps
    between the steps.
    """
    ops = (
        instruction("fusion", "fusion", f"jit(f)/{scope}/add", kind="kLoop"),
        instruction("dot.1", "dot", "jit(f)/dot_general"),
    )
    gpu = PlaneWriter(
        "/device:GPU:0",
        {
            "device_vendor": "Nvidia",
            "compute_cap_major": 8,
            "compute_cap_minor": 0,
            "core_count": 100,
        },
    )
    detail = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1"
    said = {"hlo_module": "jit_f", "program_id": 3, "kernel_details": detail, "tf_op": "XlaModule:"}
    events = []
    for i in range(12):
        at = i * step_ms * MS
        for k, (name, op) in enumerate((("k1", "fusion"), ("gemm", "dot.1"), ("splitK", "dot.1"))):
            events.append(
                gpu.event(
                    name,
                    at + k * step_ms * MS // 10,
                    5 * US,
                    hlo_op=op,
                    correlation_id=3 * i + k + 1,
                    group_id=i,
                    **said,
                )
            )
    gpu.line("Stream #7(Compute)", events, line_id=7)
    host = PlaneWriter("/host:CPU")
    marks = [
        host.event("train", i * step_ms * MS, step_ms * MS * 6 // 10, step_num=i, group_id=i, _r=1)
        for i in range(12)
    ]
    host.line("python", marks, line_id=1)
    return xspace(gpu, host, metadata_plane(jit_f=(3, program("jit_f", computation("main", *ops)))))


def kineto(folder: Path, data: bytes, count: int) -> Path:
    said = json.loads(gzip.decompress(data))
    out = folder / f"ranks{count}"
    out.mkdir()
    for rank in range(count):
        said["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": count}
        (out / f"rank{rank}.1623143089861.pt.trace.json").write_text(json.dumps(said))
    return out


def torch_job(folder: Path, count: int) -> Path:
    out = folder / f"job{count}"
    out.mkdir()
    for rank, one in enumerate(job([[[400, 900], [450, 950], [420, 930]]] * count)):
        for event in one.events:
            if "Group size" in event["args"]:
                event["args"] |= {"Group size": N, "Process Group Ranks": "[0, 1, 2]"}
        (out / f"rank{rank}.1623143089861.pt.trace.json").write_text(
            json.dumps({**one.metadata, "traceEvents": one.events})
        )
    return out


API = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n{0},acl,aclopCompileAndExecute,150,15,10,10,10,0\n"


def npus(folder: Path, how: str, count: int) -> Path:
    out = folder / f"npus{count}"
    for i in range(count):
        tasks, iterations = msprof.training(6, device=i)
        if how == "older":
            msprof.older(out / f"PROF_00000{i + 1}_20230818142704322_ABCD", tasks, iterations)
        else:
            made = out / f"host_{i}_20250109084754_ascend_pt"
            msprof.torch_npu(made, tasks, rank=i, api_statistic=API.format(i).encode())
    return out


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


MADE = {
    "tf": lambda folder, count: hosts(folder, recorded("xspace/tf_slow.xplane.pb"), count),
    "jax": lambda folder, count: hosts(folder, recorded("xspace/jax_loop.xplane.pb"), count),
    "memory": lambda folder, count: hosts(folder, training_run(), count),
    "gpu": lambda folder, count: hosts(folder, gpu_run(), count),
    "jitted": lambda folder, count: hosts(folder, jitted(), count),
    "torch": lambda folder, count: kineto(
        folder, recorded("kineto/cpu_train.pt.trace.json.gz"), count
    ),
    "modules": lambda folder, count: kineto(
        folder, recorded("torch/modules.pt.trace.json.gz"), count
    ),
    "job": torch_job,
    "msprof": lambda folder, count: npus(folder, "older", count),
    "torch_npu": lambda folder, count: npus(folder, "torch", count),
}
REAL = (
    *("tf-gpu/t4-one-step/instance-2.xplane.pb", "tf-gpu/rtx5000-cnn-batch8/sandor.xplane.pb"),
    "jax/tpu-v6e-inference/tpu_inference_2.xplane.pb",
)


@pytest.fixture(scope="module", params=MADE)
def both(request, tmp_path_factory):
    """One host and N of the same."""
    folder = tmp_path_factory.mktemp(request.param)
    return load(MADE[request.param](folder, 1)), load(MADE[request.param](folder, N))


def rows(frame: pd.DataFrame, name: str, columns, times: int) -> Counter:
    """How often each row is there, without the columns of which the law says nothing; what adds up
    is taken so many times.
    """
    out = {}
    for col in columns:
        how = extent(name, col)
        if (
            col.name not in frame.columns
            or how == NEITHER
            or col.name in ("host", "worker", "memory_id", "rank", "device", "process")
        ):
            continue
        values = frame[col.name]
        if col.dtype in ("object", "bool", "boolean"):
            out[col.name] = [
                None if lacks else str(value)
                for value, lacks in zip(values, values.isna(), strict=True)
            ]
        else:
            factor = times if how == SUM and not of_each(columns, name) else 1
            numbers = pd.to_numeric(values).to_numpy(np.float64, na_value=np.nan) * (
                factor * UNEVEN
            )
            out[col.name] = ["" if value != value else f"{value:.6g}" for value in numbers.tolist()]
    return Counter(zip(*out.values(), strict=True) if out else [()] * len(frame))


def assert_law(name: str, columns, one: pd.DataFrame, several: pd.DataFrame, count: int) -> None:
    if name in REASONS:
        return
    columns = [*columns, *WHERE_KNOWN.get(name, [])]
    wanted, found = rows(one, name, columns, count), rows(several, name, columns, 1)
    if of_each(columns, name):
        wanted = Counter({row: often * count for row, often in wanted.items()})
    assert found == wanted, (
        f"{name}: {list((found - wanted).items())[:2]} instead of {list((wanted - found).items())[:2]}"
    )


def profiles_hold(one, several, count):
    # Equal hosts differ in nothing.
    assert not several.pods.stragglers["straggler"].any()
    assert not len(several.pods.outliers)
    assert not several.pods.collectives["slow"].any()
    for name in WITHOUT_NOTES:
        try:
            alone = public(one, name)
        except Exception as error:
            with pytest.raises(type(error)):
                public(several, name)
            continue
        if name == "memory.roles" and not len(one.run.memory_roles):
            # Of compiled programs, each of which is one, however many hosts run it.
            pd.testing.assert_frame_equal(public(several, name), alone)
            continue
        assert_law(name, SCHEMA[name], alone, public(several, name), count)
    for key in ("memory_viewer[module].",):
        for module, view in one.memory_viewer.items():
            for name, columns in below(key).items():
                assert_law(
                    key + name,
                    columns,
                    getattr(view, name),
                    getattr(several.memory_viewer[module], name),
                    count,
                )
    told, again = one.overview, several.overview
    assert {key: again[key] for key in SAID} == {key: told[key] for key in SAID}
    assert {key: again[key] for key in COUNTED} == {key: told[key] * count for key in COUNTED}
    for key, value in told.items():
        if key.endswith("_percent"):
            assert again[key] == pytest.approx(value), key


def test_several_equal_hosts_are_one_host_several_times(both):
    profiles_hold(*both, N)


@pytest.mark.parametrize("name", REAL)
def test_the_same_of_real_profiles(name, tmp_path):
    data = real(name).read_bytes()
    profiles_hold(load(hosts(tmp_path, data, 1)), load(hosts(tmp_path, data, N)), N)


def test_the_law_holds_of_comparisons(tmp_path):
    pairs = []
    for count in (1, N):
        sides = [
            load(hosts(tmp_path / name, recorded(f"xspace/{name}.xplane.pb"), count))
            for name in ("tf_slow", "tf_mended")
        ]
        pairs.append(compare(*sides))
    one, several = pairs
    for name, columns in below("comparison.").items():
        assert_law(f"comparison.{name}", columns, getattr(one, name), getattr(several, name), N)


def test_kernels_of_a_step_are_those_of_one_host(tmp_path):
    found = [
        load(hosts(tmp_path, jitted(1), count)).advice.set_index("rule")["evidence"]
        for count in (1, N)
    ]
    assert "with **3** kernels of **5.0 µs**" in found[0]["small_batch"]
    assert found[1]["small_batch"] == found[0]["small_batch"]


def test_the_loop_of_several_hosts_is_covered_as_that_of_one(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [host.event("train", i * 10 * MS, 2 * MS, step_num=i, group_id=i, _r=1) for i in range(12)],
        line_id=1,
    )
    found = [load(hosts(tmp_path, xspace(host), count)).overview for count in (1, N)]
    for told in found:
        assert told["confidence"] == "low"
        assert any(
            "79% of the time from the first to the last" in text
            for _, text in told["confidence_evidence"]
        )
