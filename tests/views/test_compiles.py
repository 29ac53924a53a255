"""The tables of compilations and graph breaks where no script runs."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd

from nbprof.analysis.compiles import summary
from nbprof.schema import frames
from nbprof.tools.overview import graph_breaks, static
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
    html = static._compiler(
        "Compilation", Compiles(table=table, notes=["13 compilations in the cell."])
    )
    assert "Compilation" in html
    for text in ("&lt;lambda&gt;", "b.py:7", "1,23", "shape changed", "now &lt;b&gt;float32[9, 4]"):
        assert text in html
    assert "<b>float32" not in html
    assert html.index("&lt;lambda&gt;") < html.index("step") < html.index("13 compilations")
    assert static._compiler("Compilation", None) == ""


def breaks_of(ms, kernels):
    rows = pd.DataFrame(
        {
            "function": "<lambda>",
            "where": [f"net.py:{line}" for line in range(len(ms))],
            "reason": ["print() cannot be traced", *[""] * len(ms)][: len(ms)],
            "per_step": 1.0,
            "ops_per_step": ms,
            "kernels_per_step": kernels,
            "ms_per_step": ms,
            "cost_reason": ["It did not run." if math.isnan(each) else "" for each in ms],
        }
    )
    return SimpleNamespace(graph_breaks=frames.shaped("graph_breaks", rows))


def test_graph_breaks_stand_in_plain_html():
    run = breaks_of([4.5, math.nan], kernels=math.nan)
    html = static._compiler("Graph breaks", graph_breaks.payload(run))
    for text in (
        "&lt;lambda&gt;",
        "net.py:1",
        "print() cannot",
        "not known",
        "of which 1",
        "It did not run.",
    ):
        assert text in html
    assert "Kernels" not in html, "there is no device"
    assert "nan" not in html.lower().replace("nanosecond", "")


def test_graph_breaks_beyond_the_table_are_counted():
    part = graph_breaks.payload(breaks_of([1.0] * 15, kernels=2.0))
    assert part.table.rows == graph_breaks.MOST
    assert "kernels_per_step" in [head.key for head in part.table.columns]
    assert part.notes == [
        "Graphs break at 15 lines: 15.00 ms and 15 ops per step between graphs.",
        "3 further lines: `p.graph_breaks` has all.",
    ]
    assert graph_breaks.payload(breaks_of([], kernels=[])) is None
