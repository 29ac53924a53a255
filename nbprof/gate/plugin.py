"""The pytest plugin: the fixture `nbprof_profile`, and expectations verified as their test ends.

Every pytest of an environment with nbprof imports this module, so it imports next to nothing before
a test asks for it.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nbprof.core.errors import NbprofError
from nbprof.gate import policy

_POLICY = pytest.StashKey[policy.Policy]()
_ROWS = pytest.StashKey["list[_Row]"]()
_SIGNS = {"pass": "✓ pass", "fail": "✗ **fail**", "unknown": "? unknown"}
PROPERTY = "nbprof."
"""Prefix of the properties of a test with its checks, in JUnit's XML as well: `nbprof.kernels`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the gate."""
    group = parser.getgroup("nbprof", "nbprof: expectations of profiles")
    group.addoption(
        "--nbprof-update",
        action="store_true",
        help="write the baselines of nbprof.expect instead of comparing with them",
    )
    group.addoption(
        "--nbprof-add",
        action="store_true",
        help=(
            "add the step times of this run to the baselines (same code, recorded at another time)"
        ),
    )
    group.addoption(
        "--nbprof-unknown",
        choices=policy.UNKNOWN,
        default=None,
        help=(
            "what to do if a figure is unknown: fail, warn, or skip the test; default: fail if CI"
            " is set, else warn"
        ),
    )
    group.addoption(
        "--nbprof-summary",
        metavar="FILE",
        default=None,
        help=(
            "append a Markdown table of all checks to this file; $GITHUB_STEP_SUMMARY if that"
            " is set"
        ),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the policy of this process."""
    update = ""
    if config.getoption("nbprof_update"):
        update = "new"
    elif config.getoption("nbprof_add"):
        update = "add"
    rules = policy.Policy(
        unknown=config.getoption("nbprof_unknown") or policy.default_unknown(),
        update=update,
        root=config.rootpath,
        pending=[],
    )
    config.stash[_POLICY] = rules
    config.stash[_ROWS] = []
    policy.push(rules)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the previous policy."""
    if _POLICY in config.stash:
        policy.drop(config.stash[_POLICY])


@pytest.fixture
def nbprof_profile() -> Callable[..., Any]:
    """Record a callable, a step per call: `nbprof_profile(train, *args, steps=20, warmup=3,
    repeats=5, **options)`.
    """
    from nbprof.gate.record import record

    return record


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Verify the expectations of a test, and earlier ones of its fixtures, when it ends."""
    __tracebackhide__ = True
    return (yield from _verified(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Verify expectations that fixtures create when they are torn down."""
    __tracebackhide__ = True
    return (yield from _verified(item))


def _verified(item: pytest.Item) -> Generator[None, Any, Any]:
    # Its frame stays visible: without a visible one pytest reports that the traceback is hidden.
    pending = item.config.stash[_POLICY].pending
    assert pending is not None
    try:
        result = yield
    except BaseException:
        for expectation in pending:
            _record(item, expectation)
            expectation.abandon()
        pending.clear()
        raise
    expectations = pending[:]
    pending.clear()
    errors: list[str] = []
    skip: list[str] = []
    for expectation in expectations:
        if not expectation.verified:
            try:
                expectation.verify()
            except (AssertionError, NbprofError) as error:
                errors.append(str(error))
        _record(item, expectation)
        for outcome in expectation.outcomes:
            if outcome.outcome == "unknown" and outcome.unknown == "skip":
                skip.append(outcome.text)
    if errors:
        # The traceback would be of this plugin.
        pytest.fail("\n".join(errors), pytrace=False)
    if skip:
        pytest.skip("; ".join(skip))
    return result


def _record(item: pytest.Item, expectation: policy.Pending) -> None:
    for outcome in expectation.outcomes:
        item.user_properties.append((f"{PROPERTY}{outcome.check}", str(outcome)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if a module created an expectation on import: no test would verify it."""
    pending = session.config.stash[_POLICY].pending
    if pending:
        location = pending[0].location
        for expectation in pending:
            expectation.abandon()
        pending.clear()
        raise pytest.UsageError(
            f"{location}: nbprof.expect(...) outside of a test would never be verified: move it"
            " into a test"
        )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the checks that did not pass, and write the file with all of them."""
    rows = config.stash[_ROWS]
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if getattr(report, "when", "") in ("call", "teardown"):
            # With several workers this is where their reports meet. Teardown repeats the properties
            # of the call.
            rows += [row for row in _rows(report) if row not in rows]
    if not rows:
        return
    terminalreporter.section(f"nbprof: {_outcome_counts(rows)}")
    for row in rows:
        if row.outcome != "pass":
            terminalreporter.line(f"{row.outcome}: {row.test} {row.text}")
    path = config.getoption("nbprof_summary") or os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        try:
            _append(Path(path), rows)
        except OSError as error:
            # The summary is a by-product: its failure must not hide how the tests went.
            terminalreporter.line(f"{path}: the summary could not be written ({error.strerror})")


def _rows(report: Any) -> list[_Row]:
    rows = []
    for name, value in getattr(report, "user_properties", []):
        if str(name).startswith(PROPERTY):
            outcome, _, text = str(value).partition(": ")
            rows.append(_Row(report.nodeid, str(name)[len(PROPERTY) :], outcome, text))
    return rows


class _Row(NamedTuple):
    """The outcome of one check of a test."""

    test: str
    check: str
    outcome: str
    text: str


def _outcome_counts(rows: Sequence[_Row]) -> str:
    """The number of checks with each outcome: `12 pass, 1 unknown`."""
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{counts[name]} {name}" for name in _SIGNS if counts[name])


def _markdown(rows: Sequence[_Row]) -> str:
    """A heading and a table, failures first."""
    order = {"fail": 0, "unknown": 1, "pass": 2}
    heading = f"### nbprof: {_outcome_counts(rows)}"
    lines = [heading, "", "| | test | check | |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: order.get(row.outcome, 0)):
        cells = _SIGNS.get(row.outcome, row.outcome), _code(row.test), row.check, _cell(row.text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _append(path: Path, rows: Sequence[_Row]) -> None:
    """Append the table to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(_markdown(rows) + "\n")


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|")
    escaped = escaped.replace("<", "&lt;").replace("`", "\\`")
    return "<br>".join(map(str.strip, escaped.splitlines()))


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"
