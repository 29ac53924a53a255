"""What a program of the benchmark is: a training loop, what bounds its step, and which problem was
planted in it.

The programs are in `in_keras`, `in_tensorflow`, `in_jax` and `in_torch`. Their truth is stated
beside them and follows from how they are written, never from what nbprof says of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

COMPUTE = frozenset(("device_compute", "host_compute"))
"""The framework's ops: of a CPU they are host compute, and of JAX on the CPU too."""
HOST = frozenset(("other", "host_compute", "kernel_launch"))
"""Python, dispatch, or ops that run one by one."""
INPUT = frozenset(("input",))
COMPILE = frozenset(("compile",))
PYTHON = frozenset(("other",))
OUTSIDE_OPS = ("other", "python_code", "host_waits")
"""Rules on time in no op: without samples of the stacks, and with what these say of it."""


class Loop(Protocol):
    """A training loop as a person has it in a cell. It is run for a few steps first, then recorded.

    It returns the seconds that its steps took where it does more than these.
    """

    def __call__(self, steps: int) -> float | None: ...


@dataclass(frozen=True)
class Program:
    """One program, and what is true of it.

    Attributes
    ----------
    name : str
        Framework and what is special, as in `torch/slow items`.
    plant : str
        What is wrong with it, in a few words; empty of a control.
    bound : frozenset of str
        Categories of the step of which the largest has to be one; empty where none has to be.
    rules : frozenset of str
        Rules of docs/advice.md of which any finds the plant; empty where no rule is promised.
    also : frozenset of str
        Rules that are true of the program besides, planted or not.
    make : callable
        `make(mended)` builds the loop; `mended` without the plant.
    steps : int
        Batches that are recorded.
    batches : int
        Batches of a step.
    """

    name: str
    plant: str
    bound: frozenset[str]
    rules: frozenset[str]
    also: frozenset[str]
    make: Callable[[bool], Loop]
    steps: int
    batches: int = 1

    @property
    def framework(self) -> str:
        return self.name.split("/")[0]


PROGRAMS: dict[str, Program] = {}


def control(
    name: str,
    bound: frozenset[str],
    *,
    also: tuple[str, ...] = (),
    steps: int = 40,
    batches: int = 1,
) -> Callable[[Callable[[], Loop]], Callable[[], Loop]]:
    """Registers a program in which nothing is wrong."""

    def add(make: Callable[[], Loop]) -> Callable[[], Loop]:
        PROGRAMS[name] = Program(
            name, "", bound, frozenset(), frozenset(also), lambda _: make(), steps, batches
        )
        return make

    return add


def planted(
    name: str,
    plant: str,
    bound: frozenset[str],
    *rules: str,
    also: tuple[str, ...] = (),
    steps: int = 40,
) -> Callable[[Callable[[bool], Loop]], Callable[[bool], Loop]]:
    """Registers a program with a problem, found by one of `rules` where any are promised."""

    def add(make: Callable[[bool], Loop]) -> Callable[[bool], Loop]:
        PROGRAMS[name] = Program(name, plant, bound, frozenset(rules), frozenset(also), make, steps)
        return make

    return add


def busy(seconds: float) -> None:
    """Python that takes the interpreter and a core for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(200))
