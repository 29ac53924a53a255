"""The pytest plugin: the fixture `nbprof_profile`, and expectations that are verified when their
test ends.

Every pytest of an environment with nbprof imports this module, so it imports next to nothing before
a test asks for it.
"""

from __future__ import annotations

import os
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
"""How the properties begin that a test has of its checks: `nbprof.kernels`, in JUnit's XML as
well.
"""


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
    """Say how expectations are held in this process."""
    held = policy.Policy(
        unknown=config.getoption("nbprof_unknown") or policy.usual(),
        update=(
            "new"
            if config.getoption("nbprof_update")
            else "add"
            if config.getoption("nbprof_add")
            else ""
        ),
        root=config.rootpath,
        pending=[],
    )
    config.stash[_POLICY] = held
    config.stash[_ROWS] = []
    policy.push(held)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let what held before hold again."""
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
    """Verify at the end of a test what it expects; what its fixtures expected before as well."""
    __tracebackhide__ = True
    return (yield from _verified(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Verify what fixtures expect when they are torn down."""
    __tracebackhide__ = True
    return (yield from _verified(item))


def _verified(item: pytest.Item) -> Generator[None, Any, Any]:
    # Not hidden: of a failure without a visible frame pytest says that its traceback is hidden.
    pending = item.config.stash[_POLICY].pending
    assert pending is not None
    try:
        result = yield
    except BaseException:
        for one in pending:
            _record(item, one)
            one.abandon()
        pending.clear()
        raise
    mine = pending[:]
    pending.clear()
    errors: list[str] = []
    skip: list[str] = []
    for one in mine:
        if not one.verified:
            try:
                one.verify()
            except (AssertionError, NbprofError) as error:
                errors.append(str(error))
        _record(item, one)
        skip += [
            each.text
            for each in one.outcomes
            if each.outcome == "unknown" and each.unknown == "skip"
        ]
    if errors:
        # The sentences say it all; the traceback would be of this plugin.
        pytest.fail("\n".join(errors), pytrace=False)
    if skip:
        pytest.skip("; ".join(skip))
    return result


def _record(item: pytest.Item, expectation: policy.Pending) -> None:
    for one in expectation.outcomes:
        item.user_properties.append((f"{PROPERTY}{one.check}", str(one)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where a module made an expectation while it was imported: no test would verify it."""
    pending = session.config.stash[_POLICY].pending
    if pending:
        where = pending[0].where
        for one in pending:
            one.abandon()
        pending.clear()
        raise pytest.UsageError(
            f"{where}: nbprof.expect(...) outside of a test would never be verified: move it into a"
            " test"
        )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The checks that did not pass, and the file with all of them."""
    rows = config.stash[_ROWS]
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", "") in ("call", "teardown"):
            # With several workers this is where their reports meet. Teardown has the properties of
            # the call again.
            rows += [row for row in _rows(report) if row not in rows]
    if not rows:
        return
    worth = [row for row in rows if row.outcome != "pass"]
    terminalreporter.section(f"nbprof: {_counted(rows)}")
    for row in worth:
        terminalreporter.line(f"{row.outcome}: {row.test} {row.text}")
    path = config.getoption("nbprof_summary") or os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        try:
            _append(Path(path), rows)
        except OSError as error:
            # It is a by-product: that it is missing must not hide how the tests went.
            terminalreporter.line(f"{path}: the summary could not be written ({error.strerror})")


def _rows(report: Any) -> list[_Row]:
    found = []
    for name, value in getattr(report, "user_properties", []):
        if str(name).startswith(PROPERTY):
            outcome, _, text = str(value).partition(": ")
            found.append(_Row(report.nodeid, str(name)[len(PROPERTY) :], outcome, text))
    return found


class _Row(NamedTuple):
    """The outcome of one check of a test."""

    test: str
    check: str
    outcome: str
    text: str


def _counted(rows: Sequence[_Row]) -> str:
    """How many checks had which outcome: `12 pass, 1 unknown`."""
    return ", ".join(
        f"{count} {name}" for name in _SIGNS if (count := sum(row.outcome == name for row in rows))
    )


def _markdown(rows: Sequence[_Row]) -> str:
    """A heading and a table, failures first."""
    order = {name: at for at, name in enumerate(("fail", "unknown", "pass"))}
    lines = [f"### nbprof: {_counted(rows)}", "", "| | test | check | |", "|---|---|---|---|"]
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
    escaped = (
        text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
    )
    return "<br>".join(line.strip() for line in escaped.splitlines())


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"
