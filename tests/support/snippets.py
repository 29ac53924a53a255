"""The code that nbprof tells people to paste: from the advice, the boxes and messages of the views,
and the pages of the documentation.

`python -m tests.support.snippets KIND` runs those of one kind, each in the namespace of a new
notebook after `%load_ext nbprof`, and writes one line of JSON per snippet that fails. They set
environment variables, threads and the options of frameworks, so a process of their own runs them.
"""

from __future__ import annotations

import ast
import atexit
import importlib
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import nbprof

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(nbprof.__file__).parent

TENSORFLOW, JAX, TORCH, PYTHON = KINDS = ("tensorflow", "jax", "torch", "python")
_NAMES = {
    TENSORFLOW: r"\btf\.|\btensorflow\b|\blayers\.|\bkeras\b|\bmodel\.(?:fit|compile)\b|\bds = |\bds:",
    JAX: r"\bjax\b|\bjnp\.|\bgrain\b",
    TORCH: r"\btorch\b|\bnn\.|\bDataLoader\b|\(Dataset\)|\b(?:model|x|part|batch)\.to\(",
}
"""What the code of a framework contains."""


class Snippet(NamedTuple):
    """A piece of code, and where it comes from."""

    place: str
    text: str

    @property
    def kind(self) -> str:
        """The framework whose code it is."""
        if "grain." in self.text:
            return JAX
        return next((kind for kind, names in _NAMES.items() if re.search(names, self.text)), PYTHON)


EXAMPLES: dict[str, Any] = {
    "also": "a multiple of 32",
    "multiple": 8,
    "found": SimpleNamespace(host=0, every=10),
    "begin": 498,
    "end": 500,
    "size": 63,
    "full": 64,
    "bad": 100,
    "unit": 128,
    "batch": 63,
    "features": 100,
    "better": (64, 128),
    "low": 60,
    "cores": 2,
    "wanted": 2**33,
    "first": "jax.device_put(table)",
    "last": "state = step(state, batch, table)",
    "trace": "jax.profiler.StepTraceAnnotation('train', step_num=i)",
    "scalar": "loss.item()",
    "family": "CUDA",
    "facts": SimpleNamespace(tpu=True),
    "fix": "",
    "dtype": "bfloat16",
    "policy": "mixed_float16",
    "arguments": "batch_size=64, num_workers=2,\n+                    persistent_workers=True",
    "present": "workers=1",
    "argument": "foreach=True",
    "output": "print(loss.item())",
    "jax_dtype": "jnp.bfloat16",
    "comment": "# a multiple of 32, or of 64",
    "batch_unit": 128,
    "features_unit": 8,
    "proposed": 2**33,
    "rhythm": SimpleNamespace(every=10),
    "rank": SimpleNamespace(host=0),
    "autotuned": "ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE",
    "call": "ds.map(fn",
    "count": 2,
    "reader": "tf.data.TFRecordDataset",
    "size_of_prefetch": 1,
    "name": "AdamW",
    "how": "foreach=True",
    "kind": "LSTM",
    "option": "--stacks",
    "optimizer": "AdamW",
    "before": ["batch_size=64"],
    "after": ["batch_size=64", "num_workers=2"],
    "rest": ",\n+                    persistent_workers=True",
    "keyword": "stacks",
    "free": 1,
    "threads": 2,
    "in_processes": ", use_multiprocessing=True",
    "now": "workers=1",
    "options": ["jit_compile=True", "steps_per_execution=10"],
    "few": "",
    "again": 'nbprof.load("logs/run") opens it',
    "workers": 2,
    "loader": SimpleNamespace(workers=1),
    "elements": 1000,
    "fewer": 100,
}
"""What a check fills into its code, by the names of the fields."""


class NoExampleError(LookupError):
    """Code has a field without an example to fill it with."""


@cache
def everything() -> list[Snippet]:
    """All snippets, without doubles."""
    found = [*advised(), *boxed(), *mentioned(), *documented()]
    return list({snippet.text: snippet for snippet in reversed(found)}.values())[::-1]


def advised() -> Iterator[Snippet]:
    """The code of the rules: the lines of a diff after the change."""
    for place, text in [*_texts(PACKAGE / "analysis" / "advice"), *_texts(PACKAGE / "frameworks")]:
        if (lines := _after(text)) is not None:
            yield Snippet(place, lines.replace(".{} =", ".private_threadpool_size ="))


def boxed() -> Iterator[Snippet]:
    """The code of boxes in the views: values under the key `code`, and what frameworks have for
    them.
    """
    for path in [
        *sorted((PACKAGE / "tools").rglob("*.py")),
        *sorted((PACKAGE / "frameworks").rglob("*.py")),
    ]:
        module = _module(path)
        for node in ast.walk(ast.parse(path.read_text())):
            for value in _values_of_code(node):
                for text in _constants(value, module):
                    # Without brackets or a magic it is a sentence, or the name of a column.
                    if re.search(r"[(%]", text):
                        yield Snippet(_place(path, value), text)


_LOOP = re.compile(r"\bfor \w+ in nbprof\.steps\(\w+\)")
_CALL = re.compile(r"\bnbprof\.([a-z_]+)\(")


def mentioned() -> Iterator[Snippet]:
    """Loops that sentences of the product and the page name: `for batch in
    nbprof.steps(batches):`.
    """
    for place, text in [*_texts(PACKAGE, _LOOP), *_page_texts()]:
        if _after(text) is None:
            for match in _LOOP.finditer(text):
                yield Snippet(place, match[0])


def calls() -> Iterator[Snippet]:
    """Calls of nbprof that sentences of the product and the page name: `nbprof.load(..., run=...)`.
    `…` is `...`.
    """
    for place, text in [*_texts(PACKAGE, _CALL), *_page_texts()]:
        for match in _CALL.finditer(text):
            if (end := _closing(text, match.end() - 1)) is not None:
                yield Snippet(place, text[match.start() : end + 1].replace("…", "..."))


def documented() -> Iterator[Snippet]:
    """The Python code between fences of README.md and docs/."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for match in re.finditer(
            r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE
        ):
            if match[1] in ("", "python"):
                yield Snippet(path.name, match[2])


def _after(text: str) -> str | None:
    """The lines of a diff after the change; None if the text is no diff that adds code."""
    lines = text.splitlines()
    if not any(re.match(r"\+\s*[^\s\d+]", line) for line in lines) or any(
        line[:1] not in "+- " for line in lines
    ):
        return None
    return textwrap.dedent("\n".join(line[1:] for line in lines if line[:1] in "+ "))


def _texts(folder: Path, pattern: re.Pattern[str] = re.compile("")) -> Iterator[tuple[str, str]]:
    """The strings of the modules in a folder that contain a pattern, with examples in their fields,
    and their places.
    """
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text()
        if not pattern.search(source):
            continue
        tree = ast.parse(source)
        inner = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        inner |= {id(node.body[0].value) for node in ast.walk(tree) if _has_docstring(node)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in inner
            ):
                yield _place(path, node), node.value
            elif (
                isinstance(node, ast.JoinedStr)
                and id(node) not in inner
                and (text := _filled(node, path))
            ):
                yield _place(path, node), text


def _has_docstring(node: ast.AST) -> bool:
    body = getattr(node, "body", None)
    if not isinstance(body, list) or not body or not isinstance(body[0], ast.Expr):
        return False
    return isinstance(body[0].value, ast.Constant)


def _page_texts() -> Iterator[tuple[str, str]]:
    """The strings of the page and the extension."""
    for path in sorted((ROOT / "js").rglob("*.ts")):
        if "tests" not in path.parts:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if not line.lstrip().startswith(("//", "*", "/*")):
                    yield f"{path.relative_to(ROOT)}:{number}", line


def _filled(node: ast.JoinedStr, path: Path) -> str:
    """An f-string with examples in its fields; "" if none of its code is for pasting."""
    plain = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    if path.parent.name != "advice" or not re.search(r"^\+\s*[^\s\d+]", plain, re.MULTILINE):
        return plain
    # A constant of the module may lead with its own lines.
    names = {**EXAMPLES, **vars(_module(path))}
    try:
        return str(
            eval(compile(ast.fix_missing_locations(ast.Expression(node)), str(path), "eval"), names)
        )
    except NameError as error:
        raise NoExampleError(
            f"{_place(path, node)}: {error.name} has no example in tests/support/snippets.py"
        ) from None


def _values_of_code(node: ast.AST) -> Iterator[ast.expr]:
    """What a node states as `code`, a key, an argument or a constant; of a framework the code of a
    `Hint`, and that lists GPUs.
    """
    if isinstance(node, ast.Dict):
        yield from (
            value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "code"
        )
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Hint", "Words")
    ):
        yield from node.args[2:]
        yield from (each.value for each in node.keywords if each.arg == "list_gpus")
    elif isinstance(node, ast.Assign) and any(
        isinstance(name, ast.Name) and name.id.startswith("CODE") for name in node.targets
    ):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Empty":
        yield from (each.value for each in node.keywords if each.arg == "code")


def _constants(value: ast.expr, module: ModuleType) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name) and isinstance(held := getattr(module, node.id, None), str):
            yield held


def _closing(text: str, start: int) -> int | None:
    """Where the bracket at `start` is closed."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if not depth:
            return index
    return None


@cache
def _module(path: Path) -> ModuleType:
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def without(parts: Iterable[str], text: str) -> str:
    """A snippet without the lines that contain one of these parts."""
    return "\n".join(line for line in text.splitlines() if not any(part in line for part in parts))


def complete(text: str) -> str:
    """A snippet as it is run: with a body, if it ends with a cell magic or the head of a block."""
    lines = text.rstrip().splitlines()
    if len(lines) == 1 and lines[0].startswith("%%"):
        return f"{text}\npass"
    head = re.sub(r"\s+#\s.*$", "", lines[-1]) if lines else ""
    if lines and re.match(r"\s*(?:async )?for .*\)$", head):
        lines[-1] = head = f"{head}:"
    if not head.endswith(":"):
        return text
    indent = " " * (len(lines[-1]) - len(lines[-1].lstrip()) + 4)
    return "\n".join([*lines, f"{indent}..."])


def failures(kind: str) -> Iterator[dict[str, str]]:
    """Run the snippets of a kind; those that fail, with their error."""
    from IPython.core.interactiveshell import InteractiveShell

    from tests.support.stand_ins import REMOTE, SKIPPED, names

    for snippet in everything():
        text = without(REMOTE, snippet.text)
        if snippet.kind != kind or not text.strip() or any(part in text for part in SKIPPED):
            continue
        shell = InteractiveShell()
        shell.run_cell("%load_ext nbprof")
        shell.push(names(kind, text))
        shell.showtraceback = shell.showsyntaxerror = lambda *_, **__: None
        # The port that a page names may be in use on this machine.
        code = complete(text).replace("nbprof.serve(6009)", "nbprof.serve(0)")
        result = shell.run_cell(code, store_history=True)
        shell.run_cell("%unload_ext nbprof")
        # As the process ends, each shell would collect all garbage: minutes on a busy machine.
        atexit.unregister(shell.atexit_operations)
        if not result.success:
            error = result.error_before_exec or result.error_in_exec
            yield {
                "place": snippet.place,
                "text": snippet.text,
                "error": f"{type(error).__name__}: {error}",
            }


def main(kind: str) -> None:
    """Print the snippets of a kind that fail."""
    for failure in failures(kind):
        print(json.dumps(failure), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
