"""Deallocations find their allocations, and events their steps, as in a walk in time order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbprof.analysis.memory.memory import _freed, _step

EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-1, 2), st.booleans(), st.integers(-1, 3)), max_size=40
)


@given(EVENTS)
def test_pairs_and_steps_are_those_of_a_walk(events):
    memory, address, alloc, stated = (
        np.array([e[k] for e in events], t)
        for k, t in enumerate((np.int32, np.int64, np.bool_, np.int64))
    )
    alive, last, pairs, steps = {}, {}, [], []
    for i, (m, where, made, step) in enumerate(events):
        if step >= 0:
            last[m] = step
        steps.append(step if step >= 0 else last.get(m, -1) + 1)
        if made:
            alive.setdefault((m, where), i)
            pairs.append(-1)
        else:
            pairs.append(alive.pop((m, where), -1))
    assert _freed(memory, address, alloc).tolist() == pairs
    assert _step(memory, stated).tolist() == steps
