"""The options of the magics, and the other ways to ask."""

from __future__ import annotations

import pytest

from tests.support.saved import payload_of


def test_help_is_printed_and_nothing_runs(kernel):
    result = kernel.run("%%nbprof -h\nran = True")
    assert result.status == "ok"
    for option in (
        "-o",
        "-q",
        "--backend",
        "--steps",
        "--no-memory",
        "--python",
        "--host-level",
        "--logdir",
        "--no-save",
        "--views",
        "--height",
        "--events",
    ):
        assert option in result.stdout
    assert kernel.ask("'ran' in globals()") == "False"
    assert kernel.run("%nbprof -h").stdout == result.stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nonsense", "--nonsense"),
        ("--steps 9:3", "--steps 9:3 is an empty range"),
        ("--steps x", "--steps takes A:B"),
        ("--events many", "--events takes a number of 0 or more, not many"),
        ("--events -5", "--events takes a number of 0 or more, not -5"),
        ("--host-level 9", "host level must be 0, 1, 2 or 3"),
        ("--backend theano", "theano"),
        ("-o 1x", "-o takes the name of a variable"),
        ("stray", "'stray' is not an option"),
        ("--step 3", "there is no option --step; did you mean --steps?"),
        ('-o "p', 'a quotation mark is not closed in: -o "p'),
    ],
)
def test_a_bad_option_is_a_usage_error_and_nothing_runs(kernel, line, says):
    result = kernel.run(f"%%nbprof {line}\nran = True")
    assert (result.status, result.error) == ("error", "UsageError")
    assert says in result.message
    assert kernel.ask("'ran' in globals()") == "False"
    assert kernel.idle()


def test_an_empty_body_is_ipythons_own_usage_error(kernel):
    assert kernel.run("%%nbprof").error == "UsageError"


def test_quiet_shows_and_writes_nothing(kernel):
    before = sorted((kernel.folder / "nbprof-results").rglob("*"))
    result = kernel.run("%%nbprof -q -o p\nmodel.fit(data, verbose=0)")
    assert (result.status, result.displays, result.stdout, result.stderr) == ("ok", [], "", "")
    assert kernel.ask("len(p.steps.frame)") == "8"
    assert sorted((kernel.folder / "nbprof-results").rglob("*")) == before


def test_no_save_deletes_the_files_with_the_profile(kernel):
    kernel.run("%%nbprof --no-save -q -o p\nmodel.fit(data, verbose=0)")
    path = kernel.ask("p.path").strip("'")
    assert kernel.ask(f"os.path.exists({path!r})") == "True"
    kernel.run("%%nbprof -q -o p\nmodel.fit(data, verbose=0)\nimport gc; gc.collect()")
    assert kernel.ask(f"os.path.exists({path!r})") == "False"


def test_steps_records_only_the_range(kernel):
    kernel.run("%%nbprof -q -o p --steps 3:5\nmodel.fit(data, epochs=2, verbose=0)")
    assert kernel.ask("list(p.steps.frame['step'])") == "[3, 4, 5]"
    assert kernel.capture("p")["steps_seen"] == 16


def test_a_range_that_never_comes_is_said(kernel):
    result = kernel.run("%%nbprof --steps 50:60\nmodel.fit(data, verbose=0)")
    assert result.status == "ok"
    assert (
        "--steps asked for step 50, but the cell ended after step 8: nothing was recorded"
        in result.sentences
    )
    kernel.run("%%nbprof -q -o p --steps 6:60\nmodel.fit(data, verbose=0)")
    assert (
        "--steps asked for 6 to 60, but the cell ended after step 8" in kernel.capture("p")["notes"]
    )


def test_waiting_for_a_range_is_said_while_it_lasts(kernel):
    result = kernel.run("%%nbprof --steps 7:8\nmodel.fit(data, verbose=0, callbacks=[Slow()])")
    assert any("waiting for step 7 · step " in line for line in result.lines)


def test_the_line_is_not_expanded(kernel):
    kernel.run("place = 'elsewhere'")
    result = kernel.run("%%nbprof -q --logdir {place}\nmodel.fit(data, verbose=0)")
    assert result.status == "ok"
    assert list((kernel.folder / "{place}").glob("plugins/profile/*/*.xplane.pb"))
    assert not (kernel.folder / "elsewhere").exists()


def test_a_logdir_with_a_blank(kernel):
    kernel.run("%%nbprof -q --logdir 'two words'\nmodel.fit(data, verbose=0)")
    assert list((kernel.folder / "two words").glob("plugins/profile/*/*.xplane.pb"))


def test_one_line_is_profiled_and_gives_its_value(kernel):
    result = kernel.run("%nbprof -o p len(model.fit(data, verbose=0).history['loss']) + 41")
    assert (result.status, result.value, len(result.dashboards)) == ("ok", "42", 1), (
        result.traceback
    )
    assert kernel.ask("len(p.steps.frame)") == "8"


def test_the_cell_magic_can_be_called_by_api(kernel):
    result = kernel.run(
        "get_ipython().run_cell_magic('nbprof', '-o p', 'model.fit(data, verbose=0)\\n41 + 1')"
    )
    assert (result.status, result.value, len(result.dashboards)) == ("ok", "42", 1), (
        result.traceback
    )
    assert kernel.ask("len(p.steps.frame)") == "8"


def test_load_shows_a_profile_that_exists(kernel):
    kernel.run("%%nbprof -q -o p --logdir kept\nmodel.fit(data, verbose=0)")
    result = kernel.run("%nbprof -o again load kept")
    assert (result.status, len(result.dashboards)) == ("ok", 1), result.traceback
    assert kernel.ask("len(again.steps.frame)") == "8"
    assert len(kernel.run("%nbprof").dashboards) == 1


def test_an_output_holds_as_many_events_as_asked_for(kernel):
    def held(code):
        result = kernel.run(code)
        assert (result.status, len(result.dashboards)) == ("ok", 1), result.traceback
        return payload_of(result.dashboards[0])["trace"]["shown"]

    assert held("%%nbprof --events 0 --logdir budget\nmodel.fit(data, verbose=0)") == 0
    lanes = int(kernel.ask("len(nbprof.last.run.timeline.tracks.lanes)"))
    assert 0 < held("%nbprof --events 50 load budget") <= 50 + lanes
    assert held("%nbprof --events 1,000,000") == int(
        kernel.ask("nbprof.last.payload(1_000_000)['trace']['total']")
    )
    assert held("display(nbprof.last)") <= 20_000 + lanes


def test_load_of_an_empty_folder_is_a_sentence(kernel):
    (kernel.folder / "empty").mkdir()
    result = kernel.run("%nbprof load empty")
    assert (result.status, result.error) == ("error", "UsageError")
    assert "empty" in result.message


def test_a_block_is_profiled_without_the_magic(kernel):
    result = kernel.run(
        "with nbprof.profile(save=False) as run:\n    model.fit(data, verbose=0)\nlen(run.steps.frame)"
    )
    assert (result.status, result.value) == ("ok", "8"), result.traceback
    assert kernel.ask("run.result is nbprof.last") == "True"
    assert len(kernel.run("run").value) > 20


def test_a_block_that_fails_keeps_its_exception_and_its_profile(kernel):
    result = kernel.run(
        "with nbprof.profile(save=False) as run:\n    model.fit(data, verbose=0, callbacks=[Fails(3)])"
    )
    assert (result.status, result.error) == ("error", "ValueError")
    assert kernel.capture("run")["failed_at_step"] == 3


def test_marked_steps_win_over_found_ones(kernel):
    code = "%%nbprof -q -o p\nfor batch in nbprof.steps(data):\n    with nbprof.step('inner'):\n        model.fit(*batch, verbose=0)"
    assert kernel.run(code).status == "ok"
    assert kernel.ask("','.join(p.steps.frame['name'])") == repr(
        ",".join(f"train {n}" for n in range(1, 9))
    )


def test_loading_twice_and_unloading(kernel):
    again = kernel.run(
        "import nbprof\nnbprof.load_ipython_extension(get_ipython())\nget_ipython().input_transformers_cleanup.count(nbprof.notebook.magic.rewrite)"
    )
    assert again.value == "1"
    assert kernel.run("%unload_ext nbprof").status == "ok"
    gone = kernel.run("%%nbprof\nmodel.fit(data, verbose=0)")
    assert gone.status == "error"
    assert "nbprof" in gone.message
    assert kernel.run("%load_ext nbprof").status == "ok"
    assert len(kernel.run("%%nbprof\nmodel.fit(data, verbose=0)").dashboards) == 1


def test_every_tab_can_be_asked_for_by_the_names_that_python_takes():
    from nbprof.notebook.cell import Show
    from nbprof.tools.dashboard import chosen
    from nbprof.tools.names import NAMES, by_word

    asked = Show(views=list(by_word())).views
    assert chosen(asked) == list(NAMES)
    assert [name for name in NAMES if name not in asked] == []
