"""What the name of a Chrome trace and the files beside it say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nbprof
from nbprof.formats.chrome import format as chrome_format
from nbprof.formats.format import Head

DATA = Path(__file__).parents[1] / "data"


def test_the_complete_recording_beside_an_exported_trace_is_named(tmp_path):
    trace = tmp_path / "host.trace.json.gz"
    shutil.copy(DATA / "chrome" / "jax_cpu.trace.json.gz", trace)

    def named():
        return ["host.xplane.pb" in note.text for note in nbprof.load(trace).receipt.entries]

    assert not any(named())
    shutil.copy(DATA / "xspace" / "jax_loop.xplane.pb", tmp_path / "host.xplane.pb")
    assert any(named())


@pytest.mark.parametrize(
    ("keys", "name", "whole", "is_trace"),
    [
        (["schemaVersion", "deviceProperties"], "x.json", False, True),
        (["schemaVersion"], "x.json", False, False),
        ([], "x.trace.json", False, True),
        # All of it is known, and it has no events.
        (["schemaVersion", "deviceProperties"], "x.json", True, False),
        ([], "x.trace.json", True, False),
    ],
)
def test_a_beginning_without_events_is_told_by_the_keys_of_pytorch_or_the_name(
    keys, name, whole, is_trace
):
    text = ", ".join(f'"{key}": 1' for key in [*keys, "other"])
    kind = chrome_format.sniff(Head(f"{{{text}}}".encode(), name, whole))
    assert (kind.format == "chrome") == is_trace


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("worker0.1623143089861.pt.trace.json.gz", "torch"),
        ("cell.py.trace.json", "python"),
        ("host.trace.json", ""),
    ],
)
def test_the_framework_is_that_of_the_name(name, framework):
    assert chrome_format._framework(Path(name)).name == framework
