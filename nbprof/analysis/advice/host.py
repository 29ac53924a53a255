"""Advice rules about the host's own time: Python between ops, tiny ops, idle cores.

They need figures that nbprof records beside a framework's profiler: sampled Python stacks and the
use of the cores.
"""

from __future__ import annotations

from nbprof.analysis.advice.checks import PART_HIGH
from nbprof.analysis.advice.facts import OPS, TRACE, AdviceRule, Facts
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    ESTIMATED,
    HOST_TIME,
    INFERRED,
    JAX,
    MEASURED,
    OURS,
    PYTORCH,
    TENSORFLOW_JAX,
    UP_TO,
    Found,
    Rule,
    Shown,
    Threshold,
)
from nbprof.analysis.verdict import contended, in_location, location_text
from nbprof.display import wording

PYTHON_CODE = "python_code"
"""The rule that takes the place of `other` where it is known what Python did."""
_SHARE = Threshold(
    "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=PART_HIGH, high=35.0
)
_MOST = Threshold("≥ {moderate:g} % of step time (high from {high:g} %)", moderate=35.0, high=60.0)
_EAGER_SHARE = Threshold(
    (
        "≥ {moderate:g} % of step time (high from {high:g} %), in ≥ {programs:g} programs"
        " per step of JAX, or with ≥ {eager:g} % of op time of TensorFlow eager"
    ),
    moderate=35.0,
    high=60.0,
    programs=2.0,
    eager=50.0,
)
_THREADS = Threshold(
    (
        "≥ {moderate:g} % of step time in compute, ≥ {large:g} FLOPs a product on average,"
        " with ≤ {busy:percent} of the cores busy"
    ),
    moderate=50.0,
    large=1e9,
    busy=0.6,
)
_PRODUCTS = Threshold(
    "≥ {moderate:g} % of step time (high from {high:g} %), ≥ {large:g} FLOPs each on average",
    moderate=40.0,
    high=70.0,
    large=1e9,
)
"""Smaller ones spend as much on the conversion to bfloat16 as they gain."""
_DISPATCH_MS = 0.2
"""Overhead of an op up to which it is that of dispatch: Python, autograd and allocation take 5 to
100 µs with the profiler on.
"""
_FEWEST_SAMPLES = 10
_VECTORIZE = (
    " def augment(batch):\n"
    "-    return [transform(row) for row in batch]\n"
    "+    return (batch - mean) / std  # one call for the whole array, not one a row"
)
_IN_BACKGROUND = (
    "+import concurrent.futures\n"
    "+pool = concurrent.futures.ThreadPoolExecutor()\n"
    "-upload(result)\n"
    "+pool.submit(upload, result)  # waits beside the next step"
)
_BESIDE = (
    "+import concurrent.futures\n"
    "+pool = concurrent.futures.ThreadPoolExecutor()\n"
    "-batch = prepare(batch)\n"
    "+later = pool.submit(prepare, batch)  # beside the step; later.result() gives the batch"
)
_READ_LATER = (
    "-print(float(loss))\n"
    "-jax.block_until_ready(state)\n"
    "+losses.append(loss)  # read every 100 steps; wait once, after the loop"
)
_AUTOCAST = (
    "-loss = criterion(model(x), y)\n"
    '+with torch.autocast("cpu", dtype=torch.bfloat16):\n'
    "+    loss = criterion(model(x), y)"
)


def _python_code(facts: Facts, limit: Threshold) -> Found | None:
    host = facts.evidence.host
    share = _without_pools(facts, "python")
    if host is None or host.python is None or share < limit["moderate"]:
        return None
    gain = share * facts.mean["step_time"] / 100
    text = (
        f"**{wording.millis(gain)}** {facts.unit.per} (**{share:.0f}%**) is spent in Python code"
        f" outside ops{in_location(host.python.top)}. See p.python.functions for all functions."
    )
    return Found(text, severity=limit.severity(share), gain_ms=gain, fix=_VECTORIZE)


def _always(facts: Facts, part: str) -> float:
    """Percent of a unit in a part of the host's time, without the extra time of every k-th step,
    which is a finding of another rule.
    """
    host = facts.evidence.host
    if host is None:
        return 0.0
    return _without_rhythm(facts, host.parts.get(part, 0.0))


def _without_pools(facts: Facts, part: str) -> float:
    """The same without waits for process pools, which are a finding of another rule: while the
    program waits, other threads of it send tasks and receive results, in Python.
    """
    share, host = _always(facts, part), facts.evidence.host
    if host is None or host.pool is None:
        return share
    in_pools = host.pool.percent_of_all
    if part == "python":
        in_pools -= host.parts.get("waiting", 0.0)
    return max(share - max(in_pools, 0.0), 0.0)


def _without_rhythm(facts: Facts, percent: float) -> float:
    rhythm = facts.evidence.periodic
    if not facts.mean["step_time"]:
        return 0.0
    if rhythm is not None:
        percent -= 100 * rhythm.unrecorded_ms / facts.mean["step_time"]
    return max(percent, 0.0)


def _waits(facts: Facts, limit: Threshold) -> Found | None:
    host = facts.evidence.host
    share = _without_pools(facts, "waiting")
    if host is None or host.python is None or share < limit["moderate"]:
        return None
    if host.python.top_waiting is None:
        return None
    if contended(host.contention) and not host.python.waits_by_itself:
        # It may have waited for a core.
        return None
    gain = share * facts.mean["step_time"] / 100
    text = (
        f"In **{wording.millis(gain)}** {facts.unit.per} (**{share:.0f}%**) the program waits"
        f" without using a core{in_location(host.python.top_waiting)}."
    )
    # A thread that waits records nothing.
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=gain,
        fix=_IN_BACKGROUND,
        recording_cost=0.0,
    )


def _pool_waits(facts: Facts, limit: Threshold) -> Found | None:
    host = facts.evidence.host
    if host is None or host.pool is None or host.pool.percent < limit["moderate"]:
        return None
    # Imported late, as most programs wait for none.
    from nbprof.analysis.advice import pools

    return pools.finding(facts, host.pool, limit)


def _library_code(facts: Facts, limit: Threshold) -> Found | None:
    """Code of NumPy and its like between the ops of a framework."""
    host = facts.evidence.host
    works = ("device_compute", "host_compute", "kernel_launch")
    # A program without ops is written for what this code computes.
    if host is None or host.python is None or not sum(facts.mean[each] for each in works):
        return None
    share = _without_rhythm(facts, host.library)
    top, samples = host.python.top_named, host.python.samples
    if samples is not None and samples < _FEWEST_SAMPLES:
        return None
    if share < limit["moderate"] or top is None:
        return None
    gain = share * facts.mean["step_time"] / 100
    text = (
        f"**{wording.millis(gain)}** {facts.unit.per} (**{share:.0f}%**) is spent in compiled code"
        f" of libraries outside ops{in_location(top)}. It runs between the ops of the framework:"
        " compute it before the loop, in a worker or thread beside the loop, or on the device."
    )
    return Found(text, severity=limit.severity(share), gain_ms=gain, fix=_BESIDE)


def _result_waits(facts: Facts, limit: Threshold) -> Found | None:
    host, busy = facts.evidence.host, facts.overview.get("device_busy_percent")
    if host is None or host.waits is None or busy is None:
        return None
    step_ms, waits = facts.mean["step_time"], host.waits
    # The host could launch ahead meanwhile; then the slower of the two decides.
    gain = min(waits.ms, step_ms * (1 - busy / 100))
    share = facts.percent_of_step(gain)
    if share < limit["moderate"]:
        return None
    location = ""
    if waits.function is not None:
        location = f", most of it in {location_text(waits.function)}"
    text = (
        f"For **{wording.millis(waits.ms)}** {facts.unit.per} the host waits for results of the"
        f" device (block_until_ready, float(), NumPy){location}, and cannot launch ahead meanwhile;"
        f" the device is busy for **{busy:.0f}%** of {facts.unit.time}."
    )
    return Found(text, severity=limit.severity(share), gain_ms=gain, fix=_READ_LATER)


def _tiny_ops(facts: Facts, limit: Threshold) -> Found | None:
    host = facts.evidence.host
    if host is None or host.cpu is None or host.cpu.op_calls < 1:
        return None
    share, cpu = host.parts.get("overhead", 0.0), host.cpu
    if share < limit["moderate"]:
        return None
    gain = share * facts.mean["step_time"] / 100
    if gain > _DISPATCH_MS * cpu.op_calls:
        # Dispatching so few ops does not take so long: the framework does something else.
        return None
    text = (
        f"**{wording.millis(gain)}** {facts.unit.per} (**{share:.0f}%**) is spent between ops"
        f" rather than in them: **{cpu.tiny_calls:,.0f}** of **{cpu.op_calls:,.0f}** ops"
        f" {facts.unit.per} take less than 20 µs each."
    )
    fix = facts.framework.words.compile_step
    return Found(text, severity=limit.severity(share), gain_ms=gain, fix=fix)


def _tiny_eager_ops(facts: Facts, limit: Threshold) -> Found | None:
    """The same for TensorFlow and JAX, if ops are dispatched one by one: those of a compiled
    function are not.
    """
    if facts.jax:
        one_by_one = (facts.evidence.programs_per_step or 0.0) >= limit["programs"]
    else:
        one_by_one = (facts.overview.get("eager_host_percent") or 0.0) >= limit["eager"]
    return _tiny_ops(facts, limit) if one_by_one else None


def _idle_cores(facts: Facts, limit: Threshold) -> Found | None:
    host = facts.evidence.host
    if host is None:
        return None
    compute = host.parts.get("compute", 0.0)
    # Ops that are too small to be divided gain nothing by more threads.
    if compute < limit["moderate"] or host.products.flops < limit["large"]:
        return None
    cores = host.contention.get("cores", 0.0)
    used = host.contention.get("own_cores", 0.0)
    if cores < 2 or used + host.contention.get("other_cores", 0.0) > limit["busy"] * cores:
        return None
    text = (
        f"**{used:.1f}** of **{cores:.0f}** cores were busy, while {compute:.0f}% of"
        f" {facts.unit.time} is compute."
    )
    return Found(text, severity="low", fix=f"+torch.set_num_threads({cores:.0f})")


def _bf16(facts: Facts, limit: Threshold) -> Found | None:
    host = facts.evidence.host
    if host is None or not host.bf16 or host.products.percent < limit["moderate"]:
        return None
    share = host.products.percent
    if host.products.flops < limit["large"]:
        return None
    # Twice as many numbers fit into a register and through memory.
    gain = share * facts.mean["step_time"] / 200
    text = (
        f"**{share:.0f}%** of {facts.unit.time} is matrix products and convolutions in float32 on"
        f" the CPU, which has instructions for bfloat16 (**{host.bf16}**)."
    )
    # Products are long, and few.
    return Found(
        text, severity=limit.severity(share), gain_ms=gain, fix=_AUTOCAST, recording_cost=0.0
    )


RULES: tuple[AdviceRule, ...] = (
    Rule(
        PYTHON_CODE,
        _python_code,
        threshold=_SHARE,
        source=OURS,
        target=TRACE,
        applies=ALL,
        looks_at="Python code outside ops, by sampled stacks",
        title="Vectorize the Python code, or move it out of the loop",
        certainty=MEASURED,
        refuted_by="{the} takes as long without this code",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("other",),
        done=Shown("Little Python runs outside of ops"),
    ),
    Rule(
        "host_waits",
        _waits,
        threshold=_SHARE,
        source=OURS,
        target=TRACE,
        applies=ALL,
        looks_at="Time in which the program waits without using a core, by sampled stacks",
        title="Overlap the wait with other work",
        certainty=MEASURED,
        refuted_by="{the} takes as long without this call",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("other",),
        done=Shown("The program does not wait"),
    ),
    Rule(
        "pool_waits",
        _pool_waits,
        threshold=_SHARE,
        source=OURS,
        target=TRACE,
        applies=ALL,
        looks_at="Waits for process pools (multiprocessing, concurrent.futures, joblib), by sampled"
        " stacks, and their tasks, timed in the workers",
        title="Make the tasks of the pool cheaper",
        certainty=MEASURED,
        refuted_by="{the} takes as long with tasks that return at once",
        gain_is=UP_TO,
        shortens=HOST_TIME,
        saves=("other",),
        done=Shown("The program does not wait for a pool"),
    ),
    Rule(
        "library_code",
        _library_code,
        threshold=_SHARE,
        source=OURS,
        target=TRACE,
        applies=ALL,
        looks_at="Compiled code of libraries, such as NumPy, between the ops of a framework, by"
        " sampled stacks",
        title="Move the code of libraries out of the {noun}",
        certainty=MEASURED,
        refuted_by="{the} takes as long without this code",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("other",),
        done=Shown("Little code of libraries runs outside of ops"),
    ),
    Rule(
        "result_waits",
        _result_waits,
        threshold=_SHARE,
        source="JAX's documentation of asynchronous dispatch; nbprof's threshold",
        target=TRACE,
        applies=JAX,
        looks_at="Waits of the host for results, while the device could have further work",
        title="Let the host run ahead of the device",
        certainty=INFERRED,
        refuted_by="{the} takes as long without the waits; or the result decides what runs next",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        done=Shown("The host does not wait for results"),
    ),
    Rule(
        "tiny_ops",
        _tiny_ops,
        threshold=_MOST,
        source=OURS,
        target=OPS,
        applies=PYTORCH,
        looks_at="Ops on the CPU that take less than it costs to dispatch them",
        title="Give each op more work: compile, or take a larger batch",
        certainty=INFERRED,
        refuted_by="{the} takes as long for twice the batch, divided by two",
        gain_is=UP_TO,
        saves=("host_compute",),
        done=Shown(
            "torch.compile compiled the model", lambda facts: facts.evidence.in_use.compiled
        ),
    ),
    Rule(
        "tiny_eager_ops",
        _tiny_eager_ops,
        threshold=_EAGER_SHARE,
        source=OURS,
        target=OPS,
        applies=TENSORFLOW_JAX,
        looks_at="The same of TensorFlow and JAX",
        title="Give each op more work: compile, or take a larger batch",
        certainty=INFERRED,
        refuted_by="{the} takes as long for twice the batch, divided by two",
        gain_is=UP_TO,
        saves=("host_compute",),
        done=Shown("Fewer, larger ops"),
    ),
    Rule(
        "idle_cores",
        _idle_cores,
        threshold=_THREADS,
        source=OURS,
        target=OPS,
        applies=PYTORCH,
        looks_at="Cores without work while the program computes",
        title="Let ops use all cores",
        certainty=INFERRED,
        refuted_by="more threads make {the} no faster",
        done=Shown("The cores are busy, or PyTorch may use as many threads as there are cores"),
    ),
    Rule(
        "cpu_bf16",
        _bf16,
        threshold=_PRODUCTS,
        source=OURS,
        target=OPS,
        applies=PYTORCH,
        looks_at="Matrix products in float32 on a CPU with instructions for bfloat16",
        title="Compute in bfloat16 on the CPU",
        certainty=ESTIMATED,
        refuted_by="{the} takes as long under torch.autocast",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("host_compute",),
        done=Shown("The products are of bfloat16"),
    ),
)
NAMES = tuple(rule.name for rule in RULES)
TINY = ("tiny_ops", "tiny_eager_ops")
OF_UNEXPLAINED = ("jit",)
"""Rules of others that need to know what the program did while nothing was recorded."""
CAUSES_OF_TINY = ("jit", "eager", "unrolled", "tiny_batch", "time_loop", "optimizer_loop")
"""Rules that name the cause of tiny ops."""
