"""The sentences of the notes of formats are those of `notes.txt`.

After a change of wording: `python -m tests.formats.test_notes`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from nbprof.formats import notes as shared
from nbprof.formats.msprof import notes as msprof
from nbprof.formats.nsys import notes as nsys
from nbprof.formats.perfetto import notes as perfetto
from nbprof.formats.rocprof import notes as rocprof
from nbprof.formats.torch_snapshot import notes as torch_snapshot

GOLDEN = Path(__file__).with_name("notes.txt")
MODULES = (shared, msprof, nsys, perfetto, rocprof, torch_snapshot)
SAMPLES = {
    "int": 1234,
    "Sequence[str]": ["a", "b"],
    "Mapping[str, int]": {"a": 1, "b": 2345},
    "Loss": perfetto.LOSSES[0],
}


def sample(parameter: inspect.Parameter) -> object:
    return SAMPLES.get(str(parameter.annotation), f"<{parameter.name}>")


def sentences(module: ModuleType) -> Iterator[str]:
    yield f"# {module.__name__}"
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, str):
            yield f"{name}: {value}"
        elif inspect.isfunction(value) and value.__module__ == module.__name__:
            signature = inspect.signature(value)
            if signature.return_annotation == "Note":
                note = value(*map(sample, signature.parameters.values()))
                yield f"{note.key} ({note.level}): {note.text}"
    for loss in getattr(module, "LOSSES", ()):
        yield f"{loss.key}: {loss.text}"
    yield ""


def everything() -> str:
    return "\n".join(line for module in MODULES for line in sentences(module))


def test_sentences_are_as_agreed() -> None:
    assert everything() == GOLDEN.read_text("utf-8")


def test_keys_are_two_to_four_words() -> None:
    keys = re.findall(r"^(\w+) \(", everything(), re.MULTILINE)
    keys += [loss.key for loss in perfetto.LOSSES]
    assert len(keys) > 50
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+){1,3}", key) for key in keys)


if __name__ == "__main__":
    GOLDEN.write_text(everything(), "utf-8")
