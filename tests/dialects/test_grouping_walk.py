"""Groups spread over all links at once are those of a walk from one root after the other."""

from collections import deque

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.core.receipt import Receipt
from nbprof.core.trace import INT, ArgColumn, Events, Trace
from nbprof.dialects.xplane.grouping import group

NODE = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))


def made(nodes):
    """Events side by side, linked by producer and consumer alone: (key made, key taken, root
    level); 0 for none.
    """
    count = len(nodes)
    columns = {
        name: np.array([n[k] for n in nodes], np.int64) for k, name in enumerate(("_p", "_c", "_r"))
    }
    args = {}
    for name, values in columns.items():
        rows = np.flatnonzero(values > 0).astype(np.int32)
        args[name] = ArgColumn(rows, INT, values[rows])
        if name != "_r":
            args[name[:2] + "t"] = ArgColumn(rows, INT, np.ones(len(rows), np.int64))
    lanes = pd.DataFrame({"lane": [0], "host": ["h"], "kind": ["host"]})
    events = Events(
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.arange(count, dtype=np.int64) * 10,
        np.full(count, 5, np.int64),
    )
    names = np.array(["train"], object)
    return Trace(events, names, names, lanes, [], args, {}, [], [], ["h"], 0, Receipt())


def walked(nodes):
    """Root after root, the highest level first, then the earliest; one below another of its level,
    or reached before, opens nothing.
    """
    links = [
        (a, b) for a, x in enumerate(nodes) for b, y in enumerate(nodes) if x[0] and x[0] == y[1]
    ]
    below = {i: [b for a, b in links if a == i] for i in range(len(nodes))}
    above = {i: [a for a, b in links if b == i] for i in range(len(nodes))}

    def under_an_equal(root):
        seen, stack = {root}, [root]
        while stack:
            for p in above[stack.pop()]:
                if p not in seen:
                    if nodes[p][2] == nodes[root][2]:
                        return True
                    seen.add(p)
                    stack.append(p)
        return False

    found, opened = [-1] * len(nodes), 0
    for root in sorted((i for i, n in enumerate(nodes) if n[2]), key=lambda i: (-nodes[i][2], i)):
        if found[root] >= 0 or under_an_equal(root):
            continue
        found[root], queue = opened, deque([root])
        while queue:
            for b in below[queue.popleft()]:
                if found[b] < 0:
                    found[b] = opened
                    queue.append(b)
        opened += 1
    return found


@settings(max_examples=300)
@given(st.lists(NODE, max_size=12))
def test_groups_are_those_of_a_walk_from_root_to_root(nodes):
    trace = made(nodes)
    assert group(trace, trace.names).group.tolist() == walked(nodes)
