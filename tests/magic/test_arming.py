"""The Profile button: what a front end arms is recorded, and nothing else is."""

from __future__ import annotations

import json
import os
import time

import pytest
from IPython.core.interactiveshell import InteractiveShell

from nbprof.notebook import defaults, magic, profile_button
from tests.magic.conftest import Kernel

TRAIN = "model.fit(data, epochs=1, verbose=0)"

# Stands for a recording: what begins and ends with which cell, without a framework.
STUB = """
import nbprof.notebook.cell, json, sys
begun = []
class Stub:
    def __init__(self, shell, options, show, source="", notes=()):
        self.said = {"source": source, "notes": list(notes), "steps": options.steps, "stacks": options.stacks, "ended": False}
    def begin(self):
        begun.append(self.said)
    def finish(self, error=None):
        self.said["ended"] = type(error).__name__ if error else True
nbprof.notebook.cell.Cell = Stub
"""


def expression(text, **more):
    request = json.dumps({"text": text, **more})
    return f"__import__('nbprof.notebook.profile_button', fromlist=['arm']).arm({request!r})"


class Front:
    """Sends requests as JupyterLab does, without waiting for their answers."""

    def __init__(self, kernel):
        self.kernel, self.client = kernel, kernel.client

    def send(self, code, *, cell="", ask="", silent=False):
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {"it": ask} if ask else {},
            "allow_stdin": False,
            "stop_on_error": not silent,
        }
        message = self.client.session.msg(
            "execute_request", content, metadata={"cellId": cell} if cell else {}
        )
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def arm(self, text, **more):
        return self.send("", ask=expression(text, **more), silent=True)

    def run(self, text, cell=""):
        return self.send(text, cell=cell)

    def replies(self, *wanted):
        """Contents of the replies to these requests, in their order."""
        found = {}
        while set(wanted) - found.keys():
            message = self.client.get_shell_msg(timeout=60)
            found[message["parent_header"].get("msg_id")] = message["content"]
        return [found[one] for one in wanted]

    def answer(self, request):
        (reply,) = self.replies(request)
        return json.loads(reply["user_expressions"]["it"]["data"]["text/plain"])

    def begun(self):
        """What has begun; a kernel drops what it is asked right behind a cell that failed, so then
        once more.
        """
        ask = (
            "__import__('nbprof.notebook.profile_button').notebook.profile_button.Answer(all=begun)"
        )
        while (reply := self.replies(self.send("", ask=ask, silent=True))[0])[
            "status"
        ] == "aborted":
            pass
        return json.loads(reply["user_expressions"]["it"]["data"]["text/plain"])["all"]

    def disarm(self, token):
        ask = f"__import__('nbprof.notebook.profile_button', fromlist=['disarm']).disarm({token!r})"
        return self.answer(self.send("", ask=ask, silent=True))["state"]


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory):
    """A kernel whose recordings are stand-ins, and in which nbprof's extension is not loaded."""
    kernel = Kernel(tmp_path_factory.mktemp("stubbed"))
    assert kernel.run(STUB).status == "ok"
    yield kernel
    kernel.close()


@pytest.fixture
def front(stubbed):
    stubbed.run("begun.clear()")
    return Front(stubbed)


def test_the_next_cell_with_the_text_is_recorded_once(front):
    answer = front.answer(front.arm("x = 41\nx + 1", options="--steps 2:3 --stacks"))
    assert answer["ok"]
    (reply,) = front.replies(front.run("x = 41\nx + 1"))
    assert reply["status"] == "ok"
    (said,) = front.begun()
    assert (said["source"], said["steps"], said["stacks"], said["ended"]) == (
        "x = 41\nx + 1",
        [2, 3],
        True,
        True,
    )
    assert said["notes"] == ["recorded by the Profile button, with --steps 2:3 --stacks"]
    front.replies(front.run("x = 41\nx + 1"))
    assert len(front.begun()) == 1
    assert front.disarm(answer["token"]) == "used"


def test_arming_leaves_no_trace_in_the_notebook(front):
    kernel = front.kernel
    before = json.loads(
        kernel.ask(
            "__import__('nbprof.notebook.profile_button').notebook.profile_button.Answer(n=get_ipython().execution_count, names=sorted(globals()))"
        )
    )
    front.answer(front.arm("1 + 1"))
    after = json.loads(
        kernel.ask(
            "__import__('nbprof.notebook.profile_button').notebook.profile_button.Answer(n=get_ipython().execution_count, names=sorted(globals()))"
        )
    )
    assert after["n"] == before["n"] + 1
    assert {name for name in after["names"] if not name.startswith("_")} == {
        name for name in before["names"] if not name.startswith("_")
    }
    assert front.begun() == []


def test_a_queue_is_worked_off_in_its_order(front):
    """Buttons pressed while another cell runs."""
    long = front.run("import time; time.sleep(0.5)")
    first = (front.arm("'a'"), front.run("'a'"))
    front.run("'b'")
    second = (front.arm("'c'"), front.run("'c'"))
    front.replies(long, *first, *second)
    assert [said["source"] for said in front.begun()] == ["'a'", "'c'"]


def test_two_that_were_armed_before_either_ran(front):
    front.replies(front.arm("'a'"), front.arm("'b'"), front.run("'a'"), front.run("'b'"))
    assert [said["source"] for said in front.begun()] == ["'a'", "'b'"]


def test_another_cell_that_comes_instead_disarms(front):
    token = front.answer(front.arm("'mine'"))["token"]
    front.replies(front.run("'other'"), front.run("'mine'"))
    assert front.begun() == []
    assert front.disarm(token) == "over"


def test_the_same_text_in_another_cell_is_another_cell(front):
    front.replies(
        front.arm("1", cell="one"), front.run("1", cell="two"), front.run("1", cell="one")
    )
    assert front.begun() == []
    front.replies(front.arm("1", cell="one"), front.run("1", cell="one"))
    assert len(front.begun()) == 1
    # Colab and others don't name their cells.
    front.replies(front.arm("1", cell="one"), front.run("1"))
    assert len(front.begun()) == 2


def test_what_an_extension_runs_beside_the_cells_does_not_count(front):
    beside = "__import__('os').getcwd()"
    front.replies(front.arm("'mine'"))
    request = front.client.execute(beside, silent=False, store_history=False)
    front.replies(request, front.run("'mine'"))
    assert [said["source"] for said in front.begun()] == ["'mine'"]


def test_a_queue_that_is_aborted_takes_the_arming_with_it(front):
    failed, armed, mine = (
        front.run("import time; time.sleep(0.3); 1 / 0"),
        front.arm("'mine'"),
        front.run("'mine'"),
    )
    replies = front.replies(failed, armed, mine)
    assert [reply["status"] for reply in replies] == ["error", "aborted", "aborted"]
    time.sleep(0.2)
    front.replies(front.run("'mine'"))
    assert front.begun() == []


def test_one_that_was_armed_and_then_aborted_by_an_error_is_not_recorded_later(front):
    armed = front.answer(front.arm("'mine'"))
    failed, mine = front.run("1 / 0"), front.run("'mine'")
    front.replies(failed, mine)
    time.sleep(0.2)
    front.replies(front.run("'mine'"))
    assert front.begun() == []
    assert front.disarm(armed["token"]) == "over"


def test_a_front_end_can_take_it_back(front):
    token = front.answer(front.arm("'mine'"))["token"]
    assert front.disarm(token) == "waiting"
    front.replies(front.run("'mine'"))
    assert front.begun() == []


def test_a_syntax_error_is_the_plain_one_and_nothing_is_recorded(front):
    for text in ("for in y:\n    pass", "return 1", "await = 3"):
        # The one before has failed: until the kernel answers again it drops what it is asked.
        assert front.begun() == []
        armed, ran = front.arm(text), front.run(text)
        assert front.replies(armed, ran)[1]["ename"] == "SyntaxError"
    assert front.begun() == []


def test_an_error_in_the_cell_ends_the_recording_with_it(front):
    text = "print('here')\n1 / 0"
    reply = front.replies(front.arm(text), front.run(text))[1]
    assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")
    # The lines of the cell are counted as ever.
    assert "2 1 / 0" in " ".join(
        "\n".join(reply["traceback"]).replace("\x1b", "").split()
    ) or "line 2" in "\n".join(reply["traceback"])
    assert front.begun()[0]["ended"] == "ZeroDivisionError"


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nawait asyncio.sleep(0.01)\n'done'",
        "%%time\ntotal = sum(range(10))",
        "%%capture kept\nprint('x')",
        "%timeit -n1 -r1 1",
    ],
)
def test_async_cells_and_other_magics_are_recorded_whole(front, text):
    reply = front.replies(front.arm(text), front.run(text))[1]
    assert reply["status"] == "ok", reply
    (said,) = front.begun()
    assert (said["source"], said["ended"]) == (text, True)


@pytest.mark.parametrize(
    "text",
    [
        "%%nbprof --steps 5:6\n1 + 1",
        "%%time\n%%nbprof --steps 5:6\n1 + 1",
        "%%nbprof --steps 5:6\n%%time\n1 + 1",
    ],
)
def test_a_cell_that_says_so_itself_is_recorded_once_and_its_options_win(front, text):
    reply = front.replies(front.arm(text, options="--stacks --steps 1:2"), front.run(text))[1]
    assert reply["status"] == "ok", reply
    (said,) = front.begun()
    assert (said["steps"], said["stacks"], said["ended"]) == ([5, 6], True, True)
    assert said["notes"] == [
        "recorded by the Profile button, with --stacks --steps 1:2 --steps 5:6"
    ]
    front.replies(front.run(text))
    assert front.begun()[1]["notes"] == []


def test_selected_lines_say_which(front):
    front.replies(front.arm("b = 2", lines=[3, 5]), front.run("b = 2"))
    assert front.begun()[0]["notes"] == [
        "recorded by Profile Selected Lines (lines 3 to 5 of the cell), with the default options"
    ]


def test_options_that_make_no_sense_are_told_at_once(front):
    for options, says in (
        ("--nonsense", "--nonsense"),
        ("--steps 9:3", "is an empty range"),
        ('--logdir "x', "No closing quotation"),
    ):
        answer = front.answer(front.arm("1", options=options))
        assert not answer["ok"]
        assert says in answer["error"]
    front.replies(front.run("1"))
    assert front.begun() == []


def test_it_loads_the_extension_as_load_ext_does(front):
    assert front.answer(front.arm("1"))["ok"]
    loaded = front.kernel.run("%load_ext nbprof")
    assert "already loaded" in loaded.stdout


def test_a_restarted_kernel_knows_of_nothing(tmp_path):
    kernel = Kernel(tmp_path)
    try:
        kernel.run(STUB)
        front = Front(kernel)
        assert front.answer(front.arm("'mine'"))["ok"]
        kernel.manager.restart_kernel(now=True)
        kernel.client.wait_for_ready(timeout=60)
        kernel.run(STUB)
        front.replies(front.run("'mine'"))
        assert front.begun() == []
    finally:
        kernel.close()


class Info:
    def __init__(self, text, cell=None, store_history=True):
        self.raw_cell, self.cell_id, self.store_history = text, cell, store_history


def test_a_cell_that_comes_too_late_is_not_recorded():
    waiting = profile_button.Waiting()
    waiting.add(profile_button.Request("1", created=time.monotonic() - profile_button.LIFE_S - 1))
    assert waiting.take(Info("1")) is None
    waiting.add(profile_button.Request("1"))
    assert waiting.take(Info("1")) is not None


@pytest.fixture
def shell(monkeypatch):
    """A shell of this process with the magics, and nothing that holds by default."""
    monkeypatch.delenv(defaults.VARIABLE, raising=False)
    made = InteractiveShell()
    magic.load(made)
    yield made
    magic.unload(made)
    defaults.choose([])


def test_defaults_hold_where_nothing_is_typed(shell, monkeypatch, capsys):
    seen = []

    class Stub:
        def __init__(self, shell, options, show, source="", notes=()):
            seen.append((options.steps, options.stacks, show.events, list(notes)))

        def begin(self):
            pass

        def finish(self, error=None):
            pass

    monkeypatch.setattr("nbprof.notebook.cell.Cell", Stub)
    shell.run_cell("%%nbprof\n1")
    assert seen.pop() == (None, False, None, [])
    monkeypatch.setenv(defaults.VARIABLE, "--stacks --events 500")
    shell.run_cell("%%nbprof\n1")
    assert seen.pop() == (None, True, 500, ["default options in effect: --stacks --events 500"])
    shell.run_cell("%nbprof defaults --steps 2:4 --no-stacks")
    shell.run_cell("%%nbprof\n1")
    assert seen.pop()[:3] == ((2, 4), False, 500)
    shell.run_cell("%%nbprof --steps auto --stacks --events 7\n1")
    assert seen.pop()[:3] == (None, True, 7)
    shell.run_cell("%nbprof 1")
    assert seen.pop()[:3] == ((2, 4), False, 500)
    capsys.readouterr()
    shell.run_cell("%nbprof defaults")
    assert (
        capsys.readouterr().out
        == "%nbprof defaults --stacks --events 500 --steps 2:4 --no-stacks\n"
    )
    shell.run_cell("%nbprof defaults none")
    assert defaults.words() == ["--stacks", "--events", "500"]


@pytest.mark.parametrize("line", ["--nonsense", "--steps 9:3", "-o p", "--warmup x"])
def test_defaults_that_make_no_sense_change_nothing(shell, line):
    shell.run_cell("%nbprof defaults --stacks")
    assert shell.run_cell(f"%nbprof defaults {line}").error_in_exec is not None
    assert defaults.chosen() == ["--stacks"]


def test_a_broken_variable_is_told(shell, monkeypatch):
    for text, says in (
        ("--nonsense", "NBPROF_OPTIONS"),
        ('--logdir "x', "NBPROF_OPTIONS"),
        ("-h", "NBPROF_OPTIONS"),
        ("--steps 9:3", "the default options are"),
    ):
        monkeypatch.setenv(defaults.VARIABLE, text)
        error = shell.run_cell("%%nbprof\n1").error_in_exec
        assert says in str(error)


def test_a_variable_named_defaults_is_still_a_statement(shell):
    shell.run_cell("defaults = [1]")
    assert shell.run_cell("%nbprof defaults.append(2)").success
    assert shell.user_ns["defaults"] == [1, 2]


def test_defaults_hold_for_sampled_workers_too(shell, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "nbprof.notebook.sampling_magic._sample",
        lambda shell, workers, sampling, show: seen.update(sampling=sampling, show=show),
    )
    shell.run_cell("%nbprof defaults --logdir here --events 9 --stacks")
    shell.run_cell("%nbprof capture grpc://h:1 --events 10")
    assert (seen["sampling"].logdir, seen["show"].events) == ("here", 10)


def test_a_trained_model_shows_its_dashboard_below_the_cell(kernel):
    """The whole way, with a framework."""
    assert kernel.client.is_alive()
    front = Front(kernel)
    answer = front.answer(
        front.arm(TRAIN, options=f"--steps 2:5 --logdir {os.fspath('with-button')}")
    )
    assert answer["ok"], answer
    result = kernel.run(TRAIN)
    assert result.status == "ok", result.traceback
    assert len(result.dashboards) == len(result.displays) == 1
    notes = kernel.capture()["notes"]
    assert "recorded by the Profile button, with --steps 2:5 --logdir with-button" in notes
    assert kernel.capture()["window"] == [2, 5]
    assert list((kernel.folder / "with-button").glob("plugins/profile/*/*.xplane.pb"))
    assert kernel.run(TRAIN).dashboards == []


def test_a_front_end_can_ask_first(front):
    def ready(options):
        ask = f"__import__('nbprof.notebook.profile_button', fromlist=['ready']).ready({options!r})"
        return front.answer(front.send("", ask=ask, silent=True))

    assert ready("--stacks")["ok"]
    assert "is an empty range" in ready("--steps 9:3")["error"]
    assert "No closing quotation" in ready('--logdir "x')["error"]
    front.replies(front.run("1"))
    assert front.begun() == []


def test_without_options_those_of_the_environment_hold(front):
    front.kernel.run("import os; os.environ['NBPROF_OPTIONS'] = '--steps 3:4'")
    front.replies(
        front.arm("'a'"), front.run("'a'"), front.arm("'b'", options="--stacks"), front.run("'b'")
    )
    front.kernel.run("del os.environ['NBPROF_OPTIONS']")
    first, second = front.begun()
    assert (first["steps"], first["stacks"]) == ([3, 4], False)
    assert (second["steps"], second["stacks"]) == (None, True)
