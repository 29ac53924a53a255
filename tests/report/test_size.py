"""How much an output adds to a notebook: data once, a small picture, and tables of what one
reads.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat.v4 as v4
import numpy as np
import pytest

import nbprof
from nbprof.profiles.report.mimebundle import mimebundle
from nbprof.tools.dashboard import dashboard
from tests.support.profiles import ROOT
from tests.support.saved import payload_of
from tests.views import fake

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
# less than 1 kB to the script, and so does memory by role. Bars of characters, and running where
# scripts may not be imported, add 1 kB; ends of a range, hosts and devices in every tab, and links
# into a report 5 kB; host memory over the cell 1.5 kB; the timeline of TensorFlow's memory by role
# 5.5 kB.
@pytest.mark.parametrize(
    ("path", "one", "ten"),
    [(OWN, 246_000, 2_460_000), (LARGE, 428_000, 4_280_000)],
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


def test_an_output_stays_far_below_what_hosts_take_and_says_what_it_left_out():
    """Databricks takes 10 MB by default, Colab 20 MB for a whole notebook."""
    steps, per_step = 60, 3000
    noise = np.random.default_rng(1).integers(0, 1_000_000, 2 * steps * (per_step + 1)).tolist()
    run = fake.traced(steps, per_step, longer=noise)
    data, _ = mimebundle(run, dashboard(run))
    assert len(json.dumps(data)) < 1_000_000
    trace = payload_of(data)["trace"]
    assert trace["shown"] <= 20_000 < 300_000 < trace["total"]
