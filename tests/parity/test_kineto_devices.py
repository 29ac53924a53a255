"""Device work of real traces of other accelerators, by category and stream, as the raw file has it:
never "CPU only".
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

from tests.support.kineto import Plain, load
from tests.support.profiles import real

MTIA = "findings/D3-mtia/mtia_rank_0.json.gz"


def test_work_of_an_mtia_is_that_of_the_file():
    path = real(MTIA)
    expected: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    named = {(9, 4): "Stream 4", (9, 408): "Stream 408", (9, 801): "Stream 801"}
    plain = Plain(path)
    for event in plain.metadata["traceEvents"]:
        if event.get("name") == "thread_name":
            named[event["pid"], event["tid"]] = event["args"]["name"].strip()
    for event in plain.of("mtia_ccp_events"):
        what = "copy" if event["name"] == "dma_request" else "kernel"
        sums = expected[named[event["pid"], event["tid"]], what]
        sums[0] += 1
        sums[1] += Decimal(event["dur"])
    p = load(path)
    activity, events, lanes = p.run.activity, p.run.trace.events, p.run.trace.lanes
    found = {}
    for what, table in (("kernel", activity.kernels.frame()), ("copy", activity.transfers.frame())):
        rows = table["event"].to_numpy()
        for lane in sorted(set(events.lane[rows].tolist())):
            mine = rows[events.lane[rows] == lane]
            time = Decimal(int(events.duration[mine].sum())) / 1_000_000
            found[str(lanes["thread"][lane]).strip(), what] = [Decimal(len(mine)), time]
    assert found == dict(expected)
    assert p.overview["device_kind"] == "MTIA"
    assert "CPU" not in str(p.receipt)
