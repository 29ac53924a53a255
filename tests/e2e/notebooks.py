"""A notebook of a real JupyterLab, in the words of a person: open it, run code in it, wait for its
kernel.
"""

from __future__ import annotations

from contextlib import contextmanager
from weakref import WeakKeyDictionary

import nbformat
from playwright.sync_api import Error

SIZE = {"width": 1300, "height": 1000}
_RESTING: WeakKeyDictionary = WeakKeyDictionary()
"""By browser: contexts that no page is open in. One that has had JupyterLab before has it in its
cache, which is a third of the work of loading it.
"""
_KEPT: WeakKeyDictionary = WeakKeyDictionary()
"""By context: a page of the server's, a few bytes of text, with which the process of its pages
stays.
"""


@contextmanager
def window(browser, *, fresh=False):
    """A page with no cookies and no other page beside it; `problems` are the errors of its scripts.
    A fresh one has no cache either.
    """
    resting = _RESTING.setdefault(browser, [])
    context = resting.pop() if resting and not fresh else browser.new_context(viewport=SIZE)
    # A kernel that starts on a busy machine takes its time.
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    try:
        yield page
        if not fresh:
            context.set_offline(False)
            kept = _KEPT.get(context)
            for left in context.pages:
                if left is kept:
                    continue
                if left.url.startswith("http"):
                    left.evaluate("localStorage.clear()")
                    if kept is None:
                        kept = _KEPT[context] = context.new_page()
                        kept.goto(f"{left.evaluate('location.origin')}/api")
                left.close()
            context.clear_cookies()
            resting.append(context)
    finally:
        if context not in resting:
            context.close()


def write_notebook(path, *sources):
    """Writes a notebook of a Python kernel with a cell for each source."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)


def command(page, name, **args):
    # A widget that it gives would be sent here, with all that hangs on it: seconds of work.
    page.evaluate(
        "([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => undefined)",
        [name, args],
    )


def wait_until_drawn(page):
    """Waits for four pictures of the page: what changed is laid out in the first, what observes its
    size changes in the second and asks for a third.
    """
    page.evaluate(
        """async () => {
            for (let i = 0; i < 4; i++) await new Promise(requestAnimationFrame);
        }"""
    )


def save(page):
    """Saves the notebook; it is in its file then."""
    command(page, "docmanager:save")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")


def wait_for_layout(page, text):
    """Waits until JupyterLab, which does that a while after a change, has saved a layout with a
    text in the names or states of its tabs.
    """
    page.wait_for_function(
        """async text => {
            const { baseUrl } = window.jupyterapp.serviceManager.serverSettings;
            const answer = await fetch(`${baseUrl}lab/api/workspaces/default`);
            if (!answer.ok) return false;
            const { "layout-restorer:data": layout, ...states } = (await answer.json()).data;
            const saved = Object.keys(states).filter(name => JSON.stringify(states[name]).includes(text));
            return saved.some(name => JSON.stringify(layout?.main ?? null).includes(JSON.stringify(name)));
        }""",
        arg=text,
        polling=200,
    )


def begin_again(page, folder):
    """A page of JupyterLab as if loaded anew in a folder, in a tenth of the time: nothing is open,
    and the folder is listed as it is now.
    """
    page.evaluate(
        """async folder => {
            const { commands, shell } = window.jupyterapp;
            for (const each of [...shell.widgets("main")]) each.dispose();
            await commands.execute("filebrowser:go-to-path", { path: folder });
            await commands.execute("filebrowser:refresh");
        }""",
        folder,
    )


def open_notebook(page, url, name):
    page.goto(f"{url}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")


def open_again(page, name):
    """A notebook in a page that has JupyterLab, as `open_notebook` opens it, with nothing beside
    it.
    """
    begin_again(page, "")
    command(page, "docmanager:open", path=name)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    # The launcher that JupyterLab opens where nothing is left may come in between, and then no
    # widget is the current one.
    page.wait_for_function(
        """name => {
            const { shell } = window.jupyterapp;
            const opened = [...shell.widgets("main")].find(each => each.context?.path === name);
            if (shell.currentWidget !== opened) shell.activateById(opened.id);
            return shell.currentWidget === opened;
        }""",
        arg=name,
    )


def dashboards(page):
    return page.locator(".jp-OutputArea .nbp")


def run_code(page, source):
    """Runs a new cell at the end of the notebook, without waiting for it."""
    page.evaluate(
        """async source => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = notebook.widgets.length - 1;
            await window.jupyterapp.commands.execute('notebook:insert-cell-below');
            notebook.activeCell.model.sharedModel.setSource(source);
            void window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        source,
    )


def running(page):
    return page.locator(".jp-CodeCell .jp-InputPrompt", has_text="[*]").count() > 0


def wait_until_running(page):
    page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('[*]'))"
    )


def wait_until_idle(page, timeout=None):
    page.wait_for_function(
        "() => ![...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].some(p => p.textContent.includes('[*]'))",
        timeout=timeout,
    )


def wait_for_kernel(page):
    try:
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )
    except Error as error:
        raise AssertionError(f"the kernel is not idle: {_state_of_kernel(page)}") from error


def _state_of_kernel(page):
    """What the page knows of its kernel, and what the server does, for a failure that says where
    the wait was.
    """
    return page.evaluate(
        """async () => {
            const { shell, serviceManager } = window.jupyterapp;
            const context = shell.currentWidget?.sessionContext;
            const kernel = context?.session?.kernel;
            const settings = serviceManager.serverSettings;
            const served = await fetch(`${settings.baseUrl}api/sessions`).then(answer => answer.json());
            return {
                widget: shell.currentWidget?.title.label, ready: context?.isReady, shown: context?.kernelDisplayStatus,
                status: kernel?.status, connection: kernel?.connectionStatus, kernel: kernel?.id,
                prompts: [...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")].map(each => each.textContent),
                server: served.map(each => [each.path, each.kernel?.id, each.kernel?.execution_state, each.kernel?.connections]),
            };
        }"""
    )


def interrupt(page):
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()"
    )


def restart(page):
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )


def end_kernels(page, url):
    """Ends the kernels that a test has left, so that the next one begins with none."""
    for kernel in page.request.get(f"{url}/api/kernels").json():
        page.request.delete(f"{url}/api/kernels/{kernel['id']}")
