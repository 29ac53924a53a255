"""What the host's time consists of: rows below a category, everywhere the breakdown is shown."""

from dataclasses import replace

import pytest

from nbprof.analysis.python import PythonUse, TopFunction
from nbprof.analysis.verdict import verdict
from nbprof.schema import frames
from nbprof.tools.overview import payload as overview_payload
from nbprof.tools.overview import static, text
from tests.analysis.test_host_verdict import on_cpu, profile

TOP = TopFunction("augment", "Cell [3]", 12, "", 0.9, 0.9)


@pytest.fixture
def sampled(tmp_path):
    """A program of which 85 of 100 µs are outside ops: two thirds Python, the rest in NumPy."""
    opened = profile(tmp_path, on_cpu(10, calls=1, idle_us=85))
    use = PythonUse(2 / 3, 1 / 3, 0.0, 0.0, TOP, replace_call(TOP), None)
    run = opened.run
    run.__dict__["_breakdown_as_recorded"] = replace(run._breakdown, unexplained=use)
    return opened


def replace_call(top: TopFunction) -> TopFunction:
    return top._replace(call="numpy.linalg.qr", line=14)


def test_parts_of_the_host_add_up_to_their_categories(sampled):
    run = sampled.run
    parts = run.host_parts
    shares = run._breakdown.shares
    by_category = parts.groupby("category")["percent"].sum()
    assert by_category["other"] == pytest.approx(shares["other"])
    assert by_category["host_compute"] == pytest.approx(shares["host_compute"])
    assert list(parts.columns) == frames.names("overview.host_parts")
    assert parts["ms"].sum() == pytest.approx(run._breakdown.mean_ms, rel=1e-6)


def test_parts_name_the_line_and_what_it_calls(sampled):
    by_part = sampled.run.host_parts.query("category == 'other'").set_index("part")["text"]
    assert by_part["python"] == "Python: augment, Cell [3] line 12"
    assert "numpy.linalg.qr" in by_part["compute"]


def test_parts_stand_below_their_category_in_text_and_static_page(sampled):
    payload = sampled.payload()
    rows = text.breakdown(payload)
    assert [row.part for row in rows[:3]] == [False, True, True]
    assert rows[0].label == "Other"
    assert rows[1].label == "Python: augment, Cell [3] line 12"
    lines = "\n".join(text.lines(payload, 20))
    assert "56.7%  Python: augment, Cell [3] line 12" in lines
    assert "Python: augment, Cell [3] line 12" in static.html(payload)


def test_a_category_without_known_parts_has_no_rows_below_it(tmp_path):
    run = profile(tmp_path, on_cpu(10, calls=1, idle_us=85)).run
    assert {row["category"] for row in overview_payload.payload(run)["host_parts"]} <= {
        "host_compute"
    }


def test_the_evidence_names_the_time_outside_ops_where_the_verdict_names_python(sampled):
    answer = verdict(sampled.run._breakdown_as_recorded)
    assert answer.title == "Python-bound"
    assert answer.evidence[0][1].startswith("Time outside ops is the largest part")
