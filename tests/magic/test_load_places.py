"""`%nbprof load` takes what `nbprof.load` takes: folders with spaces, archives, URLs."""

from __future__ import annotations

import uuid

import fsspec
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import nbprof
from tests.support.places import space, write, zipped


@pytest.fixture
def shell():
    shell = InteractiveShell()
    nbprof.load_ipython_extension(shell)
    yield shell
    nbprof.unload_ipython_extension(shell)


def test_paths_archives_and_urls(shell, tmp_path):
    write(tmp_path / "my logs", {"h.xplane.pb": space()})
    write(
        tmp_path, {"my runs.zip": zipped({"a/h.xplane.pb": space(), "b {x}/h.xplane.pb": space()})}
    )
    url = f"memory://{uuid.uuid4().hex}/$HOME {{x}}"
    fsspec.filesystem("memory").pipe_file(f"{url}/h.xplane.pb", space())
    for said, path in {
        f"{tmp_path}/my logs": f"{tmp_path}/my logs",
        f'"{tmp_path}/my logs"': f"{tmp_path}/my logs",
        f"{tmp_path}/my runs.zip!/b {{x}}": f"{tmp_path}/my runs.zip!/b {{x}}",
        url: url.replace("memory://", "memory:///"),
        f"'{url}/h.xplane.pb'": url.replace("memory://", "memory:///"),
    }.items():
        result = shell.run_cell(f"%nbprof -q -o p load {said}")
        assert result.success, said
        assert shell.user_ns["p"].path == path


@pytest.mark.parametrize(
    "path", ["s4://bucket/x", "https://me:hunter2@127.0.0.1:9/x?sig=hunter3", "nowhere.zip!/a"]
)
def test_a_place_that_is_not_there_is_a_usage_error(shell, path, capsys):
    result = shell.run_cell(f"%nbprof load {path}")
    assert isinstance(result.error_in_exec, UsageError)
    assert "hunter" not in str(result.error_in_exec)
