"""All that is told of one slice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from nbprof import load
from nbprof.profiles.profile import Profile
from nbprof.timeline.details import MOST_ARGS, MOST_VALUE, Details, value_text
from nbprof.timeline.links import Links
from nbprof.timeline.slices import KINDS, Slices
from nbprof.timeline.tracks import tracks
from tests.dialects.test_corrupt_durations import training
from tests.support.build import profile
from tests.support.examples import examples
from tests.support.kineto import profile as kineto_profile
from tests.support.made import Made, runs
from tests.support.profiles import real
from tests.support.xspace import PlaneWriter, xspace

US = 10**6


def details(given: Profile) -> Details:
    run = given.run
    drawn = tracks(run)
    return Details(run, Slices(drawn), Links(run, drawn))


def of(info: dict[str, Any]) -> dict[str, str]:
    return {arg["key"]: arg["value"] for arg in info["args"]}


def test_what_was_recorded_with_a_slice_is_told_with_its_unit(tmp_path: Path) -> None:
    host = PlaneWriter("/host:CPU")
    recorded = {
        "allocation_bytes": 4096,
        "bytes_reserved": 7,
        "queued_ns": 1500,
        "bandwidth": 1.5,
        "shape": "f32[8]",
        "shared_memory": 3,
        "id": 2**40,
    }
    host.line("t", [host.event("<b>op</b>", 0, US, **recorded)])
    info = details(profile(tmp_path, xspace(host))).info(0)
    assert info["full_name"] == "<b>op</b>"
    assert of(info) == {
        "allocation_bytes": "4,096 bytes",
        "bytes_reserved": "7 bytes",
        "queued_ns": "1,500 ns",
        "bandwidth": "1.5",
        "shape": "f32[8]",
        "shared_memory": "3",
        "id": str(2**40),
    }


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        *(
            ("n", 2**64 - 1, str(2**64 - 1)),
            ("n", -5, "-5"),
            ("t_us", 2.5, "2.5 µs"),
            ("duration (ms)", 3, "3 ms"),
            ("status", 1, "1"),
        ),
        *(
            ("raw", b"\x01\xff", "01 ff"),
            ("raw", b"\x00" * 100, " ".join(["00"] * 64) + " … 100 bytes"),
            ("bytes", 10, "10 bytes"),
        ),
        *(
            ("name", "", ""),
            ("flag", True, "True"),
            ("nbytes", 0, "0 bytes"),
            ("Bytes accessed", 12, "12 bytes"),
            ("bytes_per_s", 12, "12"),
        ),
    ],
)
def test_values_are_texts(key: str, value: object, text: str) -> None:
    assert value_text(key, value) == text


def test_long_names_are_told_whole_and_long_values_cut(tmp_path: Path) -> None:
    host = PlaneWriter("/host:CPU")
    name, value = "n<" * 10_000, "v" * 10_000
    many = {f"arg{i}": i for i in range(300)}
    host.line("t", [host.event(name, 0, US, text=value), host.event("b", US, US, **many)])
    found = details(profile(tmp_path, xspace(host)))
    info = found.info(0)
    assert info["full_name"] == name
    assert len(info["slice"]["name"]) == 2000
    assert of(info)["text"] == "v" * MOST_VALUE + "… (10,000 characters)"
    assert len(found.info(1)["args"]) == MOST_ARGS


def test_slices_without_length_out_of_order_and_partly_overlapping(tmp_path: Path) -> None:
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("late", 50 * US, 0),
            host.event("a", 0, 10 * US),
            host.event("b", 5 * US, 10 * US),
            host.event("in", 6 * US, 2 * US),
        ],
    )
    found = details(profile(tmp_path, xspace(host)))
    infos = {info["full_name"]: info for info in map(found.info, range(4))}
    assert infos["a"]["self_ns"] == 10_000
    assert infos["b"]["self_ns"] == 8_000
    assert infos["b"]["parent"] is None
    assert infos["in"]["parent"]["name"] == "b"
    assert infos["late"]["self_ns"] == 0
    assert infos["late"]["slice"]["duration_ns"] == 0


def test_what_is_derived_has_no_args_of_its_own(tmp_path: Path) -> None:
    """Its number among the derived ones is that of a recorded event, too."""
    given = kineto_profile(tmp_path, training())
    found = details(given)
    recorded = len(given.run.trace.events)
    assert len(found._slices) > recorded
    with_args = np.unique(given.run.trace.args["correlation"].event).tolist()
    derived = [number for number in with_args if recorded + number < len(found._slices)]
    assert derived
    for number in derived:
        assert "correlation" in of(found.info(number))
        assert found.info(recorded + number)["args"] == []


@settings(max_examples=examples(100))
@given(runs())
def test_details_agree_with_the_events(made: Made) -> None:
    given = made.profile()
    run = given.run
    found = details(given)
    frame = given.trace.events()
    names = found._slices.tracks.names[run.trace.events.name]
    for event in range(len(frame)):
        info, row = found.info(event), frame.iloc[event]
        assert info["full_name"] == row["name"]
        assert info["self_ns"] == pytest.approx(row["self_us"] * 1000)
        assert info["slice"]["duration_ns"] == pytest.approx(row["duration_us"] * 1000)
        kind = found._slices.kind
        alike = (names == names[event]) & (
            kind[run.trace.events.lane] == kind[run.trace.events.lane[event]]
        )
        if kind[run.trace.events.lane[event]] == KINDS.index("steps"):
            alike &= run.trace.events.lane == run.trace.events.lane[event]
        assert info["same"]["count"] == alike.sum()
        assert info["same"]["mean_ns"] == pytest.approx(
            run.trace.events.duration[alike].mean() / 1000
        )
        middle = np.sort(run.trace.events.duration[alike])[(alike.sum() - 1) // 2]
        assert info["same"]["median"]["duration_ns"] == pytest.approx(middle / 1000)
        assert alike[info["same"]["median"]["event"]]
        parent = run.trace.events.parent[event]
        assert (info["parent"] or {"event": -1})["event"] == parent
        if row_of := info["row"]:
            table = {
                "kernels": run.kernels,
                "ops": run.ops,
                "input": run.input_ops,
                "memory": run.memory_peak,
            }[row_of["tab"]]
            assert row_of["filter"] in set(table["kernel" if row_of["tab"] == "kernels" else "op"])


@pytest.mark.parametrize("name", ["tf-gpu/rtx5000-cnn-batch64", "kineto/v100-resnet50-workers0"])
def test_every_kernel_of_a_real_profile_has_its_row(name: str) -> None:
    given = load(real(name))
    run = given.run
    found = details(given)
    kernels = run.activity.kernels.frame()
    texts = run.activity.kernel_names.values
    for event, code in zip(
        kernels["event"].head(200).tolist(), kernels["kernel"].head(200).tolist(), strict=True
    ):
        assert found.info(event)["row"] == {"tab": "kernels", "filter": texts[code]}
    on_host = np.flatnonzero(found._slices.kind[run.trace.events.lane] == 3)[
        :: max(len(run.trace.events) // 300, 1)
    ]
    rows = [found.info(int(event))["row"] for event in on_host.tolist()]
    assert {row["tab"] for row in rows if row} >= {"ops"}
