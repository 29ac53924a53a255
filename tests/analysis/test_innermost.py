"""The innermost event at each moment, against a look at each moment; rounding lets events end a
little after what is around them.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from nbprof.analysis.ops.innermost import _boundaries
from nbprof.core import nesting


@pytest.mark.parametrize("slack", [0, 2])
def test_the_innermost_of_each_moment(slack):
    overhang = 0
    for seed in range(120):
        rng = random.Random(seed)
        spans = sorted(
            ((rng.randrange(30), rng.randrange(1, 16)) for _ in range(12)),
            key=lambda span: (span[0], -span[1]),
        )
        # What overlaps more than rounding explains lies on threads of its own.
        kept: list[tuple[int, int]] = []
        for at, length in spans:
            if all(at >= s + d or at + length - min(slack, length // 2) <= s + d for s, d in kept):
                kept.append((at, length))
        start, duration = (np.array(column, np.int64) for column in zip(*kept, strict=True))
        end = start + duration
        parent = nesting.parents(np.zeros(len(start), np.int32), start, duration, slack)
        time, owner = _boundaries(np.arange(len(start)), start, end, parent)
        assert (np.diff(time) > 0).all()
        for moment in range(50):
            # Of what runs, what began last, and of what began together the shortest; only in what
            # is around it.
            found = -1
            for i in range(len(start)):
                chain, at = [i], int(parent[i])
                while at >= 0:
                    chain.append(at)
                    at = int(parent[at])
                if all(start[c] <= moment < end[c] for c in chain):
                    found = i
                overhang += any(start[i] <= moment < end[i] and moment >= end[c] for c in chain)
            place = int(np.searchsorted(time, moment, side="right")) - 1
            assert (int(owner[place]) if place >= 0 else -1) == found, (seed, moment)
    assert (overhang > 0) == (slack > 0)
