"""A program with a plan of its memory, small enough to check by hand, and one as large as is asked
for.
"""

from __future__ import annotations

import random

from tests.support import hlo
from tests.support.xspace import chunk

F32 = 11
KIB = 1024


def small(name: str = "jit_step", ident: int = 8, *, allocated: int = 8 * KIB) -> bytes:
    """A parameter of 4 KiB throughout; above it `padded` (8 KiB, of which 3,200 bytes are values)
    and then `flat` (4 KiB), never given back.

    The heap: padded is taken, flat is taken (the peak), padded is given back. In memory space 1
    lies one buffer of 512 bytes.
    """
    lines = [
        hlo.instruction("x", "parameter", ident=1, extra=chunk(3, hlo.shape(F32, 8, 128))),
        hlo.instruction("padded", "fusion", "jit(step)/mul", "Mul", kind="kLoop", ident=2, source="m.py:7",
                        extra=chunk(3, hlo.shape(F32, 16, 50, tiles=((8, 128),)))),
        hlo.instruction("flat", "dot", "jit(step)/dot", ident=3, extra=chunk(3, hlo.shape(F32, 8, 128))),
        hlo.instruction("fast", "copy", ident=4, extra=chunk(3, hlo.shape(F32, 128))),
    ]  # fmt: skip
    buffers = [
        hlo.buffer(1, 4 * KIB, 1), hlo.buffer(2, allocated, 2), hlo.buffer(3, 4 * KIB, 3), hlo.buffer(4, 512, 4, colour=1),
    ]  # fmt: skip
    allocations = [
        hlo.allocation(0, 4 * KIB, (1, 0, 4 * KIB), parameter=0),
        hlo.allocation(1, 12 * KIB, (2, 0, allocated), (3, allocated, 4 * KIB)),
        hlo.allocation(2, 512, (4, 0, 512), colour=1),
    ]
    heaps = [
        hlo.heap((0, 2, "padded"), (0, 3, "flat"), (1, 2, "flat"), allocation=1),
        hlo.heap((0, 4, "fast"), allocation=2),
    ]
    main = hlo.computation("main", *lines, ident=1, root=3)
    return hlo.program(name, main, ident=ident) + hlo.assignment(buffers, allocations, heaps)


def large(count: int, seed: int = 1, name: str = "jit_large", ident: int = 9) -> bytes:
    """A program of so many instructions, each with a buffer of its own, a tenth of them parameters;
    some hundred are alive at a time.
    """
    rng = random.Random(seed)
    shapes = [
        chunk(3, hlo.shape(F32, rng.choice([8, 100]), rng.choice([7, 128, 200]), tiles=((8, 128),)))
        for _ in range(50)
    ]
    fixed = count // 10
    size = [rng.choice([512, 4 * KIB, 64 * KIB, 1 << 20]) for _ in range(count)]
    lines = [
        hlo.instruction(
            f"fusion.{i}",
            "fusion",
            f"jit(step)/layer_{i % 97}/mul",
            ident=i + 1,
            extra=shapes[i % 50],
        )
        for i in range(count)
    ]
    allocations = [hlo.allocation(i, size[i], (i, 0, size[i]), parameter=i) for i in range(fixed)]
    allocations.append(
        hlo.allocation(
            fixed, sum(size[fixed:]), *((i, 64 * i, size[i]) for i in range(fixed, count))
        )
    )
    events: list[tuple[int, int, str]] = []
    alive: list[int] = []
    for i in range(fixed, count):
        events.append((0, i, f"fusion.{i}"))
        alive.append(i)
        while len(alive) > 500 or (rng.random() < 0.45 and alive):
            events.append((1, alive.pop(rng.randrange(len(alive))), f"fusion.{i}"))
    buffers = [hlo.buffer(i, size[i], i + 1) for i in range(count)]
    main = hlo.computation("main", *lines, ident=1, root=count)
    return hlo.program(name, main, ident=ident) + hlo.assignment(
        buffers, allocations, [hlo.heap(*events, allocation=fixed)]
    )


def without_assignment(name: str = "jit_bare", ident: int = 10) -> bytes:
    return hlo.program(
        name, hlo.computation("main", hlo.instruction("a", "add"), ident=1), ident=ident
    )
