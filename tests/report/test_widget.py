from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import ipywidgets
import pytest

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles.report import bundle
from nbprof.profiles.widget import DashboardWidget
from nbprof.tools import dashboard as payload
from tests.support.viewers import WIDGET
from tests.views import fake


@pytest.fixture(autouse=True)
def built(monkeypatch, tmp_path):
    path = tmp_path / "dashboard.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(bundle, "PATH", path)
    return path


def test_the_widget_holds_the_payload_and_the_module():
    widget = DashboardWidget(fake.run(), views=["memory", "input"], height=500)
    assert widget._esm == "export default { render() {} }"
    assert widget.views == ["input", "memory"]
    assert widget.height == 500
    assert [tab["id"] for tab in codec.unpack(widget.packed)["meta"]["tabs"]] == ["input", "memory"]
    assert {"_esm", "packed", "selected", "views", "height"} <= set(widget.get_state())


def test_it_holds_as_many_events_as_asked_for():
    held = [
        codec.unpack(DashboardWidget(fake.run(), events=most).packed)["trace"]["shown"]
        for most in (0, 30, None)
    ]
    assert held[0] == 0 < held[1] <= 30 < held[2]
    with pytest.raises(NbprofError, match="a whole number of 0 or more, not 'many'"):
        DashboardWidget(fake.run(), events="many")


def test_a_payload_that_is_there_is_not_made_again():
    run = fake.run()
    made = payload.dashboard(run)
    made.meta.label = "mine"
    assert codec.unpack(DashboardWidget(run, made).packed)["meta"]["label"] == "mine"


def test_selected_steps_are_set_and_seen():
    widget = DashboardWidget(fake.run(), selected=(501, 503))
    assert widget.selected == [501, 503]
    seen = []
    widget.observe(lambda change: seen.append(change.new), names="selected")
    widget.selected = (502, 502)
    widget.selected = []
    assert seen == [[502, 502], []]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((503, 501), "503 is after 501"),
        ((501,), "two step numbers"),
        ((1, 2), "steps 1 to 2 are not in this run; it has 500 to 507"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused_and_changes_nothing(value, words):
    widget = DashboardWidget(fake.run(), selected=(501, 503))
    with pytest.raises(NbprofError, match=words):
        widget.selected = value
    assert widget.selected == [501, 503]


def test_a_run_without_steps_has_nothing_to_select():
    with pytest.raises(NbprofError, match="no steps to select"):
        DashboardWidget(fake.run(steps=0), selected=(1, 2))


def test_a_misspelt_option_is_an_error():
    with pytest.raises(
        NbprofError, match="no option 'heigth'; it takes views, height, selected, events, layout"
    ):
        DashboardWidget(fake.run(), heigth=3)
    with pytest.raises(NbprofError, match="unknown view 'step'"):
        DashboardWidget(fake.run(), views=["step"])
    with pytest.raises(NbprofError, match="-1 px"):
        DashboardWidget(fake.run(), height=-1)


def test_a_front_end_that_was_never_built_says_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setattr(bundle, "PATH", tmp_path / "none.js")
    with pytest.raises(NbprofError, match=r"none\.js: the front end of nbprof has not been built"):
        DashboardWidget(fake.run())


def test_it_goes_into_layouts():
    one, two = (
        DashboardWidget(fake.run()),
        DashboardWidget(fake.run(), layout=ipywidgets.Layout(width="50%")),
    )
    box = ipywidgets.HBox([one, two])
    assert box.get_state()["children"] == [f"IPY_MODEL_{one.model_id}", f"IPY_MODEL_{two.model_id}"]
    ipywidgets.jslink((one, "selected"), (two, "selected"))


def test_viewers_without_a_kernel_get_the_report():
    data, metadata = DashboardWidget(fake.run())._repr_mimebundle_()
    assert set(data) == {
        "application/vnd.jupyter.widget-view+json",
        "text/html",
        "image/png",
        "text/plain",
    }
    assert data["text/plain"].startswith("nbprof · run 7")
    assert "image/png" in metadata


def test_colab_is_asked_to_draw_widgets_that_are_not_its_own(monkeypatch):
    """By anywidget, when the first one is shown: Colab draws only its own by default."""
    import anywidget._util as anywidget_util

    enabled = []
    output = ModuleType("google.colab.output")
    output.enable_custom_widget_manager = lambda: enabled.append(True)
    output._widgets = SimpleNamespace(_installed_url="https://example.org/manager.js")
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    anywidget_util.enable_custom_widget_manager_once.cache_clear()
    try:
        _, metadata = DashboardWidget(fake.run())._repr_mimebundle_()
    finally:
        anywidget_util.enable_custom_widget_manager_once.cache_clear()
    assert enabled == [True]
    assert metadata[WIDGET]["colab"]["custom_widget_manager"]["url"].endswith("manager.js")
