"""How much an output adds to a notebook: data once, a small picture, and tables of what one
reads.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat.v4 as v4
import pytest

import nbprof
from tests.support.profiles import ROOT

OWN = Path(__file__).parents[1] / "data" / "xspace" / "tf_mended.xplane.pb"
# It holds 20,000 events, 1,000 moments of memory, 176 kernels and 170 ops.
LARGE = ROOT / "tf-gpu" / "rtx5000-cnn-batch64"


def written(p, count):
    """The bytes of a notebook with so many dashboards."""
    outputs = []
    for _ in range(count):
        data, metadata = p.mimebundle()
        outputs.append(v4.new_output("display_data", data=data, metadata=metadata))
    notebook = v4.new_notebook(
        cells=[v4.new_code_cell("p", outputs=[output]) for output in outputs]
    )
    return len(json.dumps(notebook, ensure_ascii=False, indent=1).encode())


# The table of the program's ranges (here 8 and 12 rows) adds about 6 kB, mostly to the part without
# scripts; what was new on the page with it adds 2 kB to the script. Tables of process pools add
# less than 1 kB to the script, and so does memory by role; ends of a range, hosts and devices in
# every tab, and links into a report add 5 kB.
@pytest.mark.parametrize(
    ("path", "one", "ten"),
    [(OWN, 243_000, 2_430_000), (LARGE, 419_000, 4_190_000)],
    ids=["small", "large"],
)
def test_dashboards_leave_a_notebook_small(path, one, ten):
    if not path.exists():
        pytest.skip("the real profile is not beside this checkout")
    p = nbprof.load(path)
    assert written(p, 1) < one
    assert written(p, 10) < ten


def test_nothing_large_is_said_twice():
    data, _ = nbprof.load(OWN).mimebundle()
    text = json.dumps(data)
    pieces = re.findall(r"[^\"\s<]{2000,}", text)
    assert len(pieces) == len(set(pieces)) > 2
    heads = {piece[:400] for piece in pieces}
    assert all(text.count(json.dumps(head)[1:-1]) == 1 for head in heads)
