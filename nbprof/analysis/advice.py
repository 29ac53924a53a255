"""What to change, with the evidence and the code: at most five findings, largest gain first.

No evidence number, no advice. A gain is an upper bound in ms a step: what the step would save if the cost went away entirely.
Thresholds follow the recommendations of TensorFlow Profiler's overview page.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

COLUMNS = ["rule", "severity", "title", "evidence", "gain_ms_per_step", "fix", "view", "link"]
MOST = 5
INPUT_MODERATE, INPUT_HIGH = 5.0, 20.0
OTHER_MODERATE, OTHER_HIGH = 3.0, 15.0


def advice(
    overview: dict[str, Any], summary: pd.DataFrame, pipelines: pd.DataFrame, nodes: pd.DataFrame, kernels: pd.DataFrame
) -> pd.DataFrame:
    """One row a finding: the columns of `p.advice`. `fix` holds diff lines that begin with `-`, `+` or a blank."""
    if overview["step_time_ms"] is None:
        return pd.DataFrame(columns=COLUMNS)
    mean = summary.set_index("category")["mean_ms"].fillna(0.0).to_dict()
    percent = summary.set_index("category")["percent"].fillna(0.0).to_dict()
    found = [
        *_input(overview, mean, percent, pipelines, nodes), *_launch(mean, percent, len(pipelines) > 0),
        *_precision(overview, mean), *_tensor_cores(mean, kernels), *_eager(overview, mean, percent),
        *_share("collectives", "device_collectives", "Overlap communication with compute", "communication between devices", mean, percent),
        *_share("output", "output", "Fetch results less often", "copies from the device to the host", mean, percent), *_other(overview, mean, percent),
    ]  # fmt: skip
    table = pd.DataFrame(found, columns=COLUMNS)
    order = table["gain_ms_per_step"].fillna(-1.0).astype(float).sort_values(ascending=False, kind="stable").index
    return table.loc[order].head(MOST).reset_index(drop=True)


def _severity(value: float, moderate: float, high: float) -> str:
    return "high" if value >= high else "medium" if value >= moderate else "low"


def _input(
    overview: dict[str, Any], mean: dict[str, float], percent: dict[str, float], pipelines: pd.DataFrame, nodes: pd.DataFrame
) -> list[tuple[Any, ...]]:
    share = percent["input"]
    if share < INPUT_MODERATE:
        return []
    wait = mean["input"]
    severity = _severity(share, INPUT_MODERATE, INPUT_HIGH)
    out: list[tuple[Any, ...]] = []
    if not len(nodes):
        text = f"The step waits **{wait:.2f} ms** of **{mean['step_time']:.2f} ms** for input (**{share:.0f}%**), and no tf.data pipeline was recorded."
        return [("input_outside_tf_data", severity, "Feed the model through tf.data", text, wait,
                 "+ds = tf.data.Dataset.from_tensor_slices((x, y))\n+ds = ds.batch(64).prefetch(tf.data.AUTOTUNE)\n model.fit(ds)", "input", "Steps & input")]  # fmt: skip
    first = pipelines.iloc[0]
    mine = nodes[(nodes["pipeline"] == first["pipeline"]) & (nodes["host"] == first["host"])]
    slow = mine[mine["bottleneck"]].iloc[0]
    whole = float(mine["self_ms"].sum())
    part = 100 * float(slow["self_ms"]) / whole if whole else 0.0
    kind = str(slow["iterator"]).partition("[")[0]
    calls = int(slow["calls"])
    evidence = f"**{kind}** takes **{slow['self_ms']:,.1f} ms** of the **{whole:,.1f} ms** spent in the pipeline (**{part:.0f}%**), in **{calls:,}** calls"
    serial = kind in ("Map", "Interleave") or (kind in ("MapAndBatch",) and "1 thread" in str(slow["note"]))
    if serial:
        out.append((
            "map_serial", severity, "Run Dataset.map in parallel", f"{evidence}, on **1 thread**. The step waits **{wait:.2f} ms** for it.", wait,
            "-ds = ds.map(fn)\n+ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)", "input", "Steps & input: critical path",
        ))  # fmt: skip
    else:
        out.append((
            "input_bottleneck", severity, f"Make {kind} faster", f"{evidence}. {first['advice']}", wait, "", "input", "Steps & input: critical path",
        ))  # fmt: skip
    root_children = set(mine.loc[mine["parent"].isin(mine.loc[mine["long_name"].str.count("::") == 1, "id"]), "iterator"])
    if not any(str(n).startswith("Prefetch") for n in root_children):
        gain = min(wait, max(mean["step_time"] - wait, 0.0))
        out.append((
            "prefetch_missing", severity, "Prefetch, so that input overlaps compute",
            f"No Prefetch ends the pipeline: all **{wait:.2f} ms** of input a step are spent while nothing else runs. "
            f"Overlapped, up to **{gain:.2f} ms** of them would hide behind the rest of the step.", gain,
            "-ds = ds.batch(n)\n+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)", "input", "Steps & input: pipeline",
        ))  # fmt: skip
    return out


def _launch(mean: dict[str, float], percent: dict[str, float], tf_data: bool) -> list[tuple[Any, ...]]:
    share = percent["kernel_launch"]
    if share < OTHER_MODERATE:
        return []
    text = f"**{share:.0f}%** of a step (**{mean['kernel_launch']:.2f} ms**) prepares and launches kernels."
    fix = " model.compile(optimizer, loss,\n+              jit_compile=True, steps_per_execution=10)"
    if tf_data:
        text += " tf.data threads may compete with the launching thread: give it its own."
        fix = "+import os\n+os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'  # before TensorFlow starts\n" + fix
    return [("kernel_launch", _severity(share, OTHER_MODERATE, OTHER_HIGH), "Launch fewer, larger kernels", text, mean["kernel_launch"], fix, "kernels", "GPU kernels")]


def _precision(overview: dict[str, Any], mean: dict[str, float]) -> list[tuple[Any, ...]]:
    half = overview["compute_16bit_percent"]
    if half is None or half >= 10.0 or not mean["device_compute"]:
        return []
    gain = mean["device_compute"] / 2
    text = f"Only **{half:.0f}%** of device compute is 16 bit. Where accuracy permits, 16-bit ops run up to twice as fast and use TensorCores."
    return [("mixed_precision", _severity(gain / mean["step_time"] * 100, 5, 20), "Use mixed precision", text, gain,
             "+tf.keras.mixed_precision.set_global_policy('mixed_float16')", "kernels", "GPU kernels")]  # fmt: skip


def _tensor_cores(mean: dict[str, float], kernels: pd.DataFrame) -> list[tuple[Any, ...]]:
    if not len(kernels):
        return []
    whole = float(kernels["total_us"].sum())
    unused = kernels[kernels["op_tensor_core_eligible"] & ~kernels["uses_tensor_core"]]
    share = 100 * float(unused["total_us"].sum()) / whole if whole else 0.0
    if share < 10.0:
        return []
    worst = unused.iloc[0]
    gain = mean["device_compute"] * share / 100
    text = (
        f"**{share:.0f}%** of kernel time is in kernels whose op could run on TensorCores but does not; the largest is {_short(str(worst['op']))} "
        f"with **{worst['total_us'] / 1000:.2f} ms**. Channels and batch as multiples of 8, and 16-bit inputs, allow it."
    )
    return [("tensor_cores", _severity(share, 10, 30), "Let eligible ops use TensorCores", text, gain, "", "kernels", "GPU kernels: eligible, not used")]


def _short(op: str) -> str:
    return "/".join(op.split("/")[-3:]).replace("*", "")


def _eager(overview: dict[str, Any], mean: dict[str, float], percent: dict[str, float]) -> list[tuple[Any, ...]]:
    share = max(overview["eager_host_percent"] or 0.0, overview["eager_device_percent"] or 0.0)
    if share <= 10.0:
        return []
    text = f"**{share:.0f}%** of op time ran eagerly, op by op. A tf.function runs them as one graph."
    return [("eager", "medium", "Put eager code into a tf.function", text, np.nan, "+@tf.function\n def train_step(batch):", "ops", "Ops")]


def _share(rule: str, category: str, title: str, what: str, mean: dict[str, float], percent: dict[str, float]) -> list[tuple[Any, ...]]:
    share = percent[category]
    if share < OTHER_MODERATE:
        return []
    text = f"**{share:.0f}%** of a step (**{mean[category]:.2f} ms**) is {what}."
    return [(rule, _severity(share, OTHER_MODERATE, OTHER_HIGH), title, text, mean[category], "", "trace", "Trace")]


def _other(overview: dict[str, Any], mean: dict[str, float], percent: dict[str, float]) -> list[tuple[Any, ...]]:
    share = percent["other"]
    if share < OTHER_HIGH:
        return []
    text = f"**{share:.0f}%** of a step (**{mean['other']:.2f} ms**) is in no recorded op: Python between ops, callbacks, logging or I/O."
    return [("other", "medium", "Run several steps in one call", text, mean["other"],
             " model.compile(optimizer, loss,\n+              steps_per_execution=10)", "trace", "Trace")]  # fmt: skip
