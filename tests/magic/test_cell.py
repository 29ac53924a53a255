"""A profiled cell behaves as if the magic were not there, in a real kernel."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.tracebacks import frames, own

MIMES = {"application/vnd.nbprof.v1+json", "text/html", "image/png", "text/plain"}


def test_the_dashboard_takes_the_place_of_the_live_status(kernel):
    result = kernel.run(
        "%%nbprof -o p --steps all\nhistory = model.fit(data, epochs=3, verbose=0, callbacks=[Slow()])"
    )
    assert result.status == "ok", result.traceback
    assert len(result.displays) == 1
    assert set(result.displays[0]) == MIMES
    steps = [
        int(match[1])
        for line in result.lines
        if (match := re.search(r"recording · step (\d+) · .*\d s$", line))
    ]
    assert steps == sorted(steps)
    assert len(steps) > 3
    assert kernel.ask("len(history.history['loss']), p is nbprof.last") == "(3, True)"
    info = kernel.capture()
    assert (info["steps_seen"], info["steps_marked"], info["cell_failed"]) == (24, 24, False)
    assert info["framework"].startswith("TensorFlow 2.")
    assert "Keras 3." in info["framework"]
    assert kernel.ask("len(p.steps.frame)") == "24"
    assert (kernel.folder / "nbprof-results" / ".gitignore").read_text() == "*\n"
    assert list((kernel.folder / "nbprof-results").glob("plugins/profile/*/*.xplane.pb"))
    assert not list((kernel.folder / "nbprof-results").glob(".recording-*"))


def test_what_the_cell_shows_stands_before_the_dashboard(kernel):
    result = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)\nprint('lost')\ndisplay(1)\n6 * 7")
    assert result.order == ["line", "stdout", "display", "result", "dashboard"]
    printed = kernel.run(
        "%%nbprof\nmodel.fit(data, verbose=0);\nfor i in range(3):\n    print(i, flush=i < 2)"
    )
    assert printed.order == ["line", "stdout", "dashboard"]
    assert printed.stdout == "0\n1\n2\n"
    failed = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)\nprint('before')\n1 / 0")
    assert failed.order == ["line", "stdout", "error", "dashboard"]
    quiet = kernel.run("%%nbprof -q\nmodel.fit(data, verbose=0)\nprint('lost')")
    assert quiet.order == ["stdout"]


def test_an_exception_that_cannot_be_printed_ends_the_recording_too(kernel):
    mute = "class Mute(Exception):\n    def __str__(self): raise ValueError('no words')\n    __repr__ = __str__\n"
    plain = kernel.run(f"{mute}raise Mute()")
    result = kernel.run(f"%%nbprof\n{mute}model.fit(data, verbose=0)\nraise Mute()")
    assert (result.status, result.error) == (plain.status, plain.error)
    assert len(result.dashboards) == 1
    assert kernel.capture()["error"].startswith("cell failed after 8 complete steps: ")
    assert kernel.idle()


def test_against_a_run_from_before_shows_the_comparison_first(kernel):
    kernel.run("%%nbprof -o earlier\nmodel.fit(data, epochs=2, verbose=0, callbacks=[Slow()])")
    # The cell may put its own profile into that variable.
    result = kernel.run(
        "%%nbprof -o earlier --against earlier\nmodel.fit(data, epochs=2, verbose=0)"
    )
    assert result.status == "ok", result.traceback
    assert len(result.dashboards) == 1
    assert "nbprof compare · " in result.dashboards[0]["text/plain"]
    assert "Advice before and after" in result.dashboards[0]["text/html"]
    assert kernel.ask("len(earlier.steps.frame), earlier is nbprof.last") == "(16, True)"
    for against, said in (
        ("nowhere", "no variable or file with that name. `%%nbprof -o nowhere`"),
        ("model", "neither, but Sequential"),
    ):
        refused = kernel.run(f"%%nbprof --against {against}\nran = True")
        assert refused.status == "error"
        assert said in refused.message
    assert kernel.ask("'ran' in globals()") == "False"


def test_progress_is_painted_at_most_four_times_a_second(kernel):
    kernel.run("import time; started = time.perf_counter()")
    result = kernel.run("%%nbprof\nmodel.fit(data, epochs=40, verbose=0)")
    elapsed = float(kernel.ask("time.perf_counter() - started"))
    # And one for the line that stays, the first of what follows the cell, and the dashboard.
    assert len(result.lines) <= 4 * elapsed + 5


def test_the_value_of_the_last_expression_stays_out_n(kernel):
    result = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)\n6 * 7")
    assert result.value == "42"
    assert len(result.dashboards) == 1
    assert kernel.ask("_") == "42"


def test_a_semicolon_silences_the_value(kernel):
    result = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)\n6 * 7;")
    assert result.value is None
    assert len(result.dashboards) == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("sys.exit('no data')", "cell failed: SystemExit: no data"),
        ("raise ValueError('x' * 3_000_000)", f"cell failed: ValueError: {'x' * 300}…"),
        ("%run fails.py", ""),
    ],
    ids=["exit", "megabytes", "run"],
)
def test_a_cell_that_ends_with_an_error_shows_it_as_without_the_magic(kernel, code, told):
    (kernel.folder / "fails.py").write_text(
        "print('begins')\ndef fail():\n    raise ValueError('a bad script')\nfail()\n"
    )
    body = f"import sys\nx = tf.ones(3) + 1\n{code}"
    plain, profiled = kernel.run(body), kernel.run(f"%%nbprof -o p\n{body}")
    assert (profiled.status, profiled.error, profiled.message) == (
        plain.status,
        plain.error,
        plain.message,
    )
    assert (profiled.stdout, profiled.stderr, profiled.errors) == (
        plain.stdout,
        plain.stderr,
        plain.errors,
    )
    assert frames(profiled.traceback, kernel.folder) == frames(plain.traceback, kernel.folder)
    assert profiled.order == ["line", *plain.order, "dashboard"]
    assert kernel.capture("p")["error"] == told
    assert len(str(profiled.dashboards)) < 500_000


def test_an_exception_at_step_three_fails_the_cell_and_shows_what_was_recorded(kernel):
    result = kernel.run(
        "%%nbprof\nbefore = 1\nmodel.fit(data, verbose=0, callbacks=[Fails(3)])\nafter = 1"
    )
    assert (result.status, result.error, result.message) == (
        "error",
        "ValueError",
        "the third batch is bad",
    )
    assert result.errors == 1
    assert own(result.traceback, kernel.folder) == []
    assert "3 model.fit" in re.sub(r"\x1b\[[0-9;]*m", "", result.traceback)
    info = kernel.capture()
    assert (
        info["error"]
        == "cell failed in step 3, after 2 complete steps: ValueError: the third batch is bad"
    )
    assert (info["steps_seen"], info["failed_at_step"]) == (2, 3)
    assert len(result.dashboards) == 1
    assert "cell failed in step 3" in result.dashboards[0]["text/html"]
    assert kernel.ask("before, 'after' in globals()") == "(1, False)"
    assert kernel.idle()


def test_ctrl_c_in_fit_fails_the_cell_and_shows_what_was_recorded(kernel):
    result = kernel.run(
        "%%nbprof\nmodel.fit(data, epochs=99, verbose=0, callbacks=[Slow()])",
        interrupt_at="batch 2;",
    )
    assert (result.status, result.error, result.errors) == ("error", "KeyboardInterrupt", 1)
    assert own(result.traceback, kernel.folder) == []
    assert len(result.dashboards) == 1
    info = kernel.capture()
    assert info["error"].startswith("cell was interrupted in step ")
    assert info["failed_at_step"] == info["steps_seen"] + 1
    assert kernel.idle()
    assert kernel.run("%%nbprof\nmodel.fit(data, verbose=0)").status == "ok"


def test_top_level_await_works(kernel):
    result = kernel.run(
        "%%nbprof\nimport asyncio\nawait asyncio.sleep(0.01)\nmodel.fit(data, verbose=0)\nawait asyncio.sleep(0, 'done')"
    )
    assert (result.status, result.value) == ("ok", "'done'"), result.traceback
    assert len(result.dashboards) == 1


def test_an_interrupted_await_still_shows_what_was_recorded(kernel):
    result = kernel.run(
        "%%nbprof\nimport asyncio\nmodel.fit(data, verbose=0)\nprint('now')\nfor _ in range(600):\n    await asyncio.sleep(0.1)",
        interrupt_at="now",
    )
    assert result.status == "error"
    assert len(result.dashboards) == 1
    assert kernel.capture()["error"] == "cell was interrupted after 8 complete steps"
    assert kernel.idle()


def test_a_syntax_error_is_the_plain_one_and_nothing_is_recorded(kernel):
    result = kernel.run("%%nbprof\nx = 1\nfor in y:\n    pass")
    plain = kernel.run("x = 1\nfor in y:\n    pass")
    assert (result.status, result.error) == (plain.status, plain.error) == ("error", "SyntaxError")
    assert re.sub(r"\w+\.py, line 3", "", result.message) == re.sub(
        r"\w+\.py, line 2", "", plain.message
    )
    assert not result.displays
    assert kernel.idle()


def test_time_inside(kernel):
    result = kernel.run("%%nbprof\n%%time\nmodel.fit(data, verbose=0)\n6 * 7")
    assert "Wall time" in result.stdout
    assert (result.status, result.value, len(result.dashboards)) == ("ok", "42", 1)


def test_time_outside(kernel):
    result = kernel.run("%%time\n%%nbprof -o timed\nmodel.fit(data, verbose=0)\n6 * 7")
    assert "Wall time" in result.stdout
    assert (result.status, result.value, len(result.dashboards)) == ("ok", "42", 1)
    assert kernel.ask("len(timed.steps.frame)") == "8"


def test_capture_outside_takes_the_dashboard_with_it(kernel):
    result = kernel.run("%%capture kept\n%%nbprof -o captured\nmodel.fit(data, verbose=0)")
    assert result.status == "ok"
    assert kernel.ask("len(captured.steps.frame)") == "8"
    assert kernel.idle()


def test_an_exception_under_an_inner_magic_fails_the_cell_once(kernel):
    result = kernel.run("%%nbprof\n%%time\nmodel.fit(data, verbose=0, callbacks=[Fails(3)])")
    assert (result.status, result.error, result.errors) == ("error", "ValueError", 1)
    assert own(result.traceback, kernel.folder) == []
    assert len(result.dashboards) == 1


def test_a_second_magic_inside_takes_over(kernel):
    result = kernel.run("%%nbprof -o outer\n%%nbprof -o inner\nmodel.fit(data, verbose=0)")
    assert result.status == "ok", result.traceback
    assert "an earlier recording was still running and has been stopped" in result.stderr
    assert "this recording was ended by a newer one" in result.sentences
    assert len(result.dashboards) == 1
    assert kernel.ask("len(inner.steps.frame), 'outer' in globals()") == "(8, False)"
    assert kernel.idle()


def test_a_recording_left_open_is_stopped_by_the_next_cell(kernel):
    kernel.run("from nbprof.capture.session import Session\nleft = Session().start()")
    result = kernel.run("%%nbprof -o p\nmodel.fit(data, verbose=0)")
    assert (
        "an earlier recording was still running and has been stopped; its files are in "
        in result.stderr
    )
    assert kernel.ask("len(p.steps.frame), left.recording.path.exists()") == "(8, True)"


def test_a_cell_that_runs_another_cell_is_recorded_to_its_end(kernel):
    result = kernel.run(
        "%%nbprof -o p\nget_ipython().run_cell('1 + 1')\nmodel.fit(data, verbose=0)"
    )
    assert len(result.dashboards) == 1
    assert kernel.ask("len(p.steps.frame)") == "8"


def test_a_cell_that_clears_its_output_still_shows_the_dashboard(kernel):
    result = kernel.run(
        "%%nbprof\nfrom IPython.display import clear_output\nmodel.fit(data, verbose=0)\nclear_output()"
    )
    assert len(result.displays) == len(result.dashboards) == 1


def test_future_imports_are_allowed_on_the_first_line_of_the_body(kernel):
    result = kernel.run(
        "%%nbprof -o p\nfrom __future__ import annotations\nmodel.fit(data, verbose=0)\n1"
    )
    assert (result.status, result.value, len(result.dashboards)) == ("ok", "1", 1), result.traceback


def test_no_steps_is_no_error(kernel):
    result = kernel.run("%%nbprof\ntotal = float(tf.reduce_sum(tf.ones((10, 10))))")
    assert (result.status, len(result.dashboards)) == ("ok", 1)
    assert kernel.capture()["steps_seen"] == 0
    assert kernel.ask("total") == "100.0"


def test_a_fault_of_nbprof_is_one_sentence_and_masks_nothing(kernel):
    kernel.run(
        "import nbprof.profiles.load as room\nkept, room.open_recording = room.open_recording, lambda *a, **k: 1 / 0"
    )
    fine = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)\n6 * 7")
    failed = kernel.run("%%nbprof\nmodel.fit(data, verbose=0, callbacks=[Fails(3)])")
    kernel.run("room.open_recording = kept")
    assert (fine.status, fine.value) == ("ok", "42")
    assert "the run was recorded, but could not be shown (ZeroDivisionError" in fine.sentences
    assert "nbprof.load(" in fine.sentences
    assert (failed.status, failed.error, failed.errors) == ("error", "ValueError", 1)


def test_a_read_only_working_directory_is_no_obstacle(kernel):
    # A file in the way of the folder fails for root, too, whom permissions don't bind.
    kernel.run(
        "os.makedirs('locked', exist_ok=True); os.chdir('locked'); open('nbprof-results', 'w').close()"
    )
    result = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)")
    kernel.run("os.chdir('..')")
    assert (result.status, len(result.dashboards)) == ("ok", 1)
    how, note = kernel.capture()["notes"]
    assert how == "steps: batches of Keras"
    assert "nbprof-results cannot be written" in note
    assert "--logdir DIR" in note


def test_each_line_of_the_cell_has_its_time(kernel):
    result = kernel.run(
        "%%nbprof --stacks -o lined\nimport time\ndef pause():\n    time.sleep(0.05)\nmodel.fit(data, verbose=0)\nfor i in range(2):\n    pause()\n"
    )
    assert result.status == "ok", result.traceback
    code = "[(int(row.line), int(row.calls), row.code.strip()) for row in lined.lines.frame.itertuples() if row.file == lined.lines.frame.file[0]]"
    assert ast.literal_eval(kernel.ask(code)) == [
        (2, 1, "import time"), (3, 1, "def pause():"), (4, 2, "time.sleep(0.05)"), (5, 1, "model.fit(data, verbose=0)"),
        (6, 3, "for i in range(2):"), (7, 2, "pause()"),
    ]  # fmt: skip
    assert float(kernel.ask("float(lined.lines.frame.set_index('line').host_us[4])")) >= 100_000
    # As it was written, and in the output.
    assert (
        kernel.ask(
            "lined.payload()['overview']['code']['cells'][0]['table']['data']['code']['values'][0]"
        )
        == "'%%nbprof --stacks -o lined'"
    )
    assert kernel.ask("__import__('sys').gettrace()") == "None"


def test_python_is_sampled_in_each_recorded_cell(kernel):
    text = "%%nbprof -o sampled\nimport time\ndef pause():\n    time.sleep(0.4)\nmodel.fit(data, verbose=0)\npause()\n"
    result = kernel.run(text)
    assert result.status == "ok", result.traceback
    line = "sampled.python.lines.query('function == \"pause\"').iloc[0]"
    assert (
        kernel.ask(
            f"{line}['file'] == sampled.lines.frame.file[0] and {line}['file'].startswith('Cell [')"
        )
        == "True"
    )
    assert (
        kernel.ask(f"(int({line}.line), {line}.code.strip(), {line}.call)")
        == "(4, 'time.sleep(0.4)', 'time.sleep')"
    )
    assert float(kernel.ask(f"float({line}.self_ms)")) > 100
    # Neither what led to the cell nor threads of the kernel.
    assert (
        kernel.ask(
            "[name for name in sampled.python.modules.module if name in ('IPython', 'ipykernel', 'tornado', 'zmq')]"
        )
        == "[]"
    )
    assert kernel.ask("sampled.python.threads.thread[0]") == "'MainThread'"
    assert "sampled" in kernel.ask(
        "sampled.payload()['overview']['code']['cells'][0]['table']['columns'][-1]['label']"
    )
    kernel.run("%%nbprof -o plain --no-sampling\nmodel.fit(data, verbose=0)")
    assert kernel.ask("len(plain.python.functions)") == "0"
