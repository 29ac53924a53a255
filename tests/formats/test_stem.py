"""What a run is called: its file without the suffixes of formats. js/tests/lab-names.test.ts holds
the page to the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbprof.formats
from nbprof.formats.names import SUFFIXES
from nbprof.formats.register import stem

ROOM = Path(nbprof.formats.__file__).parent


@pytest.mark.parametrize("packing", ["", ".gz", ".bz2", ".xz", ".GZ"])
@pytest.mark.parametrize(
    "suffix", sorted({suffix for suffixes in SUFFIXES.values() for suffix in suffixes})
)
def test_a_name_is_what_is_before_the_suffixes(suffix, packing):
    for name in ("host", "rank0.step 5", "a.b"):
        assert stem(f"{name}{suffix}{packing}") == name


def test_what_is_no_suffix_of_a_profile_stays():
    assert [stem(name) for name in ("host.gz", "b", "a.b")] == ["host.gz", "b", "a.b"]


def test_each_folder_of_a_format_is_registered():
    assert set(SUFFIXES) == {path.parent.name for path in ROOM.glob("*/format.py")}


def test_jupyterlab_has_each_type_of_files_once():
    formats = json.loads((ROOM / "formats.json").read_text("utf-8"))
    types = [one["name"] for form in formats for one in [*form["opens"], *form["may_open"]]]
    assert len(set(types)) == len(types)
    assert all("displayName" in one for form in formats for one in form["opens"])
