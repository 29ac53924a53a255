"""Steps of allocations: the numbers that the frame of steps has, of each rank its own."""

from __future__ import annotations

import pandas as pd

from nbprof.schema.frames import dtypes
from tests.support.frames import public
from tests.support.kineto import Kineto, profile


def test_each_rank_has_its_own_numbers(tmp_path):
    files = []
    for rank, first in enumerate((7, 40)):
        file = Kineto(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
        for i in range(2):
            begin = 1000.0 * i
            file.step(first + i, begin, 900)
            file.op("aten::mm", begin + 10, 800)
            file.memory(begin + 20, 1000, 0x100 * (rank + 1) + 2 * i, 1000 * (i + 1))
        # Behind the last step.
        file.memory(5000, 10, 0x900, 3000)
        files.append(file)
    p = profile(tmp_path, *files)
    table = p.memory.timeline
    assert table["step"].dtype == "Int64"
    steps = {ident: rows["step"].tolist() for ident, rows in table.groupby("memory_id", sort=True)}
    assert list(steps.values()) == [[7, 8, pd.NA], [40, 41, pd.NA]]
    # The peak is behind the last step, and in none.
    assert p.memory.summary["peak_step"].tolist() == [pd.NA, pd.NA]


def test_without_steps_none_has_a_number(tmp_path):
    file = Kineto()
    file.op("aten::mm", 10, 800)
    file.memory(20, 1000, 0x100, 1000)
    p = profile(tmp_path, file)
    assert p.memory.timeline["step"].isna().all()
    assert p.memory.summary["peak_step"].isna().all()


def test_the_run_has_the_numbers_of_steps_too_and_the_types_that_the_schema_promises(tmp_path):
    k = Kineto()
    for i in range(2):
        k.step(40 + i, 100 * i, 100)
        k.memory(100 * i + 10, 64, 4096 + 64 * i, 64 * (i + 1))
    p = profile(tmp_path, k)
    assert p.run.memory_timeline["step"].tolist() == [40, 41]
    for name in ("memory.timeline", "memory.summary"):
        frame = public(p, name)
        for column, kind in dtypes(name).items():
            if kind in ("int64", "Int64", "float64"):
                assert str(frame[column].dtype) == kind, column
    assert p.memory.timeline[["stack_bytes", "free_bytes"]].isna().all(axis=None)
