"""Advice rules about compiled programs: sizes that fit the matrix unit and its tiles, missed
fusions, data movement.

Source of the TPU rules: the performance guide and the profiling page of Cloud TPU; where these give
no number, the threshold is nbprof's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from nbprof.analysis.advice.evidence import MUCH_PADDING
from nbprof.analysis.advice.facts import (
    KERNELS,
    TORCH_CHANNELS_LAST,
    AdviceRule,
    Facts,
    longest_kernel,
    named,
    short,
)
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
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|tensorTransform|batched_transpose|"
    r"SwapDimension\dAnd\d|transpose_kernel|transpose_readWrite|transpose(?:Fused|Nchw|Nhwc)",
    re.IGNORECASE,
)


def _batch(facts: Facts, limit: Threshold) -> Found | None:
    """T2, T3: a batch per core that is not a multiple of 8."""
    work = facts.work
    if work is None or not work.matrix_unit:
        return None
    misfits = [p for p in _largest_products(work) if p.batch and p.batch % SUBLANES]
    time_by_size: defaultdict[int, float] = defaultdict(float)
    padding_ps = 0.0
    for product in misfits:
        time = _time_ps(work, product)
        time_by_size[product.batch] += time
        padding_ps += time * (1 - product.batch / _round_up(product.batch, SUBLANES))
    share = work.share(sum(time_by_size.values()))
    if share < limit["often"]:
        return None
    size = max(time_by_size, key=lambda batch: time_by_size[batch])
    full = _round_up(size, SUBLANES if size < LANES else LANES)
    rows = "examples" if any(p.spatial for p in misfits) else "rows"
    text = (
        f"**{share:.0f}%** of compute is in products of **{size:,}** {rows} per"
        f" core, which is not a multiple of **{SUBLANES}**. TPU tiles are {SUBLANES} by {LANES},"
        f" and partly filled tiles are padded. Multiples of {LANES} are best."
    )
    fix = (
        f"-batch_per_core = {size}\n"
        f"+batch_per_core = {full}  # a multiple of {SUBLANES}, or of {LANES}"
    )
    gain = facts.of_compute(padding_ps)
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _display_name(work: Work, row: int) -> str:
    """The framework name of an op, shortened, or its name in the program."""
    op = work.ops.iloc[row]
    return short(str(op["framework_op"]) or str(op["name"]))


def _largest_products(work: Work) -> list[Product]:
    """The largest product of each op: only one of those in a fusion can take its time."""
    largest: dict[int, Product] = {}
    for product in work.products:
        other = largest.get(product.op)
        if other is None or product.multiplications > other.multiplications:
            largest[product.op] = product
    return list(largest.values())


def _time_ps(work: Work, product: Product) -> float:
    return float(work.ops["own"].iloc[product.op])


def _round_up(size: int, unit: int) -> int:
    return ceil(size / unit) * unit


def _filled_part(size: int, unit: int) -> float:
    """The fraction of the matrix unit's rows or columns that a size uses."""
    return size / _round_up(size, unit) if size else 1.0


def _unused_part(product: Product, unit: int) -> float:
    """The fraction of the matrix unit that a product leaves unused; the compiler may map either
    outer size to the unit's columns.
    """
    outer = max(_filled_part(product.columns, unit), _filled_part(product.rows, unit))
    return 1 - _filled_part(product.depth, unit) * outer


class Misfits(NamedTuple):
    """Products with a size below the matrix unit's, and those with a size that is not a multiple of
    it.
    """

    small: list[Product]
    unaligned: list[Product]


def _misfits(facts: Facts) -> Misfits:
    """T4 and the feature sizes of T3: products that leave part of the matrix unit unused."""
    misfits = Misfits([], [])
    work = facts.work
    if work is None or not work.matrix_unit:
        return misfits
    unit = work.matrix_unit
    bandwidth = work.ops["bandwidth_fraction"].fillna(0.0).to_numpy(float)
    for product in _largest_products(work):
        if bandwidth[product.op] >= NEAR_ROOF or _unused_part(product, unit) <= 0:
            continue
        if min(product.depth, max(product.columns, product.rows)) < unit:
            misfits.small.append(product)
        else:
            misfits.unaligned.append(product)
    return misfits


class Waste(NamedTuple):
    """The cost of products that leave part of the matrix unit unused, in ms per step."""

    text: str
    ms: float
    worst: Product
    unit: int


def _waste(facts: Facts, products: list[Product], limit: Threshold) -> Waste | None:
    """The cost of products, with the one that costs most; None below the threshold."""
    work = facts.work
    if work is None or not products:
        return None
    unit = work.matrix_unit
    costs = [_time_ps(work, product) * _unused_part(product, unit) for product in products]
    share = work.share(sum(costs))
    if share < limit["lost"]:
        return None
    worst = products[costs.index(max(costs))]
    text = (
        f"Matrix products waste **{share:.0f}%** of compute time on unused parts"
        f" of the {unit} by {unit} matrix unit. The worst is {_display_name(work, worst.op)}:"
        f" **{worst.rows:,} × {worst.depth:,}** by **{worst.depth:,} × {worst.columns:,}**, which"
        f" fills **{100 * (1 - _unused_part(worst, unit)):.0f}%** of it."
    )
    return Waste(text, facts.of_compute(sum(costs)), worst, unit)


def _small_products(facts: Facts, limit: Threshold) -> Found | None:
    waste = _waste(facts, facts.once(_misfits).small, limit)
    if waste is None:
        return None
    size, unit = min(waste.worst.depth, waste.worst.columns), waste.unit
    fix = f"-x = layers.Dense({size})(x)\n+x = layers.Dense({unit})(x)"
    if facts.jax:
        fix = (
            f"-features = {size}\n"
            f"+features = {unit}  # or combine several products of {size} into one:\n"
            "+out = x @ jnp.concatenate([w_q, w_k, w_v], axis=1)"
        )
    title = f"Make matrix products at least {unit} wide"
    return _of_waste(facts, waste, fix, title)


def _unaligned_products(facts: Facts, limit: Threshold) -> Found | None:
    waste = _waste(facts, facts.once(_misfits).unaligned, limit)
    if waste is None:
        return None
    worst, unit = waste.worst, waste.unit
    unaligned = [size for size in (worst.depth, worst.columns, worst.rows) if size % unit]
    size = unaligned[0] if unaligned else min(worst.depth, worst.columns)
    fix = f"-features = {size}\n+features = {_round_up(size, unit)}  # a multiple of {unit}"
    return _of_waste(facts, waste, fix, f"Round sizes up to multiples of {unit}")


def _of_waste(facts: Facts, waste: Waste, fix: str, title: str) -> Found:
    return Found(waste.text, severity=facts.level(waste.ms), gain_ms=waste.ms, fix=fix, title=title)


def _layout_pairs(facts: Facts, limit: Threshold) -> Found | None:
    """The pairs of the guide's tensor layout: memory-bound products of which both arrays with the
    batch fit no pair of tile sizes.
    """
    work = facts.work
    if work is None or not work.matrix_unit:
        return None
    products = _memory_bound_products(work)
    costs = [_time_ps(work, product) * _padding_part(product) for product in products]
    if not products or work.share(sum(costs)) < limit["lost"]:
        return None
    worst = products[costs.index(max(costs))]
    batch, features = (
        worst.batch,
        max(
            worst.depth,
            worst.columns,
            key=lambda size: _tiled(worst.batch, size) - worst.batch * size,
        ),
    )
    text = (
        f"Products limited by memory spend **{work.share(sum(costs)):.0f}%** of compute time moving"
        f" padding. The worst is {_display_name(work, worst.op)}, with a batch per core of"
        f" **{batch:,}** and **{features:,}** features. In tiles of {SUBLANES} by {LANES}, a batch"
        f" in multiples of {SUBLANES} goes with features in multiples of {LANES}, and one in"
        f" multiples of {LANES} with features in multiples of {SUBLANES}."
    )
    batch_unit, features_unit = SUBLANES, LANES
    better = (batch, _round_up(features, LANES))
    turned = (_round_up(batch, LANES), _round_up(features, SUBLANES))
    if prod(turned) < prod(better):
        better, batch_unit, features_unit = turned, LANES, SUBLANES
    fix = (
        f"-batch_per_core, features = {batch}, {features}\n"
        f"+batch_per_core, features = {better[0]}, {better[1]}"
        f"  # multiples of {batch_unit} and {features_unit}"
    )
    gain = facts.of_compute(sum(costs))
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _memory_bound_products(work: Work) -> list[Product]:
    """Memory-bound products with a batch in multiples of 8, whose arrays have padding.

    The rule `batch_per_core` is about other batches. The input's features of a convolution are
    unknown.
    """
    bandwidth = work.ops["bandwidth_fraction"].fillna(0.0).to_numpy(float)
    products = []
    for product in _largest_products(work):
        fits = product.batch and not product.spatial and not product.batch % SUBLANES
        if fits and bandwidth[product.op] >= NEAR_ROOF and _padding_part(product) > 0:
            products.append(product)
    return products


def _tiled(batch: int, features: int) -> int:
    """The elements of an array of examples by features in tiles; the compiler may put either size
    along the tile's columns.
    """
    straight = _round_up(batch, SUBLANES) * _round_up(features, LANES)
    turned = _round_up(batch, LANES) * _round_up(features, SUBLANES)
    return min(straight, turned)


def _padding_part(product: Product) -> float:
    """The fraction of what a product reads and writes that is padding of its input and output; that
    of its weights is not counted.
    """
    batch, depth, columns = product.batch, product.depth, product.columns
    total = _tiled(batch, depth) + _tiled(batch, columns) + depth * columns
    if total:
        return 1 - (batch * (depth + columns) + depth * columns) / total
    return 0.0


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
    severity = "high" if padding.expansion > limit["much"] else "medium"
    capacity = facts.evidence.device_bytes
    if capacity and padding.peak_bytes > limit["full"] * capacity:
        text += f" The peak is **{100 * padding.peak_bytes / capacity:.0f}%** of device memory."
        severity = "high"
    return Found(text, severity=severity)


def _single_ops(facts: Facts, limit: Threshold) -> Found | None:
    """T7: elementwise ops compiled separately, one program each."""
    work = facts.work
    if work is None or not facts.jax:
        return None
    single_ps = float(work.lonely["own"].sum())
    if len(work.lonely) < 2 or work.share(single_ps) < limit["least"]:
        return None
    longest = work.lonely.iloc[int(work.lonely["own"].to_numpy().argmax())]
    gain = facts.of_compute(single_ps - float(longest["own"]))
    text = (
        f"**{work.share(single_ps):.0f}%** of compute is in **{len(work.lonely):,}** programs of a"
        f" single elementwise op, the longest {longest['program']}. Each reads and writes all its"
        " values in memory. Inside one jit, XLA fuses them."
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain)


def _unfused(facts: Facts, limit: Threshold) -> Found | None:
    """T7: unfused elementwise ops, unless each is a program."""
    work = facts.work
    if work is None or _single_ops(facts, limit) is not None:
        return None
    elementwise = work.ops[work.ops["category"] == ELEMENTWISE_KINDS[1]]
    elementwise_ps = float(elementwise["own"].sum())
    if work.share(elementwise_ps) < limit["least"]:
        return None
    gain = facts.of_compute(elementwise_ps)
    text = (
        f"**{work.share(elementwise_ps):.0f}%** of compute is in **{len(elementwise):,}** unfused"
        f" elementwise ops, the longest {_display_name(work, int(elementwise.index[0]))}. Host"
        " callbacks, prints and barriers between ops keep XLA from fusing them."
    )
    fix = "-tf.print(x)\n y = tf.tanh(x * w + b)  # no host work between ops of one function"
    if facts.jax:
        fix = (
            "-x = jax.lax.optimization_barrier(x)\n"
            "-jax.debug.print('{}', x)\n"
            " y = jnp.tanh(x * w + b)"
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
    fix = "-h = tf.identity(f(x))\n-tf.print(h)\n-y = g(h)\n+y = g(f(x))  # nothing between them"
    if facts.jax:
        fix = (
            "-h = jax.jit(f)(x)\n"
            "-y = jax.jit(g)(jax.lax.optimization_barrier(h))\n"
            "+y = jax.jit(lambda x: g(f(x)))(x)"
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
        f" {_display_name(work, worst)}, {work.ops['shape'].iloc[worst]}. A broadcast costs"
        " nothing if it is fused with its consumer."
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
    """G10: layout changes, from the ops of compiled programs, otherwise from kernel names."""
    if facts.evidence.work is None:
        return _layout_of_kernels(facts, limit)
    return _layout_of_programs(facts, limit)


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
        f"**{work.share(layout_ps):.0f}%** of compute (**{wording.millis(gain)}** {facts.unit.per})"
        f" only changes the layout of arrays, mostly {_display_name(work, worst)},"
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
    worst = longest_kernel(layout_kernels)
    text = (
        f"**{share:.0f}%** of kernel time is in kernels that only change the layout of arrays,"
        f" mostly for {short(worst['op'])} (**{wording.millis(worst['total_us'] / 1000)}**)."
    )
    fix, gain_is = _CHANNELS_LAST, ""
    if facts.torch:
        # Not a bound: other kernels get faster in that layout as well.
        fix, gain_is = TORCH_CHANNELS_LAST, ABOUT
        text += (
            " Convolutions prefer channels-last; models in that layout do not need these kernels."
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
    measured = work.ops[
        work.ops["known"].astype(bool)
        & work.ops["compute_fraction"].notna()
        & work.ops["bandwidth_fraction"].notna()
    ]
    times = measured["own"].astype(float)
    total = times.sum()
    if not len(measured) or float(total) < MOSTLY_KNOWN * work.total_ps:
        return None
    compute = measured["compute_fraction"].clip(upper=1.0)
    bandwidth = measured["bandwidth_fraction"].clip(upper=1.0)
    compute_used = float((times * compute).sum() / total)
    bandwidth_used = float((times * bandwidth).sum() / total)
    if max(compute_used, bandwidth_used) >= limit["used"]:
        return None
    wasted = times * (1 - np.maximum(compute, bandwidth))
    text = (
        f"The device computes for **{facts.percent['device_compute']:.0f}%** of {facts.unit.time},"
        f" at **{100 * compute_used:.0f}%** of peak FLOP/s and **{100 * bandwidth_used:.0f}%** of"
        " peak memory bandwidth. "
    )
    unknown = work.ops["compute_fraction"].isna() & work.ops["bandwidth_fraction"].isna()
    unknown_percent = 100 * float(work.ops["own"][unknown].sum()) / work.total_ps
    if unknown_percent >= 1:
        text += f"(The cost of **{unknown_percent:.0f}%** of that time is unknown.) "
    is_short = times / measured["runs"].clip(lower=1) / 1e6 < SHORT_OP_US
    short_ps = float(times[is_short].sum())
    if short_ps >= total / 2:
        text += (
            f"**{100 * short_ps / total:.0f}%** of that time is in ops shorter than"
            f" {SHORT_OP_US:.0f} µs, which end before they fill the device."
        )
        title, fix = "Make ops larger", _LARGER_BATCH
    else:
        by_category = wasted.groupby(measured["category"]).sum()
        worst = str(by_category.idxmax())
        text += (
            f"Most of the loss is in **{worst}** ops"
            f" (**{100 * by_category.max() / wasted.sum():.0f}%**)."
        )
        title, fix = f"Speed up {worst} ops", _fix_of_category(worst, jax=facts.jax)
    gain = facts.of_compute(float(wasted.sum()))
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix, title=title)


_LARGER_BATCH = "+batch_size *= 8  # as large as memory and accuracy permit"


def _fix_of_category(category: str, *, jax: bool) -> str:
    """Code for ops of a category that use little of the device."""
    if any(
        word in category for word in ("gather", "scatter", "dynamic-slice", "dynamic-update-slice")
    ):
        if jax:
            return (
                "-y = table[ids]\n"
                "+y = jax.nn.one_hot(ids, len(table), dtype=table.dtype) @ table"
                "  # for small tables"
            )
        return (
            "-y = tf.gather(table, ids)\n"
            "+y = tf.one_hot(ids, table.shape[0], dtype=table.dtype) @ table"
            "  # for small tables"
        )
    if any(word in category for word in ("convolution", "dot", "gemm", "output fusion")):
        if jax:
            return (
                "-y = x @ w\n"
                "+y = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)"
                "  # and larger: batch, or combine several products"
            )
        return (
            "-y = x @ w\n"
            "+y = tf.cast(x, tf.bfloat16) @ tf.cast(w, tf.bfloat16)"
            "  # and larger: batch, or combine several products"
        )
    return _LARGER_BATCH


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
        saves=("device_compute",),
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
        saves=("device_compute",),
        done=Shown("The sizes fill the matrix unit"),
    ),
    Rule(
        "mxu_alignment",
        _unaligned_products,
        threshold=_LOST,
        source=TPU_GUIDE_CHOICE,
        target=_OP_PROFILE,
        applies=TPU,
        looks_at=(
            "Matrix products whose sizes are not multiples of the matrix unit's, not memory-bound"
        ),
        certainty=ESTIMATED,
        refuted_by="the products take as long with sizes padded to a multiple of the matrix unit",
        saves=("device_compute",),
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
        saves=("device_compute",),
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
        looks_at=(
            "Memory-bound elementwise ops that are the only readers of another such op's output"
        ),
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
        looks_at=(
            "FLOP/s and memory bandwidth of ops against the device's peaks, in device-bound steps"
        ),
        certainty=ESTIMATED,
        refuted_by="the device's counters show a higher utilization",
        saves=("device_compute",),
        done=Shown("The device reaches half of a peak"),
    ),
)
