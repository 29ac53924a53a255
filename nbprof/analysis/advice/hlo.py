"""Advice rules about compiled programs: sizes that fit the matrix unit and its tiles, missed
fusions, data movement.

Source of the TPU rules: the performance guide and the profiling page of Cloud TPU; where these give
no number, the threshold is nbprof's.
"""

from __future__ import annotations

import re
from math import ceil

from nbprof.analysis.advice.evidence import MUCH_PADDING
from nbprof.analysis.advice.facts import KERNELS, AdviceRule, Facts, named, short
from nbprof.analysis.advice.programs import ELEMENTWISE_KINDS, MOSTLY_KNOWN, Product, Work
from nbprof.analysis.ops.ops import NEAR_ROOF
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    DEVICE_TIME,
    ESTIMATED,
    GPU_GUIDE_CHOICE,
    JAX,
    TPU,
    TPU_GUIDE_CHOICE,
    XLA,
    Found,
    Rule,
    Shown,
    Target,
    Threshold,
)
from nbprof.display import wording

LANES = 128
"""A TPU stores arrays in tiles of 8 rows by this many columns; a batch is best a multiple of 8, or
of both.
"""
SUBLANES = 8
SHORT_OP_US = 10.0
_LOST = Threshold("≥ {lost:g} % of compute time lost", lost=5.0)
_UNFUSED = 20.0

_OP_PROFILE, _HLO = Target("op_profile", "Op profile"), Target("hlo", "HLO & roofline")

# Names of kernels that convert between layouts, in cuDNN, MIOpen, TensorFlow and PyTorch.
_LAYOUT = re.compile(
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|tensorTransform|batched_transpose|SwapDimension\dAnd\d|transpose_kernel|"
    r"transpose_readWrite|transpose(?:Fused|Nchw|Nhwc)",
    re.IGNORECASE,
)


def _named(work: Work, row: int) -> str:
    """The display name of an op: its framework name, shortened, or its name in the program."""
    op = work.ops.iloc[row]
    return short(str(op["framework_op"]) or str(op["name"]))


def _batch(facts: Facts, limit: Threshold) -> Found | None:
    """T2, T3: a batch per core that is not a multiple of 8."""
    work = facts.work
    if work is None or not work.matrix_unit:
        return None
    ill = [p for p in _once(work) if p.batch and p.batch % SUBLANES]
    misfit_ps = _own(work, ill)
    if work.share(misfit_ps) < limit["often"]:
        return None
    by_size: dict[int, float] = {}
    for product in ill:
        by_size[product.batch] = by_size.get(product.batch, 0.0) + float(
            work.ops["own"].iloc[product.op]
        )
    size = max(by_size, key=lambda n: by_size[n])
    full = _up(size, SUBLANES if size < LANES else LANES)
    gain = facts.of_compute(
        sum(float(work.ops["own"].iloc[p.op]) * (1 - p.batch / _up(p.batch, SUBLANES)) for p in ill)
    )
    what = "examples" if any(p.spatial for p in ill) else "rows"
    text = (
        f"**{work.share(misfit_ps):.0f}%** of compute is in products of **{size:,}** {what} per"
        f" core, which is not a multiple of **{SUBLANES}**. TPU tiles are {SUBLANES} by {LANES},"
        f" and partly filled tiles are padded. Multiples of {LANES} are best."
    )
    fix = (
        f"-batch_per_core = {size}\n"
        f"+batch_per_core = {full}  # a multiple of {SUBLANES}, or of {LANES}"
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _once(work: Work) -> list[Product]:
    """The largest product of each op: only one of those in a fusion can take its time."""
    best: dict[int, Product] = {}
    for product in work.products:
        largest = best.get(product.op)
        if largest is None or _size(product) > _size(largest):
            best[product.op] = product
    return list(best.values())


def _size(product: Product) -> int:
    return product.rows * product.depth * product.columns


def _own(work: Work, products: list[Product]) -> float:
    return float(work.ops["own"].iloc[[p.op for p in products]].sum()) if products else 0.0


def _up(size: int, unit: int) -> int:
    return ceil(size / unit) * unit


def _fills(size: int, unit: int) -> float:
    """The fraction of the matrix unit's rows or columns that a size uses."""
    return size / _up(size, unit) if size else 1.0


def _lost(product: Product, unit: int) -> float:
    """The fraction of the matrix unit that a product leaves unused; the compiler may map either
    outer size to the unit's columns.
    """
    return 1 - _fills(product.depth, unit) * max(
        _fills(product.columns, unit), _fills(product.rows, unit)
    )


def _misfits(facts: Facts) -> tuple[list[Product], list[Product]]:
    """T4 and the feature sizes of T3: products with a size below the matrix unit's, and those with
    a size that is not a multiple of it.
    """
    work = facts.work
    if work is None or not work.matrix_unit:
        return [], []
    unit = work.matrix_unit
    bandwidth = work.ops["bandwidth_fraction"].fillna(0.0).to_numpy(float)
    products = [p for p in _once(work) if bandwidth[p.op] < NEAR_ROOF and _lost(p, unit) > 0]
    small = [p for p in products if min(p.depth, max(p.columns, p.rows)) < unit]
    return small, [p for p in products if p not in small]


def _empty(
    facts: Facts, products: list[Product], limit: Threshold
) -> tuple[str, float, Product, int] | None:
    """The cost of products that leave part of the matrix unit unused: evidence, ms per step, the
    worst product, and the unit.
    """
    work = facts.work
    if work is None or not products:
        return None
    unit = work.matrix_unit
    costs = [float(work.ops["own"].iloc[p.op]) * _lost(p, unit) for p in products]
    if work.share(sum(costs)) < limit["lost"]:
        return None
    worst = products[costs.index(max(costs))]
    text = (
        f"Matrix products waste **{work.share(sum(costs)):.0f}%** of compute time on unused parts"
        f" of the {unit} by {unit} matrix unit. The worst is {_named(work, worst.op)}:"
        f" **{worst.rows:,} × {worst.depth:,}** by **{worst.depth:,} × {worst.columns:,}**, which"
        f" fills **{100 * (1 - _lost(worst, unit)):.0f}%** of it."
    )
    return text, facts.of_compute(sum(costs)), worst, unit


def _small_products(facts: Facts, limit: Threshold) -> Found | None:
    if (found := _empty(facts, facts.once(_misfits)[0], limit)) is None:
        return None
    text, gain, worst, unit = found
    low = min(worst.depth, worst.columns)
    fix = (
        (
            f"-features = {low}\n"
            f"+features = {unit}  # or combine several products of {low} into one:\n"
            "+out = x @ jnp.concatenate([w_q, w_k, w_v], axis=1)"
        )
        if facts.jax
        else f"-x = layers.Dense({low})(x)\n+x = layers.Dense({unit})(x)"
    )
    return Found(
        text,
        severity=facts.level(gain),
        gain_ms=gain,
        fix=fix,
        title=f"Make matrix products at least {unit} wide",
    )


def _unaligned_products(facts: Facts, limit: Threshold) -> Found | None:
    if (found := _empty(facts, facts.once(_misfits)[1], limit)) is None:
        return None
    text, gain, worst, unit = found
    bad = next(
        (n for n in (worst.depth, worst.columns, worst.rows) if n % unit),
        min(worst.depth, worst.columns),
    )
    fix = f"-features = {bad}\n+features = {_up(bad, unit)}  # a multiple of {unit}"
    return Found(
        text,
        severity=facts.level(gain),
        gain_ms=gain,
        fix=fix,
        title=f"Round sizes up to multiples of {unit}",
    )


def _layout_pairs(facts: Facts, limit: Threshold) -> Found | None:
    """The pairs of the guide's tensor layout: memory-bound products of which both arrays with the
    batch fit no pair of tile sizes.
    """
    work = facts.work
    if work is None or not work.matrix_unit:
        return None
    bandwidth = work.ops["bandwidth_fraction"].fillna(0.0).to_numpy(float)
    # A batch that fits neither side of a tile is for `batch_per_core`; of a convolution, the
    # input's features are not known.
    products = [
        p
        for p in _once(work)
        if p.batch
        and not p.spatial
        and not p.batch % SUBLANES
        and bandwidth[p.op] >= NEAR_ROOF
        and _padded(p) > 0
    ]
    costs = [float(work.ops["own"].iloc[p.op]) * _padded(p) for p in products]
    if not products or work.share(sum(costs)) < limit["lost"]:
        return None
    worst = products[costs.index(max(costs))]
    batch = worst.batch
    features = max(worst.depth, worst.columns, key=lambda size: _tiled(batch, size) - batch * size)
    text = (
        f"Products limited by memory spend **{work.share(sum(costs)):.0f}%** of compute time moving"
        f" padding. The worst is {_named(work, worst.op)}, with a batch per core of **{batch:,}**"
        f" and **{features:,}** features. In tiles of {SUBLANES} by {LANES}, a batch in multiples"
        f" of {SUBLANES} goes with features in multiples of {LANES}, and one in multiples of"
        f" {LANES} with features in multiples of {SUBLANES}."
    )
    wide, long = (batch, _up(features, LANES)), (_up(batch, LANES), _up(features, SUBLANES))
    better, units = min(
        (wide, (SUBLANES, LANES)),
        (long, (LANES, SUBLANES)),
        key=lambda choice: choice[0][0] * choice[0][1],
    )
    gain = facts.of_compute(sum(costs))
    fix = (
        f"-batch_per_core, features = {batch}, {features}\n"
        f"+batch_per_core, features = {better[0]}, {better[1]}"
    )
    return Found(
        text,
        severity=facts.level(gain),
        gain_ms=gain,
        fix=f"{fix}  # multiples of {units[0]} and {units[1]}",
    )


def _tiled(batch: int, features: int) -> int:
    """The elements of an array of examples by features in tiles; the compiler may put either size
    along the tile's columns.
    """
    return min(
        _up(batch, SUBLANES) * _up(features, LANES), _up(batch, LANES) * _up(features, SUBLANES)
    )


def _padded(product: Product) -> float:
    """The fraction of what a product reads and writes that is padding of its input and output; that
    of its weights is not counted.
    """
    batch, depth, columns = product.batch, product.depth, product.columns
    total = _tiled(batch, depth) + _tiled(batch, columns) + depth * columns
    return 1 - (batch * (depth + columns) + depth * columns) / total if total else 0.0


def _padding(facts: Facts, limit: Threshold) -> Found | None:
    """T5, T6: memory lost to tile padding."""
    padding = facts.evidence.padding
    if padding is None or padding.expansion <= limit["times"]:
        return None
    lost = padding.peak_bytes - padding.unpadded_bytes
    if lost < limit["least_mib"] * 2**20:
        return None
    text = (
        f"Padding takes **{wording.size(lost)}** of the **{wording.size(padding.peak_bytes)}** at"
        f" the peak of {padding.program} (**{padding.expansion:.2f}×** its unpadded size)."
    )
    if padding.buffer:
        text += (
            f" The worst buffer is {padding.buffer}, {padding.shape}:"
            f" **{wording.size(padding.buffer_bytes)}** for"
            f" **{wording.size(padding.buffer_unpadded_bytes)}** of data."
        )
    level = "high" if padding.expansion > limit["much"] else "medium"
    room = facts.evidence.device_bytes
    if room and padding.peak_bytes > limit["full"] * room:
        text += f" The peak is **{100 * padding.peak_bytes / room:.0f}%** of device memory."
        level = "high"
    return Found(text, severity=level)


def _single_ops(facts: Facts, limit: Threshold) -> Found | None:
    """T7: elementwise ops compiled separately, one program each."""
    work = facts.work
    if work is None or not facts.jax:
        return None
    alone = work.lonely
    single_ps = float(alone["own"].sum())
    if len(alone) < 2 or work.share(single_ps) < limit["least"]:
        return None
    gain = facts.of_compute(single_ps - float(alone["own"].max()))
    text = (
        f"**{work.share(single_ps):.0f}%** of compute is in **{len(alone):,}** programs of a single"
        " elementwise op, the longest"
        f" {alone['program'].iloc[int(alone['own'].to_numpy().argmax())]}. Each reads and writes"
        " all its values in memory. Inside one jit, XLA fuses them."
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain)


def _unfused(facts: Facts, limit: Threshold) -> Found | None:
    """T7: unfused elementwise ops, unless they are programs of their own."""
    work = facts.work
    if work is None or _single_ops(facts, limit) is not None:
        return None
    plain = work.ops[work.ops["category"] == ELEMENTWISE_KINDS[1]]
    elementwise_ps = float(plain["own"].sum())
    if work.share(elementwise_ps) < limit["least"]:
        return None
    gain = facts.of_compute(elementwise_ps)
    text = (
        f"**{work.share(elementwise_ps):.0f}%** of compute is in **{len(plain):,}** unfused"
        f" elementwise ops, the longest {_named(work, int(plain.index[0]))}. Host callbacks,"
        " prints and barriers between ops keep XLA from fusing them."
    )
    fix = (
        "-x = jax.lax.optimization_barrier(x)\n-jax.debug.print('{}', x)\n y = jnp.tanh(x * w + b)"
        if facts.jax
        else ("-tf.print(x)\n y = tf.tanh(x * w + b)  # no host work between ops of one function")
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _chains(facts: Facts, limit: Threshold) -> Found | None:
    """T7: memory-bound neighbours where only the second reads what the first wrote."""
    work = facts.work
    if work is None or work.share(work.chained) < limit["least"]:
        return None
    gain = facts.of_compute(work.chained)
    text = (
        f"**{work.chains:,}** memory-bound elementwise ops read values that another such op wrote"
        f" only for them, up to **{work.share(work.chained):.0f}%** of compute"
        f" (**{wording.millis(gain)}** {facts.unit.per}); the longest is {work.chain}. If fused,"
        " the values between them would not go through memory."
    )
    fix = (
        (
            "-h = jax.jit(f)(x)\n"
            "-y = jax.jit(g)(jax.lax.optimization_barrier(h))\n"
            "+y = jax.jit(lambda x: g(f(x)))(x)"
        )
        if facts.jax
        else "-h = tf.identity(f(x))\n-tf.print(h)\n-y = g(h)\n+y = g(f(x))  # nothing between them"
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _broadcast(facts: Facts, limit: Threshold) -> Found | None:
    """T8: broadcasts that are materialized in memory."""
    work = facts.work
    if work is None:
        return None
    broadcasts = work.ops[work.ops["spreads"].astype(bool)]
    broadcast_ps = float(broadcasts["own"].sum())
    if work.share(broadcast_ps) < limit["least"]:
        return None
    gain = facts.of_compute(broadcast_ps)
    worst = int(broadcasts.index[0])
    text = (
        f"**{work.share(broadcast_ps):.0f}%** of compute (**{wording.millis(gain)}**"
        f" {facts.unit.per}) only broadcasts values into larger arrays, mostly"
        f" {_named(work, worst)}, {work.ops['shape'].iloc[worst]}. A broadcast costs nothing if it"
        " is fused with its consumer."
    )
    fix = (
        "-best = jnp.argmax(v[None, :] + jnp.zeros((n, m)), axis=1)\n"
        "+best = jnp.full(n, jnp.argmax(v))  # reduce first, then broadcast"
    )
    if not facts.jax:
        fix = (
            "-best = tf.argmax(v[None, :] + tf.zeros([n, m]), axis=1)\n"
            "+best = tf.fill([n], tf.argmax(v))  # reduce first, then broadcast"
        )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _layout(facts: Facts, limit: Threshold) -> Found | None:
    """G10: layout changes: known from the ops of compiled programs, otherwise from kernel names."""
    return (
        _layout_of_kernels(facts, limit)
        if facts.evidence.work is None
        else _layout_of_programs(facts, limit)
    )


def _layout_of_programs(facts: Facts, limit: Threshold) -> Found | None:
    work = facts.work
    if work is None:
        return None
    layout_changes = work.ops[work.ops["moves"].astype(bool)]
    layout_ps = float(layout_changes["own"].sum())
    if work.share(layout_ps) < limit["least"]:
        return None
    gain = facts.of_compute(layout_ps)
    worst = int(layout_changes.index[0])
    text = (
        f"**{work.share(layout_ps):.0f}%** of compute (**{wording.millis(gain)}**"
        f" {facts.unit.per}) only changes the layout of arrays, mostly {_named(work, worst)},"
        f" {work.ops['shape'].iloc[worst]}."
    )
    fix = _CHANNELS_LAST
    if facts.jax:
        fix = (
            "-dims = ('NCHW', 'OIHW', 'NCHW')\n"
            "+dims = ('NHWC', 'HWIO', 'NHWC')  # and arrays to match\n"
            " y = jax.lax.conv_general_dilated(x, w, strides, padding,\n"
            "                                  dimension_numbers=dims)"
        )
    return Found(
        text,
        severity=facts.level(gain),
        gain_ms=gain,
        fix=fix,
        title="Keep arrays in the layout that ops need",
        target=_HLO,
    )


def _layout_of_kernels(facts: Facts, limit: Threshold) -> Found | None:
    kernels, kernel_us = facts.computing
    if not kernel_us:
        return None
    layout_kernels = named(kernels, _LAYOUT)
    share = 100 * float(layout_kernels["total_us"].sum()) / kernel_us
    if share < limit["least"]:
        return None
    gain = facts.compute_ms * share / 100
    worst = layout_kernels.iloc[int(layout_kernels["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in kernels that only change the layout of arrays,"
        f" mostly for {short(worst['op'])} (**{wording.millis(worst['total_us'] / 1000)}**)."
    )
    fix, gain_is = _CHANNELS_LAST, ""
    if facts.torch:
        # No bound: other kernels than these get faster in that layout, too.
        gain_is = ABOUT
        text += (
            " Convolutions prefer channels-last; models in that layout do not need these kernels."
        )
        fix = (
            " model = model.to(device)\n"
            "+model = model.to(memory_format=torch.channels_last)\n"
            "+x = x.to(memory_format=torch.channels_last)"
        )
    return Found(
        text,
        severity=facts.level(gain),
        gain_ms=gain,
        fix=fix,
        title="Keep arrays in the layout that kernels need",
        target=KERNELS,
        gain_is=gain_is,
    )


_CHANNELS_LAST = (
    "-layout = 'channels_first'\n"
    "+layout = 'channels_last'\n"
    " x = layers.Conv2D(64, 3, data_format=layout)(x)"
)


def _utilisation(facts: Facts, limit: Threshold) -> Found | None:
    """T15: a device-bound step that uses less than half of the device's peaks, with the likely
    cause.
    """
    work = facts.work
    if work is None or facts.percent["device_compute"] < limit["busy"]:
        return None
    ops = work.ops
    measured = ops[
        ops["known"].astype(bool)
        & ops["compute_fraction"].notna()
        & ops["bandwidth_fraction"].notna()
    ]
    times = measured["own"].astype(float)
    if not len(measured) or float(times.sum()) < MOSTLY_KNOWN * work.own:
        return None
    compute, moved = (
        float((times * measured[name].clip(upper=1.0)).sum() / times.sum())
        for name in ("compute_fraction", "bandwidth_fraction")
    )
    if max(compute, moved) >= limit["used"]:
        return None
    best = measured[["compute_fraction", "bandwidth_fraction"]].max(axis=1).clip(upper=1.0)
    wasted = times * (1 - best)
    gain = facts.of_compute(float(wasted.sum()))
    by_category = wasted.groupby(measured["category"]).sum()
    worst = str(by_category.idxmax())
    short = float(times[(times / measured["runs"].clip(lower=1) / 1e6) < SHORT_OP_US].sum())
    text = (
        f"The device computes for **{facts.percent['device_compute']:.0f}%** of {facts.unit.time},"
        f" at **{100 * compute:.0f}%** of peak FLOP/s and **{100 * moved:.0f}%** of peak memory"
        " bandwidth. "
    )
    blind = ops["compute_fraction"].isna() & ops["bandwidth_fraction"].isna()
    if (unknown := 100 * float(ops["own"][blind].sum()) / work.own) >= 1:
        text += f"(The cost of **{unknown:.0f}%** of that time is unknown.) "
    if short >= times.sum() / 2:
        part = 100 * short / times.sum()
        text += (
            f"**{part:.0f}%** of that time is in ops shorter than {SHORT_OP_US:.0f} µs, which end"
            " before they fill the device."
        )
        fix = "+batch_size *= 8  # as large as memory and accuracy permit"
        title = "Make ops larger"
    else:
        text += (
            f"Most of the loss is in **{worst}** ops"
            f" (**{100 * by_category.max() / wasted.sum():.0f}%**)."
        )
        title = f"Speed up {worst} ops"
        fix = _CAUSES.get(_cause(worst), _CAUSES["other"])[0 if facts.jax else 1]
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix, title=title)


_CAUSES = {
    "gather": (
        (
            "-y = table[ids]\n"
            "+y = jax.nn.one_hot(ids, len(table), dtype=table.dtype) @ table  # for small tables"
        ),
        (
            "-y = tf.gather(table, ids)\n"
            "+y = tf.one_hot(ids, table.shape[0], dtype=table.dtype) @ table  # for small tables"
        ),
    ),
    "product": (
        (
            "-y = x @ w\n"
            "+y = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)  # and larger: batch, or combine"
            " several products"
        ),
        (
            "-y = x @ w\n"
            "+y = tf.cast(x, tf.bfloat16) @ tf.cast(w, tf.bfloat16)  # and larger: batch, or"
            " combine several products"
        ),
    ),
    "other": (
        "+batch_size *= 8  # as large as memory and accuracy permit",
        "+batch_size *= 8  # as large as memory and accuracy permit",
    ),
}


def _cause(category: str) -> str:
    if any(
        word in category for word in ("gather", "scatter", "dynamic-slice", "dynamic-update-slice")
    ):
        return "gather"
    return (
        "product"
        if any(word in category for word in ("convolution", "dot", "gemm", "output fusion"))
        else "other"
    )


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "batch_per_core",
        _batch,
        threshold=Threshold(
            f"not a multiple of {SUBLANES}, in ≥ {{often:g}} % of compute time", often=10.0
        ),
        source=TPU_GUIDE_CHOICE,
        target=_OP_PROFILE,
        applies=TPU,
        looks_at="Batch size of convolutions and rows of forward products, per core",
        title=f"Make the batch per core a multiple of {SUBLANES}",
        certainty=ESTIMATED,
        refuted_by="a batch padded to a multiple of 8 per core takes as long per example",
        done=Shown("The batch is a multiple of 8"),
    ),
    Rule(
        "mxu_size",
        _small_products,
        threshold=_LOST,
        source=TPU_GUIDE_CHOICE,
        target=_OP_PROFILE,
        applies=TPU,
        looks_at=(
            "Matrix products with a size below the matrix unit's (128, 256 from v6e on), not"
            " memory-bound"
        ),
        certainty=ESTIMATED,
        refuted_by="the products take as long per element with larger sizes",
        done=Shown("The sizes fill the matrix unit"),
    ),
    Rule(
        "mxu_alignment",
        _unaligned_products,
        threshold=_LOST,
        source=TPU_GUIDE_CHOICE,
        target=_OP_PROFILE,
        applies=TPU,
        looks_at="Matrix products whose sizes are not multiples of the matrix unit's, not memory-bound",
        certainty=ESTIMATED,
        refuted_by="the products take as long with sizes padded to a multiple of the matrix unit",
        done=Shown("The sizes are multiples of the matrix unit's"),
    ),
    Rule(
        "layout_pairs",
        _layout_pairs,
        threshold=_LOST,
        source="Cloud TPU performance guide (tensor layout); nbprof's threshold",
        target=_OP_PROFILE,
        applies=TPU,
        looks_at=(
            f"Memory-bound forward products: batch per core in multiples of {SUBLANES} with"
            f" features of {LANES}, or {LANES} with {SUBLANES} (on 8 cores: 64 x {LANES} or 1,024"
            f" x {SUBLANES})"
        ),
        title="Choose batch and feature sizes that fill tiles together",
        certainty=ESTIMATED,
        refuted_by="the products take as long with sizes padded to one of the pairs",
        done=Shown("Batch and features fill tiles together"),
    ),
    Rule(
        "tile_padding",
        _padding,
        threshold=Threshold(
            (
                "> {times:g}× and ≥ {least_mib:g} MiB (high from {much:g}×, or if the peak"
                " is over {full:percent} of memory)"
            ),
            times=1.1,
            least_mib=MUCH_PADDING / 2**20,
            much=1.5,
            full=0.9,
        ),
        source=TPU_GUIDE_CHOICE,
        target=Target("memory_viewer", "Program memory"),
        applies=TPU,
        looks_at="Peak memory of a program, with and without tile padding",
        title=f"Choose shapes that fill tiles of {SUBLANES} by {LANES}",
        fix=(
            f"-x = x.reshape(batch, -1, 3)  # the last dimension is padded to {LANES}, the one"
            f" before it to {SUBLANES}\n"
            f"+x = x.reshape(batch, -1)  # large dimensions last, multiples of {LANES}"
        ),
        refuted_by="the peak is the same with sizes padded less",
        gain_is="",
        done=Shown("Little padding"),
    ),
    Rule(
        "single_ops",
        _single_ops,
        threshold=Threshold("≥ {least:g} % of compute time, in several", least=_UNFUSED),
        source=TPU_GUIDE_CHOICE,
        target=_HLO,
        applies=JAX,
        looks_at="Programs of a single elementwise op",
        title="Put ops into one jit",
        fix=(
            "-y = jnp.tanh(x * w + b)  # each op is its own program\n"
            "+@jax.jit\n"
            "+def layer(x, w, b):\n"
            "+    return jnp.tanh(x * w + b)"
        ),
        certainty=ESTIMATED,
        refuted_by="the ops take as long in one jit",
        gain_is=ABOUT,
        shortens=DEVICE_TIME,
        done=Shown("The ops are in one program"),
    ),
    Rule(
        "unfused",
        _unfused,
        threshold=Threshold("≥ {least:g} % of compute time", least=_UNFUSED),
        source=TPU_GUIDE_CHOICE,
        target=_HLO,
        applies=XLA,
        looks_at="Unfused elementwise ops",
        title="Let XLA fuse elementwise ops",
        certainty=ESTIMATED,
        refuted_by="compute time is the same when the ops are fused",
        shortens=DEVICE_TIME,
        done=Shown("The ops are fused"),
    ),
    Rule(
        "missed_fusion",
        _chains,
        threshold=Threshold("saves up to ≥ {least:g} % of compute time", least=5.0),
        source=TPU_GUIDE_CHOICE,
        target=_HLO,
        applies=XLA,
        looks_at="Memory-bound elementwise ops that are the only readers of another such op's output",
        title="Let XLA fuse neighbouring ops",
        certainty=ESTIMATED,
        refuted_by="compute time is the same when the ops are fused",
        shortens=DEVICE_TIME,
        done=Shown("The ops are fused"),
    ),
    Rule(
        "broadcast",
        _broadcast,
        threshold=Threshold("≥ {least:g} % of compute time", least=2.0),
        source=TPU_GUIDE_CHOICE,
        target=_HLO,
        applies=XLA,
        looks_at="Ops that only broadcast",
        title="Avoid materializing broadcasts",
        certainty=ESTIMATED,
        refuted_by="compute time is the same without the broadcasts",
        shortens=DEVICE_TIME,
        done=Shown("No op only broadcasts"),
    ),
    Rule(
        "layout",
        _layout,
        threshold=Threshold("≥ {least:g} % of compute time", least=5.0),
        source=GPU_GUIDE_CHOICE,
        target=_HLO,
        applies=ALL,
        looks_at="Ops of programs, and kernels, that only change the layout of arrays",
        certainty=ESTIMATED,
        refuted_by="compute time is the same with arrays created in the layout that is needed",
        shortens=DEVICE_TIME,
        done=Shown("No op or kernel only changes the layout"),
    ),
    Rule(
        "utilisation",
        _utilisation,
        threshold=Threshold(
            "both < {used:percent}, device compute ≥ {busy:g} % of step time", used=0.5, busy=50.0
        ),
        source="XProf's smart suggestions; nbprof's share of step time",
        target=_OP_PROFILE,
        applies=XLA,
        looks_at="FLOP/s and memory bandwidth of ops against the device's peaks, in device-bound steps",
        certainty=ESTIMATED,
        refuted_by="the device's counters show a higher utilization",
        done=Shown("The device reaches half of a peak"),
    ),
)
