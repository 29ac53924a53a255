"""Every tool in every place, and one that is made up."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nbprof
from nbprof.activity.activity import NEXT_ITEM
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import info
from nbprof.notebook.cell import Show
from nbprof.profiles.report.static import static_html
from nbprof.profiles.widget import DashboardWidget
from nbprof.tools import dashboard, names, register, text
from nbprof.tools.parts import Tab
from nbprof.tools.payloads import Payload
from nbprof.tools.tool import Tool
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace
from tests.views import fake

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


@pytest.mark.parametrize("tab", names.NAMES)
def test_each_tool_is_in_every_place(tab: str) -> None:
    run = fake.run()
    whole = dashboard.dashboard(run, [tab])
    assert [shown["id"] for shown in whole["meta"]["tabs"]] == [tab]
    assert whole[tab].keys() >= register.tool(tab).nothing().keys()
    others = [other for other in names.NAMES if other not in (tab, "overview")]
    assert all(whole[other]["empty"]["title"] == "Not in this report" for other in others)
    assert dashboard.select(dashboard.dashboard(run), [tab])["meta"]["tabs"][0]["id"] == tab
    assert Show(views=[tab]).views == [tab]
    assert DashboardWidget(run, whole, views=[tab]).views == [tab]
    assert register.tool(tab).static(whole) in static_html(whole)


@pytest.mark.parametrize("tab", names.NAMES)
def test_a_tool_knows_no_other(tab: str) -> None:
    sources = "".join(
        path.read_text("utf-8") for path in (ROOT / "nbprof/tools" / tab).glob("*.py")
    )
    assert set(
        re.findall(r"(?:from|import) nbprof\.tools\.(\w+)", sources)
    ) & names.NAMES.keys() <= {tab}


@pytest.mark.parametrize("name", [*names.NAMES.values(), names.COMPARE], ids=lambda name: name.id)
def test_each_tab_has_its_section_in_the_docs(name: names.Name) -> None:
    assert f"\n## {name.label}\n\n{name.about}\n" in (ROOT / "docs/views.md").read_text("utf-8")
    assert len(name.about) < 340


def test_words_for_tabs_are_told_apart() -> None:
    words = [word for name in names.NAMES.values() for word in (name.id, *name.also)]
    assert len(set(words)) == len(words)
    with pytest.raises(
        CaptureError, match="unknown view 'kernel'; the views are overview, input, steps"
    ):
        Show(views=["kernel"])


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with one object, its field of the payload, and one line in the names."""

    class Tides(Tab):
        steps: int

    class WithTides(Payload):
        tides: Tides

    folder = ModuleType("nbprof.tools.tides.tool")
    folder.TOOL = Tool(  # type: ignore[attr-defined]
        payload=lambda run, _events: Tides(empty=None, steps=len(run.steps)),
        nothing=lambda: Tides(empty=None, steps=0),
        count=lambda run: 2 * len(run.steps),
        omissions=lambda _run, _events: [info("omitted_moon", "The tides leave out the moon.")],
        text=lambda payload, _most: [f"High water in {payload.tides.steps} steps"],
        static=lambda payload: f"<p>{payload.tides.steps} tides</p>",
    )
    monkeypatch.setitem(sys.modules, folder.__name__, folder)
    monkeypatch.setattr(dashboard, "Payload", WithTides)
    monkeypatch.setitem(
        names.NAMES, "tides", names.Name("tides", "Tides", "When the water is high.")
    )
    return "tides"


def test_a_tool_is_a_folder_and_a_line(made_up: str) -> None:
    run = fake.run()
    before = text.summary(
        dashboard.dashboard(run, [name for name in names.NAMES if name != made_up])
    ).splitlines()
    whole = dashboard.dashboard(run)
    assert whole[made_up] == {"empty": None, "steps": 8}
    assert whole["meta"]["tabs"][-1] == {"id": made_up, "label": "Tides", "count": 16, "flag": None}
    assert {"level": "info", "text": "The tides leave out the moon."} in whole["meta"]["receipt"]
    lines = text.summary(whole).splitlines()
    assert "High water in 8 steps" in lines
    assert len(lines) == len(before) <= 10
    assert "<p>8 tides</p>" in static_html(whole)
    assert Show(views=[made_up]).views == [made_up]
    assert dashboard.dashboard(run, ["ops"])[made_up]["steps"] == 0


def test_what_could_not_be_recorded_has_no_tab_and_what_was_not_has_no_count() -> None:
    jax = nbprof.load(DATA / "xspace" / "jax_cpu.xplane.pb")
    tabs = [tab["id"] for tab in dashboard.dashboard(jax.run)["meta"]["tabs"]]
    assert tabs == ["overview", "input", "op_profile", "hlo", "memory_viewer", "trace"]
    # Asked for by name they say why.
    asked = dashboard.dashboard(jax.run, ["ops", "memory"])
    assert [
        (tab["id"], tab["count"], bool(asked[tab["id"]]["empty"])) for tab in asked["meta"]["tabs"]
    ] == [
        ("ops", None, True),
        ("memory", None, True),
    ]
    counts = {
        tab["id"]: tab["count"]
        for tab in dashboard.dashboard(fake.run(device=False))["meta"]["tabs"]
    }
    assert counts["ops"] == 5
    assert "kernels" not in counts


@pytest.mark.parametrize(("framework", "offered"), [("", False), ("PyTorch", True)])
def test_memory_is_a_tab_of_a_cpu_only_where_it_can_be_asked_for(
    tmp_path: Path, framework: str, offered: bool
) -> None:
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1) for i in range(3)],
        line_id=7,
    )
    run = profile(tmp_path, xspace(host)).run
    assert not run.first_answer["framework"]
    run.first_answer["framework"] = framework
    assert ("memory" in [tab["id"] for tab in dashboard.dashboard(run)["meta"]["tabs"]]) is offered
    assert dashboard.dashboard(run, ["memory"])["memory"]["empty"]["text"]


def test_the_wait_that_nbprof_times_is_no_host_work(monkeypatch: pytest.MonkeyPatch) -> None:
    run = nbprof.load(DATA / "xspace" / "jax_cpu.xplane.pb").run
    slow = (
        nbprof.load(DATA / "xspace" / "tf_slow.xplane.pb").run.ops.query("where == 'host'").head(2)
    )
    for names_of, tab in (([NEXT_ITEM], "op_profile"), ([NEXT_ITEM, "MatMul"], "ops")):
        monkeypatch.setattr(run, "ops", slow.head(len(names_of)).assign(op=names_of))
        assert register.followed(run, "host_compute") == tab
        assert register.tool("ops").has(run) == (tab == "ops")


def test_the_wait_that_nbprof_times_is_no_top_op_where_it_is_all_that_was_recorded(
    tmp_path: Path,
) -> None:
    for more, top in ((False, []), (True, [NEXT_ITEM, "dense/MatMul"])):
        host = PlaneWriter("/host:CPU")
        main = [host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1) for i in range(3)]
        main += [
            host.event(NEXT_ITEM, i * 10 * MS, MS, _ipl_stage_id=1, _ipl_stage_cat="unknown")
            for i in range(3)
        ]
        main += [
            host.event("dense/MatMul:MatMul", i * 10 * MS + 2 * MS, MS // 2)
            for i in range(3)
            if more
        ]
        host.line("python", main, line_id=7)
        p = profile(tmp_path, xspace(host), name=f"host-{len(top)}")
        assert NEXT_ITEM in p.ops.frame["op"].tolist()
        assert p.overview["top_ops"]["op"].tolist() == top
        assert ("Top op" in str(p)) == bool(top)
        assert p.overview["eager_host_percent"] == (0.0 if top else None)


def test_a_version_that_says_nothing_is_not_shown(tmp_path: Path) -> None:
    host = PlaneWriter("/host:CPU", {"jax_version": "0.9.1", "cpu_version": "cpu"})
    host.line("python", [host.event("train", 0, 10 * MS, step_num=1, _r=1)], line_id=7)
    facts = dict(dashboard.dashboard(profile(tmp_path, xspace(host)).run)["overview"]["run"])
    assert facts["Versions"] == "jax 0.9.1"
