"""`%nbprof capture` in a real kernel, which has no framework; the workers are stand-ins in this
process.
"""

from __future__ import annotations

import time

import pytest

from tests.magic.conftest import Kernel
from tests.support.profiler_server import answer, standing_in


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("sampling"))
    assert kernel.run("%load_ext nbprof\nimport nbprof, sys").status == "ok"
    yield kernel
    kernel.close()


def test_the_output_is_the_dashboard_of_both_workers(kernel):
    with standing_in(answer("trainer-0")) as a, standing_in(answer("trainer-1")) as b:
        result = kernel.run(
            f"%nbprof capture grpc://{a.address},grpc://{b.address} --duration 30 --host-level 3 --device-level 0 --python-level 1"
            " --retries 2 --delay 20 --out p --logdir 'my logs' --events 5"
        )
        request = a.requests[0]
    assert result.status == "ok", result.traceback
    assert len(result.displays) == len(result.dashboards) == 1
    assert (result.stdout, result.stderr) == ("", "")
    assert result.lines[0].startswith("nbprof: ")
    assert kernel.ask("sorted(p.hosts), p is nbprof.last") == "(['trainer-0', 'trainer-1'], True)"
    assert kernel.ask("p.path.split('my logs')[1].startswith('/plugins/profile/')") == "True"
    assert (request[1], {no: request[4].get(no, 0) for no in (2, 3, 4)}) == (30, {2: 3, 3: 0, 4: 1})
    assert request[4][8] > 0
    assert (
        kernel.ask("[name for name in ('tensorflow', 'jax', 'torch') if name in sys.modules]")
        == "[]"
    )
    assert kernel.ask("'p' in dir() and p.run.capture.options['retries']") == "2"


def test_options_may_stand_in_front_and_a_variable_may_hold_the_workers(kernel):
    with standing_in() as a, standing_in(answer("b")) as b:
        kernel.run(f"team = ['{a.address}', 'grpc://{b.address}']")
        result = kernel.run("%nbprof -o q capture team --duration 20 --delay 0 --no-save")
        assert result.status == "ok", result.message
        assert len(result.dashboards) == 1
        again = kernel.run(
            f"%nbprof capture {a.address}, {b.address} --duration 20 --delay 0 -q -o r"
        )
    assert (again.status, again.displays, again.stdout, again.stderr) == ("ok", [], "", "")
    assert kernel.ask("sorted(q.hosts) == sorted(r.hosts) == ['b', 'machine']") == "True"


def test_a_call_shows_a_line_that_says_what_it_came_to(kernel):
    def slowly(request, server):
        time.sleep(0.4)
        return answer("slow")

    with standing_in(slowly) as server:
        result = kernel.run(f"p = nbprof.capture('{server.address}', 50, save=False)")
    assert result.status == "ok", result.traceback
    assert result.lines[0].startswith("nbprof: ")
    assert [data["text/plain"] for data in result.displays] == ["nbprof: recorded"]
    with standing_in(slowly) as server:
        result = kernel.run(
            f"p = nbprof.capture('{server.address}', 50, logdir='kept'); print(p.path)"
        )
    assert result.displays[0]["text/plain"] == f"nbprof: recorded, in {result.stdout.strip()}"
    with standing_in(slowly) as server:
        silent = kernel.run(
            f"p = nbprof.capture('{server.address}', 50, save=False, progress=False)"
        )
    assert silent.displays == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "no address given"),
        ("localhost", "localhost has no port"),
        ("localhost:1 --duration 0", "the duration must be 1 ms to 3,600,000 ms (an hour), not 0"),
        ("localhost:1 --duration 864000000", "not 864,000,000"),
        (
            "localhost:1 --duration 2s",
            "invalid int value: '2s'. %nbprof capture -h lists the options",
        ),
        ("localhost:1 --bogus 3", "unrecognized arguments: --bogus"),
        ("localhost:1 --views bogus", "unknown view 'bogus'"),
        ("localhost:1 -o 1x", "takes the name of a variable"),
        (
            "localhost:1 --retries 0",
            "localhost:1: nothing listens on this port: is the worker running",
        ),
        ("localhost:1 --logdir /dev/null", "/dev/null cannot be written"),
    ],
)
def test_what_is_wrong_is_one_sentence(kernel, line, says):
    result = kernel.run(f"%nbprof capture {line}")
    assert result.error == "UsageError"
    said = result.stderr + result.traceback
    assert says in said
    assert "%nbprof capture: " in said
    # The line about what goes on does not stay.
    assert not "".join(data["text/plain"] for data in result.displays)
    assert "Traceback" not in said


def test_help_lists_the_options(kernel):
    result = kernel.run("%nbprof capture -h")
    assert result.status == "ok"
    assert "usage: %nbprof capture" in result.stdout
    for option in (
        "--duration",
        "--host-level",
        "--device-level",
        "--python-level",
        "--retries",
        "--delay",
        "--out",
        "--logdir",
        "--no-save",
    ):
        assert option in result.stdout
    assert "%nbprof capture HOST:PORT" in kernel.run("%nbprof -h").stdout


def test_a_statement_that_begins_with_the_word_is_a_statement(kernel):
    assert kernel.run("capture = print").status == "ok"
    result = kernel.run("%nbprof -q capture('ran')")
    assert result.stdout == "ran\n"
    assert kernel.run("%nbprof -q capture = 5").status == "ok"
    assert kernel.ask("capture") == "5"


def test_ctrl_c_shows_what_was_recorded(kernel):
    def waits(request, server):
        server.end.wait(20)
        return answer("stopped")

    with standing_in(waits) as server:
        kernel.run(
            "import threading, time, sys\ndef say():\n    time.sleep(0.6)\n    sys.__stdout__.flush(); print('now', flush=True)\n"
        )
        result = kernel.run(
            f"threading.Thread(target=say).start()\nget_ipython().run_line_magic('nbprof', 'capture {server.address} --duration 15000 -o p')",
            interrupt_at="now",
        )
    assert result.status == "ok", result.traceback
    assert len(result.dashboards) == 1
    assert kernel.ask("p.hosts") == "['stopped']"
    assert "stopped early" in "\n".join(kernel.capture("p")["notes"])
