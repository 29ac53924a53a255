"""The finding on compilation in steps: why, by the recorded causes, and the edit that ends it."""

from __future__ import annotations

from nbprof.analysis.advice.checks import EXPENSIVE_FUNCTION, retraced
from nbprof.analysis.advice.facts import Facts
from nbprof.analysis.compiles import causes
from nbprof.analysis.compiles.again import Group
from nbprof.analysis.rule import Found, Threshold
from nbprof.core.units import listed
from nbprof.display import wording
from nbprof.frameworks.register import JAX, PYTORCH, TENSORFLOW

_JAX_ONCE = (
    "+update = jax.jit(step)  # once, before the loop\n"
    " for batch in batches:\n"
    "-    state, loss = jax.jit(step)(state, batch)\n"
    "+    state, loss = update(state, batch)"
)
_TORCH_ONCE = (
    "+model = torch.compile(model)  # once, before the loop\n"
    "-    model = torch.compile(model)  # in the loop"
)
_TF_ONCE = (
    "+update = tf.function(fn)  # once, before the loop\n"
    " for x, y in ds:\n"
    "-    tf.function(fn)(x, y)\n"
    "+    update(x, y)"
)
_JAX_SHAPE = (
    "-train_step(state, batch)  # compiles for each shape\n"
    "+train_step(state, pad_to(batch, batch_size))"
)
_JAX_VALUE = (
    "-step = jax.jit(step, static_argnums=2)  # compiles for each value\n"
    "+step = jax.jit(step)  # the value is an argument like any other"
)
_JAX_WEAK = (
    "-state = f(lr)  # a Python scalar where an array was\n+state = f(jnp.asarray(lr, jnp.float32))"
)
_JAX_DTYPE = (
    "-state, loss = step(state, batch)\n"
    "+state, loss = step(state, batch.astype(jnp.float32))  # the dtype of the other batches"
)
_JAX_SHARDING = (
    "+state = jax.device_put(state, sharding)  # once, as the step returns it\n"
    " for batch in batches:\n"
    "+    batch = jax.device_put(batch, sharding)  # or another, the same for all batches\n"
    "     state, loss = step(state, batch)"
)
_JAX_PLACEMENT = (
    "+device = jax.devices()[0]\n"
    "+state = jax.device_put(state, device)  # once, before the loop\n"
    " for batch in batches:\n"
    "+    batch = jax.device_put(batch, device)  # the same for all batches\n"
    "     state, loss = step(state, batch)"
)
_JAX_DONATION = (
    "-first = jax.jit(step)\n"
    "-further = jax.jit(step, donate_argnums=0)\n"
    "+update = jax.jit(step, donate_argnums=0)  # one for all calls"
)
_TORCH_SHAPE = (
    "-model = torch.compile(model)\n"
    "+model = torch.compile(model, dynamic=True)  # one program for several shapes"
)
_TORCH_VALUE = (
    "-loss = train_step(batch, lr)  # compiles for each value\n"
    "+loss = train_step(batch, torch.tensor(lr))"
)
_TF_SHAPE = (
    "-@tf.function\n"
    "+@tf.function(reduce_retracing=True)\n"
    " def train_step(batch):\n"
    "     ...\n"
    "-ds = ds.batch(n)\n"
    "+ds = ds.batch(n, drop_remainder=True)"
)
_TF_VALUE = "-train_step(x, lr)  # traces for each value\n+train_step(x, tf.constant(lr))"
_EDITS = {
    (JAX.name, causes.SHAPE): _JAX_SHAPE,
    (JAX.name, causes.PYTHON_VALUE): _JAX_VALUE,
    (JAX.name, causes.WEAK_TYPE): _JAX_WEAK,
    (JAX.name, causes.DTYPE): _JAX_DTYPE,
    (JAX.name, causes.SHARDING): _JAX_SHARDING,
    (JAX.name, causes.PLACEMENT): _JAX_PLACEMENT,
    (JAX.name, causes.DONATION): _JAX_DONATION,
    (JAX.name, causes.NEW_FUNCTION): _JAX_ONCE,
    (PYTORCH.name, causes.SHAPE): _TORCH_SHAPE,
    (PYTORCH.name, causes.PYTHON_VALUE): _TORCH_VALUE,
    (PYTORCH.name, causes.NEW_FUNCTION): _TORCH_ONCE,
    (TENSORFLOW.name, causes.SHAPE): _TF_SHAPE,
    (TENSORFLOW.name, causes.PYTHON_VALUE): _TF_VALUE,
    (TENSORFLOW.name, causes.NEW_FUNCTION): _TF_ONCE,
}
"""The edit by framework and cause; a cause without one is met where the value comes from."""
_TITLES = {
    causes.SHAPE: "Compile once, for one shape",
    causes.DTYPE: "Pass one dtype, and compile once",
    causes.WEAK_TYPE: "Pass an array in place of a Python scalar, and compile once",
    causes.SHARDING: "Place arguments with one sharding, and compile once",
    causes.PLACEMENT: "Place arguments on one device, and compile once",
    causes.DONATION: "Donate the same arguments in all calls, and compile once",
    causes.PYTHON_VALUE: "Pass a value that changes as a tensor, and compile once",
    causes.ATTRIBUTE: "Keep a value that changes in a tensor, and compile once",
    causes.GLOBAL: "Pass a global variable that changes as an argument, and compile once",
    causes.OBJECT: "Pass the same object each time, and compile once",
    causes.STRUCTURE: "Pass containers of one structure, and compile once",
    causes.NONE_OR_VALUE: "Pass a value each time, and compile once",
    causes.NEW_FUNCTION: "Compile the function once, outside of the loop",
}
_OTHERWISE = "Compile once"
_MOST = 0.95
"""A cause with this part of the time stands for all of it."""


def finding(facts: Facts, limit: Threshold) -> Found | None:
    """The finding where the recording knows causes; None where it does not, or they cost little."""
    again, step_ms = facts.evidence.compiled_again, facts.mean["step_time"]
    if again is None or not step_ms > 0:
        return None
    if again.costliest.framework == TENSORFLOW.name and len(
        retraced(facts.overview["tf_functions"], EXPENSIVE_FUNCTION)
    ):
        # The rule on functions that are traced again states the cause.
        return None
    time = again.ms
    share = min(100 * time / step_ms, 100.0)
    # Steps without a profiler that compile nothing would not gain.
    if not share >= limit["moderate"] or again.steps < 2 or not again.goes_on:
        return None
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is spent compiling"
        f" again"
    )
    if again.of_cause_ms < _MOST * time:
        text += f", **{wording.millis(again.of_cause_ms)}** of it for one cause"
    text += f". {why(again.costliest)}"
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=again.of_cause_ms,
        title=_TITLES.get(again.costliest.kind, _OTHERWISE),
        fix=edit(again.costliest),
        recording_cost=0.0,
    )


def edit(group: Group) -> str:
    """The code that ends it; "" where that depends on where a value comes from."""
    return _EDITS.get((group.framework, group.kind), "")


def why(group: Group) -> str:
    """The cause in a sentence, or two."""
    location = f" ({group.where})" if group.where else ""
    text = (
        f"**{group.function or 'A function'}**{location} was compiled again"
        f" **{wording.plural(group.times, 'time')}** in the cell"
    )
    if group.times > 1:
        text += f"; the longest time because {group.why}."
    else:
        text += f", because {group.why}."
    if group.sizes:
        sizes = listed(list(map(str, group.sizes)), "and")
        programs = wording.plural(len(group.sizes), "program")
        text += f" Padded to {sizes}, all sizes need {programs}."
    return text
