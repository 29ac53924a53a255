"""What a run says of how it was read."""

from __future__ import annotations

import time

import pytest

from nbprof.profiles.load import load
from tests.support import pods


@pytest.mark.parametrize("executor", [None, 1])
def test_the_footer_says_how_long_the_analysis_took(tmp_path, executor):
    pods.write(tmp_path / "job", 2, 4, seed=1)
    began = time.perf_counter()
    p = load(tmp_path / "job", executor=executor)
    assert len(p.hosts) == 2
    analysed_s = p.payload().meta.footer.analysed_s
    assert 0 < analysed_s <= time.perf_counter() - began
