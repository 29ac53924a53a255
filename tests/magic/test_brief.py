"""`%nbprof brief`: what the last run says, as text in the cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import nbprof
from nbprof.profiles import load

FILE = Path(__file__).parents[1] / "data" / "xspace" / "tf_slow.xplane.pb"


@pytest.fixture
def shell(monkeypatch):
    monkeypatch.setattr(load, "_last", [])
    shell = InteractiveShell()
    nbprof.load_ipython_extension(shell)
    yield shell
    nbprof.unload_ipython_extension(shell)


def test_the_cell_holds_the_brief_of_the_last_run_as_markdown_and_as_text(shell):
    profile = nbprof.load(FILE)
    for line, tokens in (("brief", 1500), ("brief 300", 300)):
        shell.display_pub = CapturingDisplayPublisher()
        assert shell.run_cell(f"%nbprof {line}").success
        text = nbprof.brief(profile, tokens=tokens)
        assert [each["data"] for each in shell.display_pub.outputs] == [
            {"text/markdown": text, "text/plain": text}
        ]


def test_what_cannot_be_said_is_a_usage_error(shell):
    with pytest.raises(UsageError, match="nothing has been recorded yet"):
        shell.run_line_magic("nbprof", "brief")
    nbprof.load(FILE)
    with pytest.raises(UsageError, match="%nbprof brief: a brief takes at least 200 tokens"):
        shell.run_line_magic("nbprof", "brief 5")
    with pytest.raises(UsageError, match="no options, not -q"):
        shell.run_line_magic("nbprof", "-q brief")
