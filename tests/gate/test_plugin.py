"""The pytest plugin, in sessions of its own: a gate that cannot fail is none."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jax  # here: what a session imports first is gone after it, and numpy cannot be imported twice
import pytest

import nbprof.gate.expect
import nbprof.gate.record  # noqa: F401
from nbprof.gate import policy
from nbprof.gate.record import _framework as framework
from tests.support import places

pytest_plugins = ["pytester"]

USES = """
    import nbprof
    from tests.gate.gpu import trained
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """Runs a session with the plugin, whether or not its entry point is installed."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.syspathinsert(Path(__file__).parents[2])

    def run(text, *options):
        pytester.makepyfile(USES + text)
        return pytester.runpytest_inprocess(
            "-p", "no:nbprof", "-p", "nbprof.gate.plugin", "-p", "no:cacheprovider", *options
        )

    return run


def test_a_chain_without_an_end_fails_its_test(session):
    result = session("""
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path, kernels=3)).kernels(max=2).syncs(max=0)
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["1 of 2 expectations not met", "*fail: kernels per step: 3, at most 2 allowed"]
    )
    result.stdout.fnmatch_lines(["*nbprof: 1 pass, 1 fail*"])
    result.stdout.no_fnmatch_line("*traceback entries are hidden*")


def test_what_is_met_passes_and_unknown_is_said(session):
    result = session("""
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path, kernels=3)).kernels(max=3).flops(max=1)
    """)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*nbprof: 1 pass, 1 unknown*", "unknown: *::test_step FLOPs per step:*"]
    )


@pytest.mark.parametrize(
    ("how", "outcome"), [("fail", "failed"), ("warn", "passed"), ("skip", "skipped")]
)
def test_what_is_unknown_does_what_was_said(session, how, outcome):
    text = """
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path)).flops(max=1)
    """
    session(text, f"--nbprof-unknown={how}").assert_outcomes(**{outcome: 1})


def test_a_failure_counts_for_more_than_what_is_unknown(session):
    text = """
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path)).flops(max=1).kernels(max=0)
    """
    session(text, "--nbprof-unknown=skip").assert_outcomes(failed=1)


def test_expectations_of_fixtures_and_empty_chains_count(session):
    result = session("""
    import pytest

    @pytest.fixture
    def before(tmp_path):
        nbprof.expect(trained(tmp_path)).kernels(max=0)

    @pytest.fixture
    def after(tmp_path):
        yield
        nbprof.expect(trained(tmp_path)).kernels(max=0)

    def test_before(before):
        pass

    def test_after(after):
        pass

    def test_nothing(tmp_path):
        nbprof.expect(trained(tmp_path))

    def test_another():
        pass
    """)
    result.assert_outcomes(failed=2, passed=2, errors=1)
    result.stdout.fnmatch_lines(["*has no checks*"])


def test_a_test_that_fails_by_itself_keeps_its_own_failure(session):
    result = session("""
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path)).kernels(max=0)
        raise KeyError("mine")
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*KeyError: 'mine'*"])


def test_an_expectation_outside_of_tests_stops_the_session(session, tmp_path):
    result = session(f"""
    import pathlib
    nbprof.expect(trained(pathlib.Path({str(tmp_path)!r}))).kernels(max=0)

    def test_step():
        pass
    """)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*outside of a test would never be verified*"])


def test_a_baseline_is_written_then_held(session, pytester):
    text = """
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path, kernels={kernels})).against("baselines/step.json").kernels().launches()
    """
    result = session(text.format(kernels=3))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*there is no baseline *step.json: pytest --nbprof-update*"])
    session(text.format(kernels=3), "--nbprof-update").assert_outcomes(passed=1)
    assert (pytester.path / "baselines" / "step.json").is_file()
    session(text.format(kernels=3)).assert_outcomes(passed=1)
    result = session(text.format(kernels=4))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*kernels per step: 4, 3 in the baseline", "*gemm_3: 0 → 1 calls per step (new)"]
    )


def test_junit_and_the_summary_have_every_check(session, pytester, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    text = """
    def test_step(tmp_path):
        nbprof.expect(trained(tmp_path)).kernels(max=3).syncs(max=0).launches(max=1)
    """
    session(text, "--junitxml=junit.xml").assert_outcomes(failed=1)
    properties = ElementTree.parse(pytester.path / "junit.xml").findall(".//property")
    assert {one.get("name"): one.get("value").partition(":")[0] for one in properties} == {
        "nbprof.kernels": "pass",
        "nbprof.syncs": "pass",
        "nbprof.launches": "fail",
    }
    lines = (pytester.path / "summary.md").read_text().splitlines()
    assert lines[0] == "### nbprof: 2 pass, 1 fail"
    assert lines[4].startswith("| ✗ **fail** | `")
    assert [line.split(" | ")[2] for line in lines[4:7]] == ["launches", "kernels", "syncs"]
    session(text, "--nbprof-summary=other.md")
    assert (pytester.path / "other.md").is_file()


def test_the_plugin_leaves_the_policy_as_it_was(session, alone):
    session("def test_step(): pass")
    assert policy.current() is alone


def test_a_callable_is_recorded_and_what_it_compiles_is_counted(session):
    """The whole way with JAX on the CPU."""
    result = session("""
    import jax, jax.numpy as jnp

    @jax.jit
    def step(x):
        return jnp.tanh(x @ x)

    def test_steady(nbprof_profile):
        p = nbprof_profile(step, jnp.ones((8, 8)), steps=4, repeats=2)
        assert {int(one.steps.frame["counted"].sum()) for one in p.repeats} == {4}
        assert all(one.run.capture.machine["cores"] for one in p.repeats)
        nbprof.expect(p).recompiles(max=0).dropped(max=0)

    def test_recompiles(nbprof_profile):
        sizes = iter(range(8, 100))
        p = nbprof_profile(lambda: step(jnp.ones((1, 1)) if (n := next(sizes)) < 12 else jnp.ones((n, n))), steps=4, repeats=1)
        nbprof.expect(p).recompiles(max=0)

    def test_bad_use(nbprof_profile):
        nbprof_profile(step, jnp.ones((8, 8)), steps=1)
    """)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*fail: compilations after warm-up: *, at most 0 allowed"])
    result.stdout.fnmatch_lines(["*steps must be a whole number of 2 or more, not 1*"])


def test_paths_need_not_be_profiles_of_this_process(session, tmp_path):
    path = places.write(tmp_path, {"a.xplane.pb": places.space()})
    result = session(f"""
    def test_step():
        nbprof.expect({str(path / "a.xplane.pb")!r}).dropped(max=0)
    """)
    result.assert_outcomes(passed=1)


def test_a_session_that_asks_nothing_of_it_imports_next_to_nothing():
    code = "import sys, nbprof.gate.plugin; print(*sorted({'numpy', 'pandas', 'IPython', 'click'} & set(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert out.stdout.strip() == ""


def test_the_framework_is_that_of_the_callable():
    """A process of tests may have imported all of them."""
    tf, torch = (pytest.importorskip(name) for name in ("tensorflow", "torch"))

    class Net(torch.nn.Module):
        pass

    def uses_jax(x):
        return jax.numpy.tanh(x)

    def told_by_nothing(x):
        return x

    assert framework(uses_jax, ()) == "jax"
    assert framework(jax.jit(told_by_nothing), ()) == "jax"
    assert framework(told_by_nothing, (jax.numpy.ones(2),)) == "jax"
    assert framework(told_by_nothing, (torch.ones(2),)) == "torch"
    assert framework(Net().forward, ()) == "torch"
    assert framework(told_by_nothing, (tf.constant(1.0),)) == "tensorflow"
    assert framework(len, ()) == "auto"
