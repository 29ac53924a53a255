"""benchmarks/assistant: a scripted reader finds what bounds recorded profiles through the server,
and what is wrong in a conclusion is counted as wrong.
"""

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

from tests.assistant.asked import DATA

HERE = Path(__file__).parents[2] / "benchmarks" / "assistant"
MODULES = ("planted", "scripted", "judge")
PROFILES = {
    "slow": "xspace/tf_slow.xplane.pb",
    "mended": "xspace/tf_mended.xplane.pb",
    "loop": "xspace/jax_loop.xplane.pb",
    "loader": "kineto/cpu_train.pt.trace.json.gz",
}


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = [importlib.import_module(name) for name in MODULES]
    yield dict(zip(MODULES, modules, strict=True))
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def scripted(benchmark):
    return benchmark["scripted"]


def test_the_reader_finds_what_bounds_recorded_profiles_within_its_budget(scripted):
    found = asyncio.run(scripted.conclusions(DATA, PROFILES))
    assert [each.failed for each in found.values()] == [""] * len(PROFILES)
    assert {name: (each.verdict, each.bound) for name, each in found.items()} == {
        "slow": ("Input-bound", "input"),
        "mended": ("Input-bound", "input"),
        "loop": ("Compute-bound", "host_compute"),
        "loader": ("Input-bound", "input"),
    }
    rules = {name: [finding.rule for finding in each.findings] for name, each in found.items()}
    assert rules["slow"][0] == "map_serial"
    # Four threads run its map, which take 5 ms for a batch, and it has a prefetch.
    assert not {"map_serial", "prefetch_missing"} & set(rules["mended"])
    assert rules["loader"] == ["loader_in_process"]
    assert rules["loop"] == []
    # The map of the program waits for 20 ms, and the step for most of them.
    assert 20 <= found["slow"].bound_ms <= 30
    assert "PyFunc" in found["slow"].events
    # Nothing of these was sampled, so that events name what took longest.
    assert found["slow"].calls == ["open", "brief", "advice", "events"]
    for each in found.values():
        assert len(each.calls) <= scripted.MOST_CALLS
        assert 0 < each.tokens <= scripted.MOST_TOKENS


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [("MOST_CALLS", 2, "more than 2 calls"), ("MOST_TOKENS", 700, "more than 700 tokens")],
)
def test_a_reader_that_exceeds_its_budget_fails(benchmark, monkeypatch, limit, value, reason):
    monkeypatch.setattr(benchmark["scripted"], limit, value)
    found = asyncio.run(benchmark["scripted"].conclusions(DATA, {"slow": PROFILES["slow"]}))["slow"]
    assert found.failed == reason
    planted = benchmark["planted"].Planted("program/slow")
    truth = {"verdicts": ["input"], "unit_ms": found.unit_ms, "other_cores": 0.0}
    assert benchmark["judge"].judge(planted, truth, found, control=False).wrong == {
        "reader": reason
    }


def test_a_profile_that_is_not_there_fails(scripted):
    found = asyncio.run(scripted.conclusions(DATA, {"absent": "absent.pb"}))["absent"]
    assert found.failed.startswith("open: ")


def test_lines_are_read_in_each_form_of_an_answer(scripted):
    text = (
        "most of it in Items.__getitem__ (in_torch.py:77); sum, called in busy, /a b/x.py line 116;"
        " total, called in slow, Cell [2] line 5; line 4 of Cell [3]; `/work/…/fit.py:48` 1,274.53"
    )
    assert [(place.file, place.line) for place in scripted.places(text)] == [
        ("in_torch.py", 77),
        ("b/x.py", 116),
        ("Cell [2]", 5),
        ("Cell [3]", 4),
        ("/work/…/fit.py", 48),
    ]


@pytest.fixture
def right(scripted):
    """A conclusion of which all is right of `planted`."""
    return scripted.Conclusion(
        verdict="Waiting",
        bound="other",
        unit_ms=40.0,
        bound_ms=31.0,
        findings=[scripted.Finding("host_waits", "measured", "")],
        places=[scripted.Place("Cell [2]", 2)],
        calls=["open"],
        tokens=100,
    )


TRUTH = {
    "verdicts": ["other"],
    "rules": ["host_waits"],
    "also": ["tiny_batch"],
    "unit_ms": 40.5,
    "other_cores": 0.0,
    "sources": {"Cell [2]": "import time\ntime.sleep(0.03)\n"},
}


def wrong(benchmark, found, truth=TRUTH, *, control=False):
    planted = benchmark["planted"].Planted("cell/x", ("sleep(0.03)",), 30.0)
    return benchmark["judge"].judge(planted, truth, found, control=control).wrong


def test_what_is_right_is_right(benchmark, scripted, right):
    assert wrong(benchmark, right) == {}
    # What is true besides may come first.
    right.findings.insert(0, scripted.Finding("tiny_batch", "inferred", ""))
    assert wrong(benchmark, right) == {}


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("verdict", {"verdict": "Input-bound", "bound": "input"}),
        ("figure", {"unit_ms": 30.0}),
        ("figure", {"unit_ms": None}),
        ("figure", {"bound_ms": 12.0}),
        ("figure", {"bound_ms": None}),
        ("line", {"places": []}),
        ("rule", {"findings": []}),
    ],
)
def test_each_part_can_be_wrong(benchmark, right, part, changes):
    for name, value in changes.items():
        setattr(right, name, value)
    assert list(wrong(benchmark, right)) == [part]


def test_another_line_or_rule_is_wrong(benchmark, scripted, right):
    right.places = [scripted.Place("Cell [2]", 1)]
    right.findings.insert(0, scripted.Finding("float64", "measured", ""))
    assert set(wrong(benchmark, right)) == {"line", "rule"}


def test_a_finding_of_a_control_is_wrong_unless_it_is_true(benchmark, scripted, right):
    assert wrong(benchmark, right, control=True) == {"finding": "host_waits"}
    right.findings = [scripted.Finding("tiny_batch", "inferred", "")]
    assert wrong(benchmark, right, control=True) == {}


def test_a_recording_beside_other_programs_is_not_right(benchmark, right):
    assert list(wrong(benchmark, right, TRUTH | {"other_cores": 1.0})) == ["recording"]


def test_it_has_many_programs_and_controls_of_other_benchmarks(benchmark):
    planted = benchmark["planted"]
    assert len(planted.PLANTED) >= 20
    assert len(planted.CONTROLS) >= 5
    sources = {
        "program": "".join(
            path.read_text() for path in (HERE.parent / "diagnosis").glob("in_*.py")
        ),
        "cell": "".join(path.read_text() for path in (HERE.parent / "answers").glob("*.py")),
    }
    names = [each.name for each in (*planted.PLANTED, *planted.CONTROLS)]
    assert len(set(names)) == len(names)
    for name in names:
        kind, _, rest = name.partition("/")
        assert f'"{rest}"' in sources[kind], name
