"""Notes for the receipt on XSpace files."""

from __future__ import annotations

from nbprof.core.receipt import Note, info, warning
from nbprof.display.wording import plural


def steps_by_programs(explanation: str, host: str) -> Note:
    """Steps are runs of programs; `host` is empty if there is only one."""
    text = explanation
    if host:
        text = f"{host}: {explanation}"
    return info("steps_by_programs", text)


def steps_dispatched_ahead() -> Note:
    """Marked steps that end before their work is done."""
    text = (
        "steps: dispatched ahead of the work, so each lasts until the programs that it dispatched"
        " have run"
    )
    return info("steps_dispatched_ahead", text)


def steps_without_time(count: int) -> Note:
    """Marked steps that are not shown."""
    steps = plural(count, "marked step has", "marked steps have")
    return warning("steps_without_time", f"{steps} no time: not shown.")


LOST_OPS = (
    "This profile has runs of programs on the TPU, but none of their ops: they were lost. Record a"
    " shorter time."
)


def lost_ops() -> Note:
    """Programs on cores of TPUs whose ops were not recorded."""
    return warning("lost_ops", LOST_OPS)


def eager_calls(count: int) -> Note:
    """Eager ops of which only the calls were recorded."""
    ran, them = f"{count:,} ops ran eagerly, and only their calls were", "them"
    if count == 1:
        ran, them = "1 op ran eagerly, and only its call was", "it"
    text = f"{ran} recorded: steps and trace include {them}, the ops tables do not."
    return info("eager_calls", text)


def repeated_device(host: str, device: str) -> Note:
    """A device that several planes describe."""
    text = f"{host} has several planes of device {device}; its facts are those of the first."
    return warning("repeated_device", text)
