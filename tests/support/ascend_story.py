"""A training run of TensorFlow on an NPU as msprof exports it, made up: small enough to be read,
complete enough for every part of the tab.

`write(folder)` makes a `PROF_*` folder; `fed=True` is the same run after its input was mended.
`python -m tests.support.ascend_story` writes both, packed, to tests/data/ascend.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

BEGIN_US = 1_732_190_400_000_000
DATE = "20241121120507"
NAMES = {False: "PROF_000001_20241121120000000_BEFORE", True: "PROF_000001_20241121130000000_AFTER"}
MODEL, CORES = 11, 32
_PIPES = ("mac", "scalar", "mte1", "mte2", "fixpipe"), ("vec", "scalar", "mte2", "mte3")

# Layer: channels in and out, size, us of the forward convolution.
_LAYERS = [
    (3, 64, 112, 186.0),
    (64, 64, 56, 212.0),
    (64, 128, 56, 240.0),
    (128, 256, 28, 228.0),
    (256, 512, 14, 204.0),
]


class Run:
    """Rows of the tables, filled as the iterations go by."""

    def __init__(self, fed: bool, iterations: int) -> None:
        self.rng = np.random.default_rng(7)
        self.fed = fed
        self.tasks: list[list[Any]] = []
        self.steps: list[list[Any]] = []
        self.now = 2_000.0
        for number in range(1, iterations + 1):
            self._iteration(number)

    def _iteration(self, number: int) -> None:
        end_before = self.now
        start_up = 38_000.0 if number == 1 else 0.0
        wait = (260.0 if self.fed else 5_200.0) * self.rng.uniform(0.85, 1.2) + start_up
        self.now += wait
        if not self.fed:
            # Decoding happens in the queue of the device's own CPU.
            self._run(
                "IteratorGetNext",
                "GetNext",
                "AI_CPU",
                1_250.0,
                7,
                shapes="",
                types="",
                at=self.now - 1_300.0,
            )
        fp = self.now
        for i, layer in enumerate(_LAYERS):
            self._layer(f"resnet/block{i}", layer, 1.0)
        shape = "64,512;512,1000"
        self._run(
            "resnet/dense/MatMul",
            "MatMulV2",
            "AI_CORE",
            62.0,
            5,
            shapes=shape,
            types="FLOAT;FLOAT",
            cube=0.62,
            mte2=0.71,
        )
        self._run(
            "loss/SparseSoftmaxCrossEntropyWithLogits",
            "SoftmaxV2",
            "AI_VECTOR_CORE",
            34.0,
            5,
            shapes="64,1000",
            vec=0.52,
            mte2=0.3,
        )
        self._run("loss/Where", "Where", "AI_CPU", 46.0, 7, shapes="64,1000", types="INT64")
        early = self.now + 900.0
        for i, layer in reversed(list(enumerate(_LAYERS))):
            self._layer(f"gradients/resnet/block{i}", layer, 1.9)
        bp = self.now
        reduces = [(early, 620.0), (bp + 4.0, 910.0 * self.rng.uniform(0.95, 1.1))]
        for k, (at, length) in enumerate(reduces):
            self.tasks.append(
                [
                    0,
                    4294967295,
                    "N/A",
                    "N/A",
                    f"HcomAllReduce_{number}_{k}",
                    "hcom_allReduce_",
                    "N/A",
                    "COMMUNICATION",
                    at,
                    length,
                    0,
                ]
            )
        self.now = max(self.now, reduces[-1][0] + reduces[-1][1]) + 6.0
        for i in range(len(_LAYERS)):
            self._run(
                f"momentum/update_block{i}",
                "ApplyMomentumD",
                "AI_VECTOR_CORE",
                58.0,
                5,
                shapes="512,512,3,3",
                vec=0.21,
                mte2=0.83,
            )
        end = self.now + 3.0
        self.now = end
        gap = fp - end_before if number > 1 else 3_792_445.0
        marks = [_at(fp), _at(bp), _at(end)]
        reduced = [value for at, length in reduces for value in (_at(at), f"{length:.3f}")]
        self.steps.append(
            [
                0,
                number,
                *marks,
                f"{end - fp + 12.4:.3f}",
                f"{bp - fp:.3f}",
                f"{end - bp:.3f}",
                f"{gap:.3f}",
                MODEL,
                *reduced,
            ]
        )

    def _layer(self, scope: str, layer: tuple[int, int, int, float], scale: float) -> None:
        inputs, outputs, size, us = layer
        shape = f"64,{inputs},{size},{size};{outputs},{inputs},3,3"
        name = "Conv2DBackpropFilterD" if scope.startswith("gradients") else "Conv2D"
        self._run(
            f"trans_TransData_{scope[-1]}",
            "TransData",
            "AI_VECTOR_CORE",
            us * 0.24,
            5,
            shapes=shape,
            vec=0.03,
            mte2=0.9,
        )
        # Three channels fill 3 of the 16 lanes of the cube.
        cube = 0.19 if inputs == 3 else 0.84
        self._run(
            f"{scope}/conv2d/{name}",
            name,
            "AI_CORE",
            us * scale,
            5,
            shapes=shape,
            types="FLOAT16;FLOAT16",
            cube=cube,
            mte2=0.95 - cube,
        )
        self._run(
            f"{scope}/bn/FusedBatchNormV3",
            "BNTrainingUpdate",
            "AI_VECTOR_CORE",
            us * 0.3,
            5,
            shapes=shape,
            vec=0.86,
            mte2=0.4,
        )
        self._run(
            f"{scope}/bn/Cast",
            "Cast",
            "AI_VECTOR_CORE",
            us * 0.09,
            5,
            shapes=shape,
            types="FLOAT16",
            vec=0.12,
            mte2=0.78,
        )

    def _run(
        self,
        name: str,
        kind: str,
        core: str,
        us: float,
        stream: int,
        *,
        shapes: str,
        types: str = "FLOAT16",
        at: float | None = None,
        **busy: float,
    ) -> None:
        us *= self.rng.uniform(0.97, 1.04)
        start = self.now if at is None else at
        first = len(self.steps) == 0
        row: list[Any] = [
            0,
            MODEL,
            len(self.tasks),
            stream,
            name,
            kind,
            "static",
            core,
            start,
            us,
            0,
        ]
        blocks = CORES if core != "AI_CPU" else 1
        row += [
            blocks,
            0,
            "NO",
            f'"{shapes}"' if shapes else "N/A",
            types or "N/A",
            "NC1HWC0",
            "N/A",
            "N/A",
            "N/A",
            "N/A",
        ]
        self.tasks.append(row + _counters(core, us, busy))
        if stream == 5:
            # The graph is sunk to the device: tasks follow one another at once.
            self.now = start + us + (0.4 if not first else 1.5)


def _at(us: float) -> str:
    return f"{BEGIN_US + int(us)}.{round((us % 1) * 1000) % 1000:03d}\t"


def _counters(core: str, us: float, busy: dict[str, float]) -> list[str]:
    """Those of PipeUtilization, zeros of the side that did not run, as msprof writes them."""
    if core == "AI_CPU":
        return ["N/A"] * (2 * 2 + 2 * (len(_PIPES[0]) + len(_PIPES[1])) + 3)
    out: list[str] = []
    cube = core == "AI_CORE"
    for on, pipes in ((cube, _PIPES[0]), (not cube, _PIPES[1])):
        ratio = {
            "mac": busy.get("cube", 0.0),
            "vec": busy.get("vec", 0.0),
            "mte2": busy.get("mte2", 0.0),
        }
        ratio |= {"scalar": 0.14, "mte1": 0.31, "fixpipe": 0.06, "mte3": 0.22}
        out += [f"{us * 0.97 * on:.3f}", str(int(us * 0.97 * 1800 * on))]
        for pipe in pipes:
            out += [f"{us * 0.97 * ratio[pipe] * on:.3f}", f"{ratio[pipe] * on:.3f}"]
        out.append(f"{0.012 * on:.3f}")
    return [*out, f"{96.5 * cube:.3f}"]


def _header() -> list[str]:
    head = [
        "Device_id",
        "Model ID",
        "Task ID",
        "Stream ID",
        "Op Name",
        "OP Type",
        "OP State",
        "Task Type",
        "Task Start Time(us)",
    ]
    head += [
        "Task Duration(us)",
        "Task Wait Time(us)",
        "Block Num",
        "Mix Block Num",
        "HF32 Eligible",
        "Input Shapes",
        "Input Data Types",
    ]
    head += ["Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID"]
    for prefix, time, pipes in (
        ("aic_", "aicore_time(us)", _PIPES[0]),
        ("aiv_", "aiv_time(us)", _PIPES[1]),
    ):
        head += [time, f"{prefix}total_cycles"]
        for pipe in pipes:
            head += [f"{prefix}{pipe}_time(us)", f"{prefix}{pipe}_ratio"]
        head.append(f"{prefix}icache_miss_rate")
    return [*head, "cube_utilization(%)"]


def _csv(header: list[str], rows: list[list[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()


def files(fed: bool = False, iterations: int = 12) -> dict[str, bytes]:
    """The files of a run, by their path in the folder."""
    run = Run(fed, iterations)
    head = _header()
    ordered = sorted(run.tasks, key=lambda row: row[8])
    summary = [
        [*row[:8], _at(row[8]), f"{row[9]:.3f}", *row[10:]] + ["N/A"] * (len(head) - len(row))
        for row in ordered
    ]
    sums: dict[tuple[str, str], list[float]] = {}
    for row in run.tasks:
        if row[7] != "COMMUNICATION":
            sums.setdefault((row[5], row[7]), []).append(round(row[9], 3))
    whole = sum(sum(values) for values in sums.values())
    statistic = [
        [
            0,
            "ge_default_1",
            kind,
            core,
            len(v),
            f"{sum(v):.3f}",
            min(v),
            f"{sum(v) / len(v):.3f}",
            max(v),
            f"{100 * sum(v) / whole:.3f}",
        ]
        for (kind, core), v in sorted(sums.items(), key=lambda item: -sum(item[1]))
    ]
    fusion = [["host", "ge_default_1", MODEL, f"resnet/block{i}/conv2d/Conv2D", f"conv2d_{i};bias_{i};relu_{i}", 25_088, 12_544, 72, 512 * (i == 0), 0]
              for i in range(len(_LAYERS))]  # fmt: skip
    for row in fusion:
        row[-1] = sum(row[5:9])
    calls = [("acl", "aclmdlExecuteAsync", 61.0, 1), ("acl", "aclrtSynchronizeStream", 3_900.0, 1), ("node", "launch", 22.0, 1),
             ("model", "ModelExecute", 58.0, 1), ("runtime", "KernelLaunch", 9.0, 4)]  # fmt: skip
    api = [["host", level, name, f"{us * count * iterations:.3f}", count * iterations, us, us * 0.8, us * 1.6, f"{(us * 0.1) ** 2:.3f}"]
           for level, name, us, count in calls]  # fmt: skip
    step = [
        "Device_id",
        "Iteration ID",
        "FP Start(us)",
        "BP End(us)",
        "Iteration End(us)",
        "Iteration Time(us)",
        "FP to BP Time(us)",
    ]
    step += [
        "Iteration Refresh(us)",
        "Data Aug Bound(us)",
        "Model ID",
        *["Reduce Start(us)", "Reduce Duration(us)"] * 2,
    ]
    stat = [
        "Device_id",
        "Model Name",
        "OP Type",
        "Core Type",
        "Count",
        "Total Time(us)",
        "Min Time(us)",
        "Avg Time(us)",
        "Max Time(us)",
        "Ratio(%)",
    ]
    fused = [
        "Device_id",
        "Model Name",
        "Model ID",
        "Fusion Op",
        "Original Ops",
        *(f"Memory {w}(KB)" for w in ("Input", "Output", "Weight", "Workspace", "Total")),
    ]
    called = [
        "Device_id",
        "Level",
        "API Name",
        "Time(us)",
        "Count",
        "Avg(us)",
        "Min(us)",
        "Max(us)",
        "Variance",
    ]
    tables = {
        "op_summary": _csv(head, summary),
        "op_statistic": _csv(stat, statistic),
        "step_trace": _csv(step, run.steps),
        "fusion_op": _csv(fused, fusion),
        "api_statistic": _csv(called, api),
    }
    info = {
        "DeviceInfo": [{"id": 0, "ai_core_num": CORES, "aiv_num": CORES, "aic_frequency": "1800"}]
    }
    out = {f"mindstudio_profiler_output/{name}_{DATE}.csv": data for name, data in tables.items()}
    return {"device_0/info.json.0": json.dumps(info).encode(), **out}


def write(folder: Path, fed: bool = False, iterations: int = 12) -> Path:
    """Makes the folder `PROF_*` in a folder; returns it."""
    place = folder / NAMES[fed]
    for name, data in files(fed, iterations).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


def main(folder: Path) -> None:
    """Writes both runs, packed."""
    folder.mkdir(parents=True, exist_ok=True)
    for fed, name in ((False, "before.zip"), (True, "after.zip")):
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path, data in files(fed).items():
                # A date of its own would make the file another one each time.
                archive.writestr(
                    zipfile.ZipInfo(f"{NAMES[fed]}/{path}", (2024, 11, 21, 12, 0, 0)),
                    data,
                    zipfile.ZIP_DEFLATED,
                    9,
                )


if __name__ == "__main__":
    main(
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).resolve().parents[1] / "data" / "ascend"
    )
