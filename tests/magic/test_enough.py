"""A cell that is recorded until enough is known, in a real kernel."""

from __future__ import annotations

import pytest


@pytest.fixture
def short(kernel):
    """A kernel in which a few milliseconds of steps are enough."""
    kernel.run("from nbprof.capture import enough\nenough.SECONDS = 0.02")
    yield kernel
    kernel.run("enough.SECONDS = 3.0")


def test_what_follows_the_window_runs_and_is_said(short):
    result = short.run(
        "%%nbprof -o p\nmodel.fit(data, epochs=6, verbose=0)\nmodel.evaluate(data, verbose=0)"
    )
    assert result.status == "ok"
    facts = short.capture("p")
    last = facts["window"][1]
    assert (facts["steps_seen"], facts["ended_before"]) == (56, True)
    assert 20 <= last < 48
    [note] = [text for text in facts["notes"] if text.startswith("steps 1 to")]
    assert f"({48 - last} train and 8 test) ran without the profiler" in note
    assert note.endswith("--steps all records the whole cell")
    assert short.ask("len(p.steps.clock)") == "56"
    assert short.ask("len(p.steps.frame)") == str(last)


def test_all_steps_are_recorded_where_that_is_asked_for(short):
    short.run("%%nbprof -q -o p --steps all\nmodel.fit(data, epochs=6, verbose=0)")
    assert short.capture("p")["window"] == [1, 48]
    # An option that is typed takes precedence, also over default options.
    short.run("%nbprof defaults --steps all")
    short.run("%%nbprof -q -o p --steps auto\nmodel.fit(data, epochs=6, verbose=0)")
    assert short.capture("p")["ended_before"]
    short.run("%nbprof defaults none")


def test_an_interrupt_after_the_window_interrupts_the_cell(short):
    result = short.run(
        "%%nbprof -o p\nmodel.fit(data, epochs=6, verbose=0)\nraise KeyboardInterrupt"
    )
    assert result.error == "KeyboardInterrupt"
    facts = short.capture("p")
    assert facts["error"] == "cell was interrupted after 48 complete steps"
    assert facts["ended_before"]
