"""What docs/trace.md shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbprof.profiles.load import load
from tests.support.xspace import gpu_run, training_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trace.md"


@pytest.mark.parametrize("write", [training_run, gpu_run])
def test_the_code_of_the_page_runs(tmp_path, monkeypatch, write):
    (tmp_path / "host.xplane.pb").write_bytes(write())
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) >= 7
    p = load(tmp_path / "host.xplane.pb")
    for line in lines:
        # The made profiles have args of their own.
        known = sorted(p.run.trace.args)[0]
        exec(compile(line.replace("correlation_id", known), str(PAGE), "exec"), {"p": p})
    assert (tmp_path / "trace.json.gz").exists()
    inline = re.findall(r"`(p\.trace\.\w+)", PAGE.read_text())
    assert all(hasattr(p.trace, name.rpartition(".")[2]) for name in inline)
