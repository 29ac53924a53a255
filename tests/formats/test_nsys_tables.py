"""NVTX events in tables of other names and layouts, and what Nsight Systems itself said, with the
process that it is about.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import nbprof
from tests.support import nsys
from tests.support.nsys import Export

RENAME = "alter table NVTX_EVENTS rename to {}"


def loaded(folder: Path, *statements: str, export: Export | None = None) -> nbprof.Profile:
    """A training with its steps marked by NVTX, and some changes of the database."""
    path = (export or nsys.training(4)).sqlite(folder / "report1.sqlite")
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return nbprof.load(path)


@pytest.mark.parametrize("name", ["NVTX_EVENTS_V3", "NVTX_EVENTS2", "MARKER_EVENTS"])
def test_a_table_of_another_name_is_known_by_its_columns(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    want, found = loaded(tmp_path / "a"), loaded(tmp_path, RENAME.format(name))
    assert len(found.steps.frame) == len(want.steps.frame) == 4
    assert found.torch_ops.frame.equals(want.torch_ops.frame)
    assert len(want.torch_ops.frame)
    assert found.run.trace.receipt.events == want.run.trace.receipt.events


def test_a_table_of_an_unknown_layout_is_named(tmp_path: Path) -> None:
    other = 'alter table NVTX_EVENTS_V9 rename column "eventType" to "kind"'
    p = loaded(tmp_path, RENAME.format("NVTX_EVENTS_V9"), other, export=nsys.training(1))
    text = str(p.receipt)
    rows = p.run.trace.metadata["nvtx_unread"]
    assert rows == ["NVTX_EVENTS_V9"]
    assert "! The NVTX events of the table NVTX_EVENTS_V9 (" in text
    assert "nbprof does not know its columns (start, end, kind, rangeId, category, color" in text
    assert "no NVTX ranges mark them" not in text
    assert "which framework ops they contain is unknown" in text


def test_a_kind_of_event_that_is_not_known_is_named(tmp_path: Path) -> None:
    text = str(
        loaded(tmp_path, "update NVTX_EVENTS set eventType = 900", export=nsys.training(1)).receipt
    )
    assert "! The NVTX events of the table NVTX_EVENTS (" in text
    assert "torch.autograd.profiler.emit_nvtx()" not in text


def complaint(text: str, pid: int | None) -> Export:
    export = nsys.training(2)
    export.add("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", id=3, name="WARN", label="Warning")
    export.add("PROCESSES", globalPid=77 << 24, pid=77, name="/bin/bash")
    export.add(
        "DIAGNOSTIC_EVENT",
        severity=3,
        text=text,
        **({} if pid is None else {"globalPid": pid << 24}),
    )
    return export


def test_what_was_said_of_a_process_names_it(tmp_path: Path) -> None:
    text = str(
        loaded(
            tmp_path, export=complaint("No NVTX events collected. Does the process use NVTX?", 77)
        ).receipt
    )
    assert (
        "Nsight Systems said of process 77 (bash): No NVTX events collected. Does the process use NVTX? The export has "
        in text
    )
    assert " NVTX events, of process 4321" in text


@pytest.mark.parametrize("word", ["NVTX", "CUDA"])
def test_what_was_said_of_no_process_stands_beside_what_there_is(tmp_path: Path, word: str) -> None:
    text = str(loaded(tmp_path, export=complaint(f"No {word} events collected", None)).receipt)
    assert f"Nsight Systems said: No {word} events collected. The export has " in text
    assert f" {word} events, of process 4321" in text


def test_what_is_so_is_not_contradicted(tmp_path: Path) -> None:
    text = str(
        loaded(
            tmp_path, "delete from NVTX_EVENTS", export=complaint("No NVTX events collected", 77)
        ).receipt
    )
    assert "Nsight Systems said of process 77 (bash): No NVTX events collected." in text
    assert "The export has" not in text
