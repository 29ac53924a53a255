"""The law of hosts that are read apart: what is combined of them is what one reads of all of them
at once.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from nbprof.core.errors import NbprofError
from nbprof.core.receipt import Note
from nbprof.profiles.load import load
from nbprof.run import combine, many, parallel
from nbprof.run.frames import programs
from nbprof.run.stated import NeedsHostError
from tests.analysis.test_hosts import MADE, jitted
from tests.support import pods
from tests.support.frames import OF_A_PROFILE, WITHOUT_NOTES, public
from tests.support.ranks import job
from tests.support.xspace import chunk, training_run

ABOUT_A_PLACE = (
    "trace.",
    "device_time.queue_series",
    "device_time.bandwidth_series",
    "device_time.each_launch",
)
OF_EVENTS = (
    *(name for name in OF_A_PROFILE if name.startswith(ABOUT_A_PLACE)),
    *(
        "device_time.critical_path_pieces",
        "kernels.graph_nodes",
        "lines.frame",
        "memory.roles_over_time",
        "memory.timeline",
        "tf_data.call",
    ),
)
"""What is in the events of a host."""


def write_job(folder, name, times, change):
    """Ranks of a job, each with what `change` makes of its facts and events."""
    out = folder / f"{name}{len(times)}"
    out.mkdir()
    for rank, one in enumerate(job(times)):
        for event in one.events:
            if "Group size" in event["args"]:
                ranks = list(range(len(times)))
                event["args"] |= {
                    "Group size": len(ranks),
                    "Process Group Ranks": str(ranks),
                }
        document = {**one.metadata, "traceEvents": one.events}
        (out / f"rank{rank}.1623143089861.pt.trace.json").write_text(
            json.dumps(document | change(rank, one.events))
        )
    return out


def uneven_job(folder, count):
    """Ranks of which one is late, each on a clock of its own."""
    times = [[[400, 900], [450, 950], [420 + 3 * i, 930]] for i in range(count)]

    def change(rank, events):
        return {"baseTimeNanoseconds": 1_700_000_000_000_000_000 + 1_000_000 * rank}

    return write_job(folder, "uneven", times, change)


def opless_job(folder, count):
    """Ranks of which the second recorded no ops, only calls and what ran on its GPU."""

    def change(rank, events):
        return {"traceEvents": [e for e in events if rank != 1 or e["cat"] != "cpu_op"]}

    return write_job(folder, "opless", [[[400, 900], [450, 950]]] * count, change)


def half_marked_job(folder, count):
    """Ranks of which the first marks steps as PyTorch does, the second by ranges of the program's
    own, and the third not at all.
    """

    def change(rank, events):
        for event in events:
            if event["name"].startswith("ProfilerStep#"):
                number = event["name"].rpartition("#")[2]
                event["name"] = (event["name"], f"iteration {number}", "forward")[rank]
        return {}

    return write_job(folder, "half", [[[400, 900], [450, 950]] * 2] * count, change)


def uneven_hosts(folder, count):
    """Programs of hosts that are not equally fast; the second has one of its own under the name
    that the others have theirs.
    """
    out = folder / "logdir" / "plugins" / "profile" / "run"
    out.mkdir(parents=True)
    for i in range(count):
        (out / f"host{i}.xplane.pb").write_bytes(
            jitted(10 + i, "dec" if i == 1 else "enc") + chunk(4, f"host{i}")
        )
    return out


FOUND = {name: make for name, make in MADE.items() if name not in ("msprof", "torch_npu")} | {
    "uneven job": uneven_job,
    "opless job": opless_job,
    "half-marked job": half_marked_job,
    "uneven": uneven_hosts,
}


GROUPED = ("memory", "uneven job", "opless job", "half-marked job", "uneven")


@pytest.fixture(
    scope="module",
    params=[*((name, False) for name in FOUND), *((name, True) for name in GROUPED)],
    ids=str,
)
def both(request, tmp_path_factory):
    """The same files read at once, and apart: each by itself, or in groups as where there are
    many.
    """
    name, grouped = request.param
    path = FOUND[name](tmp_path_factory.mktemp("hosts"), 3)
    with pytest.MonkeyPatch.context() as patch:
        if grouped:
            patch.setattr(parallel, "MANY", 2)
            patch.setattr(parallel, "groups", lambda _files, _workers: [(0, 1), (2,)])
            patch.setattr(many, "_AT_ONCE", 0)
        apart = load(path, executor=1)
        # What is read later is read now.
        assert apart.device_time.frame is not None
        assert apart.advice is not None
    return load(path), apart


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in an order that does not go by the last bits of floats; ranks and places in a table
    follow from that order.
    """
    out = frame.drop(
        columns=[name for name in frame.columns if name in ("rank", "cumulative_fraction")]
    )
    texts = [
        [f"{v:.6g}" if isinstance(v, float) else str(v) for v in out[name].tolist()]
        for name in out.columns
    ]
    rows = list(zip(*texts, strict=True))
    return out.iloc[sorted(range(len(rows)), key=rows.__getitem__)].reset_index(drop=True)


def assert_same(name: str, apart: pd.DataFrame, joint: pd.DataFrame) -> None:
    assert list(apart.columns) == list(joint.columns), name
    assert len(apart) == len(joint), name
    apart, joint = in_order(apart), in_order(joint)
    for column in joint.columns:
        wanted, found = joint[column], apart[column]
        if pd.api.types.is_numeric_dtype(wanted) and not pd.api.types.is_bool_dtype(wanted):
            np.testing.assert_allclose(
                found.to_numpy(np.float64, na_value=np.nan),
                wanted.to_numpy(np.float64, na_value=np.nan),
                1e-9,
                1e-6,
                err_msg=f"{name}.{column}",
            )
        else:
            assert (
                found.where(found.notna(), None).tolist()
                == wanted.where(wanted.notna(), None).tolist()
            ), f"{name}.{column}"


def test_what_compares_hosts_is_advised_in_words_of_their_framework(tmp_path):
    pods.write(tmp_path, ranks=4, steps=12, seed=1)
    joint, apart = load(tmp_path), load(tmp_path, executor=1)
    columns = ["rule", "title", "fix", "view", "refuted_by"]
    wanted, found = joint.advice, apart.advice
    assert "collectives" in list(wanted["rule"])
    pd.testing.assert_frame_equal(
        found[columns].sort_values("rule", ignore_index=True),
        wanted[columns].sort_values("rule", ignore_index=True),
    )


@pytest.mark.parametrize("name", WITHOUT_NOTES)
def test_frames_of_hosts_read_apart_are_those_read_at_once(both, name):
    joint, apart = both
    try:
        wanted = public(joint, name)
    except NbprofError as error:
        with pytest.raises(type(error)):
            public(apart, name)
        return
    try:
        found = public(apart, name)
    except NeedsHostError:
        assert name in OF_EVENTS
        return
    # Evidence and gains of advice are those of one host, and say so.
    dropped = ["evidence", "gain_ms_per_step", "gain_is"] if name == "advice" else []
    assert_same(name, found.drop(columns=dropped), wanted.drop(columns=dropped))


def test_the_answer_is_the_same(both):
    joint, apart = (profile.overview for profile in both)
    for key, told in joint.items():
        # How many warnings the receipts have is among the facts: of readers that meet each other's
        # files, and of such that do not.
        if not isinstance(told, pd.DataFrame) and key != "run_facts":
            assert (
                apart[key] == pytest.approx(told) if isinstance(told, float) else apart[key] == told
            ), key


def test_a_report_of_hosts_read_apart_says_which_tabs_are_of_one_host(both, tmp_path):
    _, apart = both
    payload = apart.payload()
    assert payload["trace"]["empty"]["title"] == "Shown for one host at a time"
    assert apart.save(tmp_path / "report.html").stat().st_size > 100_000


def test_memory_over_time_is_that_of_the_host_with_the_highest_peak(tmp_path):
    out = tmp_path / "logdir" / "plugins" / "profile" / "run"
    out.mkdir(parents=True)
    for i, batch in enumerate((1, 3, 2)):
        (out / f"host{i}.xplane.pb").write_bytes(
            training_run(block=100 * batch) + chunk(4, f"host{i}")
        )
    p, joint = load(out, executor=1), load(out)
    drawn, all_of_them = p.payload()["memory"], joint.payload()["memory"]
    assert drawn["of"].startswith("Shown is **host1**, which has the highest peak")
    assert [one["memory_id"] for one in drawn["ids"]] == [
        one["memory_id"] for one in all_of_them["ids"] if "host1" in one["memory_id"]
    ]
    wanted = next(one for one in all_of_them["ids"] if "host1" in one["memory_id"])
    np.testing.assert_allclose(drawn["ids"][0]["time_ms"], wanted["time_ms"])
    np.testing.assert_array_equal(drawn["ids"][0]["in_use_bytes"], wanted["in_use_bytes"])
    assert drawn["peaks"]["rows"] == len(joint.memory.summary) == 3
    assert all_of_them["peaks"] is None
    assert len(p.memory.figure().renderers) > 0
    with pytest.raises(NeedsHostError):
        p.memory.figure(memory_id="host2 mklcpu")


def test_hosts_that_ran_no_programs_have_steps_without_their_ops(tmp_path):
    path = uneven_hosts(tmp_path, 2)
    (path / "host0b.xplane.pb").write_bytes(training_run() + chunk(4, "host0b"))
    apart, joint = load(path, executor=1), load(path)
    for name in ("roofline.steps", "hlo.frame", "op_profile.frame"):
        assert_same(name, public(apart, name), public(joint, name))
    steps = apart.roofline.steps
    assert steps.groupby("host")["unknown_fraction"].count().ne(0).sum() == 2
    assert steps["host"].nunique() == 3


def test_programs_beyond_the_memory_that_they_may_take_are_listed_and_not_read(
    tmp_path, monkeypatch
):
    path = uneven_hosts(tmp_path, 3)
    monkeypatch.setattr(programs, "MAX_PROGRAM_BYTES", 0)
    p = load(path, executor=1)
    ours, theirs = (
        p.hlo.frame[p.hlo.frame["program"] == name] for name in ("jit_f", "jit_f on host1")
    )
    assert ours["expression"].ne("").all()
    assert theirs["expression"].eq("").all()
    assert theirs["in_file"].all()
    notes = p.memory_viewer.modules.set_index("module")["note"]
    assert (
        notes["jit_f on host1"]
        == "not read, because there are too many programs; open its host separately"
    )
    assert "not read" not in notes["jit_f"]
    with pytest.raises(NbprofError, match=r"open its host separately \(host1\)"):
        p.memory_viewer["jit_f on host1"]


def test_a_host_is_opened_whole(both):
    _, apart = both
    one = apart.rank(1)
    assert len(one.trace.lanes) > 0
    assert len(one.hosts) == 1
    with pytest.raises(NbprofError, match="there is no host 7"):
        apart.rank(7)


def test_what_hosts_say_alike_is_said_once():
    same, warned = (
        Note("info", "No allocator events.", "test"),
        Note("warning", "Events of host1 overlap.", "test"),
    )
    counted = Note("info", "2 events have no launch.", "test")
    names = [["host0"], ["host1"], ["host2"]]
    found = combine.folded([[same, counted], [same, warned, counted], [same, counted]], names)
    assert [note.text for note in found] == [
        "No allocator events.",
        "Each of 3 hosts: 2 events have no launch.",
        "Events of host1 overlap.",
    ]
    two = combine.folded([[counted], [counted]], [["host0", "host1"], ["host2", "host3"]])
    assert [note.text for note in two] == ["Each of 2 groups of hosts: 2 events have no launch."]
    assert [note.text for note in combine.folded([[same], []], [["host0"], ["host1"]])] == [
        "host0: No allocator events."
    ]
