"""The skill: its code runs, what it says of nbprof is true, and it is installed without harm."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import nbprof
from nbprof.assistant import skill
from nbprof.assistant.reader import Reader
from nbprof.capture.options import options_of
from nbprof.cli.skill import command
from nbprof.core.errors import NbprofError
from nbprof.schema.frames import column
from tests.assistant.asked import DATA

XSPACE = DATA / "xspace"
CODE = re.findall(r"```python\n(.*?)```", skill.text(), re.DOTALL)


def _recorded(logdir, name):
    folder = Path(logdir) / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    shutil.copy(XSPACE / name, folder / "host-a.xplane.pb")


def test_its_code_runs_and_comes_to_the_verdict(tmp_path, monkeypatch, capsys):
    """On recordings of before and after a change, which take the place of the program."""

    @contextlib.contextmanager
    def profile(**options):
        yield
        _recorded(options_of(options).logdir, "tf_slow.xplane.pb")

    monkeypatch.setattr(nbprof, "profile", profile, raising=False)
    monkeypatch.chdir(tmp_path)
    _recorded("runs/again", "tf_slow.xplane.pb")
    _recorded("runs/after", "tf_mended.xplane.pb")
    trained = []
    names = {"train": lambda: trained.append(True)}
    for code in CODE:
        exec(compile(code, "SKILL.md", "exec"), names)
    assert trained == [True]
    assert names["noise"]["verdict"] == "same"
    out = capsys.readouterr().out
    assert nbprof.brief(names["p"], tokens=1500) in out
    assert nbprof.brief(names["c"], tokens=1500) in out
    assert names["c"].verdict.verdict[0] == "real"


def test_every_verdict_is_in_its_table():
    verdict = column("comparison.verdict", "verdict")
    known = set(re.findall(r"\w+", verdict.help)) - {"or"}
    table = skill.text().partition("| verdict |")[2].partition("\n\n")[0]
    assert (
        set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])))
        == known
    )


def test_its_head_is_what_assistants_read():
    head = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n\n# ", skill.text())
    assert head[1] == skill.NAME
    # YAML would take a colon and a blank for a key.
    assert ": " not in head[2]
    assert len(head[2]) <= 1024


def test_its_tools_are_those_of_the_server():
    last = skill.text().rstrip().splitlines()[-1]
    assert [name for name in re.findall(r"`(\w+)`", last) if not hasattr(Reader, name)] == []


def test_it_is_installed_and_a_changed_one_is_kept(tmp_path):
    run = CliRunner().invoke
    target = tmp_path / "skills" / "nbprof" / "SKILL.md"
    for _ in range(2):
        result = run(command, ["install", str(tmp_path / "skills")])
        assert (result.exit_code, str(target) in result.output) == (0, True)
        assert target.read_text("utf-8") == skill.text()
    target.write_text("mine")
    refused = run(command, ["install", str(tmp_path / "skills")])
    assert isinstance(refused.exception, NbprofError)
    assert "--force replaces it" in str(refused.exception)
    assert target.read_text() == "mine"
    assert run(command, ["install", str(tmp_path / "skills"), "--force"]).exit_code == 0
    assert target.read_text("utf-8") == skill.text()
    assert run(command, ["show"]).output == skill.text()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "nbprof").write_text("a file")
    with pytest.raises(NbprofError, match="could not be written"):
        skill.install(tmp_path)
