"""The tools for assistants in JupyterLab: on profiles below its folder, and in kernels of notebooks."""

from __future__ import annotations

import importlib
import inspect
import json
from importlib.metadata import entry_points
from typing import get_type_hints

import nbformat
import pytest

from nbprof.assistant.tools import Tools
from tests.support.programs import LIMIT_S

LOOP = """%%nbprof --stacks
import time
import nbprof
def busy():
    until = time.perf_counter() + 0.002
    while time.perf_counter() < until:
        pass
for i in nbprof.steps(range(40)):
    busy()
"""
TRAINING = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
x = torch.ones(4, 8)
for _ in range(60):
    optimizer.zero_grad(set_to_none=False)
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def tools():
    module = importlib.import_module("nbprof.server.mcp_tools")
    module._tools.cache_clear()
    yield module
    module._tools.cache_clear()


@pytest.fixture
def notebook(jp_serverapp, jp_fetch, jp_root_dir, jp_asyncio_loop):
    """A notebook with a kernel."""
    cells = [
        nbformat.v4.new_markdown_cell("# A loop"),
        nbformat.v4.new_code_cell(LOOP, id="loop"),
        nbformat.v4.new_code_cell("raise ValueError('no')"),
        nbformat.v4.new_code_cell("%%bash\nls"),
        nbformat.v4.new_code_cell("import time\nwhile True: time.sleep(0.01)"),
        nbformat.v4.new_code_cell(TRAINING),
        nbformat.v4.new_code_cell(
            "# not %%nbprof\nimport time\nlooped = 0\nfor looped in range(9): time.sleep(0.01)"
        ),
    ]
    (jp_root_dir / "work").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), jp_root_dir / "work" / "a b.ipynb")
    asked = {
        "path": "work/a b.ipynb",
        "type": "notebook",
        "name": "",
        "kernel": {"name": "python3"},
    }
    run = jp_asyncio_loop.run_until_complete
    answer = run(jp_fetch("api", "sessions", method="POST", body=json.dumps(asked)))
    kernel = json.loads(answer.body)["kernel"]["id"]
    # On a busy machine a kernel takes its time to start.
    client = jp_serverapp.kernel_manager.get_kernel(kernel).client()
    client.start_channels()
    run(client.wait_for_ready(timeout=LIMIT_S))
    client.stop_channels()
    yield "work/a b.ipynb"
    run(jp_serverapp.kernel_manager.shutdown_all(now=True))


def test_the_extension_finds_a_function_for_each_tool(tools):
    (entry,) = entry_points(group="jupyter_server_mcp.tools", name="nbprof")
    names = entry.load()
    functions = [getattr(tools, each.rpartition(":")[2]) for each in names]
    assert {each.rpartition(":")[0] for each in names} == {"nbprof.server.mcp_tools"}
    assert [each.__name__ for each in functions[:7]] == [
        f"nbprof_{name}"
        for name in ("open", "brief", "advice", "frame", "events", "compare", "explain")
    ]
    for function in functions:
        assert inspect.iscoroutinefunction(function)
        assert len(function.__doc__) > 40
        kinds = {each.kind for each in inspect.signature(function).parameters.values()}
        assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        assert get_type_hints(function)["return"] is str
        assert "self" not in inspect.signature(function).parameters
    assert inspect.signature(tools.nbprof_frame).parameters["limit"].default == 20
    assert Tools.open.__doc__.split()[0] in tools.nbprof_open.__doc__


async def test_profiles_below_the_folder_of_the_server_are_read(tools, profile, jp_serverapp):
    opened = json.loads(await tools.nbprof_open("logs"))
    assert opened["id"] == "p1"
    assert "steps" in (await tools.nbprof_brief(opened["id"]))
    outside = json.loads(await tools.nbprof_open("../"))
    assert outside["error"].endswith("root_dir. Copy the profile there.")


async def test_a_cell_is_recorded_in_the_kernel_of_its_notebook(tools, notebook):
    brief = await tools.nbprof_record(notebook, "loop", steps="all", stacks=True)
    assert "busy" in brief
    assert "40 steps" in brief
    # A comment is no magic, and what comes after it runs.
    assert "Traceback" not in await tools.nbprof_record(notebook, "6")
    # Its variables stay.
    again = await tools.nbprof_record(notebook, "1")
    assert "busy" in again


async def test_a_cell_that_fails_says_so(tools, notebook):
    assert (await tools.nbprof_record(notebook, "2")).startswith(
        "The cell failed: ValueError: no\n\n"
    )


@pytest.mark.parametrize(
    ("cell", "steps", "error"),
    [
        ("0", "auto", "has no code"),
        ("9", "auto", "has no cell 9: as it was saved last, it has 7 cells"),
        ("3", "auto", "has a magic of its own"),
        ("1", "all --logdir x", "steps are auto, all, or two numbers"),
        ("1", "1:2\nprint(1)", "steps are auto, all, or two numbers"),
        ("4", "auto", "did not end within 2 s and was interrupted"),
    ],
)
async def test_what_cannot_be_recorded_is_a_sentence(tools, notebook, cell, steps, error):
    seconds = 2.0 if cell == "4" else 60.0
    answer = await tools.nbprof_record(notebook, cell, steps, seconds=seconds)
    assert error in json.loads(answer)["error"]


async def test_a_notebook_without_a_kernel_is_said(tools, notebook, jp_root_dir):
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), jp_root_dir / "b.ipynb"
    )
    assert "has no kernel" in json.loads(await tools.nbprof_record("b.ipynb", "0"))["error"]
    assert "cannot be read" in json.loads(await tools.nbprof_record("c.ipynb", "0"))["error"]
    assert "nbprof_record comes first" in json.loads(await tools.nbprof_try(notebook))["error"]


async def test_remedies_are_tried_on_what_was_recorded(tools, notebook):
    pytest.importorskip("torch")
    await tools.nbprof_record(notebook, "5")
    rows = json.loads(await tools.nbprof_try(notebook, "zero_grad", 60.0))
    assert isinstance(rows, list), rows
    (row,) = rows
    assert (row["experiment"], row["equal"]) == ("zero_grad", True), row
