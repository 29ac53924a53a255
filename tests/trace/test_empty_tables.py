"""Tables without rows are made once and handed out as copies."""

from __future__ import annotations

import pytest

from nbprof.activity.tables import Kernels
from nbprof.analysis.steps import tpu_cores
from nbprof.core.trace import no_counters


@pytest.mark.parametrize(
    "made",
    [lambda: Kernels.empty().frame(), tpu_cores.empty, no_counters],
    ids=["activity", "cores", "counters"],
)
def test_who_changes_an_empty_table_changes_their_own(made):
    first, columns = made(), list(made().columns)
    first["further"] = 1
    first.loc[0] = 0
    first.columns.name = "changed"
    first.attrs["changed"] = True
    second = made()
    assert list(second.columns) == columns
    assert (len(second), second.columns.name, second.attrs) == (0, None, {})
