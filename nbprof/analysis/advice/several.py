"""Advice rules about several devices of one process: idle ones, and copies one after the other.

Source: TensorFlow's guide to the performance of several GPUs.
"""

from __future__ import annotations

from nbprof.analysis.advice.checks import INPUT_MODERATE
from nbprof.analysis.advice.facts import TRACE, AdviceRule, Facts
from nbprof.analysis.rule import (
    ALL,
    ANY,
    GPU_GUIDE_CHOICE,
    INFERRED,
    TENSORFLOW_JAX,
    UP_TO,
    Found,
    Rule,
    Shown,
    Threshold,
)
from nbprof.display import wording


def _idle(facts: Facts, _: Threshold) -> Found | None:
    devices = facts.evidence.idle_devices
    if devices is None:
        return None
    text = (
        f"**{devices.idle}** of the **{devices.devices}** {devices.kind}s that this process sees"
        " ran nothing while it was recorded. Other processes may use them; if none does, they can"
        " share the batch."
    )
    fix = (
        "+strategy = tf.distribute.MirroredStrategy()\n"
        "+with strategy.scope():\n"
        "     model = make_model()"
    )
    if facts.jax:
        fix = (
            "+from jax.sharding import NamedSharding, PartitionSpec\n"
            "+mesh = jax.make_mesh((len(jax.devices()),), ('batch',))\n"
            "+batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec('batch')))\n"
            " state = train_step(state, batch)"
        )
    return Found(text, severity="low", fix=fix)


def _copied_in_turn(facts: Facts, limit: Threshold) -> Found | None:
    copies = facts.evidence.copies_in_turn
    step = facts.mean["step_time"]
    if copies is None or copies.overlap > limit["overlap"] or not step:
        return None
    # All at once, they take as long as those to one device; more than the steps wait is not saved.
    gain = min(copies.ms * (1 - 1 / copies.devices), facts.mean["input"])
    if 100 * gain < limit["moderate"] * step:
        return None
    text = (
        f"Batches are copied to **{copies.devices}** devices one after the other:"
        f" **{wording.millis(copies.ms)}** {facts.unit.per}, of which"
        f" **{100 * copies.overlap:.0f}%** go to several devices at the same time, while"
        f" {facts.unit.the} waits for input."
    )
    fix = (
        "-for batch in ds:\n"
        "+for batch in strategy.experimental_distribute_dataset(ds):\n"
        "     strategy.run(train_step, args=(batch,))"
    )
    if facts.jax:
        fix = (
            "-shards = [jax.device_put(x, device) for x, device in zip(parts, jax.devices())]\n"
            "+from jax.sharding import NamedSharding, PartitionSpec\n"
            "+batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec('batch')))"
        )
    elif facts.torch:
        fix = (
            "-parts = [part.to(device) for part, device in zip(parts, devices)]\n"
            "+parts = [part.pin_memory().to(device, non_blocking=True) for part, device in"
            " zip(parts, devices)]"
        )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "copied_in_turn",
        _copied_in_turn,
        threshold=Threshold(
            "≥ {moderate:g} % of step time, ≤ {overlap:percent} of the copies at the same time",
            moderate=INPUT_MODERATE,
            overlap=0.1,
        ),
        source=GPU_GUIDE_CHOICE,
        target=TRACE,
        applies=ALL,
        looks_at=(
            "Copies from the host to several devices of one process that do not overlap, while"
            " steps wait for input"
        ),
        title="Copy to all devices at once",
        refuted_by="{the} takes as long when the copies run at the same time",
        gain_is=UP_TO,
        saves=("input",),
        needs_units=True,
        done=Shown("The copies run at the same time"),
    ),
    Rule(
        "idle_devices",
        _idle,
        threshold=ANY,
        source=GPU_GUIDE_CHOICE,
        target=TRACE,
        applies=TENSORFLOW_JAX,
        looks_at="Devices of a single host that ran nothing, beside others that did",
        title="Use the idle devices",
        certainty=INFERRED,
        refuted_by="other processes use these devices, or more devices do not shorten {the}",
        gain_is="",
        done=Shown("All devices ran something"),
    ),
)
