"""Notebooks that JupyterLab exports through the server."""

from __future__ import annotations

import nbformat
import pytest

from nbprof.profiles.load import load


@pytest.mark.parametrize("sanitize", [True, False])
async def test_an_export_that_sanitizes_has_no_script_of_a_dashboard(
    sanitize, jp_fetch, jp_root_dir, profile
):
    p = load(profile)
    data, metadata = p.mimebundle()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("train()", outputs=[output])]
    )
    nbformat.write(notebook, jp_root_dir / "shown.ipynb")
    answer = await jp_fetch(
        "nbconvert", "html", "shown.ipynb", params={"sanitize_html": str(sanitize).lower()}
    )
    page = answer.body.decode()
    assert p.overview["verdict"] in page
    assert ("DecompressionStream" in page) is not sanitize
