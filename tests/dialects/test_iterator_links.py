"""Elements that tf.data iterators made ahead on other threads link them as a walk over producers
and consumers, one by one, does.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.dialects.xplane.grouping import group
from nbprof.formats.xspace import xspace
from tests.support.chrome import Memory
from tests.support.xspace import PlaneWriter
from tests.support.xspace import xspace as write

PART = st.tuples(
    st.sampled_from(["take", "make", "call"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
)


def plain(trace):
    """(consumer, iterator) pairs by the definition: (id of the iterator around the consumer,
    element) is (parent id, element) of a maker.
    """
    events, names = trace.events, trace.names[trace.events.name]
    element, ident, above = trace.arg("element_id"), trace.arg("id"), trace.arg("parent_id")
    host = trace.lanes["host"].to_numpy()[events.lane]
    registered = {}
    for maker in range(len(events)):
        if names[maker].endswith("Produce") and element[maker] >= 0:
            inside = [
                e
                for e in range(len(events))
                if events.parent[e] == maker and names[e].startswith("Iterator::")
            ]
            if inside:
                key = host[maker], above[inside[0]], element[maker]
                registered.setdefault(key, []).append(inside[0])
    out = set()
    for taker in range(len(events)):
        if names[taker].endswith("Consume") and element[taker] >= 0 and events.parent[taker] >= 0:
            out |= {
                (taker, made)
                for made in registered.get(
                    (host[taker], ident[events.parent[taker]], element[taker]), ()
                )
            }
    return out


def written(parts, hosts):
    planes = []
    for host in range(hosts):
        plane = PlaneWriter("/host:CPU")
        events = []
        for at, (kind, iterator, element, extra) in enumerate(parts):
            begin = 100 * at
            if kind == "take":
                events.append(
                    plane.event("Iterator::A::Prefetch", begin, 60, id=iterator, parent_id=9)
                )
                events.append(plane.event("PrefetchConsume", begin + 1, 50, element_id=element))
            elif kind == "make":
                events.append(plane.event("PrefetchProduce", begin, 60, element_id=element))
                events += [
                    plane.event(
                        "Iterator::A::Prefetch::Map",
                        begin + 5 + 10 * n,
                        9,
                        id=20,
                        parent_id=iterator,
                    )
                    for n in range(extra)
                ]
            else:
                events.append(
                    plane.event(
                        "PrefetchConsume" if extra else "Iterator::A",
                        begin,
                        60,
                        element_id=element,
                        id=iterator,
                    )
                )
        plane.line("t", events)
        planes.append(Memory(write(plane, hostname=f"host-{host}"), f"host-{host}.xplane.pb"))
    return planes


@settings(deadline=None)
@given(st.lists(PART, max_size=14), st.integers(1, 2))
def test_links_are_those_of_a_walk(parts, hosts):
    trace = xspace.read(written(parts, hosts))
    trace.lanes["kind"] = "host"
    links = group(trace, trace.names).links
    found = {(int(a), int(b)) for a, b in links}
    assert len(found) == len(links)
    assert found == plain(trace)


def test_elements_link_iterators_of_one_host_only():
    parts = [("take", 1, 1, 0), ("make", 1, 1, 1)]
    one, two = (xspace.read(written(parts, n)) for n in (1, 2))
    for trace in (one, two):
        trace.lanes["kind"] = "host"
    assert len(group(one, one.names).links) == 1
    links = group(two, two.names).links
    host = two.lanes["host"].to_numpy()[two.events.lane]
    assert len(links) == 2
    assert np.array_equal(host[links[:, 0]], host[links[:, 1]])
