"""summary, advice, frame, report and trace: what they print, for people and for programs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import nbprof
from nbprof.cli.frame import _csv
from nbprof.cli.main import BAD, main
from nbprof.cli.output import heading
from nbprof.core.version import __version__
from nbprof.profiles import named
from nbprof.schema.columns import count, ms
from nbprof.schema.frames import SCHEMA
from tests.cli.support import DATA, SLOW, answer, call, on_a_terminal
from tests.support.chrome import compact, complete
from tests.support.frames import public
from tests.support.kineto import Kineto
from tests.support.xspace import chunk


@pytest.fixture(scope="module")
def profile():
    return nbprof.load(SLOW)


def test_summary_is_the_text_of_the_profile(profile):
    assert call("summary", SLOW).stdout == profile.text() + "\n"


def test_the_text_is_that_of_the_whole_dashboard(profile):
    short = profile.text()
    profile.payload()
    assert profile.text() == short


def test_summary_as_json(profile):
    said = answer("summary", SLOW)
    assert {key: said[key] for key in ("nbprof", "schema", "command")} == {
        "nbprof": __version__,
        "schema": 1,
        "command": "summary",
    }
    assert said["overview"]["bound"] == "input"
    assert said["overview"]["step_time_ms"] == profile.overview["step_time_ms"]
    assert said["overview"]["peak_memory_bytes"] is None
    assert [row["category"] for row in said["steps"]] == profile.steps.summary["category"].tolist()
    assert said["run"]["notes"] == [line.text for line in profile.receipt.lines]
    assert said["run"]["warnings"] == []


def test_what_lowers_the_trust_is_a_warning(tmp_path):
    trace = tmp_path / "plain.json"
    trace.write_text(compact(complete(ts=1), complete(ts="no")))
    said = answer("summary", trace)
    assert said["run"]["dropped"] == 1
    assert said["run"]["warnings"] == [
        "1 event left out: time (ts) is not a number or is out of range."
    ]
    assert (said["overview"]["unit"]["kind"], said["overview"]["step_time_ms"]) == (
        "recording",
        0.001,
    )


def test_a_run_in_an_archive_by_its_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        for run in ("first", "second"):
            archive.write(SLOW, f"plugins/profile/{run}/host.xplane.pb")
    names = [
        answer("summary", tmp_path / "runs.zip", "--run", run)["run"]["path"]
        for run in ("first", "sec", "-1")
    ]
    assert [name.rpartition("/")[2] for name in names] == [
        "first",
        "second",
        names[2].rpartition("/")[2],
    ]
    assert "third" in call("summary", tmp_path / "runs.zip", "--run", "third", code=BAD).stderr


def test_several_files_are_hosts_and_one_of_them_can_be_opened(tmp_path):
    both = [tmp_path / f"{host}.xplane.pb" for host in ("host-b", "host-c")]
    for file in both:
        # hostnames, of which the first counts.
        file.write_bytes(chunk(4, file.name.partition(".")[0]) + Path(SLOW).read_bytes())
    assert answer("summary", *both)["run"]["hosts"] == ["host-b", "host-c"]
    assert answer("summary", *both, "--rank", "1")["run"]["hosts"] == ["host-c"]
    assert answer("summary", tmp_path, "--host", "host-b")["run"]["hosts"] == ["host-b"]
    assert "host-b" in call("summary", *both, "--rank", 7, code=BAD).stderr


def test_what_needs_a_host_names_the_option(tmp_path):
    for rank in range(2):
        (tmp_path / f"host-{rank}.xplane.pb").write_bytes(
            chunk(4, f"host-{rank}") + Path(SLOW).read_bytes()
        )
    assert "--rank 0" in call("frame", tmp_path, "trace.events", "--executor", "1", code=BAD).stderr


@pytest.mark.parametrize(
    "words",
    [
        ["summary", "nowhere.json"],
        ["frame", "nowhere", "ops"],
        ["report", "nowhere", "-o", "x.html"],
    ],
)
def test_what_is_not_there_is_a_sentence(words):
    said = call(*words, code=BAD).stderr
    assert said.startswith("nbprof: nowhere")
    assert said.count("\n") == 1


def test_wrong_storage_options_are_a_sentence():
    assert "KEY=VALUE" in call("summary", SLOW, "--storage-option", "anon", code=BAD).stderr


def test_advice_has_evidence_and_code(profile):
    text = call("advice", SLOW).stdout
    for finding in profile.advice.to_dict("records"):
        assert finding["title"] in text
        assert finding["rule"] in text
        assert finding["fix"].splitlines()[-1] in text
    assert "**" not in text
    rules = [finding["rule"] for finding in answer("advice", SLOW)["advice"]]
    assert rules == profile.advice["rule"].tolist()


def test_no_advice_says_so():
    assert call("advice", DATA / "xspace" / "jax_loop.xplane.pb").stdout.startswith(
        "No recommendations"
    )


def test_frames_are_listed(profile):
    frames = {frame["name"]: frame["columns"] for frame in answer("frame", SLOW)["frames"]}
    assert "ops.by_type" in frames
    assert "kernels.frame" not in frames
    listed = call("frame", SLOW).stdout
    assert all(f"{name} " in listed for name in frames)
    for name in frames:
        found = named.frame(profile, name)
        assert {*found.columns} <= {*frames[name]}
        pd.testing.assert_frame_equal(found, pd.DataFrame(public(profile, name))[found.columns])


def test_of_several_runs_the_newest_is_read_and_stderr_says_so(tmp_path):
    for number, name in enumerate(("old", "new")):
        run = tmp_path / "plugins" / "profile" / name
        run.mkdir(parents=True)
        shutil.copy(SLOW, run / "host.xplane.pb")
        os.utime(run / "host.xplane.pb", (1e9 + number, 1e9 + number))
    said = call("frame", tmp_path, "ops", "--top", "1", "--json")
    assert said.stderr == f"nbprof: {tmp_path} has 2 runs, and the newest was read: new\n"
    run = json.loads(said.stdout)["run"]
    assert (run["newest_of"], run["path"].endswith("new")) == (2, True)
    said = call("frame", tmp_path, "ops", "--top", "1", "--json", "--run", "old")
    assert said.stderr == ""
    assert json.loads(said.stdout)["run"]["newest_of"] is None


def test_a_frame_in_a_pipe_is_whole_and_plain(profile):
    lines = call("frame", SLOW, "trace.events").stdout.splitlines()
    assert len(lines) == len(profile.trace.events()) + 1
    assert "Start µs" in lines[0]
    assert "\x1b" not in "".join(lines)
    longest = max(profile.ops.frame["op"], key=len)
    assert any(longest in line for line in call("frame", SLOW, "ops").stdout.splitlines())


def test_units_are_said_once_and_in_one_way():
    heads = {
        col.name: heading(col)
        for col in [*SCHEMA["kernels.frame"], *SCHEMA["device_time.bandwidth"]]
    }
    assert [heads[name] for name in ("avg_us", "min_us", "max_us")] == [
        "Avg µs",
        "Min µs",
        "Max µs",
    ]
    assert not any("(" in head or "_" in head for head in heads.values())
    assert heading(ms("x", "Programs", "")) == "Programs ms"
    assert heading(count("x", "Programs", "")) == "Programs"


def test_cells_are_as_on_the_page():
    lines = call(
        "frame",
        SLOW,
        "ops",
        "--columns",
        "op,self_us,self_fraction,eager",
        "--where",
        "op == 'PyFunc'",
    ).stdout.splitlines()
    assert lines[0].split() == ["Operation", "Self", "µs", "Self", "%", "Eager"]
    assert lines[1].split() == ["PyFunc", "283,396.3", "49.3", "✗"]


def test_a_name_is_a_name_though_a_file_is_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops").touch()
    assert call("frame", SLOW, "ops", "--top", "1").stdout.startswith("#")


def test_what_the_terminal_cannot_write_is_escaped():
    result = CliRunner(charset="cp1252").invoke(main, ["summary", SLOW])
    assert result.exit_code == 0
    assert "about \\u221224.00 ms" in result.stdout


def test_what_is_not_known_is_a_dash_null_or_empty():
    words = ("frame", SLOW, "steps", "--top", "1", "--columns", "device_compute_ms,input_ms")
    assert call(*words).stdout.splitlines()[1].split()[0] == "–"
    assert answer(*words)["rows"][0]["device_compute_ms"] is None
    assert call(*words, "--csv").stdout.splitlines()[1].startswith(",")


def test_rows_are_chosen_sorted_and_cut(profile):
    words = (
        "frame",
        SLOW,
        "ops",
        "--where",
        "self_us > 100 and 'Map' in op",
        "--sort",
        "where,-total_us",
        "--top",
        "2",
    )
    said = answer(*words, "--columns", "op,total_us")
    want = profile.ops.frame.query("self_us > 100 and op.str.contains('Map')").sort_values(
        "total_us", ascending=False
    )
    assert [row["op"] for row in said["rows"]] == want["op"].tolist()[:2]
    assert said["total_rows"] == len(want) > 2
    assert [col["name"] for col in said["columns"]] == list(said["rows"][0]) == ["op", "total_us"]
    assert said["columns"][1]["unit"] == "us"


def test_csv_is_exact(profile, tmp_path):
    target = tmp_path / "ops.csv"
    assert call("frame", SLOW, "ops", "--csv", "-o", target).stdout == f"{target}\n"
    assert [float(row["self_us"]) for row in csv.DictReader(target.open())] == profile.ops.frame[
        "self_us"
    ].tolist()
    assert call("frame", SLOW, "ops", "--csv").stdout == target.read_text()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("-2+3", "'-2+3"),
        ("+1+1", "'+1+1"),
        ("＝1", "'＝1"),
        ("\t=1", "'\t=1"),
        ("-2", "-2"),
        ("-2.5e-3", "-2.5e-3"),
        ("a-b", "a-b"),
        ("a\n=1", "a\n'=1"),
        ("a\r\n@x", "a\r\n'@x"),
        ("\n=1", "'\n'=1"),
        ("a\nb", "a\nb"),
    ],
)
def test_no_text_of_a_profile_is_a_formula_in_csv(text, cell):
    texts = pd.Series([text, None], dtype=object)
    frame = pd.DataFrame(
        {
            "op": texts,
            "string": texts.astype("string"),
            "category": texts.astype("category"),
            "self_us": [-2.5, None],
            "count": [-2, 3],
        }
    )
    rows = list(csv.DictReader(io.StringIO(_csv(frame), newline="")))
    assert rows[0] == {
        "op": cell,
        "string": cell,
        "category": cell,
        "self_us": "-2.5",
        "count": "-2",
    }
    assert rows[1] == {"op": "", "string": "", "category": "", "self_us": "", "count": "3"}


def test_a_profile_with_formulas_for_names_is_written_without_them(tmp_path):
    trace = Kineto()
    for i in range(4):
        trace.step(i, i * 1000.0, 900.0)
        trace.launched(f"=cmd|' /C calc'!A{i}", i * 1000.0 + 50, i * 1000.0 + 100, 500.0)
    path = tmp_path / "w.pt.trace.json"
    path.write_bytes(trace.encode())
    cells = [
        cell
        for row in csv.reader(io.StringIO(call("frame", path, "kernels.by_name", "--csv").stdout))
        for cell in row
    ]
    assert any(cell.startswith("'=cmd") for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]


@pytest.mark.parametrize(
    "words", [["frame", SLOW, "ops", "--csv"], ["report", SLOW], ["trace", SLOW]]
)
def test_an_empty_name_is_an_error_that_says_so(words, tmp_path, monkeypatch):
    """As of a variable of the shell that is not set."""
    monkeypatch.chdir(tmp_path)
    assert "the name is empty" in call(*words, "-o", "", code=2).stderr
    assert not list(tmp_path.iterdir())


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    assert "pip install pyarrow" in call("frame", SLOW, "ops", "--parquet", code=BAD).stderr


def test_no_row_is_said():
    assert call("frame", SLOW, "ops", "--where", "self_us < 0").stdout == "no rows\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ops.fram"], "ops.frame"),
        (["comparison.ops"], "no frame"),
        (["ops", "--where", "selfus > 1"], "self_us"),
        (["ops", "--where", "op.to_csv('x.csv')"], "not a condition"),
        (["ops", "--where", "@exit()"], "not a condition"),
        (["ops", "--where", "op.__class__"], "not a condition"),
        (["ops", "--where", "op.str.__class__.mro()"], "not a condition"),
        (["ops", "--where", "len(op)"], "not a condition"),
        (["ops", "--where", "op > 3"], "cannot be compared"),
        (["ops", "--where", "9 ** 9 ** 9"], "not a condition"),
        (["ops", "--sort", "-selfus"], "self_us"),
        (["ops", "--columns", "op,selfus"], "self_us"),
        (["-o", "x.csv"], "needs --csv"),
        (["--csv"], "NAME"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in call("frame", SLOW, *words, code=BAD).stderr
    assert not list(tmp_path.iterdir())


def test_a_terminal_gets_the_columns_that_fit(monkeypatch):
    screen = on_a_terminal(monkeypatch, width=60)
    result = call("frame", SLOW, "ops")
    lines = screen.getvalue().splitlines()
    assert len(lines) == 21
    assert "\x1b[1m" in lines[0]
    assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in lines) <= 60
    assert "more columns: " in result.stderr
    assert "self_us" in result.stderr
    assert "more rows" in result.stderr


def test_a_terminal_shows_what_was_sorted_by_and_the_tails_of_names(monkeypatch):
    screen = on_a_terminal(monkeypatch, width=100)
    result = call("frame", SLOW, "ops", "--sort", "-self_us", "--where", "'hidden_1/Relu' in op")
    head, row, *_ = screen.getvalue().splitlines()
    assert "Self µs" in head
    assert "hidden_1/Relu " in row
    assert "1,347.3" in row
    assert " self_us" not in result.stderr


def test_a_terminal_shows_first_what_is_known(monkeypatch):
    screen = on_a_terminal(monkeypatch, width=100)
    result = call("frame", SLOW, "steps")
    assert "Input ms" in screen.getvalue()
    assert "device_compute_ms" in result.stderr


def test_columns_that_were_asked_for_are_all_there(monkeypatch):
    screen = on_a_terminal(monkeypatch, width=20)
    call("frame", SLOW, "ops", "--columns", "op,self_us,total_us", "--top", "1")
    assert "285,579.5  287,004.2" in screen.getvalue()


def test_a_terminal_without_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = on_a_terminal(monkeypatch)
    call("frame", SLOW, "ops", "--top", "1")
    assert "\x1b[3" not in screen.getvalue()


def test_names_are_no_markup_and_no_control(monkeypatch):
    from nbprof.cli import output
    from nbprof.schema.columns import text

    columns = [text("name", "Name", ""), count("n", "N", "", "Int64")]
    frame = pd.DataFrame(
        {"name": ["[red]a[/red]\x1b[31m\n", "b"], "n": pd.array([1234, None], "Int64")}
    )
    screen = on_a_terminal(monkeypatch)
    output.write_table(frame, columns)
    assert "[red]a[/red] [31m" in screen.getvalue()
    assert "1,234" in screen.getvalue()
    assert "–" in screen.getvalue()


def test_report_is_a_page(tmp_path):
    target = tmp_path / "report.html"
    assert call("report", SLOW, "-o", target, "--events", "0").stdout == f"{target}\n"
    assert target.read_text().startswith("<!doctype html>")
    assert "folder" in call("report", SLOW, "-o", tmp_path / "no" / "x.html", code=BAD).stderr


def test_a_report_without_a_name_is_beside_the_profile(tmp_path):
    shutil.copy(SLOW, tmp_path)
    target = tmp_path / "nbprof-tf_slow.html"
    for _ in range(2):
        assert call("report", tmp_path / Path(SLOW).name, "--events", 0).stdout == f"{target}\n"
    # A report is replaced, and nothing else is.
    target.write_text("<html>notes</html>")
    assert "-o FILE" in call("report", tmp_path / Path(SLOW).name, code=BAD).stderr
    assert target.read_text() == "<html>notes</html>"
    hidden = call("report", tmp_path / Path(SLOW).name, "--events", 0, "--redact").stdout
    assert Path(hidden.strip()).name == "nbprof-report.html"


def test_a_saved_report_is_known_for_what_it_is(tmp_path):
    target = tmp_path / "any.html"
    call("report", SLOW, "-o", target, "--events", 0)
    said = call("summary", target, code=BAD).stderr
    assert "report that nbprof saved" in said
    assert "login" not in said


def test_trace_of_a_range(tmp_path):
    target = tmp_path / "x.json.gz"
    call("trace", SLOW, "--range", "100:120", "-o", target)
    events = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    times = [(event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X"]
    assert times
    assert all(low <= 120_000 and high >= 100_000 for low, high in times)
    call("trace", SLOW, "--range", "100:", "-o", tmp_path / "all.json")
    assert len(json.loads((tmp_path / "all.json").read_bytes())["traceEvents"]) > len(events)


@pytest.mark.parametrize("between", ["120", "120:100", "a:b", "nan:3"])
def test_a_wrong_range_is_bad_use(between, tmp_path):
    assert (
        "in ms"
        in call("trace", SLOW, "--range", between, "-o", tmp_path / "x.json", code=BAD).stderr
    )
