"""The GitHub Action at the root of the repository: its inputs are the options of the command, and its
steps run here with files in the place of GitHub's and a command in the place of `gh`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbprof.cli import expect

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
GPU = str(DATA / "gpu" / "torch_gpu.pt.trace.json.gz")
SLOW, MENDED = (str(DATA / "xspace" / f"tf_{name}.xplane.pb") for name in ("slow", "mended"))
OWN = {"profiles", "before", "name", "unknown", "comment", "token", "install"}
WRITING = {"update", "add", "as_json", "paths"}
NEEDS_BASH = pytest.mark.skipif(shutil.which("bash") is None, reason="GitHub's steps are of bash")

GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  "api user"*) exit 1 ;;
  *--jq*) if [ -n "$KNOWN" ]; then echo "$KNOWN"; fi ;;
  *) exit "${REFUSED:-0}" ;;
esac
"""


def option_names():
    names = set()
    for parameter in expect.command.params:
        if parameter.name not in WRITING:
            names.add(parameter.opts[0].removeprefix("--"))
    return names


def test_the_inputs_are_the_options_of_the_command():
    assert set(ACTION["inputs"]) - OWN == option_names()
    assert all(each["description"] for each in ACTION["inputs"].values())


def test_no_value_is_written_into_a_script():
    for step in STEPS.values():
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    given = set()
    for step in STEPS.values():
        given |= set(re.findall(r"inputs\.([\w-]+)", json.dumps(step)))
    assert given == set(ACTION["inputs"])


class Runner:
    """Runs steps as GitHub does: with inputs as variables, and files for what they hand on."""

    def __init__(self, folder, **inputs):
        self.folder = folder
        self.inputs = {
            name.replace("-", "_"): each.get("default", "")
            for name, each in ACTION["inputs"].items()
        }
        self.inputs.update(inputs)
        self.calls = folder / "calls"
        self.bin = folder / "bin"
        self.bin.mkdir()
        # No link to Python: its environment is found from where it is.
        for name, script in (("gh", GH), ("python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')):
            (self.bin / name).write_text(script)
            (self.bin / name).chmod(0o755)
        self.summary, self.outputs = folder / "summary.md", folder / "outputs"

    def value(self, expression):
        if not expression.startswith("${{"):
            return expression
        inside = expression.removeprefix("${{").removesuffix("}}").strip()
        if inside.startswith("inputs."):
            return self.inputs[inside.removeprefix("inputs.").replace("-", "_")]
        if inside.startswith("steps.gate.outputs."):
            return self.output(inside.rpartition(".")[2])
        return {"github.event.pull_request.number": "12"}[inside]

    def output(self, name):
        lines = dict(line.split("=", 1) for line in self.outputs.read_text().splitlines())
        return lines[name]

    def run(self, name, **more):
        step = STEPS[name]
        environment = {
            **os.environ,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.outputs),
            "GITHUB_REPOSITORY": "someone/something",
            "GITHUB_WORKFLOW": "Performance",
            "GITHUB_JOB": "gate",
            "RUNNER_TEMP": str(self.folder),
            "CALLS": str(self.calls),
            "KNOWN": "",
            **{key: self.value(each) for key, each in step["env"].items()},
            **more,
        }
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=self.folder
        )


@pytest.fixture
def runner(tmp_path):
    folder = tmp_path / "a job"
    folder.mkdir()
    return lambda **inputs: Runner(folder, **inputs)


@NEEDS_BASH
def test_a_limit_that_holds_passes_and_the_pull_request_is_told(runner):
    job = runner(profiles=f"{MENDED}\n", dropped_max="0")
    done = job.run("Gate")
    assert done.returncode == 0, done.stderr
    assert job.output("outcome") == "pass"
    text = Path(job.output("comment")).read_text("utf-8")
    assert text.startswith("<!-- nbprof gate: Performance / gate -->\n### nbprof\n")
    assert "**Gate: pass**" in text
    assert "pass: dropped events: 0, at most 0 allowed" in text
    assert job.summary.read_text("utf-8") == text
    assert job.run("Comment").returncode == 0
    assert job.run("Outcome").returncode == 0
    _, asked, written = job.calls.read_text().splitlines()
    assert "repos/someone/something/issues/12/comments" in asked
    assert "--method POST repos/someone/something/issues/12/comments" in written
    assert f"body=@{job.output('comment')}" in written


@NEEDS_BASH
def test_a_limit_that_is_exceeded_fails_the_job_after_the_comment(runner):
    job = runner(profiles=GPU, kernels_max="1")
    assert job.run("Gate").returncode == 0
    assert job.output("outcome") == "fail"
    done = job.run("Outcome")
    assert (done.returncode, done.stdout) == (1, "::error::nbprof: the gate failed\n")


@NEEDS_BASH
@pytest.mark.parametrize(("unknown", "status"), [("warn", 0), ("fail", 1)])
def test_what_is_unknown_fails_only_if_asked_to(runner, unknown, status):
    job = runner(profiles=MENDED, kernels_max="1", unknown=unknown)
    assert job.run("Gate").returncode == 0
    assert job.output("outcome") == "unknown"
    assert job.run("Outcome").returncode == status


@NEEDS_BASH
def test_a_profile_from_before_the_change_is_compared(runner):
    job = runner(profiles=MENDED, before=SLOW)
    done = job.run("Gate")
    assert done.returncode == 0, done.stderr
    text = Path(job.output("comment")).read_text("utf-8")
    assert "2.14× faster" in text
    assert "Gate:" not in text


@NEEDS_BASH
def test_bad_use_fails_at_once(runner):
    job = runner(profiles=GPU)
    done = job.run("Gate")
    assert done.returncode == 2
    assert "::error::nothing to check" in done.stdout
    job.inputs.update(profiles="no such file.json", kernels_max="1")
    assert job.run("Gate").returncode == 2
    # What an earlier run said no longer stands.
    assert job.output("outcome") == "error"
    text = Path(job.output("comment")).read_text("utf-8")
    assert "**Gate: error**" in text
    assert "no such file.json" in text
    assert job.run("Comment").returncode == 0


@NEEDS_BASH
def test_without_a_profile_from_before_the_gate_still_answers(runner):
    job = runner(profiles=MENDED, before="not there", dropped_max="0", name="model a")
    done = job.run("Gate", OPTION_FOO="of another program")
    assert done.returncode == 0, done.stderr
    text = Path(job.output("comment")).read_text("utf-8")
    assert text.startswith(
        "<!-- nbprof gate: Performance / gate / model a -->\n### nbprof: model a\n"
    )
    assert "**Gate: pass**" in text
    assert "There is no profile from before the change" in text


@NEEDS_BASH
def test_a_runner_without_gh_says_so(runner):
    job = runner(profiles=GPU, kernels_max="1000")
    job.run("Gate")
    (job.bin / "gh").unlink()
    for name in ("bash", "head"):
        (job.bin / name).symlink_to(shutil.which(name))
    done = job.run("Comment", PATH=str(job.bin))
    assert done.returncode == 0
    assert "this runner has no gh" in done.stdout


@NEEDS_BASH
def test_a_comment_of_an_earlier_run_is_rewritten_and_one_that_is_refused_is_a_warning(runner):
    job = runner(profiles=GPU, kernels_max="1000")
    job.run("Gate")
    assert job.run("Comment", KNOWN="345").returncode == 0
    assert "--method PATCH repos/someone/something/issues/comments/345" in job.calls.read_text()
    done = job.run("Comment", REFUSED="1")
    assert done.returncode == 0
    assert done.stdout.startswith("::warning::nbprof could not comment")


@NEEDS_BASH
def test_values_are_never_run(runner, tmp_path):
    trap = tmp_path / "trap"
    job = runner(profiles=GPU, kernels_max=f'1"; touch "{trap}"; echo $(touch "{trap}") "')
    assert job.run("Gate").returncode == 2
    assert not trap.exists()


def test_the_page_uses_inputs_that_there_are():
    text = (ROOT / "docs" / "gate.md").read_text("utf-8")
    (job,) = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        if "with:\n          profiles" in block
    ]
    (step,) = [
        each
        for each in yaml.safe_load(job)["jobs"]["gate"]["steps"]
        if "profiles" in each.get("with", {})
    ]
    assert set(step["with"]) <= set(ACTION["inputs"])
