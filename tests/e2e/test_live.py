"""A saved output in a real JupyterLab has every event again: from its kernel, while a cell runs,
and after a restart.
"""

from __future__ import annotations

import json

import nbformat
import pytest

from tests.e2e.notebooks import (
    command,
    dashboards,
    interrupt,
    open_notebook,
    restart,
    run_code,
    running,
    save,
    wait_for_kernel,
    wait_until_idle,
    wait_until_running,
    window,
    write_notebook,
)
from tests.support.tracebacks import PACKAGE

pytestmark = pytest.mark.browser

EVENTS = 60_000
SHOW = "import nbprof\np = nbprof.load('big.trace.json')\np"
SLEEP = "import time\nfor _ in range(200):\n    time.sleep(0.1)\nopen('slept', 'w').close()"
SPIN = "import time\nuntil = time.time() + 20\nwhile time.time() < until:\n    sum(range(100))"
WIDGET = "import nbprof\nnbprof.load('big.trace.json').widget(views=['trace'])"

# Asks over a comm of its own, as an output does; returns how long each answer took, in ms, and its
# bytes.
ASK = """
async ([key, requests]) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const comm = kernel.createComm("nbprof");
    if (kernel.supportsSubshells) await comm.subshellStarted;
    const waiting = new Map();
    comm.onMsg = message => waiting.get(message.content.data.id)?.(message);
    comm.open({});
    const ask = (id, request) => new Promise(resolve => { waiting.set(id, resolve); comm.send({id, request}); });
    await ask("hello", {ask: "hello", key});
    const out = [];
    for (const [i, request] of requests.entries()) {
        const began = performance.now();
        const answer = await ask(`r${i}`, request);
        out.push({ok: answer.content.data.ok, ms: performance.now() - began, bytes: answer.buffers[0].byteLength});
    }
    comm.close();
    return out;
}
"""


def write_profile(path):
    """A Chrome trace with more events than an output saves: 4 threads, calls in calls."""
    events = []
    for thread in range(4):
        events.append(
            {
                "ph": "M",
                "name": "thread_name",
                "pid": 1,
                "tid": thread,
                "args": {"name": f"thread {thread}"},
            }
        )
        for i in range(EVENTS // 8):
            start = 40.0 * i + thread
            events.append(
                {
                    "ph": "X",
                    "name": f"outer {i % 50}",
                    "pid": 1,
                    "tid": thread,
                    "ts": start,
                    "dur": 30 + i % 7,
                }
            )
            events.append(
                {
                    "ph": "X",
                    "name": f"inner {i % 90}",
                    "pid": 1,
                    "tid": thread,
                    "ts": start + 5,
                    "dur": 10 + i % 5,
                }
            )
    path.write_text(json.dumps({"traceEvents": events}))


def host(page, state, timeout=120_000):
    """The output's frame, once it says that its connection is in a state."""
    found = page.locator(f".nbprof-host[data-live='{state}']").first
    found.wait_for(timeout=timeout)
    return found


def open_trace(page, number=0):
    tab = dashboards(page).nth(number).get_by_role("tab", name="Trace")
    tab.wait_for()
    tab.scroll_into_view_if_needed()
    tab.click()


def key_of(page):
    return page.evaluate(
        """() => {
            const cells = window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells;
            for (const cell of cells) for (const output of cell.getOutputs?.() ?? []) {
                const saved = output.data?.["application/vnd.nbprof.v1+json"];
                if (saved) return saved.key;
            }
        }"""
    )


@pytest.fixture(scope="module")
def shown(browser, lab):
    """A notebook whose first output is a profile of the folder; gives the page, what went wrong on
    it, the folder and the server.
    """
    url, folder = lab
    write_profile(folder / "big.trace.json")
    write_notebook(folder / "live.ipynb", SHOW)
    with window(browser) as page:
        yield show(page, url), page.problems, folder, url


def show(page, url):
    # The notebook may not be saved when the page is left.
    page.on("dialog", lambda dialog: dialog.accept())
    open_notebook(page, url, "live.ipynb")
    wait_for_kernel(page)
    command(page, "notebook:run-all-cells")
    open_trace(page)
    return page


def test_an_output_goes_live_when_its_trace_is_opened(shown):
    page, problems, _, _ = shown
    host(page, "live")
    answers = page.evaluate(ASK, [key_of(page), [{"ask": "search", "query": "inner"}]])
    assert answers[0]["ok"]
    assert problems == []


@pytest.mark.parametrize("source", [SLEEP, SPIN], ids=["sleep", "busy loop"])
def test_the_kernel_answers_while_a_cell_runs(shown, source):
    page, problems, _, _ = shown
    host(page, "live")
    run_code(page, source)
    wait_until_running(page)
    answers = page.evaluate(
        ASK,
        [key_of(page), [{"ask": "range", "from": 0, "to": 1e6}, {"ask": "slice", "event": 7}] * 5],
    )
    assert running(page), "the answers came before the cell ended"
    assert all(answer["ok"] for answer in answers)
    interrupt(page)
    wait_until_idle(page)
    assert problems == []


def test_an_output_of_a_cell_that_still_runs_goes_live(shown):
    page, problems, folder, _ = shown
    run_code(page, "display(p)\n" + SLEEP)
    second = dashboards(page).nth(1)
    second.wait_for()
    open_trace(page, 1)
    page.wait_for_function(
        "() => document.querySelectorAll(\".nbprof-host[data-live='live']\").length >= 2"
    )
    assert not (folder / "slept").exists(), "before the cell ended"
    interrupt(page)
    wait_until_idle(page)
    assert problems == []


def test_a_notebook_that_is_opened_again_while_a_cell_runs_goes_live(shown):
    """When the cell has ended: until then the kernel does not tell a new page that it could answer
    on a thread of its own.
    """
    page, problems, _, url = shown
    command(page, "docmanager:save")
    run_code(page, SLEEP)
    wait_until_running(page)
    open_notebook(page, url, "live.ipynb")
    open_trace(page)
    interrupt(page)
    host(page, "live")
    assert problems == []


def test_after_a_restart_it_is_what_was_saved_until_nbprof_is_back(shown):
    page, problems, folder, _ = shown
    host(page, "live")
    command(page, "docmanager:save")
    restart(page)
    lost = host(page, "lost")
    assert lost.is_visible()
    run_code(page, "1 + 1")
    page.wait_for_timeout(4500)
    assert page.locator(".nbprof-host[data-live='live']").count() == 0
    # The profile is not loaded again: its file lies beside the notebook.
    run_code(page, "import nbprof")
    wait_until_idle(page)
    # Only what is looked at asks.
    dashboards(page).first.scroll_into_view_if_needed()
    host(page, "live")
    log = (folder / "server.log").read_text()
    assert "No such comm" not in log
    # A kernel that is restarted in the middle of a reply may say that its socket is gone; nothing
    # of ours may fail.
    assert f'File "{PACKAGE}' not in log
    assert problems == []


def test_a_widget_asks_by_its_own_messages(shown):
    page, problems, _, _ = shown
    run_code(page, WIDGET)
    # The other outputs are drawn by the renderer of saved ones.
    widget = page.locator(".jp-OutputArea-output:not(.nbprof-output) > * > .nbprof-host")
    widget.wait_for()
    page.wait_for_function("host => host.dataset.live === 'live'", arg=widget.element_handle())
    widget.get_by_text(f"All {EVENTS:,} events.").wait_for()
    assert problems == []


def test_a_notebook_that_is_not_trusted_asks_by_the_key_alone(browser, shown):
    """Its kernel opens no file for it; when the person has loaded the profile, it has every
    event.
    """
    page, _, folder, url = shown
    save(page)
    notebook = nbformat.read(folder / "live.ipynb", 4)
    notebook.cells = notebook.cells[:1]
    # Other content than what was signed.
    notebook.metadata["title"] = "of somebody else"
    nbformat.write(notebook, folder / "foreign.ipynb")
    with window(browser) as foreign:
        open_notebook(foreign, url, "foreign.ipynb")
        wait_for_kernel(foreign)
        open_trace(foreign)
        run_code(foreign, "import os\nos.environ['NBPROF_CACHE'] = '0'\nimport nbprof")
        foreign.wait_for_timeout(5000)
        assert foreign.locator(".nbprof-host[data-live='none']").count() == 1
        run_code(foreign, "q = nbprof.load('big.trace.json')")
        host(foreign, "live")
