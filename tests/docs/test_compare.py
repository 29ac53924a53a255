"""What docs/compare.md shows runs as it stands there, and its verdicts are those there are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbprof
from nbprof.analysis.compare.verdict import TITLES
from nbprof.profiles.comparison import Comparison

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compare.md"


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    recorded = ROOT / "tests" / "data" / "xspace"
    shutil.copy(recorded / "tf_slow.xplane.pb", tmp_path / "before.xplane.pb")
    shutil.copy(recorded / "tf_mended.xplane.pb", tmp_path / "after.xplane.pb")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    names = {"nbprof": nbprof}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert "× faster" in capsys.readouterr().out
    assert (tmp_path / "compare.html").exists()


def test_each_verdict_and_frame_has_its_place():
    text = PAGE.read_text()
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(TITLES)
    shown = set(re.findall(r"^c\.(\w+)", text, re.MULTILINE))
    assert shown >= {
        name for name, member in vars(Comparison).items() if isinstance(member, property)
    }
    assert (PAGE.parent / "compare.png").exists()
