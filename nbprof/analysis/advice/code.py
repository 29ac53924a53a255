"""Advice rules about the code of a step: types, callbacks, loops, attention, ungraded passes.

Sources: PyTorch's documentation of attention, JAX's of loops.
"""

from __future__ import annotations

import re

from nbprof.analysis.advice.checks import LITTLE_16_BIT, PART_HIGH
from nbprof.analysis.advice.facts import (
    IDLE_PERCENT,
    KERNELS,
    OPS,
    STEP_SHARE,
    TRACE,
    AdviceRule,
    Facts,
    named,
    several,
    short,
)
from nbprof.analysis.advice.step_code import Part
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    DEVICE_TIME,
    ESTIMATED,
    INFERRED,
    JAX,
    ON_HOST,
    OURS,
    OUTSIDE,
    PYTORCH,
    TENSORFLOW_JAX,
    UP_TO,
    Found,
    Rule,
    Shown,
    Target,
    Threshold,
)
from nbprof.display import wording

# Products of matrices in float64, as libraries of NVIDIA and AMD name them; the names of other
# kernels do not tell what they compute in.
_DOUBLE_PRODUCT = re.compile(r"(?:^|[_\d])dgemm|d884gemm|_f64f64_|Cijk_\w+?_DB_")


def _float64(facts: Facts, limit: Threshold) -> Found | None:
    """Numbers of 64 bits, by recorded types of inputs and those in compiled programs; without
    either, by the names of kernels.
    """
    share, worst, kind = facts.evidence.code.float64_percent, facts.evidence.code.float64_op, "op"
    if share is None:
        share, worst, kind = 0.0, "", "kernel"
        kernels, kernel_us = facts.computing
        products = named(kernels, _DOUBLE_PRODUCT) if kernel_us else kernels.head(0)
        if len(products):
            share = 100 * float(products["total_us"].sum()) / kernel_us
            worst = str(products.iloc[0]["op"])
    if share < limit["moderate"]:
        return None
    text = (
        f"**{share:.0f}%** of {kind} time is spent on float64, mostly in"
        f" {short(worst) or 'products'}. "
    )
    if facts.compute_ms > 0:
        # The saving depends on the device: some compute 64 times as many float32 numbers per
        # second, others twice as many.
        text += "GPUs and TPUs are 2 to 64 times as fast in float32."
        gain = float("nan")
    else:
        text += "In float32 an instruction computes twice as many values, from half the bytes."
        gain = facts.mean["host_compute"] * share / 200
    text += " float64 is NumPy's default, and spreads to everything computed from it."
    if facts.jax:
        fix = "-jax.config.update('jax_enable_x64', True)\n+x = jnp.asarray(x, jnp.float32)"
    elif facts.torch:
        fix = (
            "-x = torch.from_numpy(array)\n"
            "+x = torch.from_numpy(array).float()  # model.float(), too"
        )
    else:
        fix = "-x = tf.cast(x, tf.float64)\n+x = tf.cast(x, tf.float32)"
    target = KERNELS if kind == "kernel" else OPS
    return Found(text, severity=limit.severity(share), gain_ms=gain, fix=fix, target=target)


def _callback(facts: Facts, limit: Threshold) -> Found | None:
    """Callbacks that something waits for, because nothing else of the step runs."""
    calls = facts.evidence.code.callbacks
    step = facts.mean["step_time"]
    if calls is None or not step or 100 * calls.alone_ms / step < limit["moderate"]:
        return None
    text = (
        f"The compiled program calls back into Python **{calls.times:,.1f}** times"
        f" {facts.unit.counted} ({short(calls.name)}): **{wording.millis(calls.ms)}**"
        f" (**{100 * calls.ms / step:.0f}%** of {facts.unit.time})"
    )
    if 100 * (calls.ms - calls.alone_ms) / step >= limit["moderate"]:
        gain_is = UP_TO
        text += (
            f". For **{wording.millis(calls.alone_ms)}** of that, no other op of {facts.unit.the}"
            " runs; the remaining time is saved only as far as the callback delays the ops that run"
            " at the same time."
        )
    else:
        gain_is = ABOUT
        text += ", during which the ops that need the result wait."
    fix = "-y = tf.numpy_function(f, [x], tf.float32)\n+y = f_in_tensorflow(x)"
    if facts.jax:
        fix = (
            "-y = jax.pure_callback(f, shape, x)\n"
            "+y = f_in_jnp(x)\n"
            "-jax.debug.print('{}', loss)\n"
            "+return loss  # print it after the step"
        )
    severity = limit.severity(100 * calls.alone_ms / step)
    return Found(text, severity=severity, gain_ms=calls.ms, fix=fix, gain_is=gain_is)


def _cells(facts: Facts, limit: Threshold) -> Found | None:
    cells = facts.evidence.code.cells
    share, idle = _share(facts, cells), facts.overview["device_idle_percent"]
    if cells is None or cells.times < limit["cells"] or share < limit["moderate"]:
        return None
    on_device = facts.compute_ms > 0
    if on_device and (idle is None or idle < limit["idle"]):
        return None
    kind = cells.name.removeprefix("aten::").removesuffix("_cell").partition("_")[0].upper()
    text = (
        f"Python calls {cells.name} **{cells.times:,.0f}** times {facts.unit.counted}; with their"
        f" backward pass they are **{cells.ops:,.0f}** ops and **{wording.millis(cells.ms)}**"
        f" (**{share:.0f}%** of {facts.unit.time}). nn.{kind} takes the whole sequence in one call."
    )
    fix = (
        "-for t in range(x.shape[1]):\n"
        "-    state = cell(x[:, t], state)\n"
        f"+y, state = torch.nn.{kind}(n, m, batch_first=True)(x)"
    )
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=float("nan") if on_device else cells.ms,
        fix=fix,
    )


def _attention(facts: Facts, limit: Threshold) -> Found | None:
    attention = facts.evidence.code.attention
    share = _share(facts, attention)
    if attention is None or share < limit["moderate"]:
        return None
    text = (
        f"Attention is computed **{attention.times:,.0f}** times {facts.unit.counted} as separate"
        " matrix products and softmax, each of which reads or writes all scores:"
        f" **{wording.millis(attention.ms)}** with the backward pass (**{share:.0f}%** of"
        f" {facts.unit.time}). Fused attention never stores the scores."
    )
    return Found(text, severity=limit.severity(share), gain_ms=attention.ms)


VALIDATED = Threshold(
    "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=PART_HIGH, high=50.0
)


def validation(facts: Facts, limit: Threshold) -> Found | None:
    """Passes without gradients in the steps, through the whole model that is trained."""
    passes = facts.evidence.code.ungraded
    share = _share(facts, passes)
    if passes is None or share < limit["moderate"]:
        return None
    text = (
        f"In **{100 * passes.times:.0f}%** of the {facts.unit.plural} the whole model also runs"
        f" without gradients: **{wording.millis(passes.ms)}** {facts.unit.per} (**{share:.0f}%**)."
        " Is it validated more often than needed?"
    )
    return Found(text, severity=limit.severity(share), gain_ms=passes.ms)


def _unrolled(facts: Facts, limit: Threshold) -> Found | None:
    chain = facts.evidence.unrolled
    if chain is None or chain.times < limit["times"]:
        return None
    text = (
        f"{chain.program} has **{chain.times:,}** identical matrix products in a row, each fed by"
        f" the previous one ({chain.shape}, {chain.source}): a Python loop that was unrolled, each"
        f" iteration traced and compiled separately, **{chain.instructions:,}** instructions in"
        f" total. jax.lax.scan compiles one iteration; the {facts.unit.noun} time may stay the"
        " same."
    )
    return Found(text, severity="low")


def _tiny(facts: Facts, limit: Threshold) -> Found | None:
    rows = facts.evidence.code.most_rows
    # The rule on small kernels is for devices.
    if rows is None or rows >= limit["rows"] or facts.compute_ms > 0:
        return None
    unit = "pass" if facts.unit.is_recording else facts.unit.noun
    fix = "+batch_size *= 8  # as accuracy permits"
    if facts.torch and facts.torch_runtime.loader:
        fix = ""
    return Found(
        f"No matrix product of the forward pass has more than {several(rows, 'row')}: each {unit}"
        " reads all weights for only that many. Could the batch be larger?",
        severity="low",
        fix=fix,
        title="Use a larger batch" if facts.unit.is_recording else "",
    )


def _share(facts: Facts, part: Part | None) -> float:
    """Percent of step time; 0 without the part."""
    return 0.0 if part is None else facts.percent_of_step(part.ms)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "float64",
        _float64,
        threshold=Threshold(
            "≥ {moderate:g} % of op time (high from {high:g} %)", moderate=LITTLE_16_BIT, high=50.0
        ),
        source=OURS,
        target=OPS,
        applies=ALL,
        looks_at=(
            "Time in float64 ops, by the element types of inputs and in compiled programs, else"
            " by kernel names"
        ),
        title="Compute in float32",
        certainty=ESTIMATED,
        refuted_by="{the} takes as long in float32; or the results need float64",
        gain_is=ABOUT,
        shortens=DEVICE_TIME,
        done=Shown("The ops compute in float32"),
    ),
    Rule(
        "host_callback",
        _callback,
        threshold=STEP_SHARE,
        source=OURS,
        target=TRACE,
        applies=TENSORFLOW_JAX,
        looks_at=(
            "Calls from compiled programs back into Python, other than those of tf.data, while no"
            " other op of the step runs; where none ever does, the gain is *about* their time"
        ),
        title="Keep Python out of the compiled {noun}",
        refuted_by="{the} takes as long without the callback",
        gain_is=UP_TO,
        saves=("host_compute", "other"),
        done=Shown("The program does not call Python"),
    ),
    Rule(
        "time_loop",
        _cells,
        threshold=Threshold(
            (
                "≥ {cells:g} calls per step, ≥ {moderate:g} % of step time (high from"
                " {high:g} %), devices idle ≥ {idle:g} %"
            ),
            cells=8,
            moderate=PART_HIGH,
            high=50.0,
            idle=IDLE_PERCENT,
        ),
        source=OURS,
        target=OPS,
        applies=PYTORCH,
        looks_at="Cells of recurrent networks called one by one, with their backward pass",
        title="Run the recurrent layer over the whole sequence in one call",
        certainty=ESTIMATED,
        refuted_by="{the} takes as long in one call; or each input depends on the previous output",
        saves=ON_HOST,
        needs_units=True,
        done=Shown("The layer runs over the sequence in one call"),
    ),
    Rule(
        "attention",
        _attention,
        threshold=Threshold(
            "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=10.0, high=30.0
        ),
        source="PyTorch's documentation of scaled_dot_product_attention; nbprof's threshold",
        target=OPS,
        applies=PYTORCH,
        looks_at=(
            "Matrix products and softmax that together are attention, by shapes, with their"
            " backward pass"
        ),
        title="Use fused attention",
        fix=(
            "-weights = torch.softmax(q @ k.transpose(-2, -1) * scale, -1)\n"
            "-y = weights @ v\n"
            "+y = torch.nn.functional.scaled_dot_product_attention(q, k, v)"
        ),
        certainty=ESTIMATED,
        refuted_by="{the} takes as long with fused attention; or the weights themselves are needed",
        saves=("device_compute",),
        done=Shown("A fused attention"),
    ),
    Rule(
        "validation",
        validation,
        threshold=VALIDATED,
        source=OURS,
        target=TRACE,
        applies=PYTORCH,
        looks_at=(
            "Forward passes without gradients, within steps, through all weights of the model"
            " being trained"
        ),
        title="Validate less often",
        fix="-evaluate(model, held_out)\n+if step % 500 == 0:\n+    evaluate(model, held_out)",
        certainty=INFERRED,
        refuted_by=(
            "the passes without gradients are part of the method: a target network, rollouts"
        ),
        gain_is=ABOUT,
        saves=(OUTSIDE,),
        needs_units=True,
        requires=Shown("A training pass", lambda facts: facts.evidence.in_use.backward),
        done=Shown("The model runs without gradients in fewer steps"),
    ),
    Rule(
        "unrolled",
        _unrolled,
        threshold=Threshold("≥ {times:g} in a row", times=16),
        source="JAX's documentation of lax.scan; nbprof's threshold",
        target=Target("hlo", "HLO & roofline"),
        applies=JAX,
        looks_at=(
            "Matrix products of the same line and shapes in the main program, each fed by the"
            " previous one, outside the program's own loops"
        ),
        title="Loop over identical layers with jax.lax.scan",
        fix=(
            "-for layer in layers:\n"
            "-    x = apply(layer, x)\n"
            "+stacked = jax.tree.map(lambda *each: jnp.stack(each), *layers)\n"
            "+x, _ = jax.lax.scan(lambda x, layer: (apply(layer, x), None), x, stacked)"
        ),
        certainty=ESTIMATED,
        refuted_by="the program compiles no faster with jax.lax.scan",
        gain_is="",
        done=Shown("The layers are a loop of the program"),
    ),
    Rule(
        # A vector register of a CPU holds 8 or 16 float32 numbers.
        "tiny_batch",
        _tiny,
        threshold=Threshold("< {rows:g} rows", rows=8),
        source=OURS,
        target=OPS,
        applies=ALL,
        looks_at=(
            "Rows of the largest matrix product of the forward pass, on the CPU (PyTorch, JAX)"
        ),
        title="Give each {noun} a larger batch",
        fix=(
            "-loader = DataLoader(dataset, batch_size=2)\n"
            "+loader = DataLoader(dataset, batch_size=64)  # as accuracy permits"
        ),
        certainty=INFERRED,
        refuted_by="twice the batch takes twice as long",
        gain_is="",
        done=Shown("Products with more rows"),
    ),
)
