"""The rules of advice about compiled programs: sizes that fit the matrix unit and its tiles, what should have been fused, what only moves.

Source of the TPU rules: the performance guide and the profiling page of Cloud TPU; where these give no number, the threshold is nbprof's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from nbprof.analysis.advice.facts import INPUT_HIGH, INPUT_MODERATE, Facts, Finding, severity
from nbprof.analysis.advice.programs import ELEMENTWISE_KINDS, MOSTLY_KNOWN, Product, Work, part_in_16_bit

SUBLANES, LANES = 8, 128
"""A TPU keeps arrays in tiles of so many rows and columns; a batch is best a multiple of the one, or of both."""
LOST_PERCENT = 5.0
"""Of the time of ops that compute: what sizes that do not fit may cost before they are a finding."""
OFTEN = 10.0
"""Percent of the time of ops that compute in which a batch that does not fit is used."""
BOUND_BY_MEMORY = 0.5
"""An op that moves this part of what the memory can at most is not slow because of its sizes in the matrix unit."""
PADDED, PADDED_MUCH = 1.1, 1.5
NEARLY_FULL = 0.9
UNFUSED_PERCENT = 20.0
BROADCAST_PERCENT = 2.0
LAYOUT_PERCENT = 5.0
LITTLE_USED = 0.5
SHORT_OP_US = 10.0
BUSY_PERCENT = 50.0


def _work(facts: Facts) -> Work | None:
    return facts.evidence.work if facts.compute_ms > 0 else None


def _named(work: Work, row: int) -> str:
    """What an op goes by: the framework's name of it, shortened, or its name in the program."""
    op = work.ops.iloc[row]
    text = str(op["framework_op"]) or str(op["name"])
    return "/".join(text.split("/")[-3:]).replace("*", "")


def _level(facts: Facts, gain: float) -> str:
    return severity(100 * gain / facts.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)


def _batch(facts: Facts) -> list[Finding]:
    """T2, T3: a batch per core that is no multiple of 8."""
    work = _work(facts)
    if work is None or not work.matrix_unit:
        return []
    ill = [p for p in _once(work) if p.batch and p.batch % SUBLANES]
    own = _own(work, ill)
    if work.share(own) < OFTEN:
        return []
    by_size: dict[int, float] = {}
    for product in ill:
        by_size[product.batch] = by_size.get(product.batch, 0.0) + float(work.ops["own"].iloc[product.op])
    size = max(by_size, key=lambda n: by_size[n])
    full = _up(size, SUBLANES if size < LANES else LANES)
    gain = facts.of_compute(sum(float(work.ops["own"].iloc[p.op]) * (1 - p.batch / _up(p.batch, SUBLANES)) for p in ill))
    what = "examples" if any(p.spatial for p in ill) else "rows"
    text = (
        f"**{work.share(own):.0f}%** of compute is in products of **{size:,}** {what} a core, which is no multiple of **{SUBLANES}**: the "
        f"tiles of a TPU are {SUBLANES} by {LANES}, and what does not fill them is padded. Best are multiples of {LANES}."
    )
    fix = f"-batch_per_core = {size}\n+batch_per_core = {full}  # a multiple of {SUBLANES}, or of {LANES}"
    level = severity(100 * gain / facts.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)
    return [Finding("batch_per_core", level, "Make the batch a multiple of 8 per core", text, gain, fix, "op_profile", "Op profile")]


def _once(work: Work) -> list[Product]:
    """The largest product of each op: only one of those in a fusion can take its time."""
    best: dict[int, Product] = {}
    for product in work.products:
        known = best.get(product.op)
        if known is None or _size(product) > _size(known):
            best[product.op] = product
    return list(best.values())


def _size(product: Product) -> int:
    return product.rows * product.depth * product.columns


def _own(work: Work, products: list[Product]) -> float:
    return float(work.ops["own"].iloc[[p.op for p in products]].sum()) if products else 0.0


def _up(size: int, unit: int) -> int:
    return ceil(size / unit) * unit


def _fills(size: int, unit: int) -> float:
    """The part of the matrix unit's rows or columns that a size uses."""
    return size / _up(size, unit) if size else 1.0


def _lost(product: Product, unit: int) -> float:
    """The part of the matrix unit that a product leaves empty; the compiler may put either of its outer sizes across the unit."""
    return 1 - _fills(product.depth, unit) * max(_fills(product.columns, unit), _fills(product.rows, unit))


def _matrix_unit(facts: Facts) -> list[Finding]:
    """T4 and the feature sizes of T3: sizes below the matrix unit's, or no multiples of it."""
    work = _work(facts)
    if work is None or not work.matrix_unit:
        return []
    unit, out = work.matrix_unit, []
    bandwidth = work.ops["bandwidth_fraction"].fillna(0.0).to_numpy(float)
    products = [p for p in _once(work) if bandwidth[p.op] < BOUND_BY_MEMORY and _lost(p, unit) > 0]
    small = [p for p in products if min(p.depth, max(p.columns, p.rows)) < unit]
    for rule, mine in (("mxu_size", small), ("mxu_alignment", [p for p in products if p not in small])):
        costs = [float(work.ops["own"].iloc[p.op]) * _lost(p, unit) for p in mine]
        if work.share(sum(costs)) < LOST_PERCENT:
            continue
        worst = mine[costs.index(max(costs))]
        gain = facts.of_compute(sum(costs))
        text = (
            f"Matrix products leave **{work.share(sum(costs)):.0f}%** of compute time unused in the {unit} by {unit} matrix unit. "
            f"The largest part is {_named(work, worst.op)}: **{worst.rows:,} × {worst.depth:,}** by **{worst.depth:,} × "
            f"{worst.columns:,}**, which fills **{100 * (1 - _lost(worst, unit)):.0f}%** of it."
        )
        low = min(worst.depth, worst.columns)
        if rule == "mxu_size":
            title = f"Make matrix products at least {unit} wide"
            fix = (
                f"-features = {low}\n+features = {unit}  # or join several products of {low} into one:\n"
                "+out = x @ jnp.concatenate([w_q, w_k, w_v], axis=1)"
                if facts.jax
                else f"-x = layers.Dense({low})(x)\n+x = layers.Dense({unit})(x)"
            )
        else:
            title = f"Round sizes up to multiples of {unit}"
            bad = next((n for n in (worst.depth, worst.columns, worst.rows) if n % unit), low)
            fix = f"-features = {bad}\n+features = {_up(bad, unit)}  # a multiple of {unit}"
        out.append(Finding(rule, _level(facts, gain), title, text, gain, fix, "op_profile", "Op profile"))
    return out


def _padding(facts: Facts) -> list[Finding]:
    """T5, T6: memory that goes to filling tiles."""
    found = facts.evidence.padding
    if found is None or found.expansion <= PADDED:
        return []
    lost = found.peak_bytes - found.unpadded_bytes
    text = (
        f"Padding takes **{_size_text(lost)}** of the **{_size_text(found.peak_bytes)}** at the peak of {found.program} "
        f"(**{found.expansion:.2f}×** of what its values need)."
    )
    if found.buffer:
        text += (
            f" The largest part is {found.buffer}, {found.shape}: **{_size_text(found.buffer_bytes)}** for "
            f"**{_size_text(found.buffer_unpadded_bytes)}**."
        )
    level = "high" if found.expansion > PADDED_MUCH else "medium"
    room = facts.evidence.device_bytes
    if room and found.peak_bytes > NEARLY_FULL * room:
        text += f" The peak is **{100 * found.peak_bytes / room:.0f}%** of the device's memory."
        level = "high"
    fix = (
        f"-x = x.reshape(batch, -1, 3)  # the last dimension is padded to {LANES}, the one before it to {SUBLANES}\n"
        f"+x = x.reshape(batch, -1)  # large dimensions last, multiples of {LANES}"
    )
    title = f"Choose shapes that fill tiles of {SUBLANES} by {LANES}"
    return [Finding("tile_padding", level, title, text, float("nan"), fix, "memory_viewer", "Program memory")]


def _size_text(count: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def _unfused(facts: Facts) -> list[Finding]:
    """T7: elementwise ops by themselves, one program each or one op each."""
    work = _work(facts)
    if work is None:
        return []
    out, ops = [], work.ops
    alone = work.lonely
    own = float(alone["own"].sum())
    if facts.jax and len(alone) > 1 and work.share(own) >= UNFUSED_PERCENT:
        gain = facts.of_compute(own - float(alone["own"].max()))
        text = (
            f"**{work.share(own):.0f}%** of compute is in **{len(alone):,}** programs of one elementwise op each, the largest "
            f"{alone['program'].iloc[int(alone['own'].to_numpy().argmax())]}: each reads and writes all of its values. "
            "In one jit they are fused."
        )
        fix = "-y = jnp.tanh(x * w + b)  # each op a program of its own\n+@jax.jit\n+def layer(x, w, b):\n+    return jnp.tanh(x * w + b)"
        out.append(Finding("single_ops", _level(facts, gain), "Put ops together into one jit", text, gain, fix, "hlo", "HLO & roofline"))
    plain = ops[ops["category"] == ELEMENTWISE_KINDS[1]]
    own = float(plain["own"].sum())
    if work.share(own) >= UNFUSED_PERCENT and not out:
        gain = facts.of_compute(own)
        text = (
            f"**{work.share(own):.0f}%** of compute is in **{len(plain):,}** elementwise ops that are in no fusion, the largest "
            f"{_named(work, int(plain.index[0]))}. Host callbacks, prints and barriers between ops keep XLA from fusing them."
        )
        fix = "-x = jax.lax.optimization_barrier(x)\n-jax.debug.print('{}', x)\n y = jnp.tanh(x * w + b)" if facts.jax else (
            "-tf.print(x)\n y = tf.tanh(x * w + b)  # nothing for the host between ops of one function"
        )  # fmt: skip
        out.append(Finding("unfused", _level(facts, gain), "Let elementwise ops be fused", text, gain, fix, "hlo", "HLO & roofline"))
    return out


def _chains(facts: Facts) -> list[Finding]:
    """T7: neighbours bound by memory of which the second alone reads what the first wrote."""
    work = _work(facts)
    if work is None or work.share(work.chained) < LOST_PERCENT:
        return []
    gain = facts.of_compute(work.chained)
    text = (
        f"**{work.chains:,}** elementwise ops bound by memory read what another such op wrote for them alone, up to "
        f"**{work.share(work.chained):.0f}%** of compute (**{gain:.2f} ms** a step); the largest is {work.chain}. In one fusion the values "
        "between them would not go through memory."
    )
    fix = (
        "-h = jax.jit(f)(x)\n-y = jax.jit(g)(jax.lax.optimization_barrier(h))\n+y = jax.jit(lambda x: g(f(x)))(x)"
        if facts.jax
        else "-h = tf.identity(f(x))\n-tf.print(h)\n-y = g(h)\n+y = g(f(x))  # nothing between them"
    )
    return [Finding("missed_fusion", _level(facts, gain), "Let neighbouring ops be fused", text, gain, fix, "hlo", "HLO & roofline")]


def _broadcast(facts: Facts) -> list[Finding]:
    """T8: broadcasts that are written to memory."""
    work = _work(facts)
    if work is None:
        return []
    mine = work.ops[work.ops["spreads"].astype(bool)]
    own = float(mine["own"].sum())
    if work.share(own) < BROADCAST_PERCENT:
        return []
    gain = facts.of_compute(own)
    worst = int(mine.index[0])
    text = (
        f"**{work.share(own):.0f}%** of compute (**{gain:.2f} ms** a step) only repeats values into larger arrays, most of all "
        f"{_named(work, worst)}, {work.ops['shape'].iloc[worst]}. A broadcast costs nothing where what reads it is fused with it."
    )
    fix = "-best = jnp.argmax(v[None, :] + jnp.zeros((n, m)), axis=1)\n+best = jnp.full(n, jnp.argmax(v))  # reduce first, broadcast then"
    if not facts.jax:
        fix = "-best = tf.argmax(v[None, :] + tf.zeros([n, m]), axis=1)\n+best = tf.fill([n], tf.argmax(v))  # reduce first, broadcast then"
    return [Finding("broadcast", _level(facts, gain), "Do not write broadcasts to memory", text, gain, fix, "hlo", "HLO & roofline")]


def _layout(facts: Facts) -> list[Finding]:
    """G10 for compiled programs: transposes and copies to another layout."""
    work = _work(facts)
    if work is None:
        return []
    mine = work.ops[work.ops["moves"].astype(bool)]
    own = float(mine["own"].sum())
    if work.share(own) < LAYOUT_PERCENT:
        return []
    gain = facts.of_compute(own)
    worst = int(mine.index[0])
    text = (
        f"**{work.share(own):.0f}%** of compute (**{gain:.2f} ms** a step) only moves values to another layout, most of all "
        f"{_named(work, worst)}, {work.ops['shape'].iloc[worst]}."
    )
    fix = (
        "-dims = ('NCHW', 'OIHW', 'NCHW')\n+dims = ('NHWC', 'HWIO', 'NHWC')  # and the arrays so\n"
        " y = jax.lax.conv_general_dilated(x, w, strides, padding,\n                                  dimension_numbers=dims)"
        if facts.jax
        else "-layout = 'channels_first'\n+layout = 'channels_last'\n x = layers.Conv2D(64, 3, data_format=layout)(x)"
    )
    title = "Keep arrays in the layout that ops want"
    return [Finding("layout", _level(facts, gain), title, text, gain, fix, "hlo", "HLO & roofline")]


def _utilisation(facts: Facts) -> list[Finding]:
    """T15: a device that is the limit and is used for less than half of what it can, with the likely cause."""
    work = _work(facts)
    if work is None or facts.percent["device_compute"] < BUSY_PERCENT:
        return []
    ops = work.ops
    known = ops[ops["known"].astype(bool) & ops["compute_fraction"].notna() & ops["bandwidth_fraction"].notna()]
    own = known["own"].astype(float)
    if not len(known) or float(own.sum()) < MOSTLY_KNOWN * work.own:
        return []
    compute, moved = (float((own * known[name].clip(upper=1.0)).sum() / own.sum()) for name in ("compute_fraction", "bandwidth_fraction"))
    if max(compute, moved) >= LITTLE_USED:
        return []
    best = known[["compute_fraction", "bandwidth_fraction"]].max(axis=1).clip(upper=1.0)
    wasted = own * (1 - best)
    gain = facts.of_compute(float(wasted.sum()))
    by_category = wasted.groupby(known["category"]).sum()
    worst = str(by_category.idxmax())
    short = float(own[(own / known["runs"].clip(lower=1) / 1e6) < SHORT_OP_US].sum())
    text = (
        f"The device computes for **{facts.percent['device_compute']:.0f}%** of a step, at **{100 * compute:.0f}%** of its peak FLOP/s and "
        f"**{100 * moved:.0f}%** of its memory bandwidth. "
    )
    if short >= own.sum() / 2:
        part = 100 * short / own.sum()
        text += (
            f"**{part:.0f}%** of that time is in ops shorter than {SHORT_OP_US:.0f} µs: each starts, and ends before the device is full."
        )
        fix = "-batch_size = 32\n+batch_size = 256  # as large as memory and accuracy permit"
        title = "Give each op more to do"
    else:
        text += f"Most of what is lost is in ops of the category **{worst}** (**{100 * by_category.max() / wasted.sum():.0f}%**)."
        title = f"Make {worst} ops faster"
        fix = _CAUSES.get(_cause(worst), _CAUSES["other"])[0 if facts.jax else 1]
    return [Finding("utilisation", _level(facts, gain), title, text, gain, fix, "op_profile", "Op profile")]


_CAUSES = {
    "gather": ("-y = table[ids]\n+y = jax.nn.one_hot(ids, len(table), dtype=table.dtype) @ table  # for small tables",
               "-y = tf.gather(table, ids)\n+y = tf.one_hot(ids, table.shape[0], dtype=table.dtype) @ table  # for small tables"),
    "product": ("-y = x @ w\n+y = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)  # and larger: batch, or several products in one",
                "-y = x @ w\n+y = tf.cast(x, tf.bfloat16) @ tf.cast(w, tf.bfloat16)  # and larger: batch, or several products in one"),
    "other": ("-batch_size = 32\n+batch_size = 256  # as large as memory and accuracy permit",
              "-batch_size = 32\n+batch_size = 256  # as large as memory and accuracy permit"),
}  # fmt: skip


def _cause(category: str) -> str:
    if any(word in category for word in ("gather", "scatter", "dynamic-slice", "dynamic-update-slice")):
        return "gather"
    return "product" if any(word in category for word in ("convolution", "dot", "gemm", "output fusion")) else "other"


def in_16_bit(facts: Facts) -> float | None:
    """Percent of the time of compiled programs in ops that read or make numbers of 16 bits or fewer; None where the programs do not tell.

    The names of kernels that libraries and XLA make say nothing of the width of their numbers.
    """
    work = _work(facts)
    if work is None:
        return None
    return part_in_16_bit(work.ops["own"], work.ops["narrow"], work.own)


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (
    _batch,
    _matrix_unit,
    _padding,
    _unfused,
    _chains,
    _broadcast,
    _layout,
    _utilisation,
)
