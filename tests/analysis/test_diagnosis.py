"""benchmarks/diagnosis: its truth names rules that exist, and its figures are counted right."""

import ast
import sys
from pathlib import Path

import pytest

from nbprof.analysis.advice.advice import every

HERE = Path(__file__).parents[2] / "benchmarks/diagnosis"


@pytest.fixture
def score(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("programs", "score"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import score

    yield score
    for name in ("programs", "score"):
        del sys.modules[name]


def registered():
    """(control or planted, name, rules) of every program."""
    for file in sorted(HERE.glob("in_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            for call in (
                one for one in getattr(node, "decorator_list", []) if isinstance(one, ast.Call)
            ):
                texts = [one.value for one in call.args if isinstance(one, ast.Constant)]
                lists = [one.value for one in call.args if isinstance(one, ast.Starred)]
                lists += [keyword.value for keyword in call.keywords if keyword.arg == "also"]
                yield (
                    call.func.id,
                    texts[0],
                    [*texts[2:], *(rule for each in lists for rule in rules_of(each))],
                )


def rules_of(node):
    """The rules of a tuple, or of the one that the programs share."""
    if isinstance(node, ast.Tuple):
        return [one.value for one in node.elts]
    shared = ast.parse((HERE / "programs.py").read_text()).body
    named = {one.targets[0].id: one.value for one in shared if isinstance(one, ast.Assign)}
    # Another list depends on the machine.
    return rules_of(named[node.id]) if node.id in named else []


def test_programs_are_many_a_third_are_controls_and_their_rules_exist():
    programs = list(registered())
    names = [name for _, name, _ in programs]
    assert len(set(names)) == len(names) >= 60
    assert 3 * sum(kind == "control" for kind, _, _ in programs) >= len(programs)
    known = {rule.name for rule in every()}
    assert {rule for _, _, rules in programs for rule in rules} <= known


def measured(
    bound="input",
    found=(),
    clock=10.0,
    steps=4,
    step=10.0,
    confidence="high",
    bare=None,
    own=None,
):
    rows = [
        {"rule": rule, "gain_ms": gain, "gain_is": kind[0] if kind else "about", "title": rule}
        for rule, gain, *kind in found
    ]
    return {
        "bare_ms": clock / 2,
        "own_bare_ms": own or [clock / 2] * 3,
        "said_bare_ms": bare,
        "said_bare_interval_ms": [bare and bare - 0.1, bare and bare + 0.1],
        "bare_reason": "" if bare else "every step was recorded",
        "clock_ms": clock,
        "step_ms": step,
        "step_error_ms": 0.1,
        "steps": steps,
        "steps_run": 4,
        "bound": bound,
        "verdict": "words",
        "confidence": confidence,
        "found": rows,
    }


def test_figures(score):
    from programs import COMPUTE, INPUT, Program

    plant = Program("a/slow", "slow", INPUT, frozenset(("right",)), frozenset(("also",)), None, 4)
    unpromised = Program("a/odd", "odd", frozenset(), frozenset(), frozenset(), None, 4)
    control = Program("a/fine", "", COMPUTE, frozenset(), frozenset(), None, 4)
    figures = score.score(
        {p.name: p for p in (plant, unpromised, control)},
        {
            "a/slow": {
                "as_is": measured(found=[("wrong", 9.0), ("right", 8.0), ("also", None)]),
                "mended": measured("other", clock=4.0, step=4.04, bare=2.05),
            },
            "a/odd": {"as_is": measured(steps=3, bare=5.2), "mended": measured()},
            "a/fine": {"as_is": measured("other", [("wrong", None)], confidence="low", step=11.0)},
        },
    )
    shares = {
        key: (value.good, value.of)
        for key, value in figures.items()
        if isinstance(value, score.Share)
    }
    assert shares == {
        "verdict": (1, 2),
        "verdict_high": (1, 1),
        "verdict_medium": (0, 0),
        "verdict_low": (0, 1),
        "verdict_controls": (0, 1),
        "found_promised": (1, 1),
        "found_all": (1, 2),
        "found_first": (0, 1),
        "precision": (2, 4),
        "controls_silent": (0, 1),
        "gone_when_mended": (1, 1),
        "within_bound": (0, 0),
        "at_least": (0, 0),
        "close": (1, 1),
        "within_bound_bare": (0, 0),
        "at_least_bare": (0, 0),
        "close_bare": (0, 1),
        "applied_half": (0, 0),
        "applied_not_slower": (0, 0),
        "steps": (4, 5),
        "step_time": (4, 5),
        "bare_given": (2, 5),
        "bare_step": (1, 2),
        "bare_interval": (0, 0),
    }
    # 6 of the 8 ms that were predicted came of it.
    assert figures["realised_over_predicted"] == pytest.approx(6 / 8)
    # Half as much without the recording.
    assert figures["realised_over_predicted_bare"] == pytest.approx(3 / 8)
    assert figures["bare_step"].bad == ("a/odd: +4.0 %",)
    assert "a/fine: every step was recorded" in figures["bare_given"].bad
    assert figures["step_error_percent"] == pytest.approx(10)
    assert "a/fine: +10.0 %" in figures["step_time"].bad
    assert "1 of 2 (50 %)" in score.table(figures)


def test_what_is_said_of_a_program_stands_beside_its_own_clock(score, monkeypatch):
    import time

    from programs import Program

    import nbprof

    for name in ("own_clock", "record"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import record

    def loop(steps):
        for _ in nbprof.steps(range(steps)):
            time.sleep(0.002)

    program = Program("python/sleep", "", *[frozenset()] * 3, lambda _: loop, 16)
    out = record.recorded(program, mended=False)
    assert (out["steps"], out["steps_run"]) == (16, 16)
    assert out["step_ms"] == pytest.approx(out["clock_ms"], rel=0.2)
    pooled, before, after = out["own_bare_ms"]
    assert min(before, after) <= pooled <= max(before, after)
    assert min(before, after) >= 2.0
    figures = score.score({program.name: program}, {program.name: {"as_is": out}})
    assert figures["steps"].good == 1
    for name in ("own_clock", "record"):
        del sys.modules[name]


def test_bare_steps_that_differ_are_both_in_the_interval(score):
    from programs import COMPUTE, Program

    names = ("a/even", "a/both", "a/one")
    programs = {name: Program(name, "", COMPUTE, *[frozenset()] * 2, None, 4) for name in names}
    own = ([5.0, 4.95, 5.05], [5.0, 4.9, 5.1], [5.1, 4.9, 5.3])
    figures = score.score(
        programs,
        {
            name: {"as_is": measured(bare=5.02, own=each)}
            for name, each in zip(names, own, strict=True)
        },
    )
    assert figures["bare_step"] == score.Share(1, 1)
    assert (figures["bare_interval"].good, figures["bare_interval"].of) == (0, 2)
    figures = score.score(programs, {"a/both": {"as_is": measured(bare=5.0, own=own[1])}})
    assert figures["bare_interval"] == score.Share(1, 1)
    assert figures["bare_step"].of == 0


def test_a_gain_is_held_against_what_it_says_it_is(score):
    from programs import INPUT, Program

    plant = Program("a/slow", "slow", INPUT, frozenset(("right",)), frozenset(), None, 4)

    def of(kind, said):
        """The figures of a finding that says so, of a plant whose mend saves 6 ms, give or take
        0.28.
        """
        each = {"as_is": measured(found=[("right", said, kind)]), "mended": measured(clock=4.0)}
        figures = score.score({"a/slow": plant}, {"a/slow": each})
        return {
            key: figures[key].good
            for key in ("within_bound", "at_least", "close")
            if figures[key].of
        }

    assert [of("up to", said) for said in (5.7, 5.73)] == [{"within_bound": 0}, {"within_bound": 1}]
    assert [of("at least", said) for said in (6.3, 6.27)] == [{"at_least": 0}, {"at_least": 1}]
    assert [of("about", said) for said in (3.9, 4.1, 8.9, 9.1)] == [
        {"close": 0},
        {"close": 1},
        {"close": 1},
        {"close": 0},
    ]


def test_the_first_advice_applied_is_held_against_the_time_without_a_recording(score):
    from programs import INPUT, Program

    plant = Program("a/slow", "slow", INPUT, frozenset(("right",)), frozenset(("also",)), None, 4)

    def of(mended_clock, found):
        """The figures of a plant whose step takes 5 ms without a recording."""
        figures = score.score(
            {"a/slow": plant},
            {"a/slow": {"as_is": measured(found=found), "mended": measured(clock=mended_clock)}},
        )
        return [
            (figures[key].good, figures[key].of) for key in ("applied_half", "applied_not_slower")
        ]

    assert of(6.0, [("right", 4.0)]) == [(1, 1), (1, 1)], "2 of the 4 ms"
    assert of(6.2, [("right", 4.0)]) == [(0, 1), (1, 1)]
    assert of(10.4, [("right", 4.0)]) == [(0, 1), (1, 1)], "4 % are chance"
    assert of(10.6, [("right", 4.0)]) == [(0, 1), (0, 1)]
    assert of(6.0, [("right", None)]) == [(0, 0), (1, 1)]
    assert of(6.0, [("also", 1.0), ("right", 4.0)]) == [(0, 0), (0, 0)], (
        "what the first advice asks for was not done"
    )


ROW = {
    "experiment": "loader_workers", "rule": "loader_in_process", "recommended": True, "why": "",
    "baseline_ms": 20.0, "gain_ms": 9.0, "gain_low_ms": 8.0, "gain_high_ms": 10.0, "equal": True,
    "difference": 0.0, "spread": 0.0, "pairs": 20, "took_s": 8.0, "code": "long",
}  # fmt: skip


def proven_of(*rows, twin_ms=10.0, **values):
    """What the process of a program prints."""
    return {
        "text": "", "rows": list(rows), "again": [], "planted": twin_ms is not None,
        "seconds": 120.0, "budget_s": 240.0, "cores": 2, "twin_ms": twin_ms,
        "predicted": {"loader_in_process": 18.0}, **values,
    }  # fmt: skip


@pytest.fixture
def proven(score, monkeypatch, tmp_path, capsys):
    """`proven.py` with two programs that take no time; gives its output and the names that ran."""
    from types import SimpleNamespace

    names = ("proof", "proven", "record", "own_clock")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import proven

    outs = {
        "torch/slow items in the process": proven_of(ROW, {**ROW, "gain_ms": 5.0}),
        "torch/mlp": proven_of({**ROW, "recommended": False}, twin_ms=None),
    }
    ran = []

    def separately(name, budget_s):
        ran.append((name, budget_s))
        if isinstance(outs[name], BaseException):
            raise outs[name]
        return outs[name]

    cases = {
        name: SimpleNamespace(plant="a" if out["planted"] else "") for name, out in outs.items()
    }
    monkeypatch.setattr(proven, "PROGRAMS", cases)
    monkeypatch.setattr(proven, "MODULES", {})
    monkeypatch.setattr(proven, "separately", separately)

    def run(*arguments):
        ran.clear()
        monkeypatch.setattr(sys, "argv", ["proven.py", *map(str, arguments)])
        proven.main()
        return capsys.readouterr().out, [name for name, _ in ran]

    yield SimpleNamespace(run=run, outs=outs, file=tmp_path / "a b.json", ran=ran)
    for name in names:
        sys.modules.pop(name, None)


def test_a_stopped_run_goes_on_with_what_its_file_lacks(proven):
    names = list(proven.outs)
    kept = proven.outs["torch/mlp"]
    proven.outs["torch/mlp"] = KeyboardInterrupt()
    with pytest.raises(SystemExit):
        proven.run("--store", proven.file)
    assert '"torch/slow items in the process": ' in proven.file.read_text()
    assert "torch/mlp" not in proven.file.read_text()
    proven.outs["torch/mlp"] = RuntimeError("torch/mlp failed:\nno memory")
    said, ran = proven.run("--store", proven.file)
    assert ran == ["torch/mlp"]
    assert "1 of 2 programs to run" in said
    assert "no memory" in said
    proven.outs["torch/mlp"] = kept
    assert proven.run("--store", proven.file)[1] == ["torch/mlp"]
    assert proven.run("--store", proven.file)[1] == []
    # Another budget is another measurement.
    assert proven.run("--store", proven.file, "--budget", 5, "--only", "mlp")[1] == ["torch/mlp"]
    assert proven.ran == [("torch/mlp", 5.0)]
    assert proven.run("--store", proven.file, "--again", "--jobs", 2)[1] == names
    assert [path.name for path in proven.file.parent.iterdir()] == [proven.file.name]


def test_what_the_runs_come_to_is_stored(proven):
    import json

    said, _ = proven.run("--store", proven.file)
    stored = json.loads(proven.file.read_text())
    assert said.endswith("\n".join(stored["summary"]) + "\n")
    time, found, controls, predictions = stored["summary"]
    assert time.startswith("Each program had 240 s on 2 cores; the longest took 120 s, and 2 of 2")
    assert found.endswith(" were proven in 1 (100 %; 75 % are asked for).")
    assert controls == (
        "In 1 programs without a problem, 0 changes were recommended. Measured once more, slower"
        " with 95 % confidence: none; results not equal: none."
    )
    assert predictions.endswith(": `loader_in_process` 2.0 (1).")
    program = stored["programs"]["torch/slow items in the process"]
    assert program["proven"]["gain_ms"] == 9.0
    assert "code" not in program["rows"][0]


def test_what_is_missing_or_wrong_is_named(proven):
    from proof import entry, summary

    slower = {**ROW, "gain_ms": -3.0, "gain_low_ms": -5.0, "gain_high_ms": -1.0, "equal": False}
    programs = {
        "a": entry(proven_of(ROW, twin_ms=20.0, seconds=301.0)),
        "b": entry(proven_of(twin_ms=5.0)),
        "c": entry(proven_of(ROW, twin_ms=None, again=[slower])),
        "d": entry(proven_of({**ROW, "recommended": False, "pairs": 0}, twin_ms=None)),
    }
    text = " ".join(summary(programs))
    assert "the longest took 301 s, and 3 of 4 at most 300 s" in text
    assert "proven in 0 (0 %; 75 % are asked for), and less in a (45 %), b (0 %)" in text
    assert "slower with 95 % confidence: 1 (loader_workers in c); results not equal: 1 (" in text
    assert "Nothing could be measured in d." in text
    # One that another version of the benchmark has stored did not run.
    assert summary({"e": {"planted": True, "proven": None}}) == []
