"""What the name of a Chrome trace and the files beside it say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nbprof
from nbprof.formats.chrome import format as chrome_format

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
    ("name", "framework"),
    [
        ("worker0.1623143089861.pt.trace.json.gz", "torch"),
        ("cell.py.trace.json", "python"),
        ("host.trace.json", ""),
    ],
)
def test_the_framework_is_that_of_the_name(name, framework):
    assert chrome_format._framework(Path(name)).name == framework
