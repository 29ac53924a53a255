"""Which run an output may ask about, how it is found again, and what an output that means harm
gets.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import threading
from typing import Any

import pytest

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles import actions, comms, live
from nbprof.profiles import load as profiles
from nbprof.profiles.report import bundle
from nbprof.profiles.report.mimebundle import MIME
from nbprof.profiles.widget import DashboardWidget
from nbprof.sources.fingerprint import fingerprint
from tests.support.kineto import Kineto
from tests.support.saved import payload_of
from tests.support.xspace import gpu_run, training_run

KEY = "0-" + "ab" * 16


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder of a notebook, as working directory, with a profile in it and a cache beside
    it.
    """
    folder = tmp_path / "notebooks"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "host.xplane.pb").write_bytes(gpu_run())
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NBPROF_CACHE", "1")
    monkeypatch.setenv("NBPROF_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def registry(monkeypatch):
    """A registry of a kernel that has just started."""
    made = live.Registry()
    monkeypatch.setattr(live, "registry", made)
    monkeypatch.setattr(comms, "registry", made)
    monkeypatch.setattr(actions, "registry", made)
    monkeypatch.setattr("nbprof.profiles.report.mimebundle.registry", made)
    monkeypatch.setattr(profiles, "_last", [])
    return made


def forget() -> None:
    profiles._last.clear()
    gc.collect()


def saved(p: Any) -> dict[str, Any]:
    data: dict[str, Any] = p.mimebundle()[0][MIME]
    return data


# The key.


def test_the_key_is_that_of_the_content_wherever_it_lies(here, tmp_path):
    first = nbprof.load("logs/host.xplane.pb").run.source.content_key()
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "host.xplane.pb").write_bytes((here / "logs" / "host.xplane.pb").read_bytes())
    assert nbprof.load(other).run.source.content_key() == first
    (other / "host.xplane.pb").write_bytes(training_run())
    assert nbprof.load(other).run.source.content_key() != first


def test_the_payload_and_the_output_have_the_same_key(here, registry):
    p = nbprof.load("logs")
    assert (
        payload_of(p.mimebundle()[0])["trace"]["key"]
        == saved(p)["key"]
        == p.run.source.content_key()
    )


def test_a_difference_at_the_end_of_a_large_file_shows(tmp_path):
    path = tmp_path / "a"
    content = bytearray(3 << 20)
    path.write_bytes(content)
    before = fingerprint([path])
    content[-1] = 1
    path.write_bytes(content)
    assert fingerprint([path]) != before
    content[-1] = 0
    path.write_bytes(content[:-1])
    assert fingerprint([path]) != before


def test_files_that_are_no_files_have_no_key(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert fingerprint([tmp_path / "pipe"]) is None
    assert fingerprint([tmp_path / "none"]) is None
    assert fingerprint([tmp_path]) is None


def test_a_run_whose_file_has_changed_since_is_known_in_this_kernel_only(here):
    run = nbprof.load("logs").run
    (here / "logs" / "host.xplane.pb").write_bytes(training_run())
    assert run.source.content_key().startswith("0-")
    assert run.source.content_key() == run.source.content_key()


# What is in a notebook.


def test_an_output_names_files_below_the_notebook_and_no_others(here, registry, tmp_path):
    assert saved(nbprof.load("logs"))["files"] == ["logs/host.xplane.pb"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "host.xplane.pb").write_bytes(gpu_run())
    p = nbprof.load(elsewhere)
    assert saved(p)["files"] == []
    # The path of a run is told by its name in the header of the report; nothing else of it is.
    assert str(tmp_path) not in saved(p)["key"]


def test_a_report_without_script_has_no_key(here, registry):
    data, _ = nbprof.load("logs").mimebundle(live=False)
    assert MIME not in data


# Runs come back.


def test_a_run_that_was_shown_is_found(here, registry):
    p = nbprof.load("logs")
    assert registry.open(saved(p)["key"]) is p.run


def test_a_run_that_was_only_loaded_is_found_too(here, registry):
    p = nbprof.load("logs")
    assert registry.open(p.run.source.content_key()) is p.run


def test_a_run_that_is_gone_is_read_again_from_the_files_that_the_output_names(
    here, registry, monkeypatch
):
    monkeypatch.setenv("NBPROF_CACHE", "0")
    output = saved(nbprof.load("logs"))
    forget()
    assert registry.get(output["key"]) is None
    with pytest.raises(NbprofError, match="does not have the profile"):
        registry.open(output["key"])
    run = registry.open(output["key"], output["files"])
    assert run.source.content_key() == output["key"]


def test_a_run_that_is_gone_is_read_again_from_where_it_was_last(here, registry, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "host.xplane.pb").write_bytes(gpu_run())
    output = saved(nbprof.load(elsewhere))
    assert output["files"] == []
    forget()
    assert registry.open(output["key"]).source.content_key() == output["key"]
    forget()
    (elsewhere / "host.xplane.pb").write_bytes(training_run())
    with pytest.raises(NbprofError, match="does not have the profile"):
        live.Registry().open(output["key"])


def test_another_profile_in_its_place_is_not_taken_for_it(here, registry):
    output = saved(nbprof.load("logs"))
    forget()
    (here / "logs" / "host.xplane.pb").write_bytes(training_run())
    with pytest.raises(NbprofError, match="does not have the profile"):
        registry.open(output["key"], output["files"])


def test_of_two_that_ask_at_a_time_one_reads(here, registry, monkeypatch):
    output = saved(nbprof.load("logs"))
    forget()
    reads = []
    read = live._read
    monkeypatch.setattr(live, "_read", lambda *given: reads.append(given) or read(*given))
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(registry.open(output["key"], output["files"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(reads) == 1
    assert len({id(run) for run in found}) == 1


def test_the_last_few_runs_stay_for_their_outputs(here, registry, monkeypatch):
    monkeypatch.setattr(live, "MOST_SHOWN", 2)
    registry.holds = True
    keys = []
    for i in range(4):
        (here / f"{i}.xplane.pb").write_bytes(training_run(steps=3 + i))
        keys.append(saved(nbprof.load(f"{i}.xplane.pb"))["key"])
    forget()
    assert [registry.get(key) is not None for key in keys] == [False, False, True, True]
    # What is asked for is not the one to go.
    registry.get(keys[2])
    (here / "5.xplane.pb").write_bytes(training_run(steps=9))
    saved(nbprof.load("5.xplane.pb"))
    forget()
    assert [registry.get(key) is not None for key in keys] == [False, False, True, False]
    monkeypatch.setattr(live, "MOST_EVENTS", 1)
    registry.get(keys[2])
    assert len(registry._in_outputs) == 1


def test_nothing_is_held_where_no_page_can_ask(here, registry):
    key = saved(nbprof.load("logs"))["key"]
    forget()
    assert registry.get(key) is None


# What an output that means harm gets.


@pytest.mark.parametrize(
    "key",
    [None, 3, "", "a", ["0"], KEY + "\n", "0-" + "g" * 32, "../../x", "f" * 17 + "-" + "a" * 40],
)
def test_what_is_no_key_finds_nothing(registry, key):
    with pytest.raises(NbprofError, match="not a profile key"):
        registry.open(key, ["a"])


@pytest.mark.parametrize(
    "given",
    [
        None, "logs/host.xplane.pb", {"0": "logs/host.xplane.pb"}, [], [3], [None], [""], ["logs\0"], ["a" * 1001],
        ["../secret"], ["logs/../../secret"], ["/etc/passwd"], ["~/secret"], ["~"], ["//server/share/x"], ["\\\\server\\share\\x"],
        ["C:\\x"], ["c:x"], ["https://host/x"], ["file:///etc/passwd"], ["logs"], ["pipe"], ["link"], ["linked/host.xplane.pb"],
        ["logs/host.xplane.pb", "../secret"], ["logs/host.xplane.pb"] * 257, ["logs/none"],
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder_of_the_notebook(here, tmp_path, given):
    (tmp_path / "secret").write_bytes(gpu_run())
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "host.xplane.pb").write_bytes(gpu_run())
    os.mkfifo(here / "pipe")
    (here / "link").symlink_to(tmp_path / "secret")
    (here / "linked").symlink_to(tmp_path / "outside")
    assert live.inside(given) == []
    assert live.inside(["logs/host.xplane.pb"]) == [here / "logs" / "host.xplane.pb"]


def test_a_file_is_not_even_read_before_its_key_is_right(here, registry, monkeypatch):
    monkeypatch.setattr(live, "_read", lambda *_: pytest.fail("read"))
    with pytest.raises(NbprofError, match="does not have the profile"):
        registry.open("5-" + "ab" * 20, ["logs/host.xplane.pb"])


def test_a_file_that_is_no_profile_or_an_archive_is_no_run(here, registry, monkeypatch):
    import zipfile

    (here / "a.json").write_text("{}")
    with zipfile.ZipFile(here / "a.zip", "w") as archive:
        archive.writestr("host.xplane.pb", gpu_run())
    for name in ("a.json", "a.zip"):
        known = fingerprint([here / name])
        with pytest.raises(NbprofError, match="does not have the profile"):
            registry.open(known, [name])


def test_a_small_file_that_unpacks_to_much_is_not_unpacked_for_an_output(
    here, registry, monkeypatch
):
    import gzip

    monkeypatch.setattr(live, "_LEAST_LIMIT", 1 << 16)
    padding = b'{"ph":"M","name":"n","args":{"a":"' + b"0" * (8 << 20) + b'"}}'
    trace = (
        b'{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1},' + padding + b"]}"
    )
    (here / "bomb.json.gz").write_bytes(gzip.compress(trace))
    known = fingerprint([here / "bomb.json.gz"])
    assert nbprof.load("bomb.json.gz").run.trace.receipt.events == 1
    forget()
    with pytest.raises(NbprofError, match="does not have the profile"):
        live.Registry().open(known, ["bomb.json.gz"])


# Messages.


class Page:
    """The other end of a comm."""

    def __init__(self) -> None:
        self.came: queue.Queue[tuple[dict[str, Any], bytes]] = queue.Queue()
        self._hear: Any = None
        self._closed: Any = None
        comms.open_comm(self, {})

    def on_msg(self, callback: Any) -> None:
        self._hear = callback

    def on_close(self, callback: Any) -> None:
        self._closed = callback

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        assert metadata is None
        self.came.put((data, buffers[0]))

    def tell(self, data: Any) -> None:
        self._hear({"content": {"data": data}})

    def ask(self, **request: Any) -> dict[str, Any]:
        self.tell({"id": "1", "request": request})
        data, packed = self.came.get(timeout=60)
        answer = codec.unpack(packed)
        assert data["id"] == "1"
        return answer


def test_an_output_says_hello_with_its_key_and_asks(here, registry):
    p = nbprof.load("logs")
    page = Page()
    assert page.ask(ask="hello", key=saved(p)["key"]) == {
        "ok": True,
        "key": p.run.source.content_key(),
    }
    assert page.ask(ask="slice", event=0)["slice"]["event"] == 0
    assert page.ask(ask="search", query="sgemm")["count"] > 0
    assert registry.holds


def test_the_header_gets_the_report_that_save_writes(here, registry):
    p = nbprof.load("logs")
    page = Page()
    page.ask(ask="hello", key=saved(p)["key"])
    answer = page.ask(ask="report")
    assert answer["name"] == "nbprof-logs.html"
    assert bytes(answer["page"]).decode() == p.save("saved.html").read_text()


@pytest.mark.parametrize(
    ("label", "name"),
    [("run 7", "nbprof-run-7.html"), ("../<b>", "nbprof-b.html"), ("…", "nbprof-report.html")],
)
def test_a_report_has_the_name_of_a_file(label, name):
    assert actions.file_name(label) == name


def test_the_header_gets_the_other_runs_of_the_kernel_and_compares_with_one(here, registry):
    (here / "other.xplane.pb").write_bytes(training_run())
    others = [nbprof.load("other.xplane.pb"), nbprof.load("other.xplane.pb")]
    p = nbprof.load("logs")
    page = Page()
    page.ask(ask="hello", key=saved(p)["key"])
    assert [(run["label"], run["key"]) for run in page.ask(ask="runs")["runs"]] == [
        ("other", others[0].run.source.content_key())
    ]
    packed = bytes(
        page.ask(ask="compare", **{"with": others[0].run.source.content_key()})["payload"]
    )
    assert packed == codec.pack(nbprof.compare(others[0], p).payload())


@pytest.mark.parametrize("wanted", [KEY, None, 7, ["a"]])
def test_a_run_that_is_not_there_is_compared_with_nothing(here, registry, wanted):
    page = Page()
    page.ask(ask="hello", key=saved(nbprof.load("logs"))["key"])
    assert "no longer in this kernel" in page.ask(ask="compare", **{"with": wanted})["error"]


def test_the_header_gets_the_runs_of_the_folder_that_nobody_loaded(here, registry):
    for day, label in (("01", "training [3]"), ("02", "training [5]"), ("03", "")):
        folder = here / "results" / "plugins" / "profile" / f"2026_11_{day}_10_00_00"
        folder.mkdir(parents=True)
        (folder / "host.xplane.pb").write_bytes(training_run(3 + int(day)))
        if label:
            (folder / "nbprof.json").write_text(
                json.dumps({"backend": "tensorflow", "label": label})
            )
    p = nbprof.load("results", run="2026_11_02")
    page = Page()
    page.ask(ask="hello", key=saved(p)["key"])
    found = page.ask(ask="runs")["runs"]
    assert [run["label"] for run in found] == ["2026_11_03_10_00_00", "training [3]"]
    packed = bytes(page.ask(ask="compare", **{"with": found[1]["key"]})["payload"])
    before = nbprof.load("results", run="2026_11_01")
    assert packed == codec.pack(nbprof.compare(before, p).payload())
    # What has been loaded meanwhile is listed once.
    assert [run["label"] for run in page.ask(ask="runs")["runs"]] == [
        "training [3]",
        "2026_11_03_10_00_00",
    ]
    assert (
        "folder of this run" in page.ask(ask="compare", **{"with": "folder-" + "0" * 32})["error"]
    )


def test_of_a_file_the_runs_beside_it_are_offered_and_else_those_one_folder_up(here, registry):
    for second in (1, 2):
        recorded = Kineto()
        recorded.step(second, 0.0, 900.0)
        recorded.op("aten::mm", 10.0, 800.0)
        (here / f"w.170000000{second}000.pt.trace.json").write_bytes(recorded.encode())
    page = Page()
    page.ask(ask="hello", key=saved(nbprof.load("w.1700000001000.pt.trace.json"))["key"])
    assert {run["label"] for run in page.ask(ask="runs")["runs"]} == {"w.1700000002000", "logs"}
    alone = Page()
    alone.ask(ask="hello", key=saved(nbprof.load("logs"))["key"])
    assert {run["label"] for run in alone.ask(ask="runs")["runs"]} == {
        "w.1700000001000",
        "w.1700000002000",
    }


def test_an_output_that_does_not_say_hello_gets_nothing(here, registry):
    nbprof.load("logs")
    page = Page()
    assert "not a profile key" in page.ask(ask="slice", event=0)["error"]
    assert "does not have the profile" in page.ask(ask="hello", key=KEY)["error"]
    assert page.ask(ask="slice", event=0)["ok"] is False


def test_an_output_gets_its_run_back_when_newer_ones_took_its_place(here, registry, monkeypatch):
    monkeypatch.setattr(live, "MOST_SHOWN", 1)
    page = Page()
    output = saved(nbprof.load("logs"))
    assert page.ask(ask="hello", key=output["key"], files=output["files"])["ok"]
    (here / "other.xplane.pb").write_bytes(training_run())
    saved(nbprof.load("other.xplane.pb"))
    forget()
    assert list(registry._in_outputs) != [output["key"]]
    assert page.ask(ask="slice", event=0)["ok"]
    assert list(registry._in_outputs) == [output["key"]]


@pytest.mark.parametrize(
    "message",
    [
        None,
        3,
        [],
        {},
        {"id": 1, "request": {}},
        {"id": "a" * 65, "request": {}},
        {"id": "a", "request": []},
        {"id": "a"},
        {"kind": "x"},
    ],
)
def test_what_is_no_request_is_left_alone(registry, message):
    page = Page()
    page.tell(message)
    # The next one is answered: nothing was thrown, and nothing came before it.
    assert page.ask(ask="hello", key=3)["ok"] is False
    assert page.came.empty()


def test_nothing_is_sent_to_an_output_that_is_gone(here, registry):
    p = nbprof.load("logs")
    page = Page()
    assert page.ask(ask="hello", key=p.run.source.content_key())["ok"]
    page._closed({})
    page.tell({"id": "2", "request": {"ask": "slice", "event": 0}})
    assert page.came.empty()


@pytest.mark.parametrize("word", [[], {}, ["search"], {"search": 1}, 3, None, True])
def test_a_request_whose_word_is_none_gets_a_sentence(here, registry, word):
    p = nbprof.load("logs")
    page = Page()
    assert page.ask(ask="hello", key=p.run.source.content_key())["ok"]
    assert page.ask(ask=word)["error"].endswith(".")


@pytest.fixture
def held(monkeypatch):
    """The thread for what takes long is held up by a search until the event is set."""
    began, go_on = threading.Event(), threading.Event()
    answers = []

    def slow(*given):
        answers.append(given)
        began.set()
        assert go_on.wait(60)
        return codec.contain({"ok": True})

    monkeypatch.setattr(comms.serve, "reply", slow)
    yield began, go_on, answers
    go_on.set()


def test_requests_that_wait_are_not_more_than_a_few(here, registry, monkeypatch, held):
    monkeypatch.setattr(comms, "_MOST_WAITING", 5)
    began, go_on, answers = held
    p = nbprof.load("logs")
    page = Page()
    assert page.ask(ask="hello", key=p.run.source.content_key())["ok"]
    page.tell({"id": "first", "request": {"ask": "search", "query": "x"}})
    assert began.wait(60)
    for i in range(50):
        page.tell({"id": str(i), "request": {"ask": "search", "query": "x"}})
    refused = [page.came.get(timeout=60) for _ in range(45)]
    assert {data["ok"] for data, _ in refused} == {False}
    assert "Try again" in codec.unpack(refused[0][1])["error"]
    go_on.set()
    answered = [page.came.get(timeout=60)[0]["id"] for _ in range(6)]
    assert answered == ["first", "0", "1", "2", "3", "4"]
    assert len(answers) == 6


def test_a_page_that_leaves_has_nothing_worked_on_for_it(here, registry, held):
    began, go_on, answers = held
    p = nbprof.load("logs")
    page, other = Page(), Page()
    for one in (page, other):
        assert one.ask(ask="hello", key=p.run.source.content_key())["ok"]
    for i in range(5):
        page.tell({"id": str(i), "request": {"ask": "search", "query": "x"}})
    assert began.wait(60)
    page._closed({})
    other.tell({"id": "other", "request": {"ask": "search", "query": "y"}})
    go_on.set()
    assert other.came.get(timeout=60)[0]["id"] == "other"
    assert page.came.empty()
    assert len(answers) == 2, "the one that was under way, and that of the other page"


def test_a_widget_answers_by_its_messages(here, registry, monkeypatch, tmp_path):
    path = tmp_path / "dashboard.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(bundle, "PATH", path)
    widget = DashboardWidget(nbprof.load("logs").run)
    came: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(
        DashboardWidget, "send", lambda self, content, buffers=None: came.put((content, buffers))
    )
    widget._handle_custom_msg({"id": "a", "request": {"ask": "hello"}}, [])
    content, buffers = came.get(timeout=60)
    assert content == {"id": "a", "ok": True}
    assert codec.unpack(buffers[0]) == {"ok": True}
    widget._handle_custom_msg({"id": "b", "request": {"ask": "step", "event": 0, "to": "next"}}, [])
    assert codec.unpack(came.get(timeout=60)[1][0])["ok"]


# The kernel.


class Manager:
    def __init__(self) -> None:
        self.targets: dict[str, Any] = {}
        self.comms: dict[str, Any] = {}

    def register_target(self, name: str, target: Any) -> None:
        self.targets[name] = target

    def register_comm(self, comm: Any) -> None:
        self.comms[comm.comm_id] = comm


def test_the_kernel_of_a_notebook_has_the_target_and_a_sign_of_it_once(monkeypatch):
    from types import SimpleNamespace

    manager = Manager()
    shell = SimpleNamespace(kernel=SimpleNamespace(comm_manager=manager))
    monkeypatch.setitem(__import__("sys").modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(
        __import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell)
    )
    nbprof._meet_kernel()
    target = manager.targets["nbprof"]
    nbprof._meet_kernel()
    assert manager.targets == {"nbprof": target}
    assert [(i, comm.target_name) for i, comm in manager.comms.items()] == [("nbprof", "nbprof")]


def test_elsewhere_nothing_happens(monkeypatch):
    from types import SimpleNamespace

    monkeypatch.setitem(__import__("sys").modules, "ipykernel", SimpleNamespace())
    for shell in (None, SimpleNamespace(), SimpleNamespace(kernel=SimpleNamespace())):
        monkeypatch.setitem(
            __import__("sys").modules,
            "IPython",
            SimpleNamespace(get_ipython=lambda shell=shell: shell),
        )
        nbprof._meet_kernel()
    monkeypatch.delitem(__import__("sys").modules, "IPython")
    nbprof._meet_kernel()


def test_a_comm_that_cannot_be_opened_is_closed_and_is_no_error_of_the_kernel(monkeypatch):
    from types import SimpleNamespace

    manager, closed = Manager(), []
    shell = SimpleNamespace(kernel=SimpleNamespace(comm_manager=manager))
    monkeypatch.setitem(__import__("sys").modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(
        __import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell)
    )
    nbprof._meet_kernel()
    # As where a part of nbprof cannot be imported.
    monkeypatch.setitem(__import__("sys").modules, "nbprof.profiles.comms", None)
    manager.targets["nbprof"](SimpleNamespace(close=lambda: closed.append(1)), {})
    assert closed == [1]


def test_where_no_thread_can_be_had_it_is_answered_at_once(here, registry, monkeypatch):
    monkeypatch.setattr(
        comms, "_later", lambda work: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
    )
    page = Page()
    assert page.ask(ask="hello", key=saved(nbprof.load("logs"))["key"])["ok"]
