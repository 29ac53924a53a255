"""What a run is called is the same in Python and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbprof.formats.register import FORMATS, stem

PAGE = Path(__file__).resolve().parents[2] / "js" / "lab" / "names.ts"
SUFFIXES = sorted({suffix for form in FORMATS for suffix in form.suffixes})


@pytest.mark.parametrize("packing", ["", ".gz", ".bz2", ".xz", ".GZ"])
@pytest.mark.parametrize("suffix", ["", ".csv", *SUFFIXES])
def test_the_page_leaves_out_the_suffixes_that_python_leaves_out(suffix, packing):
    (rule,) = re.findall(r"const STEM =\s*/(.*)/i;", PAGE.read_text())
    for name in ("host", "rank0.step 5", "a.b"):
        file = f"{name}{suffix}{packing}"
        assert (re.sub(rule, "", file, count=1, flags=re.IGNORECASE) or file) == stem(file), file


def test_a_name_is_what_is_before_the_suffixes():
    assert [stem(name) for name in ("host.xplane.pb", "w.pt.trace.json.gz", "rank0.json", "m.memory_snapshot.pickle", "b")] == [
        "host",
        "w",
        "rank0",
        "m",
        "b",
    ]
