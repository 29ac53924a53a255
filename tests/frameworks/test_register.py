"""Frameworks are objects: each is declared once, and nobody compares their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.windows import backend_class
from nbprof.frameworks.register import (
    CUDA,
    JAX,
    MINDSPORE,
    PYTHON,
    PYTORCH,
    RECORDED,
    UNKNOWN,
    named,
    of_module,
    titled,
)

ROOT = Path(nbprof.__file__).parent
NAMES = {
    text
    for framework in (*RECORDED.values(), MINDSPORE)
    for text in (framework.name, framework.title)
} | {PYTHON.title}


def compared(tree: ast.AST) -> Iterator[str]:
    """The texts with which something is compared, or among whose keys it is looked up."""
    for node in ast.walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "get" and isinstance(node.func.value, ast.Dict):
                sides = [node.func.value]
            elif node.func.attr == "startswith":
                sides = list(node.args)
        for side in sides:
            parts = side.keys if isinstance(side, ast.Dict) else getattr(side, "elts", [side])
            yield from (
                part.value
                for part in parts
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def test_a_comparison_with_a_text_is_seen():
    code = 'a == "JAX"; b in ("torch", x); {"PyTorch": 1}.get(c); d.startswith("Python"); e is JAX'
    assert sorted(compared(ast.parse(code))) == ["JAX", "PyTorch", "Python", "torch"]


# A process of Ascend's profiler.
ELSEWHERE = {("dialects/msprof/lanes.py", "Python")}
# Names of modules, and the scheme of an address.
ELSEWHERE |= {("capture/experiments/jax_waits.py", "jax"), ("capture/remote/failures.py", "torch")}
ELSEWHERE |= {("capture/experiments/torch_waits.py", "torch")}


@pytest.mark.parametrize(
    "room",
    sorted(
        path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").is_file()
    ),
)
def test_nobody_compares_the_name_of_a_framework(room):
    found = set()
    for path in (ROOT / room).rglob("*.py"):
        for text in compared(ast.parse(path.read_text())):
            place = (str(path.relative_to(ROOT)), text)
            if text in NAMES and place not in ELSEWHERE:
                found.add(place)
    assert not found


def test_each_framework_to_record_has_a_backend_of_its_name():
    for name, framework in RECORDED.items():
        backend = backend_class(framework)
        for method in ("start", "stop", "open_marker", "open_wait", "versions", "hook"):
            assert callable(getattr(backend, method)), (name, method)
        # PyTorch has no server: nbprof.serve starts one of our own.
        own = framework is PYTORCH
        assert (callable(getattr(backend, "serve", None)) or own) == framework.recorder.has_server


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("JAX", JAX),
        ("JAX 0.5.0, Keras 3.8.0", JAX),
        ("PyTorch 2.9.0+cu128, cuDNN 9.10.2", PYTORCH),
        ("CUDA", CUDA),
        ("", UNKNOWN),
    ],
)
def test_a_text_leads_to_its_framework(text, framework):
    assert titled(text) is framework


def test_what_is_not_known_stays_unknown():
    assert named("mxnet") is UNKNOWN
    assert of_module("mxnet") is UNKNOWN
    stranger = titled("Tinygrad 0.10.0")
    assert (stranger.title, stranger.is_supported, stranger.machine_learning) == (
        "Tinygrad 0.10.0",
        False,
        True,
    )
    words = stranger.words
    assert not any(
        (
            words.mark_ranges,
            words.copy_ahead,
            words.list_gpus,
            words.record_python_calls,
            words.compile_step,
            words.compile_ops,
        )
    )
