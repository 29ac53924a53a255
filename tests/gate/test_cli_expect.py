"""`nbprof expect`: its exit status says what became of the checks."""

import json

import pytest
from click.testing import CliRunner

from nbprof.cli.main import main
from tests.cli.support import SLOW
from tests.gate.gpu import trained


@pytest.fixture
def path(tmp_path):
    trained(tmp_path, kernels=3)
    return str(tmp_path / "step.pt.trace.json")


def asked(*arguments):
    return CliRunner().invoke(main, ["expect", *arguments])


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--kernels-max", "3"], 0, "pass: kernels per step: 3, at most 3 allowed"),
        (
            ["--kernels-max", "2", "--flops-max", "1"],
            1,
            "fail: kernels per step: 3, at most 2 allowed",
        ),
        (
            ["--kernels-max", "3", "--flops-max", "1"],
            3,
            "unknown: FLOPs per step: at most 1 allowed",
        ),
        (["--kernels-max", "many"], 2, "is not a limit"),
        (["--kernels-max", "baseline"], 2, "nor a baseline"),
        ([], 2, "nothing to check"),
        (["--update", "--kernels-max", "3"], 2, "name its file with --against"),
        (["--against", "new.json", "--update", "--add"], 2, "not both"),
        (["--against", "new.json", "--kernels-max", "3"], 2, "new.json: there is no such baseline"),
    ],
)
def test_exit_status(path, options, status, text):
    result = asked(path, *options)
    assert result.exit_code == status
    assert text in result.output


def test_a_path_that_is_no_profile_is_bad_use(tmp_path):
    result = asked(str(tmp_path / "nothing"), "--kernels-max", "3")
    assert result.exit_code == 2
    assert "nothing" in result.output


def test_runs_of_two_frameworks_are_no_repeats(path):
    result = asked(path, SLOW, "--kernels-max", "3")
    assert result.exit_code == 2
    assert "step of PyTorch and tf_slow of TensorFlow are not repeats of one run" in result.output


def test_a_limit_of_one_byte_is_said_so(path):
    assert "at most 1 B allowed" in asked(path, "--peak-memory-max", "1").output


def test_a_baseline_alone_asks_for_what_it_has(path, tmp_path):
    baseline = str(tmp_path / "step.json")
    result = asked(path, "--against", baseline, "--update")
    assert "unknown: FLOPs" in result.output
    assert result.exit_code == 0, "what is never known is not asked for"
    result = asked(path, "--against", baseline, "--json")
    found = {one["check"]: one["outcome"] for one in json.loads(result.output)["checks"]}
    assert result.exit_code == 0
    assert found == dict.fromkeys(
        [
            "kernels",
            "launches",
            "syncs",
            "recompiles",
            "pageable_copies",
            "collective_bytes",
            "dropped",
        ],
        "pass",
    )
    trained(tmp_path / "after", kernels=4)
    result = asked(str(tmp_path / "after" / "step.pt.trace.json"), "--against", baseline)
    assert result.exit_code == 1
    assert "gemm_3: 0 → 1 calls per step (new)" in result.output


def test_several_paths_are_repeats(path, tmp_path):
    trained(tmp_path, kernels=5, name="other")
    result = asked(path, str(tmp_path / "other.pt.trace.json"), "--kernels-max", "4")
    assert result.exit_code == 1
    assert "kernels per step: 5" in result.output


def test_sentences_name_the_options_of_the_command(path, tmp_path):
    baseline = tmp_path / "step.json"
    baseline.write_text("{}")
    assert "write it again with --update" in asked(path, "--against", str(baseline)).output
    asked(path, "--against", str(baseline), "--update")
    result = asked(path, "--against", str(baseline), "--step-time-slower", "5 %")
    assert "confirm it with --same-machine" in result.output
    # A session writes a file once.
    again = tmp_path / "again.json"
    again.write_text(baseline.read_text())
    result = asked(path, "--against", str(again), "--add", "--same-machine")
    assert result.exit_code == 0, "step times were added"
    assert "step time: " in result.output
    assert len(json.loads(again.read_text())["runs"]) == 2


def test_step_times_of_other_code_are_not_added(path, tmp_path):
    baseline, again = tmp_path / "step.json", tmp_path / "again.json"
    asked(path, "--against", str(baseline), "--update")
    again.write_text(baseline.read_text())
    trained(tmp_path / "after", kernels=4)
    result = asked(
        str(tmp_path / "after" / "step.pt.trace.json"),
        "--against",
        str(again),
        "--add",
        "--same-machine",
    )
    assert result.exit_code == 1
    assert "step time: not added to the baseline, since another check failed" in result.output
    assert again.read_text() == baseline.read_text()
