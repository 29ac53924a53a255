"""Notebooks that the server exports as HTML."""

from __future__ import annotations

import nbformat
import pytest
from traitlets.config import Config

from nbprof.profiles.report import sanitized
from nbprof.server.extension import export_static
from tests.support.build import profile
from tests.support.xspace import training_run

OURS = sanitized.NAME


@pytest.fixture
def notebook(jp_root_dir):
    """A notebook with an output of nbprof and one of something else."""
    data, metadata = profile(jp_root_dir, training_run(6)).mimebundle()
    v4 = nbformat.v4
    outputs = [
        v4.new_output("display_data", data=data, metadata=metadata),
        v4.new_output("display_data", data={"text/html": "<b>others stay</b>", "text/plain": "-"}),
    ]
    book = v4.new_notebook(cells=[v4.new_code_cell("p", outputs=outputs)])
    nbformat.write(book, jp_root_dir / "n.ipynb")
    return data


@pytest.mark.parametrize("sanitize", [True, False])
async def test_a_sanitized_page_has_the_picture_and_no_source_of_it(jp_fetch, notebook, sanitize):
    asked = {"sanitize_html": str(sanitize).lower()}
    answer = await jp_fetch("nbconvert", "html", "n.ipynb", params=asked)
    page = answer.body.decode()
    assert "<b>others stay</b>" in page
    assert ("data-nbprof" in page) is not sanitize
    assert ("DecompressionStream" in page) is not sanitize
    picture = notebook["image/png"].replace("\n", "")
    assert (f"data:image/png;base64,{picture}" in page.replace("\n", "")) is sanitize


def test_what_a_person_has_configured_is_used_before_it():
    config = Config()
    export_static(config)
    assert config.HTMLExporter.preprocessors == [OURS]
    config = Config({"Exporter": {"preprocessors": ["mine.First"]}})
    config.HTMLExporter.preprocessors.append("mine.Second")
    export_static(config)
    assert config.HTMLExporter.preprocessors == ["mine.First", "mine.Second", OURS]
