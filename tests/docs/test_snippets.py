"""The code that nbprof tells people to paste runs in a new notebook after `%load_ext nbprof`."""

from __future__ import annotations

import ast
import inspect
import json

import pytest

import nbprof
from tests.support import programs, snippets, stand_ins
from tests.support.profiles import require


@pytest.mark.parametrize("kind", snippets.KINDS)
def test_the_code_runs(kind, tmp_path):
    if kind != snippets.PYTHON:
        require(kind)
    stand_ins.lay_out(tmp_path)
    code = f"""
        import os
        import sys

        # A gate is closed to unknown figures in CI, and the profile of these snippets has no kernels.
        os.environ.pop("CI", None)
        sys.path.append({str(snippets.ROOT)!r})
        from tests.support import snippets

        snippets.main({kind!r})
    """
    done = programs.run(code, needs="nbprof" if kind == snippets.PYTHON else kind, cwd=tmp_path)
    failed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"place"')]
    assert not failed, "\n\n".join(
        f"{one['place']}: {one['error']}\n{one['text']}" for one in failed
    )


def test_code_that_fails_is_found(monkeypatch):
    code = [
        snippets.Snippet("a", "missing_name"),
        snippets.Snippet("b", "for batch in nbprof.steps(loader):"),
        snippets.Snippet("c", "x ="),
        snippets.Snippet("d", "%%nbprof --no-such-option"),
    ]
    monkeypatch.setattr(snippets, "everything", lambda: code)
    assert [failure["place"] for failure in snippets.failures(snippets.PYTHON)] == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("collect", "least", "sample"),
    [
        (snippets.advised, 100, "model = torch.compile(model, dynamic=True)"),
        (snippets.boxed, 10, "for batch in nbprof.steps(loader):\n    train_step(batch)"),
        (snippets.mentioned, 3, "for batch in nbprof.steps(batches)"),
        (snippets.documented, 15, "%load_ext nbprof"),
    ],
)
def test_all_places_are_searched(collect, least, sample):
    found = [snippet.text for snippet in collect()]
    assert len(set(found)) >= least
    assert any(sample in text for text in found)


def test_what_is_not_run_is_a_short_list_of_code_that_there_is():
    texts = [snippet.text for snippet in snippets.everything()]
    assert len(stand_ins.SKIPPED) <= 17
    for part, reason in {**stand_ins.SKIPPED, **stand_ins.REMOTE}.items():
        assert any(part in text for text in texts), part
        assert reason


@pytest.mark.parametrize("call", sorted({snippet.text for snippet in snippets.calls()}))
def test_calls_that_sentences_name_have_these_arguments(call):
    tree = ast.parse(call, mode="eval").body
    assert isinstance(tree, ast.Call)
    name = ast.unparse(tree.func).partition(".")[2]
    assert name.partition(".")[0] in nbprof.__all__
    called = getattr(nbprof, name)
    # Without arguments it is named, not shown.
    if tree.args or tree.keywords:
        inspect.signature(called).bind(
            *tree.args, **{keyword.arg: keyword.value for keyword in tree.keywords}
        )
