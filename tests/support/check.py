"""`make check`: the tests nearest to what changed in the working tree, of both languages, for as
long as there is time.

A test file is as near as the chain of imports from it to a changed module is short. One that is
named after a changed module (`test_kineto_real.py` after `kineto.py`), or names a changed file of
another kind (`numbers.md`), is as near as one that imports it. Those up to two imports away run, or
the nearest where none is as near, the nearest first. When the time is over, what is left is skipped
and counted. `make test` runs everything.

    python -m tests.support.check UNTIL SINCE     # seconds of the epoch, a commit
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNTIL = "NBPROF_CHECK_UNTIL"
FAR = 2
# Where nothing changed: files to frames, payloads and pages once through.
SMOKE = [
    "tests/report/test_whole_way.py",
    "tests/formats/test_sniff.py",
    "tests/views/test_codec.py",
]
FRONT_END = ("js/", "style/", "schema/", "package", "tsconfig", "biome", "vitest")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ[UNTIL]):
        pytest.skip("no time was left for it: `make test` runs it")


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def changed(since: str) -> list[str]:
    """Files that differ from a commit, with those that Git does not know yet."""
    known = output("git", "diff", "--name-only", since)
    return (known + output("git", "ls-files", "--others", "--exclude-standard")).splitlines()


def is_test(path: str) -> bool:
    return (
        Path(path).name.startswith("test_")
        and path.endswith(".py")
        and not path.startswith("tests/e2e/")
    )


def distances(changes: list[str]) -> dict[str, int]:
    """Modules that reach a changed file, with how many imports lie between."""
    importers: dict[str, list[str]] = json.loads(
        output("ruff", "analyze", "graph", "--direction", "dependents", "nbprof", "tests")
    )
    # Fixtures are used without an import.
    for path in list(importers):
        if Path(path).name == "conftest.py":
            importers[path] += [
                p for p in importers if p.startswith(path[: -len("conftest.py")]) and is_test(p)
            ]
    found = dict.fromkeys(changes, 0)
    # Readers and dialects are imported by names that are made up at run time; data and pages are
    # not imported at all.
    modules = tuple(f"test_{Path(path).stem}" for path in changes if path.endswith(".py"))
    others = {Path(path).name for path in changes if not path.endswith(".py")}
    for path in filter(is_test, importers):
        if Path(path).name.startswith(modules) or any(
            name in (ROOT / path).read_text() for name in others
        ):
            found.setdefault(path, 1)
    queue = sorted(found, key=found.__getitem__)
    for path in queue:
        for importer in importers.get(path, ()):
            if importer not in found:
                found[importer] = found[path] + 1
                queue.append(importer)
    return found


def main(until: str, since: str) -> int:
    os.environ[UNTIL] = until
    changes = changed(since)
    if any(path.startswith(FRONT_END) for path in changes):
        for script in (
            ["typecheck"],
            ["lint"],
            ["test", "--", "--changed", since, "--passWithNoTests"],
        ):
            if subprocess.run(["npm", "run", "--silent", *script], cwd=ROOT).returncode:
                return 1
    found = distances(changes)
    reached = sorted(
        (found[path], path) for path in found if is_test(path) and (ROOT / path).exists()
    )
    tests = [path for distance, path in reached if distance <= max(FAR, reached[0][0])]
    print(
        f"Changed since {since}: {len(changes)} files. {len(reached)} test files reach them, {len(tests)} from near.",
        flush=True,
    )
    order = ["-n2", "--dist=loadfile", "--no-loadscope-reorder"]
    return pytest.main(["-q", "-p", "tests.support.check", *order, *(tests or SMOKE)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
