"""The table of compilations where no script runs."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis.compiles import summary
from nbprof.schema import frames
from nbprof.tools.overview import static
from nbprof.tools.overview.parts import Compiles
from nbprof.tools.tables import table_of

NAMES = ("function", "where"), ("cause", "why")


def test_compilations_stand_in_plain_html():
    rows = pd.DataFrame(
        {
            "function": ["<lambda>", "step"],
            "where": ["a.py:3", "b.py:7"],
            "compilations": [1, 12],
            "total_ms": [3.25, 1234.5],
            "cause": ["first", "shape changed"],
            "why": ["", "x was float32[8, 4], now <b>float32[9, 4]</b>"],
        }
    )
    begin, end = ([frames.column("compiles", name) for name in names] for names in NAMES)
    table = table_of(rows, [*begin, *summary.COLUMNS, *end])
    html = static._compiles(Compiles(table=table, notes=["13 compilations in the cell."]))
    assert "Compilation" in html
    for text in ("&lt;lambda&gt;", "b.py:7", "1,23", "shape changed", "now &lt;b&gt;float32[9, 4]"):
        assert text in html
    assert "<b>float32" not in html
    assert html.index("&lt;lambda&gt;") < html.index("step") < html.index("13 compilations")
    assert static._compiles(None) == ""
