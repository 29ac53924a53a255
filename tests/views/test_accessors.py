"""What stands behind `p.`: completion, help, and figures that show themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from bokeh.io.state import curstate
from bokeh.model import Model
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import nbprof
from nbprof.tools import dashboard
from nbprof.tools.accessor import accessor

DATA = Path(__file__).parents[1] / "data"
OF_DEVICES = {"kernels", "device_time", "ascend", "allocator"}


@pytest.fixture(scope="module")
def p():
    return nbprof.load(DATA / "xspace" / "tf_slow.xplane.pb")


@pytest.fixture
def shell(p):
    shell = InteractiveShell.instance()
    shell.push({"p": p})
    yield shell
    shell.drop_by_id({"p": p})


def test_completion_offers_what_the_profile_has(p):
    views = {name for name, member in vars(type(p)).items() if isinstance(member, accessor)}
    assert views - set(dir(p)) == OF_DEVICES | {
        *(
            "hlo",
            "op_profile",
            "roofline",
            "memory",
            "memory_viewer",
            "torch_ops",
            "lines",
            "python",
            "serving",
        )
    }
    assert {"overview", "advice", "save", "runs"} < set(dir(p))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "kernels",
            "<nbprof kernels: no rows. No GPU kernels in this run. This profile has no GPU plane: ",
        ),
        (
            "torch_ops",
            "<nbprof torch_ops: no rows. No op of PyTorch was recorded in this profile.>",
        ),
        ("memory", "<nbprof memory: No allocations recorded. "),
        ("hlo", "<nbprof hlo: no rows. This profile has no device, "),
    ],
)
def test_what_is_not_there_says_why(p, name, sentence):
    assert repr(getattr(p, name)).startswith(sentence)


def test_no_pipeline_of_tf_data_is_a_sentence_and_no_dashboard():
    p = nbprof.load(DATA / "xspace" / "jax_cpu.xplane.pb")
    assert "tf_data" not in dir(p)
    assert p.tf_data._repr_mimebundle_() == {
        "text/plain": "<nbprof tf_data: No tf.data pipeline was recorded in this profile.>"
    }


@pytest.mark.parametrize("name", ["steps", "input_pipeline", "tf_data", "ops", "trace"])
def test_help_is_about_the_view(p, shell, name):
    text = shell.object_inspect_mime(f"p.{name}")["text/plain"]
    face = getattr(p, name)
    assert "property" not in text.partition("Docstring")[0]
    assert type(face).__doc__.partition("\n")[0] in text
    for member in ("widget()", *(one for one in vars(type(face)) if not one.startswith("_"))):
        assert f"    {member}" in text, member


def test_a_view_cannot_be_replaced(p):
    with pytest.raises(AttributeError, match="steps cannot be set"):
        p.steps = 1


def test_a_figure_shows_itself_without_a_network(p, shell):
    figure = p.steps.figure(title="mine")
    assert isinstance(figure, Model)
    assert figure.title.text == "mine"
    with capture_output() as shown:
        shell.display_formatter.format(figure)
    (output,) = shown.outputs
    page = output.data["text/html"]
    assert "mine" in page
    assert "cdn.bokeh.org" not in page
    assert "data-nbprof" not in page, "the figure, and not the view"
    assert len(page) < 600_000
    assert output.data["text/plain"] == repr(p.steps)


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("xspace/tf_slow.xplane.pb", {"kernels", "memory"}),
        ("kineto/cpu_train.pt.trace.json.gz", {"kernels"}),
    ],
)
def test_a_run_on_the_cpu_has_no_tab_that_has_nothing_to_show(name, absent):
    p = nbprof.load(DATA / name)
    payload = p.payload()
    tabs = [tab["id"] for tab in payload["meta"]["tabs"]]
    assert absent.isdisjoint(tabs)
    assert [tab for tab in tabs if payload[tab].get("empty")] == []
    assert {check["view"] for check in payload["overview"]["checks"]} - {""} <= set(tabs)
    (asked,) = dashboard.dashboard(p.run, views=["kernels"])["meta"]["tabs"]
    assert asked["id"] == "kernels", "what is asked for by name is there to say why it is empty"


@pytest.mark.parametrize("name", ["steps", "ops", "input_pipeline"])
def test_plain_text_of_a_view_is_its_table(p, name):
    first, *lines = getattr(p, name)._repr_mimebundle_()[0]["text/plain"].splitlines()
    view = getattr(p, name)
    assert first == repr(view)
    table = p.steps.summary if name == "steps" else view.frame
    assert str(table.columns[0]) in lines[0]
    assert len(lines) - 1 == min(len(table), 15)
    if name == "steps":
        mean = table.set_index("category")["mean_ms"]
        assert (
            next(line.split()[1] for line in lines if line.split()[0] == "step_time")
            == f"{mean['step_time']:,.2f}"
        )
        assert (
            next(line.split()[1] for line in lines if line.split()[0] == "device_compute") == "NA"
        )


def test_bokeh_shows_it_where_a_notebook_has_its_scripts(p, shell, monkeypatch):
    given = []
    monkeypatch.setattr(curstate(), "_notebook", True)
    monkeypatch.setattr("bokeh.io.show", given.append)
    figure = p.steps.figure()
    with capture_output() as shown:
        shell.display_formatter.format(figure)
    assert (given, shown.outputs) == ([figure], [])
