"""The live status in a real kernel: shown while the cell runs, answered beside it, and gone with
it.
"""

from __future__ import annotations

import time
from queue import Empty

import pytest

STRIP = "application/vnd.nbprof.strip.v1+json"
LIMIT_S = 60

# What an output of a run that is not here asks about its trace.
TRACE = [
    {"id": "1", "request": {"ask": "hello", "key": "0-" + 32 * "0"}},
    {"id": "2", "request": {"ask": "tiles"}},
    {"id": "3", "request": {"ask": None}},
    {"id": "4", "request": {"ask": "search", "query": "a"}},
]

LOOP = """
def loop(steps, until=lambda i: False):
    import time
    for i in nbprof.steps(range(steps)):
        tf.reduce_sum(tf.ones((10, 10)))
        time.sleep(0.02)
        if until(i):
            break
    return i + 1
"""


@pytest.fixture(scope="module", autouse=True)
def ready(kernel):
    assert kernel.run(LOOP).status == "ok"


def subshell(client):
    """A thread of the kernel that answers while a cell runs, as JupyterLab makes one for comms."""
    message = client.session.msg("create_subshell_request", {})
    client.control_channel.send(message)
    while (reply := client.control_channel.get_msg(timeout=LIMIT_S))["parent_header"].get(
        "msg_id"
    ) != message["msg_id"]:
        pass
    return reply["content"]["subshell_id"]


def send(client, shell, kind, content):
    message = client.session.msg(kind, content)
    message["header"]["subshell_id"] = shell
    client.shell_channel.send(message)
    return message["header"]["msg_id"]


def pictures(kernel, code, act):
    """Run a cell and call `act` with each strip, of whatever cell, and each answer of a comm; gives
    what was displayed for the cell.
    """
    client = kernel.client
    request = client.execute(code, store_history=True)
    seen = []
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            message = client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
        except Empty:
            kernel.manager.interrupt_kernel()
            raise AssertionError("the cell did not end") from None
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_msg":
            act(content["data"])
        elif STRIP in content.get("data", ()):
            act(content["data"][STRIP])
        if message["parent_header"].get("msg_id") != request:
            continue
        if kind in ("display_data", "update_display_data"):
            seen.append(message)
        if kind == "status" and content["execution_state"] == "idle":
            break
    while client.get_shell_msg(timeout=20)["parent_header"].get("msg_id") != request:
        pass
    return seen


def step_of(strip):
    return next(
        (int(item["value"].replace(",", "")) for item in strip["items"] if item["name"] == "step"),
        0,
    )


def test_the_strip_leaves_a_line_and_its_second_place_becomes_the_dashboard(kernel):
    seen = pictures(kernel, "%%nbprof\nloop(60)", lambda _: None)
    assert [message["msg_type"] for message in seen].count("display_data") == 2
    places = list(dict.fromkeys(message["content"]["transient"]["display_id"] for message in seen))
    first, second = (
        [m["content"]["data"] for m in seen if m["content"]["transient"]["display_id"] == place]
        for place in places
    )
    assert first[-1]["text/plain"].startswith("nbprof: the cell ran 60 steps in ")
    stages = [data[STRIP] for data in second[:-1]]
    assert stages[0]["head"] == "TensorFlow writes the recording"
    assert not any(stage["stops"] for stage in stages)
    assert {stage["kind"] for stage in stages} == {"end"}
    strips = [data[STRIP] for data in first if STRIP in data]
    assert len(strips) >= 3
    assert {strip["id"] for strip in strips} == {strips[0]["id"]}
    assert set(seen[-1]["content"]["data"]) == {
        "application/vnd.nbprof.v1+json",
        "text/html",
        "image/png",
        "text/plain",
    }
    last = {item["name"]: item for item in strips[-1]["items"]}
    assert {"step", "step time", "input", "memory", "buffer", ""} <= set(last)
    assert last["input"]["value"] == "0 %"


LEFT = """
import json, subprocess, sys
from nbprof.core.unfinished import mark, unfinished
process = subprocess.Popen([sys.executable, "-c", ""])
process.wait()
logs = pathlib.Path("left-logs")
(logs / ".recording-old").mkdir(parents=True)
mark(logs / ".recording-old", {"pid": process.pid, "display": "of-the-old-kernel"})
"""


def test_the_status_of_a_kernel_that_was_killed_is_closed_by_the_next_recording(kernel):
    assert kernel.run(f"import pathlib\n{LEFT}").status == "ok"
    seen = pictures(
        kernel,
        "%%nbprof --logdir left-logs\nloop(5)\nmine = unfinished(logs)[0].facts['display']",
        lambda _: None,
    )
    closed = [
        m["content"]["data"]
        for m in seen
        if m["content"]["transient"]["display_id"] == "of-the-old-kernel"
    ]
    assert len(closed) == 1
    assert " was not finished: its process, " in closed[0]["text/plain"]
    shown = {m["content"]["transient"]["display_id"] for m in seen}
    assert kernel.run(f"assert mine in {shown!r}").status == "ok"


LARGE = """
from nbprof.profiles import profile as made
from nbprof.tools import dashboard
dashboard.MANY_EVENTS, whole = 0, made.Profile.payload
def payload(self, *args):
    dashboard.MANY_EVENTS, made.Profile.payload = 200_000, whole
    {}
    return whole(self, *args)
made.Profile.payload = payload
"""
MIME = "application/vnd.nbprof.v1+json"


def test_a_large_run_shows_its_first_picture_in_the_place_of_the_whole(kernel):
    kernel.run(LARGE.format(""))
    seen = pictures(kernel, "%%nbprof\nloop(10)", lambda _: None)
    last = seen[-1]["content"]["transient"]["display_id"]
    *stages, first, whole = (
        m["content"]["data"] for m in seen if m["content"]["transient"]["display_id"] == last
    )
    assert all(STRIP in stage for stage in stages)
    assert first[MIME]["early"] is True
    # It cannot be asked for more, as the kernel has no more yet.
    assert not {"key", "files"} & set(first[MIME])
    assert set(first) == {MIME, "text/html", "text/plain"}
    assert "<script" not in first["text/html"]
    assert set(whole) == {MIME, "text/html", "image/png", "text/plain"}
    assert "early" not in whole[MIME]
    assert [m["msg_type"] for m in seen].count("display_data") == 2


def test_ctrl_c_after_the_first_picture_leaves_the_sentence_in_its_place(kernel):
    kernel.run(LARGE.format("print('analysing;', flush=True); __import__('time').sleep(60)"))
    result = kernel.run("%%nbprof\nloop(10)", interrupt_at="analysing;")
    (left,) = result.displays
    assert left["text/plain"].startswith("nbprof: the analysis was interrupted; the run is saved")


def names(seen):
    """What the strips of a cell said once there were some steps."""
    return {
        item["name"]
        for m in seen
        if step_of(came := m["content"]["data"].get(STRIP, {"items": []})) > 9
        for item in came["items"]
    }


def test_waiting_for_input_is_said_where_it_is_seen(kernel):
    batches = "%%nbprof\nimport time\nfor x, y in data.repeat(10):\n    with nbprof.step():\n        time.sleep(0.02)"
    assert "input" in names(pictures(kernel, batches, lambda _: None))
    # The graph takes the batches of `fit`: nothing of it is seen while it runs.
    kernel.run(
        "class Rest(keras.callbacks.Callback):\n    on_train_batch_end = lambda *_, **__: __import__('time').sleep(0.02)"
    )
    fit = names(
        pictures(
            kernel,
            "%%nbprof\nmodel.fit(data, epochs=10, verbose=0, callbacks=[Rest()])",
            lambda _: None,
        )
    )
    assert "step" in fit
    assert "input" not in fit


def test_the_button_is_answered_while_the_cell_runs(kernel):
    client = kernel.client
    shell = subshell(client)
    heard, kernel.over = [], None

    def act(came):
        if "items" in came and not heard and step_of(came) > 5:
            heard.append(came["id"])
            send(
                client,
                shell,
                "comm_open",
                {"comm_id": "button", "target_name": "nbprof-strip", "data": {"id": came["id"]}},
            )
        elif "items" in came:
            # What comes after the cell is no matter of the recording.
            kernel.over = came if came["kind"] == "over" else kernel.over
        else:
            heard.append(came)
            if came.get("ready"):
                send(client, shell, "comm_msg", {"comm_id": "button", "data": {"ask": "stop"}})

    # The cell ends when it finds that its recording has ended.
    over = "lambda i: not session().active().windows.recording and i > 10"
    code = f"%%nbprof -o p\nsession = lambda: __import__('nbprof.capture.session', fromlist=['active'])\nran = loop(2000, {over}) + loop(50)"
    seen = pictures(kernel, code, act)
    assert heard[1:] == [{"ready": True}, {"stopping": True}]
    assert kernel.over["head"].startswith("recorded steps 1 to ")
    assert not kernel.over["stops"]
    assert "application/vnd.nbprof.v1+json" in seen[-1]["content"]["data"]
    info = kernel.capture("p")
    assert info["steps_seen"] == int(kernel.ask("ran"))
    assert 0 < info["steps_marked"] < info["steps_seen"] < 2000
    assert (
        f"Stop and analyse was pressed: recording ended after step {info['steps_marked']:,}"
        in info["notes"]
    )
    assert kernel.ask("len(p.steps.frame)") == str(info["steps_marked"])
    assert kernel.idle()


def test_nothing_comes_after_the_cell(kernel):
    for code in ("%%nbprof\nloop(30)", "%%nbprof\nloop(30)\n1 / 0"):
        result = kernel.run(code)
        assert len(result.dashboards) == len(result.displays) == 1
        after = pictures(
            kernel,
            "import time; time.sleep(0.8)",
            lambda came: pytest.fail(f"a strip came after its cell: {came}"),
        )
        assert after == []
    assert (
        kernel.ask(
            "[t.name for t in __import__('threading').enumerate() if t.name == 'nbprof-strip']"
        )
        == "[]"
    )


def test_quiet_has_no_strip(kernel):
    result = kernel.run("%%nbprof -q -o p\nloop(30)")
    assert result.lines == []
    assert kernel.ask("len(p.steps.frame)") == "30"


def test_steps_of_another_thread(kernel):
    result = kernel.run(
        "%%nbprof\nimport threading\nt = threading.Thread(target=loop, args=(40,))\nt.start()\nt.join()"
    )
    assert result.status == "ok"
    assert any("step 2" in line or "step 3" in line for line in result.lines)
    assert len(result.dashboards) == len(result.displays) == 1


def test_a_cell_that_captures_its_outputs_gets_no_strips_among_them(kernel):
    result = kernel.run(
        "%%nbprof\nfrom IPython.utils.capture import capture_output\n"
        "with capture_output() as kept:\n    loop(40)\n    display('mine')\nlen(kept.outputs)"
    )
    assert result.value == "1"
    assert len(result.lines) > 2
    assert len(result.dashboards) == 1


def test_a_cell_that_clears_its_output_has_it_for_itself_for_a_while(kernel):
    code = "%%nbprof\nfrom IPython.display import clear_output\nfor i in range(20):\n    loop(5)\n    clear_output(wait=True)\n    display('mine')"
    result = kernel.run(code)
    assert result.status == "ok"
    assert len(result.dashboards) == 1
    # What the person shows comes first after it was cleared, and no strip in between.
    cleared = kernel.run(
        code.replace("range(20)", "range(3)").replace(
            "display('mine')", "display('mine'); loop(70)"
        )
    )
    kinds = ["nbprof: " in line for line in cleared.lines]
    assert True in kinds[kinds.index(False) :]
    assert len(cleared.dashboards) == 1


def test_a_fault_of_the_strip_is_a_note_and_harms_nothing(kernel):
    kernel.run(
        "import nbprof.notebook.live_status as room\nkept, room.items = room.items, lambda *a: 1 / 0"
    )
    result = kernel.run("%%nbprof\nloop(60)\n6 * 7")
    kernel.run("room.items = kept")
    assert (result.status, result.value) == ("ok", "42")
    assert len(result.dashboards) == 1
    notes = kernel.capture()["notes"]
    assert [note for note in notes if "live status" in note] == [
        "the live status was not shown correctly: ZeroDivisionError: division by zero"
    ]


def test_extension_unloaded_by_the_cell_leaves_no_strip_behind(kernel):
    try:
        result = kernel.run("%%nbprof\nloop(20)\n%unload_ext nbprof")
        assert result.status == "ok", result.traceback
        assert (
            pictures(
                kernel,
                "import time; time.sleep(0.8)",
                lambda came: pytest.fail(f"a strip came after its cell: {came}"),
            )
            == []
        )
    finally:
        kernel.run("%load_ext nbprof")
    assert kernel.idle()


def test_whatever_a_page_says_the_kernel_prints_nothing(kernel):
    client = kernel.client
    shell = subshell(client)
    heard, printed, ids = [], [], []
    # What is to be said over a comm when the kernel has dealt with its opening: before, it would
    # complain of a comm that it does not know.
    waiting = {}

    def open_comm(name, target, data, *asks):
        came = send(
            client, shell, "comm_open", {"comm_id": name, "target_name": target, "data": data}
        )
        waiting[came] = [(name, ask) for ask in asks]

    def listen(code):
        request = client.execute(code, store_history=True)
        while True:
            message = client.get_iopub_msg(timeout=LIMIT_S)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                printed.append(content["text"])
            elif kind == "comm_msg":
                heard.append(content["data"])
            elif (
                STRIP in content.get("data", ()) and not ids and step_of(content["data"][STRIP]) > 3
            ):
                ids.append(content["data"][STRIP]["id"])
                open_comm(
                    "own", "nbprof-strip", {"id": ids[0]}, {}, [1], {"ask": "stop"}, {"ask": "stop"}
                )
                open_comm("strange", "nbprof-strip", {"id": "of a page that was loaded again"})
                open_comm("trace", "nbprof", {}, None, *TRACE)
            elif kind == "status" and content["execution_state"] == "idle":
                of = message["parent_header"].get("msg_id")
                for name, ask in waiting.pop(of, ()):
                    send(client, shell, "comm_msg", {"comm_id": name, "data": ask})
                if of == request:
                    break
        while client.get_shell_msg(timeout=20)["parent_header"].get("msg_id") != request:
            pass

    def answers():
        return len([came for came in heard if "ok" in came])

    # It ends when it finds that its recording has ended.
    listen(
        "%%nbprof\nfrom nbprof.capture.session import active\nran = loop(2000, lambda i: not active().windows.recording and i > 10)"
    )
    assert {"stopping": True} in heard
    for _ in range(600):
        if answers() == len(TRACE):
            break
        listen("time.sleep(0.1)")
    assert answers() == len(TRACE)
    # The strip has gone with its cell.
    send(client, shell, "comm_msg", {"comm_id": "own", "data": {"ask": "stop"}})
    for name in ("own", "trace"):
        send(client, shell, "comm_close", {"comm_id": name, "data": {}})
    for _ in range(600):
        if heard[-1] == {"stopping": False}:
            break
        listen("time.sleep(0.1)")
    assert heard[-1] == {"stopping": False}
    assert printed == []
